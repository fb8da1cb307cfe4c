"""A closed turn as rows: growth of one part, event after event, is one row.

Theory of operation. Most of a log is `PartGrew` with a few characters each, and most of such an event is its frame.
Adjacent growth of the same part becomes one row: the event with its text joined, and in `growth` what takes it apart
again: the length of each piece in characters, and the moment of each. A moment is a double; doubles of one magnitude
are neighbours when their bits are, so moments are kept as differences of their bits, which is exact and short. Both
lists are msgpack, compressed. Unpacking gives the same `Recorded` values under the same numbers, so a cursor from
before packing means the same after it; a row knows its first and its last number.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Final, NamedTuple

import msgspec

from headrace.events import Event, PartGrew, Recorded

_BITS: Final = (1 << 64) - 1

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode
_encode_growth = msgspec.msgpack.Encoder().encode
_decode_growth = msgspec.msgpack.Decoder(tuple[list[int], list[int]]).decode


class Row(NamedTuple):
    seq: int
    last: int
    at: float
    event: str
    growth: bytes | None

    @property
    def size(self) -> int:
        return len(self.event.encode()) + len(self.growth or b"")


def packed(entries: Iterable[Recorded]) -> list[Row]:
    return [row for key, run in groupby(entries, _growing) for row in _rows(key, list(run))]


def unpacked(turn: str, rows: Iterable[Row]) -> Iterator[Recorded]:
    for row in rows:
        event = _decode(row.event)
        if row.growth is None:
            yield Recorded(turn, row.seq, row.at, event)
        else:
            assert isinstance(event, PartGrew)
            yield from _pieces(turn, row, event, row.growth)


def whole(event: str) -> Event:
    """All of a row as one event."""
    decoded: Event = _decode(event)
    return decoded


def _growing(recorded: Recorded) -> tuple[int, int] | None:
    event = recorded.event
    return (event.call, event.part) if type(event) is PartGrew else None


def _rows(key: tuple[int, int] | None, run: Sequence[Recorded]) -> list[Row]:
    if key is None or len(run) == 1:
        return [Row(r.seq, r.seq, r.at, _encode(r.event).decode(), None) for r in run]
    texts = [r.event.text for r in run if type(r.event) is PartGrew]
    joined = PartGrew(*key, "".join(texts))
    bits = struct.unpack(f"<{len(run)}Q", struct.pack(f"<{len(run)}d", *[r.at for r in run]))
    growth = ([len(text) for text in texts], [(after - before) & _BITS for before, after in pairwise(bits)])
    blob = zlib.compress(_encode_growth(growth))
    return [Row(run[0].seq, run[-1].seq, run[0].at, _encode(joined).decode(), blob)]


def _pieces(turn: str, row: Row, event: PartGrew, growth: bytes) -> Iterator[Recorded]:
    lengths, steps = _decode_growth(zlib.decompress(growth))
    first: int = struct.unpack("<Q", struct.pack("<d", row.at))[0]
    bits = accumulate(steps, lambda moment, step: (moment + step) & _BITS, initial=first)
    moments = struct.unpack(f"<{len(lengths)}d", struct.pack(f"<{len(lengths)}Q", *bits))
    ends = accumulate(lengths, initial=0)
    for seq, at, (start, end) in zip(range(row.seq, row.last + 1), moments, pairwise(ends), strict=True):
        yield Recorded(turn, seq, at, PartGrew(event.call, event.part, event.text[start:end]))
