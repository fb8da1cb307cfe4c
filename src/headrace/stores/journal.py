"""Sessions as append-only files, one line of JSON an event.

Theory of operation. `<folder>/<session>.jsonl` is written with one `write` a batch and never changed, so whatever a
follower has seen is with the operating system by then and survives a killed process. A process that died in the middle
of a write leaves half a line: reading takes it off, and nothing else, because half a line was never shown to anybody.
A file has one writer at a time; a second process that opens the same session is told so.
"""

import contextlib
import os
import re
import sys
from collections.abc import Sequence
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
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_NAME: Final = re.compile(r"[\w][\w.-]{0,99}")


class SessionBusy(UserError):
    """Another process is writing this session."""


class BrokenJournal(HeadraceError):
    """A session's file holds something that headrace has not written."""


class JournalStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, int] = {}

    def read(self, session: str) -> list[Recorded]:
        descriptor = self._open(session)
        size = os.fstat(descriptor).st_size
        os.lseek(descriptor, 0, os.SEEK_SET)
        data = b"".join(iter(lambda: os.read(descriptor, READ_BYTES), b""))
        whole = data.rfind(b"\n") + 1
        if whole < size:
            os.ftruncate(descriptor, whole)
        try:
            return [events.decode(line) for line in data[:whole].splitlines()]
        except msgspec.DecodeError as error:
            path = self._path(session)
            raise BrokenJournal(
                f"{path} cannot be read ({error}). Move it away to begin the session anew."
            ) from error

    def append(self, session: str, batch: Sequence[Recorded]) -> None:
        data = b"".join(events.encode(recorded) + b"\n" for recorded in batch)
        descriptor = self._open(session)
        before = os.fstat(descriptor).st_size
        written = 0
        try:
            while written < len(data):
                written += os.write(descriptor, data[written:])
        except OSError as error:
            # Half a batch must not stand where the next one will be written.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, before)
            raise StoreError(str(self._path(session)), error) from error

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _path(self, session: str) -> Path:
        if not _NAME.fullmatch(session):
            raise UserError(f"{session!r} is no name for a session: use letters, digits, '-', '_' and '.'.")
        return self._folder / f"{session}.jsonl"

    def _open(self, session: str) -> int:
        if session not in self._files:
            path = self._path(session)
            try:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            except OSError as error:
                raise StoreError(str(path), error) from error
            try:
                _lock(descriptor)
            except OSError:
                os.close(descriptor)
                message = (
                    f"The session {session} is open in another process. Close it there, or name another."
                )
                raise SessionBusy(message) from None
            self._files[session] = descriptor
        return self._files[session]
