"""headrace from Python, and the examples of its documentation."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

import headrace
from headrace.errors import ConfigError, UserError
from headrace.events import PartGrew, TurnClosed
from headrace.testing.modelserver import ModelServer, Reply, Say, Script, Think, scenario
from tests.commands import environment, write_config

DOCS = Path(__file__).parent.parent / "docs"
EXAMPLES = re.findall(r"```python\n(.*?)```", (DOCS / "library.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
async def test_the_examples_of_the_documentation_run(tmp_path: Path, number: int) -> None:
    async with ModelServer(
        default=scenario("tools" if "ToolSpec" in EXAMPLES[number] else "hello")
    ) as server:
        write_config(tmp_path, server.url)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-W",
            "error",
            "-c",
            EXAMPLES[number],
            stdout=-1,
            stderr=-1,
            env=environment(tmp_path),
        )
        out, err = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0, err.decode()
        assert err == b""
        assert out.strip()
        assert server.requests


async def test_an_answer_has_everything(tmp_path: Path) -> None:
    reply = Reply((Think("Hm."), Say("Paris.")))
    async with ModelServer(default=Script(reply)) as server:
        write_config(tmp_path, server.url)
        async with headrace.open(env=environment(tmp_path)) as agent:
            answer = await agent.ask("?")
    assert (answer.text, answer.reasoning, answer.outcome, answer.model) == (
        "Paris.",
        "Hm.",
        "stop",
        "lab:model-1",
    )
    assert answer.usage.output_tokens == 34
    assert answer.tool_calls == ()


async def test_ask_blocks_and_answers(tmp_path: Path) -> None:
    async with ModelServer() as server:
        write_config(tmp_path, server.url)
        answer = await asyncio.to_thread(headrace.ask, "?", env=environment(tmp_path))
    assert answer.text == "Hello from the scripted model."


async def test_ask_within_an_event_loop_says_what_to_write_instead(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"as in a notebook\. Write: async with headrace\.open\(\)"):
        headrace.ask("?", env=environment(tmp_path))


async def test_a_failed_turn_does_not_raise(tmp_path: Path) -> None:
    async with ModelServer(default=scenario("status:401")) as server:
        write_config(tmp_path, server.url)
        async with headrace.open(env=environment(tmp_path)) as agent:
            answer = await agent.ask("?")
    assert (answer.outcome, answer.cause.code, answer.text) == ("error", "key_rejected", "")


async def test_a_wrong_configuration_raises(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("modle: x")
    with pytest.raises(ConfigError, match="model"):
        headrace.open(env=environment(tmp_path))


async def test_leaving_stops_what_is_running(tmp_path: Path) -> None:
    async with ModelServer(default=scenario("stall-mid-text")) as server:
        write_config(tmp_path, server.url)
        async with headrace.open(env=environment(tmp_path)) as agent:
            turn = agent.start("?")
            await server.wait_requests(1)
        await asyncio.wait_for(server.wait_disconnected(1), 5)
    assert turn.log.closed is not None
    assert turn.log.closed.cause.code == "shutdown"


async def test_late_followers_see_all_of_it(tmp_path: Path) -> None:
    async with ModelServer() as server:
        write_config(tmp_path, server.url)
        async with headrace.open(env=environment(tmp_path)) as agent:
            turn = agent.start("?")
            await turn.wait()
            seen = [recorded async for recorded in agent.follow(turn)]
            rest = [recorded async for recorded in agent.follow(turn, after=seen[4].seq)]
    assert isinstance(seen[-1].event, TurnClosed)
    assert rest == seen[5:]
    assert (
        "".join(r.event.text for r in seen if isinstance(r.event, PartGrew))
        == "Hello from the scripted model."
    )


async def test_followers_that_raise_or_leave_do_not_harm_the_turn(tmp_path: Path) -> None:
    async with ModelServer(default=Script(Reply((Say("word " * 200),)), pace_s=0.002)) as server:
        write_config(tmp_path, server.url)
        async with headrace.open(env=environment(tmp_path)) as agent:
            turn = agent.start("?")

            async def raises() -> None:
                async for recorded in agent.follow(turn):
                    assert not isinstance(recorded.event, PartGrew), "mine"

            async def leaves() -> None:
                async for recorded in agent.follow(turn):
                    if isinstance(recorded.event, PartGrew):
                        return

            async def stays() -> int:
                return len([recorded async for recorded in agent.follow(turn)])

            cancelled = asyncio.create_task(stays())
            staying = asyncio.create_task(stays())
            ends = await asyncio.gather(raises(), leaves(), return_exceptions=True)
            cancelled.cancel()
            answer = await agent.answer(turn)
            assert [type(end) for end in ends] == [AssertionError, type(None)]
            assert (answer.text, answer.outcome) == ("word " * 200, "stop")
            assert await staying == len(turn.log.since(0))
    assert len(server.requests) == 1


async def test_a_session_is_remembered(tmp_path: Path) -> None:
    async with ModelServer() as server:
        write_config(tmp_path, server.url)
        for _ in range(2):
            async with headrace.open(env=environment(tmp_path)) as agent:
                trip = agent.session("trip")
                await agent.ask("again?", session=trip)
        assert [len(r.body["messages"]) for r in server.requests] == [1, 3]
