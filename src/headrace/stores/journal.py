"""Sessions as append-only files, one line of JSON an event.

Theory of operation. `<folder>/<session>.jsonl` is written with one `write` a batch and never changed, so whatever a
follower has seen is with the operating system by then and survives a killed process. A process that died in the middle
of a write leaves half a line: opening takes it off, and nothing else, because half a line was never shown to anybody.
A file has one writer at a time; a second process that opens the same session is told so. Readers need no leave: `peek`
reads the whole lines of a file that somebody may be writing, emptying or removing at that moment, and a `Tail` reads
each of them once.

    A  none or empty  --open-->  B  held by its writer  --append-->  C  held, with lines  --clear-->  B
    B  --close-->  A, the empty file removed        C  --close, kill-->  D  lines without a writer  --open-->  C

Who opens a file must find it under its name once it holds the lock, because the holder before may have removed it.
"""

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace import events
from headrace.errors import HeadraceError, StoreError, UserError
from headrace.events import Recorded
from headrace.limits import READ_BYTES

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        # A locked byte cannot be read either, so the lock lies where no journal reaches.
        os.lseek(descriptor, 0x7FFF_0000, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _wait_for_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _wait_for_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


_NAME: Final = re.compile(r"[\w][\w.-]{0,99}")
_SUFFIX: Final = ".jsonl"
# Enough for the turn's name and the moment of its opening, with which every line begins.
_FILLING_BYTES: Final = 256


class SessionBusy(UserError):
    """Another process is writing this session."""


class BrokenJournal(HeadraceError):
    """A session's file holds something that headrace has not written."""


class JournalFile:
    """One session's file, held for writing until it is closed."""

    def __init__(self, folder: Path, session: str) -> None:
        self.path = path_of(folder, session)
        try:
            self._descriptor = _held(self.path, session)
        except OSError as error:
            raise StoreError(str(self.path), error) from error
        self._size = self._cut_to(_whole(self._descriptor))

    def read(self) -> list[Recorded]:
        return _decoded(_bytes(self._descriptor, self._size), self.path)

    def append(self, batch: Sequence[Recorded]) -> None:
        data = b"".join([events.encode(recorded) + b"\n" for recorded in batch])
        try:
            written = os.write(self._descriptor, data)
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            # Half a batch must not stand where the next one will be written.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise StoreError(str(self.path), error) from error
        self._size += written

    def clear(self) -> None:
        """Everything in it is kept elsewhere."""
        self._size = self._cut_to(0)

    def close(self) -> None:
        """Give it to the next writer; an empty one is removed first."""
        if self._size == 0 and stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            with contextlib.suppress(OSError):  # Windows removes no open file; an empty one does no harm
                self.path.unlink()
        os.close(self._descriptor)

    def _cut_to(self, size: int) -> int:
        if os.fstat(self._descriptor).st_size > size:
            try:
                os.ftruncate(self._descriptor, size)
            except OSError as error:
                raise StoreError(str(self.path), error) from error
        return size


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the system lets go for a process that dies."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def path_of(folder: Path, session: str) -> Path:
    if not _NAME.fullmatch(session):
        raise UserError(f"{session!r} is no name for a session: use letters, digits, '-', '_' and '.'.")
    return folder / f"{session}{_SUFFIX}"


def with_lines(folder: Path) -> list[str]:
    """The sessions whose files hold something, in the order of their names."""
    try:
        with os.scandir(folder) as found:
            names = [e.name for e in found if e.name.endswith(_SUFFIX) and e.is_file() and e.stat().st_size]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(str(folder), error) from error
    sessions = (name.removesuffix(_SUFFIX) for name in names)
    return sorted(session for session in sessions if _NAME.fullmatch(session))


def peek(folder: Path, session: str) -> list[Recorded]:
    """The whole lines of a file that somebody else may be writing."""
    path = path_of(folder, session)
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(str(path), error) from error
    try:
        return _decoded(_steady(descriptor), path)
    finally:
        os.close(descriptor)


class Tail:
    """Reads what somebody else writes as it grows; after the file was emptied, from its start again."""

    def __init__(self, folder: Path, session: str) -> None:
        self._path = path_of(folder, session)
        self._filling = b""  # the start of the first line, which no two fillings share
        self._read = 0

    def more(self) -> tuple[list[Recorded], bool]:
        """What was added, and whether it was read from the start, as it is with every look at an empty file."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            self._filling, self._read = b"", 0
            return [], True
        except OSError as error:
            raise StoreError(str(self._path), error) from error
        try:
            while True:
                if self._filling != (filling := _filling(descriptor)) or not filling:
                    self._filling, self._read = filling, 0
                start = self._read
                data = _bytes(descriptor, os.fstat(descriptor).st_size - start, start)
                if _filling(descriptor) == filling:
                    break
        finally:
            os.close(descriptor)
        data = data[: data.rfind(b"\n") + 1]
        self._read += len(data)
        return _decoded(data, self._path), start == 0


def _filling(descriptor: int) -> bytes:
    return _bytes(descriptor, _FILLING_BYTES).partition(b"\n")[0]


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:  # its folder is made with the first session
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, flags, 0o600)


def _held(path: Path, session: str) -> int:
    while True:
        descriptor = _opened(path)
        try:
            _lock(descriptor)
        except OSError:
            os.close(descriptor)
            message = f"The session {session} is open in another process. Close it there, or name another."
            raise SessionBusy(message) from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


def _whole(descriptor: int) -> int:
    """How many bytes are whole lines."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - READ_BYTES)
        os.lseek(descriptor, start, os.SEEK_SET)
        found = os.read(descriptor, end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _bytes(descriptor: int, most: int, start: int = 0) -> bytes:
    os.lseek(descriptor, start, os.SEEK_SET)
    pieces = []
    while most > 0 and (piece := os.read(descriptor, min(most, READ_BYTES))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def _steady(descriptor: int) -> bytes:
    """Whole lines of one filling: a file that was cleared meanwhile begins with another line."""
    while True:
        data = _bytes(descriptor, os.fstat(descriptor).st_size)
        data = data[: data.rfind(b"\n") + 1]
        first = data[: data.find(b"\n") + 1]
        if _bytes(descriptor, len(first)) == first:
            return data


def _decoded(data: bytes, path: Path) -> list[Recorded]:
    try:
        return [events.decode(line) for line in data.splitlines()]
    except msgspec.DecodeError as error:
        message = f"{path} cannot be read ({error}). Move it away to begin the session anew."
        raise BrokenJournal(message) from error
