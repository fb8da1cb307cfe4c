"""The one seam where SQLite's errors become headrace's, by who must act."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.errors import Bug, StoreError, UserError
from headrace.limits import STORE_BUSY_S

_OS_ERRORS: Final = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_IOERR: errno.EIO,
}


class BrokenStore(UserError):
    """The database is damaged, or no database."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} cannot be read ({reason}). Save what is left with\n"
            f"  sqlite3 {path} .recover | sqlite3 {path}.saved\n"
            f"then move {path}, {path.name}-wal and {path.name}-shm away: headrace begins a new one. "
            f"{path.name}.saved can be put in its place."
        )


class NewerStore(UserError):
    """A later release has written it."""

    def __init__(self, path: Path, schema: int, known: int) -> None:
        super().__init__(
            f"{path} was written by a newer headrace (schema {schema}; this one knows up to {known}). "
            "Update headrace."
        )


class StoreBusy(UserError):
    """Another process has been writing for too long."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} has been in use by another process for {STORE_BUSY_S:g} s. Try again when it is done."
        )


def is_unwritable(error: sqlite3.Error | OSError) -> bool:
    """Whether the disk would not take anything, which need not keep anybody from reading."""
    return isinstance(error, OSError) or _code(error) in _OS_ERRORS


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """What fails within is raised as what it means to people."""
    try:
        yield
    except sqlite3.Error as error:
        raise _meaning(path, error) from error
    except OSError as error:
        raise StoreError(str(path), error) from error


def _meaning(path: Path, error: sqlite3.Error) -> UserError | Bug:
    code = _code(error)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return BrokenStore(path, str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(path)
    if code in _OS_ERRORS:
        number = _OS_ERRORS[code]
        return StoreError(str(path), OSError(number, os.strerror(number)))
    return Bug(f"{path}: {type(error).__name__}: {error}")


def _code(error: sqlite3.Error) -> int:
    """Without what SQLite calls the extended part."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF
