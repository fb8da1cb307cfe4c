"""The command as a person meets it."""

import argparse
import asyncio
import contextlib
import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import __version__, cli, events
from headrace.events import Recorded
from headrace.stores.sqlite import SessionStore
from headrace.testing.modelserver import (
    CallTool,
    Close,
    ModelServer,
    Reply,
    Say,
    Script,
    Status,
    Think,
    scenario,
)
from headrace.turn.log import Log
from tests.commands import COMMAND, Terminal, environment, run, write_config


def kept(home: Path, session: str) -> list[Recorded]:
    with contextlib.closing(SessionStore(home)) as store:
        return store.read(session)


SLOW = Script(Reply((Say("One two three four five six seven eight nine ten. " * 20),)), pace_s=0.02)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("hello", 0),
        ("status:400", 1),
        ("close-mid-text", 3),
        ("length", 4),
        ("content-filter", 6),
        ("refusal", 7),
    ],
)
async def test_the_exit_status_says_how_the_turn_ended(tmp_path: Path, fault: str, status: int) -> None:
    async with ModelServer(default=scenario(fault)) as server:
        write_config(tmp_path, server.url)
        ran = await run(tmp_path, "chat", "Hello?")
    assert ran.status == status, ran
    if status:
        assert ran.err


async def test_the_answer_goes_to_standard_output_and_nothing_else_does(tmp_path: Path) -> None:
    reply = Reply((Think("Secret thoughts."), Say("\n\nThe answer.")))
    async with ModelServer(default=Script(reply)) as server:
        write_config(tmp_path, server.url)
        ran = await run(tmp_path, "ask", "Hello?")
        thoughtful = await run(tmp_path, "ask", "--thoughts", "Hello?")
    assert (ran.status, ran.out, ran.err) == (0, "The answer.\n", "")
    assert (thoughtful.out, thoughtful.err) == ("The answer.\n", "Secret thoughts.\n")


async def test_a_cut_answer_keeps_its_text_and_says_so_beside_it(tmp_path: Path) -> None:
    reply = Reply((Say(("Half an ", "answer")),))
    async with ModelServer(default=Script(reply, Close("mid_text", deltas=1))) as server:
        write_config(tmp_path, server.url)
        ran = await run(tmp_path, "chat", "Hello?")
    assert ran.status == 3
    assert ran.out.startswith("Half an ")
    assert "cut: lab: The connection was lost before the answer had ended." in ran.err
    assert "headrace doctor lab:model-1" in ran.err


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404])
async def test_a_refusal_says_where_to_look_next(tmp_path: Path, status: int) -> None:
    async with ModelServer(default=Script(fault=Status(status))) as server:
        write_config(tmp_path, server.url)
        ran = await run(tmp_path, "ask", "Hello?")
    assert ran.status == 1
    assert "headrace doctor lab:model-1" in ran.err


EVIL = "\x1b]0;owned\x07\x1b[2Jred\x9b31m\rover\u202e\x00tab\there\nline"


def _obeyed(text: str) -> set[str]:
    """What of it a terminal would obey."""
    return {c for c in text if not c.isprintable()} - {"\n", "\t"}


async def test_a_model_cannot_control_the_terminal(tmp_path: Path) -> None:
    async with ModelServer(default=Script(Reply((Think(EVIL), Say((EVIL,)))))) as server:
        write_config(tmp_path, server.url)
        ran = await run(tmp_path, "chat", "--thoughts", "--session", "s", "Hello?")
        assert not _obeyed(ran.out + ran.err)
        assert "tab\there\nline" in ran.out
        for arguments in (
            ("ask", "--json", EVIL.replace("\x00", "")),
            ("sessions", "show", "s"),
            ("sessions", "export", "s"),
            ("sessions", "export", "s", "--format", "markdown"),
            ("sessions", "search", "line"),
            ("sessions", "list", "--json"),
        ):
            ran = await run(tmp_path, *arguments)
            assert ran.status == 0
            assert ran.out
            assert not _obeyed(ran.out + ran.err), arguments
        exported = await run(tmp_path, "sessions", "export", "s")
        said = [json.loads(line)["event"].get("text") for line in exported.out.splitlines()]
        assert EVIL in said  # it means the same


