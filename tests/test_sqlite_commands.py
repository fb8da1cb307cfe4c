"""`headrace sessions`: what it prints, and that nothing anybody wrote controls a terminal."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import events
from headrace.doors.terminal import sessions as door
from headrace.doors.terminal.sessions import NoSession
from headrace.errors import Cause, UserError
from headrace.events import (
    InputAdded,
    PartGrew,
    Recorded,
    ReplyCut,
    ToolFinished,
    ToolStarted,
    TurnClosed,
    TurnOpened,
    user_message,
)
from headrace.testing.modelserver import ModelServer, Reply, Say, Script
from headrace.views.sessions import FoundRow, SessionRow, found_lines, markdown, session_lines, turn_text
from tests.commands import run, write_config
from tests.journals import JournalStore
from tests.pure.turns import TURN, a_reply, text, tool
from tests.test_sqlite import a_turn, numbered, opened, settle

ANSWERED = Cause("answered", "The model has finished its answer.")
LOST = Cause("connection_lost", "The connection broke.")
WITH_TOOLS = [
    TurnOpened(1, (user_message("What is here?\nSay it."),)),
    *a_reply(*text(1, "I look."), *tool(2, "list_files", '{"path": "."}'), reason="tool_calls"),
    ToolStarted(1, 2, "list_files", '{"path": "."}'),
    ToolFinished(1, 2, "error", "```\nnothing\n```"),
    InputAdded((user_message("Quickly"),)),
    *a_reply(*text(1, "There is *nothing", call=2), call=2)[:-2],
    ReplyCut(2, LOST),
    TurnClosed("cut", LOST),
]


class Ran:
    def __init__(
        self, command: Callable[..., int], home: Path, *arguments: object, **options: object
    ) -> None:
        out, err = io.StringIO(), io.StringIO()
        self.status = command(home, *arguments, *([] if command is door.delete else [out]), err, **options)
        self.out, self.err = out.getvalue(), err.getvalue()


def kept(home: Path, turns: Sequence[tuple[str, list[Recorded]]]) -> None:
    with opened(home) as store:
        for session, entries in turns:
            store.append(session, entries)


def test_a_list_of_none_and_of_some(tmp_path: Path) -> None:
    ran = Ran(door.list_sessions, tmp_path)
    assert (ran.status, ran.out) == (0, "")
    assert "headrace chat --session" in ran.err
    kept(
        tmp_path,
        [("trip", a_turn("t1", "Where to?")), ("trip", a_turn("t2")), ("work", a_turn("t1", at=2e9)[:3])],
    )
    ran = Ran(door.list_sessions, tmp_path)
    first, second = ran.out.splitlines()
    assert first.startswith("* work")
    assert "1 turn " in first
    assert "2 turns" in second
    assert second.endswith("Where to?")
    assert ran.err == ""
    listed = json.loads(Ran(door.list_sessions, tmp_path, as_json=True).out)
    assert [(s["name"], s["turns"], s["running"]) for s in listed] == [("work", 1, True), ("trip", 2, False)]


def test_a_session_is_read_again(tmp_path: Path) -> None:
    kept(tmp_path, [("s", a_turn("t1", "Hm?", "Yes.")), ("s", numbered("t2", WITH_TOOLS))])
    shown = Ran(door.show, tmp_path, "s").out
    assert shown.startswith("> Hm?\nYes.\n\n> What is here?\n> Say it.\nI look.\n[")
    assert '[list_files {"path": "."}]\n' in shown
    assert shown.endswith("]\n> Quickly\n\nThere is *nothing\n[cut: The connection broke.]\n")


def test_an_open_turn_is_said_to_be(tmp_path: Path) -> None:
    kept(tmp_path, [("s", a_turn("t1", "Hm?", "Yes.")[:6])])
    assert Ran(door.show, tmp_path, "s").out == "> Hm?\nYes.\n[not finished]\n"
    assert "*(not finished)*" in Ran(door.export, tmp_path, "s", form="markdown").out


def test_export_as_lines_is_the_log(tmp_path: Path) -> None:
    entries = [*a_turn("t1"), *numbered("t2", WITH_TOOLS)]
    kept(tmp_path, [("s", entries)])
    exported = Ran(door.export, tmp_path, "s").out
    assert [events.decode(line) for line in exported.splitlines()] == entries
    assert exported == "".join(f"{events.encode(r).decode()}\n" for r in entries)


def test_exported_lines_can_be_taken_in_again(tmp_path: Path) -> None:
    kept(tmp_path / "a", [("s", numbered("t2", WITH_TOOLS))])
    (tmp_path / "b" / "sessions").mkdir(parents=True)
    (tmp_path / "b" / "sessions" / "s.jsonl").write_text(Ran(door.export, tmp_path / "a", "s").out)
    assert Ran(door.show, tmp_path / "b", "s").out == Ran(door.show, tmp_path / "a", "s").out


def test_export_as_markdown_is_a_document() -> None:
    document = "".join(markdown("s", [numbered("t", WITH_TOOLS)], lambda at: f"at {at:g}"))
    assert document == (
        "# s\n\n## at 1\n\n> What is here?\n> Say it.\n\nI look.\n\n"
        "<details><summary>list_files: error</summary>\n\n"
        '```\n{"path": "."}\n```\n\n````\n```\nnothing\n```\n````\n\n</details>\n\n'
        "> Quickly\n\nThere is *nothing\n\n*(cut: The connection broke.)*\n"
    )


def test_search_quotes_what_it_found(tmp_path: Path) -> None:
    kept(tmp_path, [("s", a_turn("t1", "a " * 300 + "needle" + " b" * 300))])
    ran = Ran(door.search, tmp_path, "needle")
    assert ran.status == 0
    assert ran.out.startswith("s  ")
    assert "…a a" in ran.out
    assert "needle b" in ran.out
    ran = Ran(door.search, tmp_path, "haystack")
    assert (ran.status, ran.out) == (1, "")
    assert "Nothing" in ran.err


def test_a_session_is_deleted(tmp_path: Path) -> None:
    kept(tmp_path, [("s", a_turn("t1"))])
    assert Ran(door.delete, tmp_path, "s").status == 0
    for command in (door.delete, door.show, door.export):
        with pytest.raises(NoSession, match="headrace sessions list"):
            Ran(command, tmp_path, "s")


def test_commands_look_while_another_process_writes(tmp_path: Path) -> None:
    with opened(tmp_path) as writing:
        writing.append("s", a_turn("t1", "first"))
        settle(writing)
        writing.append("s", a_turn("t2", "second")[:4])
        assert Ran(door.show, tmp_path, "s").out == "> first\n!\n\n> second\n[not finished]\n"
        with pytest.raises(UserError, match="open in another process"):
            Ran(door.delete, tmp_path, "s")


def test_what_cannot_be_taken_in_is_remarked_and_the_rest_is_shown(tmp_path: Path) -> None:
    before = JournalStore(tmp_path / "sessions")
    before.append("good", a_turn("t1"))
    before.close()
    (tmp_path / "sessions" / "bad.jsonl").write_text("{}\n")
    ran = Ran(door.list_sessions, tmp_path)
    assert "good" in ran.out
    assert "bad.jsonl cannot be read" in ran.err


@given(TURN, st.sampled_from(["\x1b[2J", "\x9b31m", "\u202e", "\r", "\x00\x07"]))
def test_nothing_controls_the_terminal(sequence: list, evil: str) -> None:
    poisoned = [
        PartGrew(e.call, e.part, e.text + evil) if isinstance(e, PartGrew)
        else TurnOpened(1, (user_message(f"a{evil}b"),)) if isinstance(e, TurnOpened)
        else ToolFinished(e.call, e.part, e.status, evil) if isinstance(e, ToolFinished)
        else ToolStarted(e.call, e.part, evil, evil) if isinstance(e, ToolStarted)
        else e
        for e in sequence
    ]  # fmt: skip
    entries = numbered("t", poisoned)
    written = [
        turn_text(entries),
        *markdown(f"n{evil}", [entries], lambda _: "now"),
        *session_lines([SessionRow("s", f"t{evil}", "now", 1, 1, running=False)]),
        *found_lines([FoundRow("s", "now", f"q{evil}")]),
    ]
    for character in (c for c in evil if not c.isprintable()):
        assert not any(character in text for text in written)


async def test_a_conversation_is_kept_found_exported_and_deleted_by_command(tmp_path: Path) -> None:
    async with ModelServer(default=Script(Reply((Say("Lisbon has hills."),)))) as server:
        write_config(tmp_path, server.url)
        for _ in range(2):
            assert (await run(tmp_path, "chat", "--session", "trip", "Where to?")).status == 0
        told = [m["content"] for m in server.requests[1].body["messages"] if m["role"] != "system"]
        assert told == ["Where to?", "Lisbon has hills.", "Where to?"]
    listed = json.loads((await run(tmp_path, "sessions", "list", "--json")).out)
    assert [(s["name"], s["turns"]) for s in listed] == [("trip", 2)]
    assert (await run(tmp_path, "sessions")).out == (await run(tmp_path, "sessions", "list")).out
    assert "Lisbon has hills." in (await run(tmp_path, "sessions", "show", "trip")).out
    assert "trip" in (await run(tmp_path, "sessions", "search", "hill")).out
    assert (await run(tmp_path, "sessions", "search", "mountain")).status == 1
    lines = (await run(tmp_path, "sessions", "export", "trip")).out.splitlines()
    assert [events.decode(line).event for line in lines].count(TurnClosed("stop", ANSWERED)) == 2
    assert "Lisbon" in (await run(tmp_path, "sessions", "export", "trip", "--format", "markdown")).out
    assert (await run(tmp_path, "sessions", "delete", "trip")).status == 0
    gone = await run(tmp_path, "sessions", "show", "trip")
    assert (gone.status, "headrace sessions list" in gone.err) == (2, True)
