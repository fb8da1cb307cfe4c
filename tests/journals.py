"""Sessions as a process leaves them that wrote journals and knew no database."""

from collections.abc import Sequence
from pathlib import Path

from headrace.events import Recorded
from headrace.stores.journal import JournalFile


class JournalStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, JournalFile] = {}

    def read(self, session: str) -> list[Recorded]:
        return self._open(session).read()

    def append(self, session: str, batch: Sequence[Recorded]) -> None:
        self._open(session).append(batch)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _open(self, session: str) -> JournalFile:
        file = self._files.get(session)
        if file is None:
            file = self._files[session] = JournalFile(self._folder, session)
        return file