async def test_neither_can_errors_nor_lists_nor_tools_nor_names_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    name = EVIL.replace("/", "").replace("\x00", "")
    (folder / name).write_text(f"TODO {EVIL}")
    reply = Reply(
        (
            CallTool("search_files", {"pattern": "TODO"}),
            CallTool("read_file", {"path": name}),
            CallTool("write_file", {"path": f"{name}2", "content": EVIL}),
            CallTool("terminal", {"command": f"printf '{name}'; ls"}),
            CallTool(f"no{EVIL}", {"a": EVIL}),
        )
    )
    async with ModelServer() as server:
        write_config(tmp_path, server.url)
        server.respond = lambda request: (
            Script() if request.body["messages"][-1]["role"] == "tool" else Script(reply)
        )
        ran = await run(tmp_path, "chat", "--yes", "Do it.", folder=folder)
        assert "search_files" in ran.err
        assert not _obeyed(ran.out + ran.err)
        async with Terminal(tmp_path, "chat", "Do it.", folder=folder) as terminal:
            await terminal.until("Allow it?")
            terminal.type("n\n")
            await terminal.until("Allow it?", 2)
        ours = re.sub("\x1b\\[K|\x1b\\[\\?2004[hl]|\r", "", terminal.seen)
        assert not _obeyed(ours)
        server.respond = None
        server.default = Script(fault=Status(400, EVIL))
        for arguments in (
            ("ask", "Hi"),
            ("doctor",),
            ("doctor", "--json"),
            ("ask", "--model", f"lab:{EVIL[:-40]}", "Hi"),
        ):
            ran = await run(tmp_path, *arguments)
            assert ran.status in (1, 2)
            assert not _obeyed(ran.out + ran.err), arguments


async def test_the_question_may_be_piped_in_and_added_to(tmp_path: Path) -> None:
    async with ModelServer() as server:
        write_config(tmp_path, server.url)
        await run(tmp_path, "chat", stdin="from a pipe\n")
        await run(tmp_path, "chat", "Review", "this:", stdin="a diff\n")
        asked = [r.body["messages"][-1]["content"] for r in server.requests]
    assert asked == ["from a pipe\n", "Review this:\n\na diff\n"]


async def test_a_pipe_that_never_ends_is_not_read_to_its_end(tmp_path: Path) -> None:
    async with ModelServer() as server:
        write_config(tmp_path, server.url)
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "chat", stdin=-1, stdout=-1, stderr=-1, env=environment(tmp_path)
        )
        assert process.stdin
        with contextlib.suppress(ConnectionError):
            while True:
                process.stdin.write(b"endless " * 10_000)
                await process.stdin.drain()
        out, err = await process.communicate()
        assert (process.returncode, out) == (2, b"")
        assert b"headrace: what is piped in is longer than 8,388,608 characters" in err
        assert not server.requests


async def test_json_is_the_log_and_can_be_restored(tmp_path: Path) -> None:
    async with ModelServer(default=scenario("reasoning")) as server:
        write_config(tmp_path, server.url)
        ran = await run(tmp_path, "ask", "--json", "Hello?")
    log = Log.restored([events.decode(line) for line in ran.out.splitlines()])
    assert log.closed is not None
    assert log.closed.outcome == "stop"


async def test_no_question_is_said(tmp_path: Path) -> None:
    ran = await run(tmp_path, "ask")
    assert (ran.status, ran.out) == (2, "")
    assert "there is no question" in ran.err


@pytest.mark.parametrize(
    ("config", "arguments", "said"),
    [
        ("modle: local", [], "model"),
        ("model: openai:gpt-5.5", [], "export OPENAI_API_KEY="),
        ("model: openai:gpt-5.5", ["--model", "opnai:gpt-5.5"], "openai:gpt-5.5"),
        ("streaming: {retries: many}", [], "streaming.retries"),
    ],
)
async def test_a_wrong_configuration_is_explained(
    tmp_path: Path, config: str, arguments: list[str], said: str
) -> None:
    (tmp_path / "config.yaml").write_text(config)
    ran = await run(tmp_path, "ask", *arguments, "Hello?")
    assert ran.status in (1, 2)
    assert said in ran.err
    assert "Traceback" not in ran.err


async def test_an_endpoint_that_is_not_there_is_explained(tmp_path: Path) -> None:
    write_config(tmp_path, "http://127.0.0.1:9")
    ran = await run(tmp_path, "ask", "Hello?")
    assert ran.status == 1
    assert "lab: It cannot be reached (Connection refused). Check the network and its base_url." in ran.err


