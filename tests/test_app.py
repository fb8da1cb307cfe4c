"""Everything wired: many sessions side by side, a past that is too long, what is kept and for how long."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headrace.app import App
from headrace.events import HistoryCompacted, NoticeShown, ToolFinished, user_message
from headrace.runtime.question import Acting
from headrace.runtime.turn import Turn
from headrace.testing.modelserver import CallTool, ModelServer, RecordedRequest, Reply, Say, Script, scenario
from tests.commands import environment
from tests.turns import closed, events

MANY = 100


@asynccontextmanager
async def app(home: Path, config: str, **extra: str) -> AsyncIterator[App]:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(config)
    made = App.from_env(environment(home, extra))
    try:
        yield made
    finally:
        await made.close()


def lab(server: ModelServer, more: str = "") -> str:
    return (
        "model: lab:m\n"
        f"providers: {{lab: {{base_url: '{server.url}/v1', auth: none}}}}\n"
        f"streaming: {{retries: 0}}\n{more}"
    )


async def ended(turn: Turn) -> Turn:
    await asyncio.wait_for(turn.wait(), 30)
    return turn


def contents(request: RecordedRequest) -> list[Any]:
    return [message["content"] for message in request.body["messages"]]


# --- nobody sees another's


def reads_then_tells(request: RecordedRequest) -> Script:
    """Reads the file of the working folder, and answers with all it knows."""
    said = contents(request)
    if not any(message["role"] == "tool" for message in request.body["messages"]):
        return Script(Reply((CallTool("read_file", {"path": "canary.txt"}),)), pace_s=0.001)
    return Script(Reply((Say(json.dumps(said)),)), pace_s=0.001)


async def test_a_hundred_turns_at_once_see_nothing_of_each_other(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.respond = reads_then_tells
        providers = "\n".join(
            f"  p{n}: {{base_url: '{server.url}/v1', api_key_env: KEY_{n}}}" for n in range(MANY)
        )
        keys = {f"KEY_{n}": f"key-canary-{n}x" for n in range(MANY)}
        async with app(tmp_path / "home", f"providers:\n{providers}\n", **keys) as made:
            turns = []
            for n in range(MANY):
                folder = tmp_path / f"folder-canary-{n}x"
                folder.mkdir()
                (folder / "canary.txt").write_text(f"file-canary-{n}x")
                acting = Acting(folder=folder)
                question = [user_message(f"text-canary-{n}x")]
                session = made.session(f"session-canary-{n}x")
                turns.append(made.start(question, f"p{n}:m", session, acting=acting))
            await asyncio.gather(*map(ended, turns))
    for n, turn in enumerate(turns):
        assert closed(turn).outcome == "stop"
        written = json.dumps([str(event) for event in events(turn)])
        assert f"file-canary-{n}x" in turn.folded().answer_text()
        assert set(re.findall(r"canary-(\d+)x", written)) == {str(n)}
        assert "key-canary" not in written
    assert len(server.requests) == 2 * MANY
    for request in server.requests:
        seen = json.dumps([request.body, request.headers.get("authorization")])
        assert len(set(re.findall(r"canary-(\d+)x", seen))) == 1


async def test_a_background_command_is_known_to_its_session_alone(tmp_path: Path) -> None:
    async with ModelServer() as server:
        config = lab(server, "tools: {modes: {terminal: allow}}\n")
        async with app(tmp_path / "home", config) as made:
            acting = Acting(folder=tmp_path)
            server.enqueue(
                Script(Reply((CallTool("terminal", {"command": "sleep 600", "background": True}),)))
            )
            await ended(made.start([user_message("Go.")], session=made.session("a"), acting=acting))
            for name in ("b", "a"):
                server.enqueue(Script(Reply((CallTool("terminal_read", {"id": "bg-1"}),))))
                turn = await ended(made.start([user_message("?")], session=made.session(name), acting=acting))
                (read,) = (e for e in events(turn) if isinstance(e, ToolFinished))
                assert ("There is no background command" in read.result) == (name == "b"), read


async def test_a_turn_of_no_session_leaves_nothing_running(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        app(tmp_path / "home", lab(server, "tools: {modes: {terminal: allow}}\n")) as made,
    ):
        command = "echo $$ > pid; exec sleep 600"
        server.enqueue(Script(Reply((CallTool("terminal", {"command": command, "background": True}),))))
        turn = await ended(made.start([user_message("Go.")], acting=Acting(folder=tmp_path)))
        pid = (tmp_path / "pid").read_text().strip()
        assert closed(turn).outcome == "stop"
        await asyncio.gather(*made._beside)
        assert not Path(f"/proc/{pid}").exists()


# --- a past that is too long

SMALL = "models: {'lab:m': {context_tokens: 400}}\n"
"""1,200 characters, 450 of which are for the past."""


def talks(request: RecordedRequest) -> Script:
    said = contents(request)
    if "minutes" in str(said[0]):
        return Script(Reply((Say("SUMMARY: they counted."),)))
    return Script(Reply((Say(f"Answer {len(server_replies(said))}. {'blah ' * 20}"),)))


def server_replies(said: Sequence[Any]) -> list[Any]:
    return [text for text in said if "Answer" in str(text)]


async def test_a_past_that_does_not_fit_is_summarised_and_remembered(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with ModelServer() as server:
        server.respond = talks
        async with app(home, lab(server, SMALL)) as made:
            session = made.session("long")
            turns = [
                await ended(made.start([user_message(f"Question {n}?")], session=session)) for n in range(6)
            ]
            compacted = [e for turn in turns for e in events(turn) if isinstance(e, HistoryCompacted)]
            assert compacted
            assert {e.summary for e in compacted} == {"SUMMARY: they counted."}
            # A summary is no answer, and is paid for.
            assert all("SUMMARY" not in turn.folded().answer_text() for turn in turns)
            assert any(turn.folded().usage("summary").output_tokens for turn in turns)
            last = str(contents(server.requests[-1]))
            assert "SUMMARY: they counted." in last
            assert "Question 5?" in last
            assert "Question 0?" not in last
        async with app(home, lab(server, SMALL)) as made:
            turn = await ended(made.start([user_message("And now?")], session=made.session("long")))
            assert closed(turn).outcome == "stop"
            again = str(contents(server.requests[-1]))
            assert "SUMMARY: they counted." in again
            assert "Question 5?" in again
            assert all(len(turn) for turn in made.store().turns("long"))  # the log keeps everything
            assert sum(1 for _ in made.store().turns("long")) == 7


async def test_a_summary_that_fails_is_said_and_the_answer_comes(tmp_path: Path) -> None:
    def refuses(request: RecordedRequest) -> Script:
        return scenario("status:400") if "minutes" in str(contents(request)[0]) else talks(request)

    async with ModelServer() as server:
        server.respond = refuses
        async with app(tmp_path / "home", lab(server, SMALL)) as made:
            session = made.session()
            turns = [await ended(made.start([user_message(f"{n}?")], session=session)) for n in range(8)]
    assert [closed(turn).outcome for turn in turns] == ["stop"] * 8
    notices = [e.code for turn in turns for e in events(turn) if isinstance(e, NoticeShown)]
    assert "not_compacted" in notices


# --- how long it is kept


async def test_sessions_go_by_age(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with ModelServer() as server:
        async with app(home, lab(server)) as made:
            await ended(made.start([user_message("Hi")], session=made.session("old")))
        async with app(home, lab(server, "sessions: {max_age_days: 1.0e-12}\n")) as made:
            await ended(made.start([user_message("Hi")], session=made.session("new")))
        async with app(home, lab(server)) as made:
            assert "old" not in [s.name for s in made.store().sessions()]


async def test_by_default_nothing_is_deleted(tmp_path: Path) -> None:
    async with ModelServer() as server, app(tmp_path / "home", lab(server)) as made:
        await ended(made.start([user_message("Hi")], session=made.session("kept")))
        await made.tidy()
        assert [s.name for s in made.store().sessions()] == ["kept"]
