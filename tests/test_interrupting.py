"""Ctrl-C in a terminal, from every state a turn can be in: a usable prompt, a truthful log, and nothing left running."""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.events import (
    ApprovalAsked,
    ApprovalGiven,
    Event,
    ReplyEnded,
    ToolFinished,
    ToolStarted,
    TurnClosed,
)
from headrace.stores.sqlite import SessionStore
from headrace.testing.modelserver import CallTool, ModelServer, Reply, Say, Script, scenario
from tests.commands import Terminal, write_config
from tests.rawserver import full_backlog
from tests.test_embedded import WEIGHTS, alive, linux, until

ASKED = "Allow it? [y/N]"
STOPPED = "cancelled: You stopped the turn."


def kept(home: Path) -> list[Event]:
    with contextlib.closing(SessionStore(home)) as store:
        return [recorded.event for recorded in store.read("s")]


def ends(events: list[Event]) -> list[str]:
    return [event.cause.code for event in events if isinstance(event, TurnClosed)]


async def interrupted(terminal: Terminal) -> None:
    """Press Ctrl-C once; the turn ends, says so once on a line of its own, and the prompt is there."""
    before = terminal.seen.count("> ")
    terminal.type("\x03")
    await terminal.until(STOPPED)
    await terminal.until("> ", before + 1)
    assert terminal.seen.count(STOPPED) == 1
    assert "Traceback" not in terminal.seen
    assert re.search(rf"(\n|\r\x1b\[K)· {STOPPED}\r\n", terminal.seen)


async def leaves(terminal: Terminal) -> None:
    terminal.type("\x04")
    assert await terminal.left() == 0


async def test_while_connecting(tmp_path: Path) -> None:
    with full_backlog() as port:
        write_config(tmp_path, f"http://127.0.0.1:{port}")
        async with Terminal(tmp_path, "chat", "--session", "s") as terminal:
            await terminal.until("> ")
            terminal.type("Hello?\n")
            await terminal.until("⠙")
            await interrupted(terminal)
            await leaves(terminal)
    assert ends(kept(tmp_path)) == ["stopped"]


@pytest.mark.parametrize("delay_s", [0.0, 0.002, 0.005, 0.01, 0.02, 0.1])
async def test_before_the_turn_has_taken_its_first_step(tmp_path: Path, delay_s: float) -> None:
    async with ModelServer(default=scenario("hang")) as server:
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat", "--session", "s") as terminal:
            await terminal.until("> ")
            terminal.type("Hello?\n")
            await terminal.until("Hello?\r\n")
            await asyncio.sleep(delay_s)
            terminal.type("\x03")
            await terminal.until("> ", 2)
            server.default = Script()
            terminal.type("Hello again.\n")
            await terminal.until("Hello from the scripted model.")
            await terminal.until("> ", 3)
            await leaves(terminal)
    # Where it came before the turn, there is none.
    assert ends(kept(tmp_path)) in (["answered"], ["stopped", "answered"])


async def test_while_a_tool_is_asked_about(tmp_path: Path) -> None:
    script = Script(Reply((Say("Let me."), CallTool("terminal", {"command": "touch done"}))))
    async with ModelServer(default=script) as server:
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat", "--session", "s") as terminal:
            await terminal.until("> ")
            terminal.type("Do it.\n")
            await terminal.until(ASKED)
            await interrupted(terminal)
            server.default = Script()
            terminal.type("And now?\n")
            await terminal.until("> ", 3)
            await leaves(terminal)
        _, second = server.requests
        assert [m["role"] for m in second.body["messages"] if m["role"] != "system"] == [
            "user",
            "assistant",
            "tool",
            "user",
        ]
    assert not (tmp_path / "done").exists()
    events = kept(tmp_path)
    assert ends(events) == ["stopped", "answered"]
    verdicts = [event.verdict for event in events if isinstance(event, ApprovalGiven)]
    assert len([event for event in events if isinstance(event, ApprovalAsked)]) == 1
    assert verdicts == ["withdrawn"]
    assert not any(isinstance(event, ToolStarted | ToolFinished) for event in events)


