"""What the tests of every wire decoder share: fixtures, splits, and events with adjacent growth joined.

A fixture is `tests/fixtures/PROTOCOL/NAME.sse` (a stream) or `NAME.json` (a whole body), as a provider sends it. What
it means is in `NAME.events.json`: {"events": [...], "failure": the cause's code or null}. A stream and a body of one
name have one meaning.
"""

import bisect
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from hypothesis import strategies as st

from headrace.errors import CallError
from headrace.events import (
    AttemptStarted,
    CallStarted,
    Event,
    PartGrew,
    TurnOpened,
    user_message,
)
from headrace.turn.folds import joined
from headrace.turn.machine import Machine

FIXTURES = Path(__file__).parents[1] / "fixtures"


class AnyDecoder(Protocol):
    failure: CallError | None

    @property
    def done(self) -> bool: ...
    @property
    def finished(self) -> bool: ...
    def feed(self, data: bytes) -> list[Event]: ...
    def close(self) -> list[Event]: ...


MakeDecoder = Callable[[], AnyDecoder]


class Decoded(NamedTuple):
    """What a decoder made of some bytes, as plain values that compare and print well."""

    events: list[Event]
    failure: str | None
    done: bool


class Fixture(NamedTuple):
    protocol: str
    name: str
    streamed: bool
    data: bytes

    def __str__(self) -> str:
        return f"{self.name}.{'sse' if self.streamed else 'json'}"

    @property
    def expected(self) -> Decoded:
        path = FIXTURES / self.protocol / f"{self.name}.events.json"
        value = msgspec.json.decode(path.read_bytes(), type=_Expected)
        return Decoded(value.events, value.failure, value.failure is None)


class _Expected(msgspec.Struct):
    events: list[Event]
    failure: str | None


def fixtures(protocol: str) -> list[Fixture]:
    paths = sorted((FIXTURES / protocol).iterdir())
    return [
        Fixture(protocol, path.stem, path.suffix == ".sse", path.read_bytes())
        for path in paths
        if path.suffix in (".sse", ".json") and not path.name.endswith(".events.json")
    ]


def expectation(decoded: Decoded) -> bytes:
    """The text of a NAME.events.json: one event a line."""
    lines = b",\n  ".join(msgspec.json.encode(event) for event in decoded.events)
    failure = msgspec.json.encode(decoded.failure)
    return b'{"failure": ' + failure + b',\n "events": [\n  ' + lines + b"\n ]}\n"


def decode(make: MakeDecoder, pieces: Iterable[bytes]) -> Decoded:
    """Feed the pieces, end the stream, and check what holds for every decoder and every input."""
    decoder = make()
    events: list[Event] = []
    for piece in pieces:
        events += decoder.feed(piece)
    events += decoder.close()
    assert decoder.close() == decoder.feed(b"data: {}\n\n") == []
    assert decoder.done is (decoder.failure is None)
    assert decoder.failure is None or isinstance(decoder.failure, CallError)
    failure = None if decoder.failure is None else decoder.failure.cause.code
    return Decoded(joined(events), failure, decoder.done)


def check_legal(events: Iterable[Event]) -> None:
    """The events may stand in a log: legal in their order, and JSON gives them back as they are."""
    machine = Machine()
    opened: list[Event] = [
        TurnOpened(1, (user_message("?"),)),
        CallStarted(1, "reply", "m"),
        AttemptStarted(1, 1, "m"),
    ]
    for event in [*opened, *events]:
        machine.apply(event)
        assert msgspec.json.decode(msgspec.json.encode(event), type=type(event)) == event


THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
SOME_CUTS = 20


def splits(data: bytes) -> Iterator[list[bytes]]:
    """Every byte on its own, and the data cut in two: everywhere when thorough, else at places spread over it."""
    yield [data[at : at + 1] for at in range(len(data))]
    for at in places(len(data) + 1):
        yield [data[:at], data[at:]]


def places(length: int) -> range:
    """Where to cut: everywhere when thorough, else at places spread over it."""
    return range(0, length, 1 if THOROUGH else max(1, length // SOME_CUTS))


def evidence_at(make: MakeDecoder, data: bytes) -> int:
    """How many bytes it takes until terminal evidence has been read; more than there are, if it never is."""

    def is_read(size: int) -> bool:
        decoder = make()
        decoder.feed(data[:size])
        return decoder.done or decoder.finished

    return bisect.bisect_left(range(len(data) + 1), True, key=is_read)


def texts(events: Iterable[Event]) -> dict[int, str]:
    """What each part has grown to."""
    out: dict[int, str] = {}
    for event in events:
        if isinstance(event, PartGrew):
            out[event.part] = out.get(event.part, "") + event.text
    return out


_Edit = tuple[str, float, bytes]
_EDITS: st.SearchStrategy[list[_Edit]] = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "drop", "repeat"]),
        st.floats(0, 1, exclude_max=True),
        st.one_of(
            st.binary(min_size=1, max_size=6),
            st.sampled_from(
                [b"null", b'"', b"{}", b"[]", b"\n\n", b"-1", b"true", b"\\ud83d", b"\xff", b"1e999"]
            ),
        ),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def damaged(draw: st.DrawFn, among: list[Fixture]) -> tuple[Fixture, bytes]:
    """A fixture with a few bytes flipped, cut off, inserted, dropped or repeated."""
    fixture = draw(st.sampled_from(among))
    data = fixture.data
    for what, place, patch in draw(_EDITS):
        at = int(place * len(data))
        match what:
            case "flip":
                data = data[:at] + bytes(b ^ 0x15 for b in data[at : at + 1]) + data[at + 1 :]
            case "cut":
                data = data[:at]
            case "insert":
                data = data[:at] + patch + data[at:]
            case "drop":
                data = data[:at] + data[at + len(patch) :]
            case _:
                data = data[:at] + data[max(0, at - 200) :]
    return fixture, data


def assert_linear(run: Callable[[int], object], size: int) -> None:
    """Four times the input costs about four times as much; sixteen times would be quadratic."""

    def cost(n: int) -> float:
        start = time.process_time()
        run(n)
        return time.process_time() - start

    for _ in range(4):  # a busy machine may spoil a measurement, not all of them
        one, four = min(cost(size) for _ in range(2)), min(cost(4 * size) for _ in range(2))
        if four < 9 * one:
            return
    raise AssertionError(f"{size} cost {one:.4f} s and {4 * size} cost {four:.4f} s")
