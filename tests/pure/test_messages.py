"""Anthropic's messages, as a stream and as a body: every fixture, every split, every cut, and damaged bytes."""

import json
from collections.abc import Mapping
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.events import PartClosed, PartGrew, PartStarted, ReplyEnded
from headrace.limits import TOOL_ARGUMENTS_MAX_CHARS
from headrace.wire.dialect import Dialect
from headrace.wire.messages import BodyDecoder, Decoder
from tests.pure.wire_helpers import (
    Decoded,
    Fixture,
    MakeDecoder,
    check_legal,
    damaged,
    decode,
    evidence_at,
    expectation,
    fixtures,
    places,
    splits,
    texts,
)

ALL = fixtures("messages")
STREAMS = [fixture for fixture in ALL if fixture.streamed]
TOOLS = {"now": {"type": "object"}}


def decoder_for(fixture: Fixture) -> MakeDecoder:
    return Decoder if fixture.streamed else BodyDecoder


def sse(*events: Mapping[str, object]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def text_block(index: int, *pieces: str) -> bytes:
    at = {"index": index}
    return sse(
        {"type": "content_block_start", **at, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", **at, "delta": {"type": "text_delta", "text": piece}}
            for piece in pieces
        ),
        {"type": "content_block_stop", **at},
    )


def end(reason: str = "end_turn") -> bytes:
    return sse({"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"})


@pytest.mark.parametrize("fixture", ALL, ids=str)
def test_a_fixture_means_what_is_written_beside_it(fixture: Fixture) -> None:
    decoded = decode(decoder_for(fixture), [fixture.data])
    assert decoded == fixture.expected, expectation(decoded).decode()
    check_legal(decoded.events)


@pytest.mark.parametrize("fixture", ALL, ids=str)
def test_every_split_gives_the_same_events(fixture: Fixture) -> None:
    expected = fixture.expected
    for pieces in splits(fixture.data):
        assert decode(decoder_for(fixture), pieces) == expected


@pytest.mark.parametrize("fixture", STREAMS, ids=str)
def test_a_cut_before_the_stop_reason_is_a_failure(fixture: Fixture) -> None:
    for at in places(min(evidence_at(Decoder, fixture.data), len(fixture.data))):
        decoded = decode(Decoder, [fixture.data[:at]])
        assert not decoded.done
        assert not any(isinstance(event, ReplyEnded) for event in decoded.events)


@pytest.mark.parametrize("make", [Decoder, BodyDecoder])
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_random_bytes_never_raise(make: MakeDecoder, pieces: list[bytes]) -> None:
    assert not decode(make, pieces).done


@given(damaged(ALL))
def test_damaged_fixtures_never_raise(case: tuple[Fixture, bytes]) -> None:
    fixture, data = case
    decoded = decode(decoder_for(fixture), [data])
    check_legal(decoded.events)


def test_numbers_are_what_the_caller_says() -> None:
    decoded = decode(partial(Decoder, 7, 40), [text_block(0, "Hi."), end()])
    assert decoded.events == [
        PartStarted(7, 40, "text"),
        PartGrew(7, 40, "Hi."),
        PartClosed(7, 40),
        ReplyEnded(7, "stop", "", "end_turn"),
    ]


def test_a_stop_reason_finishes_and_the_end_of_the_stream_is_done() -> None:
    decoder = Decoder()
    decoder.feed(text_block(0, "Hi.") + sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}))
    assert decoder.finished
    assert not decoder.done
    assert decoder.close()[-1] == ReplyEnded(1, "stop", "", "end_turn")
    assert decoder.done


def test_tool_markup_in_text_is_a_call() -> None:
    make = partial(Decoder, dialect=Dialect(tool_markup="hermes"), tools=TOOLS)
    text = text_block(0, "Wait. <tool_", 'call>{"name":"now","arguments":{}}</tool_call>')
    assert decode(make, [text, end()]).events == [
        PartStarted(1, 1, "text"),
        PartGrew(1, 1, "Wait. "),
        PartStarted(1, 2, "tool_call", "call_1_2", "now"),
        PartGrew(1, 2, "{}"),
        PartClosed(1, 2),
        PartClosed(1, 1),
        ReplyEnded(1, "tool_calls", "", "end_turn"),
    ]


def test_only_the_first_text_begins_inside_a_prefilled_tag() -> None:
    make = partial(Decoder, dialect=Dialect(think="prefilled"))
    decoded = decode(make, [text_block(0, "Hm.</think>Yes."), text_block(1, "No."), end()])
    kinds = [event.kind for event in decoded.events if isinstance(event, PartStarted)]
    assert kinds == ["reasoning", "text", "text"]
    assert texts(decoded.events) == {1: "Hm.", 2: "Yes.", 3: "No."}


def test_what_follows_the_end_is_ignored() -> None:
    decoder = Decoder()
    decoder.feed(text_block(0, "Hi.") + end() + b"data: not JSON\n\n")
    assert decoder.done
    assert decoder.failure is None
    assert decoder.feed(text_block(1, "more")) == decoder.close() == []


def test_arguments_have_a_bound() -> None:
    block = {"type": "tool_use", "id": "t", "name": "now", "input": {}}
    half = {"type": "input_json_delta", "partial_json": "x" * (TOOL_ARGUMENTS_MAX_CHARS // 2)}
    pieces = [sse({"type": "content_block_start", "index": 0, "content_block": block})]
    pieces += [sse({"type": "content_block_delta", "index": 0, "delta": half})] * 3
    assert decode(Decoder, pieces).failure == "malformed_stream"


def test_a_value_nested_too_deeply_is_malformed() -> None:
    for depth in (100, 900, 1000, 5000, 100_000):
        deep = b"[" * depth + b"]" * depth
        start = (
            b'data: {"type":"content_block_start","index":0,"content_block":{"type":"odd","x":' + deep + b"}}"
        )
        decoded = decode(Decoder, [start + b'\n\ndata: {"type":"content_block_stop","index":0}\n\n'])
        assert decoded.failure in ("malformed_stream", "no_terminal")
        body = b'{"stop_reason":"end_turn","z":"\\ud83d","content":[{"x":' + deep + b"}]}"
        assert isinstance(decode(BodyDecoder, [body]), Decoded)


def test_a_name_with_half_a_character_can_be_logged() -> None:
    block = {"type": "tool_use", "id": "\ud83d", "name": "\ude00", "input": {}}
    start = {"type": "content_block_start", "index": 0, "content_block": block}
    message = {"type": "message_start", "message": {"model": "\ud83d"}}
    check_legal(decode(Decoder, [sse(message, start), end("tool_use")]).events)
