"""kill -9 at any moment, and several processes at once: what was shown is kept, once, and the store can be read.

Run as a program, this module is a nursery: it has imported everything, so each life it begins by forking takes
milliseconds. A life appends turns and writes to a pipe what it has shown; the nursery kills it and says what was shown.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from headrace.events import (
    AttemptStarted,
    CallStarted,
    PartClosed,
    PartGrew,
    PartStarted,
    ReplyEnded,
    TurnOpened,
)
from headrace.runtime.session import CRASHED
from headrace.stores.sqlite import SessionStore
from headrace.turn.closing import closing
from headrace.turn.folds import fold
from headrace.turn.log import Log
from tests.test_sqlite import ANSWERED, opened

SESSIONS = ("a", "b")


def words(turn: str, count: int) -> list[list]:
    """Batches of a turn, so that everybody knows what event `n` of it is."""
    grown = [PartGrew(1, 1, f"{turn} word {n} ") for n in range(count)]
    return [
        [TurnOpened(1, ()), CallStarted(1, "reply", "p:m"), AttemptStarted(1, 1, "p:m"), PartStarted(1, 1, "text")],
        *([grown[n], grown[n + 1]] if n % 3 else [grown[n]] for n in range(0, count - 1, 2)),
        [PartClosed(1, 1), ReplyEnded(1, "stop"), ANSWERED],
    ]  # fmt: skip


def live(home: Path, life: int, shown: int) -> NoReturn:
    """Append turns to two sessions until killed."""
    chance = random.Random(life)
    store = SessionStore(home)
    number = 0
    while True:
        number += 1
        session = SESSIONS[number % 2]
        turn = f"{life}-{number}"
        log = Log(turn, lambda batch, to=session: store.append(to, batch))  # type: ignore[misc]
        for batch in words(turn, chance.choice((2, 8, 60))):
            log.extend(batch, 1.7e9 + number)
            os.write(shown, f"{session} {turn} {len(log)}\n".encode())


def lived(home: Path, life: int) -> list[list]:
    """Begin a life, end it, and tell how far each turn was shown."""
    chance = random.Random(life * 7919)
    mine, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(mine)
        live(home, life, theirs)
    os.close(theirs)
    data = b""
    enough = chance.randint(1, 4000)
    while len(data) < enough:
        data += os.read(mine, 256)
    time.sleep(chance.random() * 0.004)
    os.kill(child, signal.SIGKILL)
    while more := os.read(mine, 65536):
        data += more
    os.close(mine)
    os.waitpid(child, 0)
    furthest = {}
    for line in data.decode().splitlines():
        session, turn, seq = line.split()
        furthest[session, turn] = int(seq)
    return [[*key, seq] for key, seq in furthest.items()]


def nursery(home: Path) -> None:
    for line in sys.stdin:
        sys.stdout.write(json.dumps(lived(home, int(line))) + "\n")
        sys.stdout.flush()


@contextlib.contextmanager
def running_nursery(home: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.test_sqlite_killed", str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


def killed(home: Path, lives: int, first: int = 1) -> None:
    kept: dict[str, list] = {session: [] for session in SESSIONS}
    with running_nursery(home) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for life in range(first, first + lives):
            process.stdin.write(f"{life}\n")
            process.stdin.flush()
            shown = json.loads(process.stdout.readline())
            with opened(home) as store:
                before = {session: list(store.turns(session)) for session in SESSIONS}
                check(before, kept, shown)
                for left in store.unfinished():
                    log = Log.restored(left.entries, lambda batch, to=left.session: store.append(to, batch))  # type: ignore[misc]
                    log.extend(closing(log.machine, fold(log.since(0)), CRASHED), 1.8e9)
                    assert store.release(left.session)
                kept = {session: list(store.turns(session)) for session in SESSIONS}
                for session in SESSIONS:
                    for entries, more in zip(before[session], kept[session], strict=True):
                        assert more[: len(entries)] == entries
    assert not list(home.rglob("*.jsonl"))
    assert sum(map(len, kept.values())) > lives


def check(now: dict[str, list], kept: dict[str, list], shown: list[list]) -> None:
    """What the last life found is there, and what it showed, each once and in order."""
    for session in SESSIONS:
        assert now[session][: len(kept[session])] == kept[session]
        turns = [entries[0].turn for entries in now[session]]
        assert len(set(turns)) == len(turns)
        for entries in now[session]:
            assert [r.seq for r in entries] == list(range(1, len(entries) + 1))
    logs = {entries[0].turn: entries for session in SESSIONS for entries in now[session]}
    for session, turn, seq in shown:
        assert len(logs[turn]) >= seq
        assert logs[turn] in now[session]
        whole = [
            event for count in (2, 8, 60) for event in [e for batch in words(turn, count) for e in batch]
        ]
        assert all(recorded.event in whole for recorded in logs[turn])


def test_what_was_shown_survives_kill_9(tmp_path: Path) -> None:
    killed(tmp_path, 50)


@pytest.mark.slow
def test_what_was_shown_survives_many_kills(tmp_path: Path) -> None:
    for first in range(1, 201, 50):
        killed(tmp_path / str(first), 50, first)


WRITER = """
import sys
from pathlib import Path
from headrace.stores.sqlite import SessionStore
from tests.test_sqlite import a_turn

home, name = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
store = SessionStore(home)
for n in range(60):
    store.append(name, a_turn(f"{name}{n}", f"question {n}", "word " * 50))
    if n % 10 == 0:
        assert len(store.recent_turns(name, 10**9)) == n + 1
        assert store.sessions()
        store.search("question")
    if n % 20 == 0:
        assert store.release(name)
        store.append(f"{name}-old{n}", a_turn("t", at=0.0))
        store.release(f"{name}-old{n}")
        store.prune(86_400.0 + 500, max_age_days=1)
store.close()
"""


def test_four_processes_write_at_once(tmp_path: Path) -> None:
    """They create the file together, write, look, prune; nobody is told that the database is locked."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WRITER, str(tmp_path), f"w{n}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for n in range(4)
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, err = writer.communicate(timeout=60)
        assert (writer.returncode, err) == (0, "")
    with opened(tmp_path) as store:
        assert {i.name: i.turns for i in store.sessions() if "old" not in i.name} == dict.fromkeys(
            (f"w{n}" for n in range(4)), 60
        )
        for n in range(4):
            assert [turn[0].turn for turn in store.turns(f"w{n}")] == [f"w{n}{k}" for k in range(60)]
        assert store.catch_up() == []


if __name__ == "__main__":
    nursery(Path(sys.argv[1]))
