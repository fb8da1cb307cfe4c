"""Server-sent events: the decoder against a naive reading of the grammar, any bytes, any cuts."""

import itertools
import re

import pytest
from httpx_sse._decoders import SSEDecoder, SSELineDecoder
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import MalformedStream
from headrace.limits import KIB
from headrace.wire.sse import Decoder, ServerSentEvent, comment, encode


def naive(stream: bytes) -> list[ServerSentEvent]:
    """The WHATWG grammar, read from the whole stream at once and as it is written there."""
    *lines, _unfinished = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))
    out: list[ServerSentEvent] = []
    data = name = last_id = b""
    for line in lines:
        if line == b"":
            if data:
                out.append(ServerSentEvent(data[:-1], name, last_id))
            data = name = b""
            continue
        field, colon, value = line.partition(b":")
        if colon and value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            data += value + b"\n"
        elif field == b"event":
            name = value
        elif field == b"id" and b"\0" not in value:
            last_id = value
    return out


def decode(pieces: list[bytes], decoder: Decoder | None = None) -> list[ServerSentEvent]:
    decoder = decoder or Decoder()
    out: list[ServerSentEvent] = []
    for piece in pieces:
        decoder.feed(piece, out)
    return out


def cut(data: bytes, places: list[float]) -> list[bytes]:
    edges = [0, *sorted(int(place * len(data)) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def single(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


PLACES = st.lists(st.floats(0, 1), max_size=6)
VALUE = st.one_of(
    st.sampled_from(
        [b"", b" ", b"{}", b"[DONE]", b"a:b", b"  two", b"\0", b"12", "ß😀\u2028".encode(), b"\xff"]
    ),
    st.binary(max_size=5).map(lambda value: re.sub(rb"[\r\n]", b"", value)),
)
FIELD = st.sampled_from(
    [b"data:", b"data: ", b"data", b"event: ", b"id:", b"retry:", b":", b"dat", b"data :", b""]
)
NEWLINE = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])
LINE = st.one_of(st.tuples(FIELD, VALUE, NEWLINE).map(b"".join), NEWLINE)
BOM = st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\xef\xbb", b"\xef\xbb\xbf\xef\xbb\xbf"])
STREAM = st.tuples(BOM, st.lists(LINE, max_size=12).map(b"".join), VALUE).map(b"".join)


@given(STREAM, PLACES)
@example(b"data: a\r\n\r\ndata: b\r\r\n\n", [])
@example(b"\xef\xbbdata: a\n\n", [0.1])
@example(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", [])
@example(b"data\n\ndata:\n\ndata\ndata\n\n", [])
@example(b"id: 1\n\ndata: a\n\nid\ndata: b\n\n", [])
@example(b"event: a\n\ndata: b\n\n", [])
def test_it_agrees_with_a_naive_reading_however_the_stream_is_cut(stream: bytes, places: list[float]) -> None:
    expected = naive(stream)
    assert decode([stream]) == expected
    assert decode(cut(stream, places)) == expected
    assert decode(single(stream)) == expected


@given(st.binary(max_size=60), PLACES)
def test_any_bytes_are_a_stream(stream: bytes, places: list[float]) -> None:
    assert decode(cut(stream, places)) == naive(stream)


TEXT_LINE = st.tuples(
    st.sampled_from(["data: ", "data:", "event: ", "id: ", ": ", ""]),
    st.text(st.sampled_from('aß😀 :{}"'), min_size=1, max_size=6),
).map("".join)


@given(st.lists(TEXT_LINE | st.just(""), max_size=12), st.sampled_from(["\n", "\r\n"]), PLACES)
def test_it_agrees_with_httpx_sse(lines: list[str], newline: str, places: list[float]) -> None:
    stream = newline.join([*lines, "", ""])
    reader, decoder = SSELineDecoder(), SSEDecoder()
    theirs = [decoder.decode(line) for line in [*reader.decode(stream), *reader.flush()]]
    # They also dispatch events that have no data.
    expected = [(e.data, e.event, e.id) for e in theirs if e is not None and e.data]
    ours = [e for e in decode(cut(stream.encode(), places)) if e.data]
    assert [(e.data.decode(), e.name.decode() or "message", e.last_id.decode()) for e in ours] == [
        (data, name or "message", last_id) for data, name, last_id in expected
    ]


NAME = (
    st.binary(max_size=5).map(lambda value: re.sub(rb"[\r\n\0]", b"", value)).filter(lambda v: v[:1] != b" ")
)


@given(st.lists(st.tuples(st.binary(max_size=20), NAME, NAME), max_size=4), PLACES)
def test_what_is_encoded_is_decoded(events: list[tuple[bytes, bytes, bytes]], places: list[float]) -> None:
    stream = b"".join(comment(b"alive") + encode(*event) for event in events)
    last_id = b""
    expected = []
    for data, name, event_id in events:
        last_id = event_id or last_id
        expected.append(ServerSentEvent(re.sub(rb"\r\n|\r", b"\n", data), name, last_id))
    assert decode(cut(stream, places)) == expected


def test_retry_is_read() -> None:
    decoder = Decoder()
    decode([b"retry: 3000\n", b"retry: soon\n", b"retry: 99999999999\n", b"retry:\n"], decoder)
    assert decoder.retry_ms == 3000


LONG_LINE = b"data: ok\n\ndata: " + b"x" * 50
MANY_LINES = b"data: ok\n\n" + b"data: xxxxxxxxx\n" * 6
MANY_EMPTY_LINES = b"data: ok\n\n" + b"data\n" * 60
LONG_COMMENT = b"data: ok\n\n:" + b"x" * 50 + b"\n"


@pytest.mark.parametrize(
    "stream", [LONG_LINE, LONG_LINE + b"\n\n", MANY_LINES, MANY_EMPTY_LINES, LONG_COMMENT]
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_bounds_hold_and_what_was_whole_before_is_returned(stream: bytes, size: int) -> None:
    decoder = Decoder(line_max_bytes=40, event_max_bytes=50)
    out: list[ServerSentEvent] = []
    with pytest.raises(MalformedStream):
        for at in range(0, len(stream), size):
            decoder.feed(stream[at : at + size], out)
    assert out == [ServerSentEvent(b"ok")]


@given(STREAM, PLACES)
def test_bounds_do_not_depend_on_the_cuts(stream: bytes, places: list[float]) -> None:
    def outcome(pieces: list[bytes]) -> tuple[list[ServerSentEvent], bool]:
        decoder = Decoder(line_max_bytes=9, event_max_bytes=6)
        out: list[ServerSentEvent] = []
        try:
            for piece in pieces:
                decoder.feed(piece, out)
        except MalformedStream:
            return out, False
        return out, True

    assert outcome([stream]) == outcome(cut(stream, places)) == outcome(single(stream))


def test_a_limit_is_not_past_it() -> None:
    line = b"data:" + b"x" * 35
    assert decode([line, b"\n\n"], Decoder(line_max_bytes=40)) == [ServerSentEvent(b"x" * 35)]


def test_a_long_line_in_small_pieces_is_copied_once() -> None:
    decoder = Decoder()
    out: list[ServerSentEvent] = []
    line = b"data: " + b"x" * (256 * KIB)
    for at in range(0, len(line), 2):
        decoder.feed(line[at : at + 2], out)
    held = decoder._line
    decoder.feed(b"\n\n", out)
    assert decoder._line is held  # one buffer that grows in place
    assert not held
    assert out == [ServerSentEvent(b"x" * (256 * KIB))]
