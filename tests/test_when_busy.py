"""What is typed while an answer streams: it interrupts, waits, or is handed to the running turn, as configured."""

from pathlib import Path

import pytest

from headrace.testing.modelserver import CallTool, ModelServer, RecordedRequest, Reply, Say, Script
from tests.commands import Terminal, write_config


def model(request: RecordedRequest) -> Script:
    said = str(request.body["messages"][-1]["content"])
    if "second" in said:
        return Script(Reply((Say("The answer to both."),)))
    if "wait" in said:
        return Script(Reply((Say("I go. "), CallTool("terminal", {"command": "touch begun; sleep 1.5"}))))
    if request.body["messages"][-1]["role"] == "tool":
        return Script(Reply((Say("Unsteered."),)))
    return Script(Reply((Say(tuple(f"{n} " for n in range(60))),)), pace_s=0.02)


def messages(server: ModelServer, number: int) -> list[str]:
    return [f"{m['role']}: {m['content']}" for m in server.requests[number].body["messages"]]


async def converse(tmp_path: Path, server: ModelServer, manner: str | None, first: str, shown: str) -> str:
    write_config(tmp_path, server.url)
    if manner is not None:
        with (tmp_path / "config.yaml").open("a") as file:
            file.write(f"sessions: {{when_busy: {{people: {manner}}}}}\n")
    async with Terminal(tmp_path, "chat", "--yes", "--session", "s") as terminal:
        await terminal.until("> ")
        terminal.type(f"{first}\n")
        await terminal.until(shown)
        terminal.type("the second\n")
        await terminal.until("The answer to both.")
        await terminal.until("> ", 2)
        terminal.type("\x04")
        assert await terminal.left() == 0
        return terminal.seen


async def test_unless_configured_it_interrupts_and_what_was_shown_stays(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.respond = model
        seen = await converse(tmp_path, server, None, "count", "5 6 7")
        assert "A new message came, and the turn was stopped for it." in seen
        assert "59" not in seen
        told = messages(server, 1)
        assert any("count" in text for text in told)
        assert any("5 6 7" in text for text in told)
        assert "the second" in told[-1]


async def test_it_can_wait(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.respond = model
        seen = await converse(tmp_path, server, "queue", "count", "5 6 7")
        assert seen.index("58 59") < seen.index("The answer to both.")
        assert len(server.requests) == 2


async def test_it_can_steer(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.respond = model
        seen = await converse(tmp_path, server, "steer", "wait", "sleep 1.5")
        assert "Unsteered." not in seen
        assert len(server.requests) == 2
        assert "the second" in messages(server, 1)[-1]


async def test_what_comes_too_late_to_steer_is_answered_next_and_seen(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.respond = model
        seen = await converse(tmp_path, server, "steer", "count", "5 6 7")
        assert seen.index("58 59") < seen.index("The answer to both.")
        assert len(server.requests) == 2


@pytest.mark.parametrize("typed", ["\n", "  \n"])
async def test_an_empty_line_is_no_message(tmp_path: Path, typed: str) -> None:
    async with ModelServer() as server:
        server.respond = model
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat") as terminal:
            await terminal.until("> ")
            terminal.type("count\n")
            await terminal.until("5 6 7")
            terminal.type(typed)
            await terminal.until("58 59")
            await terminal.until("> ", 2)
        assert len(server.requests) == 1


async def test_the_end_of_input_while_it_answers_leaves_after_the_answer(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.respond = model
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat") as terminal:
            await terminal.until("> ")
            terminal.type("count\n")
            await terminal.until("5 6 7")
            terminal.type("\x04")
            assert await terminal.left() == 0
            assert "58 59" in terminal.seen
