"""OpenAI's responses, as a stream and as a body: every fixture, every split, every cut, and damaged bytes."""

import json
from collections.abc import Mapping
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.events import PartClosed, PartGrew, PartStarted, ReplyEnded
from headrace.limits import TOOL_ARGUMENTS_MAX_CHARS
from headrace.wire.dialect import Dialect
from headrace.wire.responses import BodyDecoder, Decoder
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

ALL = fixtures("responses")
STREAMS = [fixture for fixture in ALL if fixture.streamed]
TOOLS = {"now": {"type": "object"}}


def decoder_for(fixture: Fixture) -> MakeDecoder:
    return Decoder if fixture.streamed else BodyDecoder


def sse(*events: Mapping[str, object]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def delta(text: str, index: int = 0) -> dict[str, object]:
    return {"type": "response.output_text.delta", "output_index": index, "content_index": 0, "delta": text}


COMPLETED: dict[str, object] = {"type": "response.completed", "response": {"status": "completed"}}


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
def test_a_cut_before_the_terminal_event_is_a_failure(fixture: Fixture) -> None:
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
    decoded = decode(partial(Decoder, 7, 40), [sse(delta("Hi."), COMPLETED)])
    assert decoded.events[:2] == [PartStarted(7, 40, "text"), PartGrew(7, 40, "Hi.")]
    assert decoded.events[-1] == ReplyEnded(7, "stop", "", "completed")


def test_tool_markup_in_text_is_a_call_and_is_sent_back_as_one() -> None:
    item = {
        "type": "message",
        "content": [
            {"type": "output_text", "text": 'Wait. <tool_call>{"name":"now","arguments":{}}</tool_call>'}
        ],
    }
    done: dict[str, object] = {"type": "response.output_item.done", "output_index": 0, "item": item}
    make = partial(Decoder, dialect=Dialect(tool_markup="hermes"), tools=TOOLS)
    decoded = decode(make, [sse(delta('Wait. <tool_call>{"name":'), done, COMPLETED)])
    assert decoded.events == [
        PartStarted(1, 1, "text"),
        PartGrew(1, 1, "Wait. "),
        PartStarted(1, 2, "tool_call", "call_1_2", "now"),
        PartGrew(1, 2, "{}"),
        PartClosed(1, 2),
        PartClosed(1, 1),
        ReplyEnded(1, "tool_calls", "", "completed"),
    ]


def test_only_the_first_text_begins_inside_a_prefilled_tag() -> None:
    make = partial(Decoder, dialect=Dialect(think="prefilled"))
    decoded = decode(make, [sse(delta("Hm.</think>Yes."), delta("No.", 1), COMPLETED)])
    kinds = [event.kind for event in decoded.events if isinstance(event, PartStarted)]
    assert kinds == ["reasoning", "text", "text"]
    assert texts(decoded.events) == {1: "Hm.", 2: "Yes.", 3: "No."}


def test_what_follows_the_terminal_event_is_ignored() -> None:
    decoder = Decoder()
    decoder.feed(sse(delta("Hi."), COMPLETED) + b"data: not JSON\n\n")
    assert decoder.done
    assert decoder.failure is None
    assert decoder.feed(sse(delta("more"))) == decoder.close() == []


def test_usage_is_reported_once_with_a_failure_and_the_first_failure_stays() -> None:
    decoder = Decoder()
    response = {"status": "in_progress", "usage": {"input_tokens": 3}}
    events = decoder.feed(sse({"type": "response.created", "response": response}))
    events += decoder.feed(b"data: {\n\n")
    first = decoder.failure
    events += decoder.feed(b"data: [\n\n") + decoder.close()
    assert len(events) == 1
    assert decoder.failure is first
    assert first is not None


def test_arguments_have_a_bound() -> None:
    event: dict[str, object] = {"type": "response.function_call_arguments.delta", "output_index": 0}
    piece = sse({**event, "delta": "x" * (TOOL_ARGUMENTS_MAX_CHARS // 2)})
    assert decode(Decoder, [piece, piece, piece]).failure == "malformed_stream"


def test_a_value_nested_too_deeply_is_malformed() -> None:
    for depth in (100, 900, 1000, 5000, 100_000):
        deep = b"[" * depth + b"]" * depth
        data = b'data: {"type":"response.output_item.done","output_index":0,"item":{"x":' + deep + b"}}\n\n"
        decoded = decode(Decoder, [data])
        assert decoded.failure in ("malformed_stream", "no_terminal")
        body = b'{"status":"completed","z":"\\ud83d","output":[{"x":' + deep + b"}]}"
        assert isinstance(decode(BodyDecoder, [body]), Decoded)


def test_a_name_with_half_a_character_can_be_logged() -> None:
    call = {"type": "function_call", "call_id": "\ud83d", "name": "\ude00", "arguments": "{}", "id": "\ud83d"}
    response = {"status": "completed", "model": "\ud83d", "output": [call]}
    check_legal(decode(Decoder, [sse({"type": "response.completed", "response": response})]).events)