async def test_keys_are_nowhere_but_in_the_request(tmp_path: Path) -> None:
    canary = "sk-canary-0123456789abcdef"
    config = """
model: lab:m
providers: {{lab: {{base_url: "{url}/v1", api_key_env: LAB_KEY, headers: {{X-Extra: "${{LAB_KEY}}"}}}}}}
streaming: {{retries: 1}}
"""
    extra = {"LAB_KEY": canary, "HEADRACE_DUMP_REQUESTS": "1"}
    async with ModelServer() as server:
        (tmp_path / "config.yaml").write_text(config.format(url=server.url))
        for fault in ("hello", "status:401", "status:500", "error-mid-text", "close-mid-text"):
            server.default = scenario(fault)
            ran = await run(tmp_path, "chat", "--session", "s", "--json", "Hello?", extra=extra)
            assert canary not in ran.out + ran.err
        # A provider that repeats the key in its error.
        server.default = Script(fault=Status(401, f"Incorrect API key provided: {canary}."))
        ran = await run(tmp_path, "ask", "Hello?", extra=extra)
        assert "[secret]" in ran.err
        assert canary not in ran.out + ran.err
        assert all(r.headers["authorization"] == f"Bearer {canary}" for r in server.requests)
        # A question that quotes it, which is in no kept session.
        server.default = scenario("hello")
        await run(tmp_path, "ask", f"Is {canary} a good key?", extra=extra)
        assert canary in str(server.requests[-1].body)
    dumps = list((tmp_path / "dumps").iterdir())
    assert any("Is [secret] a good key?" in path.read_text() for path in dumps)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert canary.encode() not in path.read_bytes(), path


async def test_whoever_closes_the_pipe_stops_the_turn(tmp_path: Path) -> None:
    async with ModelServer(default=SLOW) as server:
        write_config(tmp_path, server.url)
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "ask",
            "Hello?",
            stdout=asyncio.subprocess.PIPE,
            env=environment(tmp_path),
            stdin=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        await process.stdout.read(4)
        process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        await asyncio.wait_for(server.wait_disconnected(1), 20)
        assert await asyncio.wait_for(process.wait(), 20) == 1


async def test_version_needs_nothing(tmp_path: Path) -> None:
    assert (await run(tmp_path, "--version")).out == f"headrace {__version__}\n"


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _parsers(below)


@pytest.mark.parametrize("parser", list(_parsers(cli._parser())), ids=lambda parser: parser.prog)
def test_the_help_of_every_command_has_an_example(parser: argparse.ArgumentParser) -> None:
    _, _, examples = parser.format_help().partition("example")
    assert f"  {parser.prog}" in examples or f"$({parser.prog}" in examples


async def test_streams_that_are_closed_or_cannot_show_everything(tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m headrace ask --model scripted "é漢"'
    for redirected in ("<&-", ">&- </dev/null", "2>&- </dev/null", "| true"):
        assert await _shell(tmp_path, f"{command} {redirected}") == (0, "")
    for asked in ("--help", "--version", "config init --help"):
        assert await _shell(tmp_path, f'"{sys.executable}" -m headrace {asked} | true') == (0, "")
    shown = f"{command} < /dev/null | grep -q '??'"
    assert await _shell(tmp_path, shown, PYTHONIOENCODING="ascii") == (0, "")
    piped = f"printf 'caf\\351' | {command}"
    assert await _shell(tmp_path, piped, PYTHONIOENCODING="utf-8:strict") == (0, "")


async def _shell(home: Path, line: str, **extra: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_shell(
        line, stdin=-3, stdout=-3, stderr=-1, env=environment(home, extra), cwd=home
    )
    _, err = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, err.decode()


# --- in a terminal


async def test_a_conversation(tmp_path: Path) -> None:
    async with ModelServer() as server:
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat") as terminal:
            await terminal.until("> ")
            terminal.type("Hello?\n")
            await terminal.until("Hello from the scripted model.")
            await terminal.until("> ", 2)
            terminal.type("And again?\n")
            await terminal.until("> ", 3)
            terminal.type("\x04")
            assert await terminal.left() == 0
        asked = [m["content"] for m in server.requests[1].body["messages"] if m["role"] != "system"]
        assert asked == ["Hello?", "Hello from the scripted model.", "And again?"]


MIXTURE = """
model: moa:two
moa:
  presets:
    two:
      reference_models: [{provider: openai, model: a}]
      aggregator: {provider: openai, model: b}
"""


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("", "local, a small model on this machine, answers; `headrace config init` chooses another."),
        ("model: openai:gpt-5.5", "openai:gpt-5.5 answers."),
        (MIXTURE, "moa:two answers."),
    ],
)
async def test_a_conversation_begins_with_who_answers_and_how_to_leave(
    tmp_path: Path, config: str, said: str
) -> None:
    (tmp_path / "config.yaml").write_text(config)
    async with Terminal(tmp_path, "chat") as terminal:
        await terminal.until("> ")
        assert f"{said} Ctrl-C stops an answer, Ctrl-D leaves.\r\n" in terminal.seen
        terminal.type("\x04")
        assert await terminal.left() == 0


async def test_a_conversation_with_a_model_that_cannot_be_asked_does_not_begin(tmp_path: Path) -> None:
    async with Terminal(tmp_path, "chat", "--model", "nobody:x") as terminal:
        assert await terminal.left() == 2
        await terminal.until('headrace: no provider is named "nobody"')
    assert "> " not in terminal.seen


