"""`headrace sessions`: what is kept, to be listed, read, found, taken out and deleted.

Theory of operation. A command opens the store, lets it take in what dead processes have left, does one thing and closes
it. It only looks, so it works beside processes that are writing. What was asked for goes to standard output, remarks to
standard error; what fails is raised, and the command line says it.
"""

import contextlib
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal, TextIO

import msgspec

from headrace import events
from headrace.errors import UserError
from headrace.events import Recorded
from headrace.stores.sqlite import SessionStore
from headrace.views.asides import harmless_json
from headrace.views.sessions import FoundRow, SessionRow, found_lines, markdown, session_lines, turn_text

Format = Literal["jsonl", "markdown"]


class NoSession(UserError):
    """Nothing is kept under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no session {name!r}. `headrace sessions list` shows what there is.")


def list_sessions(home: Path, stdout: TextIO, stderr: TextIO, *, as_json: bool = False) -> int:
    with _store(home, stderr) as store:
        kept = store.sessions()
    if as_json:
        value = msgspec.json.encode([s._asdict() for s in kept])
        stdout.write(harmless_json(msgspec.json.format(value, indent=2).decode()) + "\n")
        return 0
    if not kept:
        stderr.write("No sessions are kept yet. `headrace chat --session NAME` begins one.\n")
    rows = [SessionRow(s.name, s.title, _when(s.updated), s.turns, s.bytes, s.running) for s in kept]
    if rows:
        stdout.write("".join(f"{line}\n" for line in session_lines(rows)))
    return 0


def show(home: Path, name: str, stdout: TextIO, stderr: TextIO) -> int:
    """Print a session to be read again."""
    with _store(home, stderr) as store:
        texts = (turn_text(entries) for entries in _turns(store, name))
        stdout.writelines(("\n" if number else "") + text for number, text in enumerate(texts))
    return 0


def search(home: Path, text: str, stdout: TextIO, stderr: TextIO) -> int:
    """Print where `text` is found, latest first; the exit status is 1 where it is not."""
    with _store(home, stderr) as store:
        found = store.search(text)
    rows = [FoundRow(hit.session, _when(hit.at), hit.quote) for hit in found]
    stdout.write("".join(f"{line}\n" for line in found_lines(rows)))
    if not rows:
        stderr.write("Nothing was found.\n")
    return 0 if rows else 1


def export(home: Path, name: str, stdout: TextIO, stderr: TextIO, form: Format = "jsonl") -> int:
    """Print a session to be kept: its events one a line, or a document."""
    with _store(home, stderr) as store:
        turns = _turns(store, name)
        if form == "markdown":
            stdout.writelines(markdown(name, turns, _when))
        else:
            stdout.writelines(
                f"{harmless_json(events.encode(r).decode())}\n" for entries in turns for r in entries
            )
    return 0


def delete(home: Path, name: str, stderr: TextIO) -> int:
    with _store(home, stderr) as store:
        if not store.delete(name):
            raise NoSession(name)
    stderr.write(f"The session {name} is deleted.\n")
    return 0


@contextlib.contextmanager
def _store(home: Path, stderr: TextIO) -> Iterator[SessionStore]:
    with contextlib.closing(SessionStore(home)) as store:
        stderr.writelines(f"{remark}\n" for remark in store.catch_up())
        yield store


def _turns(store: SessionStore, name: str) -> Iterator[list[Recorded]]:
    turns = store.turns(name)
    first = next(turns, None)
    if first is None:
        raise NoSession(name)
    return chain([first], turns)


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