async def test_while_a_tool_runs(tmp_path: Path) -> None:
    script = Script(Reply((CallTool("terminal", {"command": "echo $$ > pid; sleep 600"}),)))
    async with ModelServer(default=script) as server:
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat", "--yes", "--session", "s") as terminal:
            await terminal.until("> ")
            terminal.type("Do it.\n")
            await until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text().strip()))
            pid = int((tmp_path / "pid").read_text())
            await interrupted(terminal)
            assert not alive(pid)
            await leaves(terminal)
    events = kept(tmp_path)
    assert ends(events) == ["stopped"]
    assert [e.status for e in events if isinstance(e, ToolFinished)] == ["cancelled"]


# --- the embedded model


@contextlib.asynccontextmanager
async def slow_hub() -> AsyncIterator[str]:
    """A hub that begins to send the default model's weights, and goes on with a few bytes at a time."""

    answering: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        answering.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 491400064\r\n\r\nGGUF")
            while not writer.is_closing():
                writer.write(bytes(1000))
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*answering)


async def test_while_weights_are_fetched(tmp_path: Path) -> None:
    async with (
        slow_hub() as url,
        Terminal(tmp_path, "chat", "--session", "s", extra={"HF_ENDPOINT": url}) as terminal,
    ):
        await terminal.until("> ")
        terminal.type("Hello?\n")
        await terminal.until("of 491 MB")
        assert "Fetching the embedded model (491 MB) from 127.0.0.1." in terminal.seen
        await interrupted(terminal)
        terminal.type("Again?\n")
        await terminal.until("Fetching the embedded model", 2)
        terminal.type("\x03")
        await terminal.until("> ", 3)
        assert terminal.seen.count(STOPPED) == 2
        await leaves(terminal)
    events = kept(tmp_path)
    assert ends(events) == ["stopped", "stopped"]
    assert not any(isinstance(event, ReplyEnded) for event in events)
    assert not list((tmp_path / "models").glob("*.gguf"))


async def test_a_bar_stays_on_one_line_of_a_narrow_terminal(tmp_path: Path) -> None:
    async with (
        slow_hub() as url,
        Terminal(tmp_path, "chat", "Hello?", extra={"HF_ENDPOINT": url, "COLUMNS": "40"}) as terminal,
    ):
        await terminal.until("░")
        await terminal.until("\x1b[K", terminal.seen.count("\x1b[K") + 2)
        drawn = [line for line in re.split(r"[\r\n]|\x1b\[K", terminal.seen) if "░" in line]
        assert drawn
        assert max(map(len, drawn)) < 40
        terminal.type("\x03")
        assert await terminal.left() == 130


@linux
@pytest.mark.skipif(not WEIGHTS.is_file(), reason="no tiny weights in the folder HEADRACE_TEST_MODELS names")
async def test_while_the_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / WEIGHTS.name).symlink_to(WEIGHTS.absolute())
    async with Terminal(tmp_path, "chat", "--model", "local:tiny", "--session", "s") as terminal:
        await terminal.until("> ")
        terminal.type("Hello?\n")
        await until(lambda: bool(_children(terminal.process.pid)))
        (child,) = _children(terminal.process.pid)
        await until(lambda: os.getpgid(child) == child)  # before, Ctrl-C means it too, and another follows
        await interrupted(terminal)
        assert alive(child)  # the next question finds it loaded
        terminal.type("Say hello.\n")
        await terminal.until("> ", 3)
        assert _children(terminal.process.pid) == [child]
        await leaves(terminal)
        assert not alive(child)
    assert ends(kept(tmp_path))[0] == "stopped"
    assert ends(kept(tmp_path))[1] in ("answered", "output_truncated")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
