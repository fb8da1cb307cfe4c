"""What keeping a session costs: per token appended, per turn taken in, on the disk, and to open a long one."""

import contextlib
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import streams
from bench.measure import cpu_us, table
from headrace import events
from headrace.errors import Cause
from headrace.events import (
    LOG_VERSION,
    AttemptStarted,
    CallStarted,
    Event,
    PartClosed,
    PartGrew,
    PartStarted,
    Recorded,
    ReplyEnded,
    TurnClosed,
    TurnOpened,
    user_message,
)
from headrace.limits import HISTORY_TOKENS
from headrace.stores.sqlite import SessionStore
from headrace.stores.sqlite.digest import digest
from headrace.stores.sqlite.tables import add_turn

START = 1_763_500_000.0


def a_turn(name: str, tokens: int, asked: str = "What is a headrace?", at: float = START) -> list[Recorded]:
    """An answer at about fifty tokens a second, each in a batch of its own."""
    sequence: list[Event] = [
        TurnOpened(LOG_VERSION, (user_message(asked),)),
        CallStarted(1, "reply", "openai:gpt-5.5"),
        AttemptStarted(1, 1, "openai:gpt-5.5"),
        PartStarted(1, 1, "text"),
        *(PartGrew(1, 1, word) for word in streams.words(tokens)),
        PartClosed(1, 1),
        ReplyEnded(1, "stop"),
        TurnClosed("stop", Cause("answered", "The model finished its answer.")),
    ]
    chance = random.Random(name)
    return [
        Recorded(name, n, at + n * 0.02 + chance.random() * 0.01, event)
        for n, event in enumerate(sequence, start=1)
    ]


@contextlib.contextmanager
def a_home() -> Iterator[Path]:
    # Beside the sources and not in /tmp, which may be memory.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".home-") as folder:
        yield Path(folder)


def run() -> None:
    _appending()
    _on_disk()
    _opening()


# --- appending


def _appending(tokens: int = 20_000) -> None:
    turn = a_turn("turn_19a8f0e2b1c3d4e5f6a7b8", tokens)
    ways = {
        "encoded, not kept": _encoded,
        "journal, database catches up": _journal,
        "the same until it has caught up": _caught_up,
        "SQLite, a commit a batch": _committed,
    }
    rows = []
    for name, way in ways.items():
        with a_home() as home:
            number = iter(range(1000))
            cost = cpu_us(lambda w=way, h=home, n=number: w(h / str(next(n)), turn), tokens, repeats=3)  # type: ignore[misc]
            longest_us = _longest_us(way(home / "longest", turn, timed=True))
            rows.append((name, cost, longest_us))
    table("A token of its own batch, kept", ("way", "CPU us", "longest, us"), rows)


def _longest_us(times: Sequence[float]) -> float:
    return max(times, default=0.0) * 1e6


def _each(turn: list[Recorded], append: object, *, timed: bool) -> list[float]:
    assert callable(append)
    if not timed:
        for recorded in turn:
            append((recorded,))
        return []
    times = []
    for recorded in turn:
        start = time.perf_counter()
        append((recorded,))
        times.append(time.perf_counter() - start)
    return times


def _encoded(home: Path, turn: list[Recorded], *, timed: bool = False) -> list[float]:
    return _each(turn, lambda batch: b"".join([events.encode(r) + b"\n" for r in batch]), timed=timed)


def _journal(home: Path, turn: list[Recorded], *, timed: bool = False) -> list[float]:
    """Without the end of the turn, so that the worker has nothing to do."""
    with contextlib.closing(SessionStore(home)) as store:
        return _each(turn[:-1], lambda batch: store.append("s", batch), timed=timed)


def _caught_up(home: Path, turn: list[Recorded], *, timed: bool = False) -> list[float]:
    with contextlib.closing(SessionStore(home)) as store:
        return _each(turn, lambda batch: store.append("s", batch), timed=timed)


def _committed(home: Path, turn: list[Recorded], *, timed: bool = False) -> list[float]:
    home.mkdir()
    with contextlib.closing(sqlite3.connect(home / "s.sqlite", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("CREATE TABLE events (turn, seq, at, event, UNIQUE (turn, seq))")

        def append(batch: Sequence[Recorded]) -> None:
            connection.execute("BEGIN IMMEDIATE")
            rows = [(1, r.seq, r.at, events.encode(r)) for r in batch]
            connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
            connection.execute("COMMIT")

        return _each(turn, append, timed=timed)


# --- on the disk


def _on_disk(tokens: int = 500, turns: int = 200) -> None:
    with a_home() as home:
        journal = 0
        with contextlib.closing(SessionStore(home)) as store:
            for n in range(turns):
                turn = a_turn(f"turn_19a8f0e2b1c3d4e5{n:06x}", tokens, at=START + n * 60)
                journal += sum(len(events.encode(r)) + 1 for r in turn)
                store.append("s", turn)
        rows = [("journal", journal / turns / tokens)]
        with contextlib.closing(sqlite3.connect(home / "sessions" / "sessions.sqlite")) as connection:
            for name, what in (
                ("events", "SELECT sum(length(event)) + sum(length(growth)) FROM events"),
                ("of that growth", "SELECT sum(length(growth)) FROM events"),
                ("database, texts and index too", "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"),
            ):  # fmt: skip
                rows.append((name, connection.execute(what).fetchone()[0] / turns / tokens))
        table(f"On the disk, {turns} turns of {tokens} tokens", ("what", "bytes a token"), rows)


# --- a long session


def _opening() -> None:
    rows = []
    for turns, tokens in ((100, 100), (1_000, 100), (10_000, 100), (10_000, 5), (1_000, 1_000)):
        with a_home() as home:
            _fill(home, turns, tokens)
            rows.append((f"{turns:,} turns of {tokens:,} tokens", *_opened_ms(home)))
    head = ("session", "open, recent turns", "of them", "start a turn", "list", "search")
    table("A long session: ms", head, rows)


def _fill(home: Path, turns: int, tokens: int) -> None:
    store = SessionStore(home)
    with contextlib.closing(store), store._database.writing() as connection:  # noqa: SLF001 - in one transaction
        for n in range(turns):
            add_turn(connection, "s", digest(a_turn(f"turn_{n}", tokens, f"What is number {n}?", START + n)))


def _opened_ms(home: Path) -> tuple[object, ...]:
    with contextlib.closing(SessionStore(home)) as store:
        start = time.perf_counter()
        recent = store.recent_turns("s", HISTORY_TOKENS * 3 // 2)
        opened = time.perf_counter()
        store.append("s", a_turn("turn_new", 1)[:1])
        begun = time.perf_counter()
        store.sessions()
        listed = time.perf_counter()
        store.search("number 7")
        found = time.perf_counter()
        times = (opened - start, begun - opened, listed - begun, found - listed)
        ms = [seconds * 1e3 for seconds in times]
        return (ms[0], len(recent), *ms[1:])


if __name__ == "__main__":
    run()
