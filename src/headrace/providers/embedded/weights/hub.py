"""A model's own repository on its hub: one file, at one revision."""

from typing import Final
from urllib.parse import quote, urlsplit

from headrace.providers.embedded.weights.catalogue import HubFile
from headrace.providers.embedded.weights.partial import Partial
from headrace.providers.embedded.weights.source import Report
from headrace.providers.embedded.weights.transfer import Line

ENDPOINT: Final = "https://huggingface.co"


class Hub:
    """Implements Source."""

    room = 0

    def __init__(self, line: Line, endpoint: str, file: HubFile) -> None:
        self._line = line
        root = endpoint.rstrip("/")
        self._url = f"{root}/{quote(file.repository)}/resolve/{quote(file.revision)}/{quote(file.file)}"
        self.name = urlsplit(root).hostname or root

    async def fill(self, partial: Partial, report: Report) -> None:
        while gap := partial.gap():
            await self._line.pull(self._url, _Gap(partial, gap, report))


class _Gap:
    """Implements Target: a missing stretch of the model's file."""

    def __init__(self, partial: Partial, gap: tuple[int, int], report: Report) -> None:
        self._partial = partial
        self._report = report
        self.position, self.end = gap
        self.total = partial.model.size

    async def write(self, data: bytes) -> None:
        await self._partial.write(self.position, data)
        self.position += len(data)
        self._report(self._partial.done)
