"""The database file: one connection that writes, a few that read, and the way from every earlier schema to this one.

Theory of operation. Whoever writes holds the process's one writing connection and begins its transaction by taking
SQLite's write lock, so it never fails half way for want of it; processes wait for each other for `STORE_BUSY_S`.
Whoever reads takes a connection of its own from those at rest and sees one moment, whatever is written meanwhile. Any
thread may do either; a connection is used by one at a time.

The first use in a process prepares the file under a file lock, because two processes may begin at once:

    A  no file  --create-->  B  schema n  --migration n+1, in one transaction-->  B  ...  -->  C  the schema known here
    D  a later schema: NewerStore, and nothing is changed

A commit is synced to the disk (`synchronous=FULL`), because the journal that held the turns until then is cleared after
it; that happens once for all turns that closed meanwhile and keeps nobody waiting. Deleted text is overwritten
(`secure_delete`). Where the file cannot be written at all, a full disk or a read-only one, it can still be read if it
was left whole, with no `-wal` beside it.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.limits import STORE_BUSY_S, STORE_WAL_BYTES
from headrace.stores.journal import locked
from headrace.stores.sqlite.failures import NewerStore, is_unwritable, translated
from headrace.stores.sqlite.sql import migrations, query, statements

_SETTINGS: Final = (
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA secure_delete = ON",
    f"PRAGMA journal_size_limit = {STORE_WAL_BYTES}",
)


class Database:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        """Held by whoever writes; whoever wants nothing to be written meanwhile may hold it longer."""
        self._preparing = threading.Lock()
        self._ready = False
        self._writer: sqlite3.Connection | None = None
        self._resting: list[sqlite3.Connection] = []

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing."""
        with self.lock, translated(self.path):
            connection = self._writing_connection()
            with transaction(connection, "BEGIN IMMEDIATE"):
                yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One moment of the database."""
        with translated(self.path):
            connection, lasting = self._reading_connection()
            try:
                with transaction(connection, "BEGIN"):
                    yield connection
            except BaseException:
                connection.close()
                raise
            if lasting:
                self._resting.append(connection)
            else:
                connection.close()

    def forget(self) -> None:
        """Leave nothing of what was deleted: in the index, in free pages, in the database's own journal."""
        with self.writing() as connection:
            connection.execute(query("forget_deleted_words"))
        with self.lock, translated(self.path):
            connection = self._writing_connection()
            connection.execute("PRAGMA incremental_vacuum").fetchall()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Connections are opened again when they are needed."""
        with self.lock, translated(self.path):
            while self._resting:
                self._resting.pop().close()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _writing_connection(self) -> sqlite3.Connection:
        if self._writer is None:
            self._prepare()
            self._writer = self._connected()
        return self._writer

    def _reading_connection(self) -> tuple[sqlite3.Connection, bool]:
        """A connection, and whether it may be used again."""
        with contextlib.suppress(IndexError):
            return self._resting.pop(), True
        try:
            self._prepare()
            return self._connected(), True
        except (sqlite3.Error, OSError) as error:
            unchanging = self._as_it_stands() if is_unwritable(error) else None
            if unchanging is None:
                raise
            return unchanging, False

    def _prepare(self) -> None:
        with self._preparing:
            if self._ready:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            with locked(self.path.with_name(f"{self.path.name}.lock")):
                connection = connected(self.path)
                try:
                    _bring_up(connection, self.path)
                finally:
                    connection.close()
            self._ready = True

    def _connected(self) -> sqlite3.Connection:
        connection = connected(self.path)
        try:
            for setting in _SETTINGS:
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    def _as_it_stands(self) -> sqlite3.Connection | None:
        """For reading where nothing can be written, not even a lock."""
        wal = self.path.with_name(f"{self.path.name}-wal")
        if not self.path.exists() or (wal.exists() and wal.stat().st_size):
            return None
        connection = connected(f"{self.path.absolute().as_uri()}?immutable=1")
        with contextlib.ExitStack() as unless_it_fits:
            unless_it_fits.callback(connection.close)
            if _schema(connection) == len(migrations()):
                unless_it_fits.pop_all()
                return connection
        return None


def connected(path: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=STORE_BUSY_S, isolation_level=None, check_same_thread=False, uri=isinstance(path, str)
    )


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself where the disk was full.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _bring_up(connection: sqlite3.Connection, path: Path) -> None:
    known = migrations()
    schema = _schema(connection)
    if schema > len(known):
        raise NewerStore(path, schema, len(known))
    if schema == 0:
        # Possible before the first table only, and before the file is told to keep a journal.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    for number in range(schema + 1, len(known) + 1):
        with transaction(connection, "BEGIN IMMEDIATE"):
            for statement in statements(known[number]):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")


def _schema(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version
