"""The way from every earlier schema to this one, and what becomes of a file that is none of them."""

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import events
from headrace.errors import UserError
from headrace.stores.sqlite import SessionStore
from headrace.stores.sqlite.failures import BrokenStore, NewerStore
from headrace.stores.sqlite.sql import migrations, statements
from headrace.turn.folds import fold
from tests.test_sqlite import a_turn, flat, opened, settle

GOLDEN = Path(__file__).parent / "golden"
KNOWN = len(migrations())


def database_of(home: Path) -> Path:
    (home / "sessions").mkdir(parents=True, exist_ok=True)
    return home / "sessions" / "sessions.sqlite"


@contextlib.contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        yield connection


def shape(home: Path) -> list[tuple[str, str]]:
    with connected(database_of(home)) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


@pytest.mark.parametrize("schema", range(KNOWN + 1))
def test_every_earlier_schema_becomes_this_one(tmp_path: Path, schema: int) -> None:
    """Schema 0 is a file that was created and then nothing. A new schema comes with a dump of itself."""
    path = database_of(tmp_path)
    with connected(path) as connection:
        if schema:
            connection.executescript((GOLDEN / f"sessions-v{schema}.sql").read_text())
    with opened(tmp_path) as store:
        store.append("new", a_turn("n", "A new wheel"))
        settle(store)
        if schema:
            golden = [
                events.decode(line) for line in (GOLDEN / "sessions-log.jsonl").read_bytes().splitlines()
            ]
            assert flat(store.turns("golden")) == golden
            assert fold(store.since("trip", "t1")).answer_text() == "A channel that brings water to a wheel."
            assert [hit.session for hit in store.search("wheel")] == ["new", "trip"]
            assert store.delete("trip")
        assert [hit.session for hit in store.search("wheel")] == ["new"]
    with opened(tmp_path / "fresh") as fresh:
        fresh.sessions()
    assert shape(tmp_path) == shape(tmp_path / "fresh")
    with connected(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (KNOWN,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = database_of(tmp_path)
    with connected(path) as connection:
        connection.executescript((GOLDEN / "sessions-v1.sql").read_text())
    before = shape(tmp_path)
    broken = {**migrations(), 2: "CREATE TABLE half (a);\nINSERT INTO nowhere VALUES (1);\n"}
    monkeypatch.setattr("headrace.stores.sqlite.database.migrations", lambda: broken)
    with pytest.raises(Exception, match="nowhere"), opened(tmp_path) as store:
        store.sessions()
    assert shape(tmp_path) == before
    monkeypatch.undo()
    with opened(tmp_path) as store:
        assert len(store.sessions()) == 2


def test_a_newer_schema_is_said_and_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append("s", a_turn("t"))
    path = database_of(tmp_path)
    with connected(path) as connection:
        connection.execute(f"PRAGMA user_version = {KNOWN + 5}")
    before = path.read_bytes()
    with opened(tmp_path) as store:
        with pytest.raises(NewerStore, match="Update headrace"):
            store.sessions()
        # A turn can still be had; its journal waits for the update.
        store.append("s", a_turn("t2"))
        settle(store)
        assert store.since("s", "t2") == a_turn("t2")
    assert path.read_bytes() == before
    with connected(path) as connection:
        connection.execute(f"PRAGMA user_version = {KNOWN}")
    with opened(tmp_path) as store:
        assert store.read("s") == a_turn("t") + a_turn("t2")


@pytest.mark.parametrize(
    "damage", [b"This is no database, it is a letter. " * 200, b"SQLite format 3\0" + b"\xff" * 8000]
)
def test_a_damaged_file_says_what_to_do(tmp_path: Path, damage: bytes) -> None:
    path = database_of(tmp_path)
    path.write_bytes(damage)
    with opened(tmp_path) as store:
        for look in (store.sessions, lambda: store.search("x"), lambda: store.recent_turns("s", 1)):
            with pytest.raises(BrokenStore, match=r"(?s)\.recover.*move .* away"):
                look()
        store.append("s", a_turn("t"))
        settle(store)
        path.unlink()
        store.append("s", a_turn("t2"))
        settle(store)
        assert store.read("s") == a_turn("t") + a_turn("t2")


def test_pages_damaged_in_the_middle_are_said(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for n in range(50):
            store.append("s", a_turn(f"t{n}", "x" * 5000))
    path = database_of(tmp_path)
    data = bytearray(path.read_bytes())
    data[4096 * 2 :] = b"\xa5" * (len(data) - 4096 * 2)
    path.write_bytes(data)
    with opened(tmp_path) as store, pytest.raises(UserError):
        flat(store.turns("s"))
        store.search("x")


def test_statements_are_taken_apart_with_their_triggers() -> None:
    script = (
        "CREATE TABLE a (b); -- one; two\nCREATE TRIGGER t AFTER INSERT ON a BEGIN\n DELETE FROM a;\nEND;\n"
    )
    assert [s.split()[1] for s in statements(script)] == ["TABLE", "TRIGGER"]


def test_the_files_are_their_owner_s_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append("s", a_turn("t"))
        settle(store)
        folder = tmp_path / "sessions"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


# --- a disk that takes nothing more

FULL = """
import resource, signal, sys
from pathlib import Path
from headrace.errors import StoreError
from headrace.stores.sqlite import SessionStore
from tests.test_sqlite import a_turn, flat, settle

home = Path(sys.argv[1])
store = SessionStore(home)
store.append("s", a_turn("t1", "before"))
settle(store)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
FILL
n = 0
try:
    while True:
        n += 1
        store.append("s", a_turn(f"u{n}", "x" * 20_000))
        settle(store)
except StoreError as error:
    assert "cannot be written" in str(error), error
assert n > 1
for looking in (store, SessionStore(home)):
    turns = [entries for entries in looking.turns("s")]
    assert turns[0] == a_turn("t1", "before")
    assert turns[1:] == [a_turn(f"u{k}", "x" * 20_000) for k in range(1, n)], len(turns)
    assert [hit.turn for hit in looking.search("before")] == ["t1"]
    assert looking.sessions()[0].name == "s"
looking.close()
FREE
store.append("s", a_turn("last", "after"))
store.close()
with_room = SessionStore(home)
assert [i.turns for i in with_room.sessions()] == [n + 1]
assert [hit.turn for hit in with_room.search("after")] == ["last"]
with_room.close()
print("kept", n)
"""
LIMIT = "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))"
NO_LIMIT = "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))"


def run_on_a_full_disk(home: Path, fill: str, free: str) -> str:
    script = FULL.replace("FILL", fill).replace("FREE", free)
    done = subprocess.run(
        [sys.executable, "-c", script, str(home)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_file_that_may_not_grow_keeps_what_is_in_it(tmp_path: Path) -> None:
    assert "kept" in run_on_a_full_disk(tmp_path, LIMIT, NO_LIMIT)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_keeps_what_is_on_it(small_disk: Path) -> None:
    ballast = f"ballast = Path({str(small_disk)!r}) / 'ballast'; ballast.write_bytes(b'x' * 400_000)"
    assert "kept" in run_on_a_full_disk(small_disk, ballast, "ballast.unlink()")


def test_a_fresh_process_reads_from_a_disk_with_no_room_at_all(small_disk: Path) -> None:
    with opened(small_disk) as store:
        store.append("s", a_turn("t", "before"))
    with contextlib.suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 512)
    with opened(small_disk) as store:
        assert flat(store.turns("s")) == a_turn("t", "before")
        assert [hit.turn for hit in store.search("before")] == ["t"]
    assert isinstance(store, SessionStore)
