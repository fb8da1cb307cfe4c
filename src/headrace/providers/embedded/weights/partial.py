"""The unfinished file of one model: which of its pieces are there, and right.

Theory of operation. The file is all there is: no journal says what it holds. `inspect` hashes the pieces that are
there whole; the piece the file ends in goes on where it ends. So whatever killed the last fetch, at whatever byte,
the next one knows what is missing, and a byte that has changed since costs one piece.

    missing --write--> growing --its last byte, hash right--> good
       ^                  '------its last byte, hash wrong--> WrongBytes --.
       '-------------------------------------------------------------------'

Sources ask for the first `gap` and write it from its beginning on. Bytes that were there before a source began are
`inherited`: when such a piece turns out wrong, nobody knows whose fault it is, and the source is asked for it whole.
"""

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.providers.embedded.weights.blocking import in_thread, sha256
from headrace.providers.embedded.weights.catalogue import Model
from headrace.providers.embedded.weights.failures import WrongBytes, disk_error


class Partial:
    def __init__(self, path: Path, model: Model) -> None:
        self.path = path
        self.model = model
        self._good: set[int] = set()
        self._reached: dict[int, int] = {}
        """The next byte of each piece that is growing."""
        self._inherited: frozenset[int] = frozenset()
        try:
            self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b", buffering=0)
        except OSError as error:
            raise disk_error(error, path, model.size) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def size(self) -> int:
        """What it takes on the disk."""
        return os.fstat(self._file.fileno()).st_size

    @property
    def done(self) -> int:
        """Bytes that need not be fetched any more."""
        good = sum(end - start for start, end in map(self.model.span, self._good))
        return good + sum(at - self.model.span(piece)[0] for piece, at in self._reached.items())

    @property
    def complete(self) -> bool:
        return len(self._good) == len(self.model.pieces)

    async def inspect(self) -> None:
        """Look at what is there."""
        self._good.clear()
        self._reached.clear()
        self._file.truncate(min(self.size, self.model.size))
        size = self.size
        for piece, expected in enumerate(self.model.pieces):
            start, end = self.model.span(piece)
            if end <= size and await sha256(self.path, start, end) == expected:
                self._good.add(piece)
            elif start < size < end:
                self._reached[piece] = size

    def begin(self) -> None:
        """Another source begins."""
        self._inherited = frozenset(self._reached)

    def gap(self) -> tuple[int, int] | None:
        """The first byte that is missing, and where the missing stretch ends."""
        pieces = range(len(self.model.pieces))
        first = next((piece for piece in pieces if piece not in self._good), None)
        if first is None:
            return None
        last = first
        while last + 1 in pieces and last + 1 not in self._good and last + 1 not in self._reached:
            last += 1
        return self._reached.get(first, self.model.span(first)[0]), self.model.span(last)[1]

    async def write(self, at: int, data: bytes) -> None:
        """Take what belongs at a place: one where a gap began, or where the last write ended."""
        view = memoryview(data)
        while view:
            piece = at // self.model.piece_bytes
            _, end = self.model.span(piece)
            portion = view[: end - at]
            await self._put(at, portion)
            at += len(portion)
            view = view[len(portion) :]
            self._reached[piece] = at
            if at == end:
                await self._check(piece)

    async def _put(self, at: int, portion: memoryview) -> None:
        def put() -> None:
            self._file.seek(at)
            left = portion
            while left:
                left = left[self._file.write(left) or 0 :]

        try:
            await in_thread(put)
        except OSError as error:
            raise disk_error(error, self.path, self.model.size - at) from error

    async def _check(self, piece: int) -> None:
        start, end = self.model.span(piece)
        del self._reached[piece]
        if await sha256(self.path, start, end) == self.model.pieces[piece]:
            self._good.add(piece)
            return
        if self.size == end:
            self._file.truncate(start)
        raise WrongBytes(inherited=piece in self._inherited)

    async def flush(self) -> None:
        """Have all of it on the disk, so that a name given to it afterwards never names less."""
        try:
            await in_thread(lambda: os.fsync(self._file.fileno()))
        except OSError as error:
            raise disk_error(error, self.path, 0) from error