@pytest.mark.parametrize("state", ["hang", "stall-after-headers", "stall-mid-text", "mid-stream"])
async def test_ctrl_c_stops_the_turn_in_every_state_and_leaves_a_usable_prompt(
    tmp_path: Path, state: str
) -> None:
    script = SLOW if state == "mid-stream" else scenario(state)
    async with ModelServer(default=script) as server:
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat", "--session", "s") as terminal:
            await terminal.until("> ")
            terminal.type("Hello?\n")
            await server.wait_requests(1)
            if state in ("stall-mid-text", "mid-stream"):
                await terminal.until("Let" if state == "stall-mid-text" else "One")
            terminal.type("\x03")
            await terminal.until("You stopped the turn.")
            await terminal.until("> ", 2)
            await asyncio.wait_for(server.wait_disconnected(1), 10)
            server.default = Script()
            terminal.type("Still there?\n")
            await terminal.until("Hello from the scripted model.")
            await terminal.until("> ", 3)
            terminal.type("\x04")
            assert await terminal.left() == 0
    ends = [e.event for e in kept(tmp_path, "s") if type(e.event).__name__ == "TurnClosed"]
    assert [end.outcome for end in ends] == ["cancelled", "stop"]  # type: ignore[union-attr]


async def test_ctrl_c_twice_leaves(tmp_path: Path) -> None:
    async with ModelServer() as server:
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat") as terminal:
            await terminal.until("> ")
            await terminal.press_until("\x03", "Ctrl-C again")
            await terminal.until("> ", 2)
            while terminal.process.returncode is None:
                terminal.type("\x03")
                await asyncio.wait([asyncio.ensure_future(terminal.process.wait())], timeout=0.5)
            assert terminal.process.returncode == 0


async def test_ctrl_c_ends_a_one_shot_question(tmp_path: Path) -> None:
    async with ModelServer(default=SLOW) as server:
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat", "Hello?") as terminal:
            await terminal.until("One")
            terminal.type("\x03")
            assert await terminal.left() == 130
        assert "One" in terminal.seen
        assert "Traceback" not in terminal.seen


async def test_ctrl_c_before_anything_has_begun_leaves_without_a_word(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "asyncio.py").write_text("raise KeyboardInterrupt  # it comes while this is imported\n")
    ran = await run(tmp_path, "chat", "Hello?", extra={"PYTHONPATH": str(modules)})
    assert ran == (130, "", "")


@pytest.mark.parametrize("name", ["larger", "local:larger", "local"])
async def test_an_embedded_model_goes_by_its_name_and_as_it_is_configured(tmp_path: Path, name: str) -> None:
    nobody = {"HF_ENDPOINT": "http://127.0.0.1:1", "PIP_INDEX_URL": "http://127.0.0.1:1/simple"}
    fetched = await run(tmp_path, "models", "fetch", name, extra=nobody)
    assert fetched.status
    title = "default" if name == "local" else "larger"
    assert f"headrace: The model {title} (" in fetched.err
    assert await run(tmp_path, "models", "rm", name) == (0, "0 MB freed\n", "")


async def test_a_spinner_turns_until_the_first_token(tmp_path: Path) -> None:
    async with ModelServer(default=scenario("hang")) as server:
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat", "Hello?") as terminal:
            await terminal.until("⠙")
            terminal.type("\x03")
            await terminal.left()
            assert "\x1b[K" in terminal.seen


# --- sessions


async def test_a_session_goes_on_after_the_process_was_killed(tmp_path: Path) -> None:
    async with ModelServer(default=SLOW) as server:
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat", "--session", "trip", "Hello?") as terminal:
            await terminal.until("One")
            terminal.process.send_signal(signal.SIGKILL)
            await terminal.left()
        server.default = Script()
        ran = await run(tmp_path, "chat", "--session", "trip", "Go on.")
        assert ran.status == 0
        said = [m["content"] for m in server.requests[1].body["messages"] if m["role"] != "system"]
        first, answer, last = said
        assert (first, last) == ("Hello?", "Go on.")
        assert answer.startswith("One")
    closed = [r.event for r in kept(tmp_path, "trip") if type(r.event).__name__ == "TurnClosed"]
    assert [c.cause.code for c in closed] == ["crashed", "answered"]  # type: ignore[union-attr]


async def test_a_session_has_one_writer(tmp_path: Path) -> None:
    async with ModelServer(default=scenario("hang")) as server:
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat", "--session", "trip", "Hello?"):
            await server.wait_requests(1)
            ran = await run(tmp_path, "chat", "--session", "trip", "Me too?")
    assert ran.status == 2
    assert "open in another process" in ran.err


@pytest.mark.parametrize("name", ["../escape", "a/b", ".hidden", "x" * 200])
async def test_a_session_name_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    ran = await run(tmp_path, "chat", "--session", name, "Hello?")
    assert ran.status == 2
    assert "is no name for a session" in ran.err
