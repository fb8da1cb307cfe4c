"""Chat completions, as a stream and as a body: every fixture, every split, every cut, generated and damaged bytes."""

import itertools
import json
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import MalformedStream
from headrace.events import Event, PartClosed, PartGrew, PartKind, PartStarted, ReplyEnded, UsageReported
from headrace.limits import BODY_MAX_BYTES, MIB, REPLY_MAX_PARTS, SSE_LINE_MAX_BYTES
from headrace.wire import finish
from headrace.wire.chat_completions import BodyDecoder, Decoder
from headrace.wire.dialect import Dialect
from headrace.wire.kept import Kept
from tests.pure.replies import TOOLS, Sent, body, sent
from tests.pure.wire_helpers import (
    FIXTURES,
    Fixture,
    MakeDecoder,
    assert_linear,
    check_legal,
    damaged,
    decode,
    evidence_at,
    expectation,
    fixtures,
    splits,
    texts,
)

ALL = fixtures("chat_completions")
STREAMS = [fixture for fixture in ALL if fixture.streamed]


class Setting(msgspec.Struct):
    """What a fixture's expectation says of the model and the request."""

    done: bool
    dialect: Dialect = Dialect()
    tools: dict[str, Any] = {}


def setting(fixture: Fixture) -> Setting:
    path = FIXTURES / fixture.protocol / f"{fixture.name}.events.json"
    return msgspec.json.decode(path.read_bytes(), type=Setting)


def decoder_for(fixture: Fixture) -> MakeDecoder:
    found = setting(fixture)
    kind = Decoder if fixture.streamed else BodyDecoder
    return partial(kind, dialect=found.dialect, tools=found.tools)


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: Any = None, reason: str | None = None, **top: Any) -> bytes:
    return event(
        {"model": "m", "choices": [{"index": 0, "delta": delta or {}, "finish_reason": reason}], **top}
    )


def call_chunk(**call: Any) -> bytes:
    return chunk({"tool_calls": [call]})


DONE = b"data: [DONE]\n\n"


# --- fixtures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", ALL, ids=str)
def test_a_fixture_means_what_is_written_beside_it(fixture: Fixture) -> None:
    decoded = decode(decoder_for(fixture), [fixture.data])
    assert decoded == fixture.expected, expectation(decoded).decode()
    assert decoded.done is setting(fixture).done
    check_legal(decoded.events)


@pytest.mark.parametrize("fixture", ALL, ids=str)
def test_every_split_gives_the_same_events(fixture: Fixture) -> None:
    expected, make = fixture.expected, decoder_for(fixture)
    for pieces in splits(fixture.data):
        assert decode(make, pieces) == expected


@pytest.mark.parametrize("fixture", STREAMS, ids=str)
def test_a_cut_before_the_evidence_is_a_failure(fixture: Fixture) -> None:
    make = decoder_for(fixture)
    evidence = min(evidence_at(make, fixture.data), len(fixture.data))
    for at in {0, *range(evidence % 7, evidence, 7), evidence - 1} - {-1}:
        decoded = decode(make, [fixture.data[:at]])
        assert not decoded.done
        assert not any(isinstance(e, ReplyEnded) for e in decoded.events)


def test_every_reason_of_the_table_ends_a_reply() -> None:
    for reason in set(finish._REASONS) - {""}:
        decoded = decode(Decoder, [chunk({"content": "Hi"}), chunk({}, reason)])
        end = finish.meaning(reason, has_calls=False)
        assert decoded.events[-1] == ReplyEnded(1, end, "m", reason)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", [*sorted(finish._ERRORS), "no reason at all"])
@pytest.mark.parametrize("end", [b"", DONE, chunk({}, "stop"), chunk({}, "stop") + DONE])
def test_an_error_as_a_reason_is_never_a_stop(reason: str, end: bytes) -> None:
    decoded = decode(Decoder, [chunk({"content": "Hi"}), chunk({}, reason), end])
    assert decoded.failure in ("finish_error", "finish_unknown")


# --- generated replies ----------------------------------------------------------------------------------


def said(events: list[Event], kind: PartKind) -> list[tuple[str, str]]:
    """Name and text of every part of a kind."""
    grown = texts(events)
    parts = [e for e in events if isinstance(e, PartStarted) and e.kind == kind]
    return [(part.name, grown.get(part.part, "")) for part in parts]


def total(events: list[Event], kind: PartKind) -> str:
    return "".join(text for _, text in said(events, kind))


@given(sent(), st.lists(st.floats(0, 1), max_size=6))
def test_what_was_sent_is_what_is_decoded(reply: Sent, places: list[float]) -> None:
    make = partial(Decoder, tools=TOOLS)
    edges = [0, *sorted(int(place * len(reply.data)) for place in places), len(reply.data)]
    decoded = decode(make, [reply.data[a:b] for a, b in itertools.pairwise(edges)])
    assert decoded.done, decoded.failure
    check_legal(decoded.events)
    assert decoded == decode(make, [reply.data])
    assert total(decoded.events, "text") == reply.total("text")
    assert total(decoded.events, "reasoning") == reply.total("reasoning")
    assert said(decoded.events, "tool_call") == reply.calls
    ids = [e.tool_id for e in decoded.events if isinstance(e, PartStarted) and e.kind == "tool_call"]
    assert len(set(ids)) == len(ids)
    assert decoded.events[-1] == ReplyEnded(
        1, "tool_calls" if reply.calls else "stop", "m", reply.style.reason or ""
    )
    usage = [e for e in decoded.events if isinstance(e, UsageReported)]
    assert usage == ([UsageReported(1, 9, 4)] if reply.usage_told else [])


@given(sent().filter(lambda reply: reply.style.reason is not None))
def test_a_stream_means_what_the_whole_body_means(reply: Sent) -> None:
    streamed, whole = decode(partial(Decoder, tools=TOOLS), [reply.data]), decode(BodyDecoder, [body(reply)])
    assert whole.done
    kinds: list[PartKind] = ["text", "reasoning"]
    for kind in kinds:
        assert total(whole.events, kind) == total(streamed.events, kind)
    assert said(whole.events, "tool_call") == said(streamed.events, "tool_call")
    assert whole.events[-1] == streamed.events[-1]
    in_order = (
        sorted(reply.segments, key=lambda s: ("reasoning", "text", "call").index(s.kind)) == reply.segments
    )
    plain = not reply.style.unknown and reply.style.numbering in ("index", "ids", "zero")
    if in_order and plain and reply.style.naming != "late" and not reply.style.halves:
        assert whole.events == streamed.events


@given(sent(), st.floats(0, 1))
def test_a_reply_cut_before_its_evidence_is_incomplete(reply: Sent, place: float) -> None:
    decoded = decode(partial(Decoder, tools=TOOLS), [reply.data[: round(place * reply.evidence)]])
    assert decoded.failure == "no_terminal"
    assert not any(isinstance(e, ReplyEnded) for e in decoded.events)
    check_legal(decoded.events)


# --- bytes nobody should send ---------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Decoder, BodyDecoder])
@example([b"data:[DONE]\n\n"])
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_random_bytes_never_raise(make: MakeDecoder, pieces: list[bytes]) -> None:
    assert not decode(make, pieces).done or b"[DONE]" in b"".join(pieces)


@given(damaged(ALL))
def test_damaged_fixtures_never_raise(case: tuple[Fixture, bytes]) -> None:
    fixture, data = case
    decoded = decode(decoder_for(fixture), [data])
    check_legal(decoded.events)
    assert decoded == decode(decoder_for(fixture), [data[at : at + 1] for at in range(len(data))])


NAMES = ["choices", "delta", "message", "content", "reasoning", "reasoning_content", "refusal", "tool_calls"]
NAMES += [
    "function",
    "function_call",
    "name",
    "arguments",
    "index",
    "id",
    "type",
    "finish_reason",
    "usage",
    "error",
]
NAMES += [
    "reasoning_details",
    "text",
    "thinking",
    "extra_content",
    "model",
    "object",
    "x_groq",
    "prompt_tokens",
]
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from(
        [2**70, 0.5, "", "a", "stop", "error", "get_time", "{}", "{", "\ud83d", "\ude00", "<think>", "404"]
    ),
)
ODD = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
FIELDS = dict.fromkeys(NAMES, ODD)
CALL = st.fixed_dictionaries({}, optional={**FIELDS, "function": st.fixed_dictionaries({}, optional=FIELDS)})
DELTA = st.fixed_dictionaries({}, optional={**FIELDS, "tool_calls": st.lists(CALL, max_size=3)})
CHOICE = st.fixed_dictionaries(
    {}, optional={"delta": DELTA, "message": DELTA, "finish_reason": SCALAR, "index": SCALAR}
)
CHUNK = st.fixed_dictionaries(
    {"choices": st.lists(CHOICE, max_size=2) | ODD}, optional={"usage": ODD, "model": SCALAR}
)


@given(st.lists(CHUNK | ODD, max_size=6), st.booleans(), st.sampled_from([{}, TOOLS]), st.booleans())
@example([{"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "\ud83d"}]}}]}], True, {}, False)
def test_odd_chunks_never_raise(
    chunks: list[Any], done: bool, tools: dict[str, Any], cumulative: bool
) -> None:
    dialect = Dialect("anywhere", "hermes", cumulative)
    data = b"".join(map(event, chunks)) + (DONE if done else b"")
    decoded = decode(partial(Decoder, dialect=dialect, tools=tools), [data])
    check_legal(decoded.events)
    for value in chunks:
        check_legal(
            decode(partial(BodyDecoder, dialect=dialect, tools=tools), [json.dumps(value).encode()]).events
        )


@pytest.mark.parametrize(
    "bad",
    [
        b"data: {\n\n",
        b"data: [1]\n\n",
        b"data: 12\n\n",
        b'data: {"choices":[1]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"a","x":NaN}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"a","x":-Infinity}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"a","x":1e999}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"a","x":' + b"9" * 5000 + b"}}]}\n\n",
        b'data: {"choices":[{"delta":{"content":"a","x":' + b"[" * 100_000 + b"}}]}\n\n",
        b"data: " + b"x" * (SSE_LINE_MAX_BYTES - 5),
        b"event: error\ndata: " + b"[" * 5000 + b"\n\n",
    ],
    ids=lambda bad: bad[:48].decode(errors="replace"),
)
@pytest.mark.parametrize("joined", [True, False])
def test_what_was_whole_before_the_bad_chunk_is_returned(bad: bytes, joined: bool) -> None:
    good = chunk({"content": "Hi"}) + chunk({"content": "!"})
    decoder = Decoder()
    events = decoder.feed(good + bad) if joined else decoder.feed(good) + decoder.feed(bad)
    assert events == [PartStarted(1, 1, "text"), PartGrew(1, 1, "Hi"), PartGrew(1, 1, "!")]
    assert decoder.failure is not None
    assert len(str(decoder.failure)) < 600
    assert decoder.feed(chunk({}, "stop") + DONE) == decoder.close() == []
    assert not decoder.done


@pytest.mark.parametrize("depth", [50, 200, 300, 400, 450, 480, 600, 900, 3000])
@pytest.mark.parametrize(
    "delta",
    [
        '{"x":%s}',
        '{"reasoning_details":[{"index":0,"type":"t","x":%s}]}',
        '{"tool_calls":[{"index":0,"id":"a","x":%s}]}',
        '{"tool_calls":[{"index":0,"function":{"name":"f","arguments":%s}}]}',
        '{"content":%s}',
    ],
)
def test_depth_never_raises(delta: str, depth: int) -> None:
    nested = '{"a":' * depth + "1" + "}" * depth
    data = b'data: {"choices":[{"delta":' + (delta % nested).encode() + b"}]}\n\n"
    for end in (DONE, b""):
        decoded = decode(Decoder, [data, data, end])
        assert decoded.failure in (None, "malformed_stream", "no_terminal")
    decode(BodyDecoder, [data[6:].replace(b"delta", b"message")])
    decode(Decoder, [b'data: {"error":{"message":' + nested.encode() + b"}}\n\n"])


# --- bounds ---------------------------------------------------------------------------------------------


def test_replies_have_a_bound() -> None:
    decoder = Decoder()
    data = chunk({"content": "x" * (8 * MIB)})
    for _ in range(4):
        decoder.feed(data)
    assert decoder.failure is None
    decoder.feed(data)
    assert isinstance(decoder.failure, MalformedStream)


@pytest.mark.parametrize(
    "entry", ["x" * (8 * MIB), {"index": 0, "type": "t", "text": "x" * (8 * MIB)}], ids=["list", "text"]
)
def test_what_is_kept_for_replay_has_a_bound(entry: Any) -> None:
    decoder = Decoder()
    data = chunk({"reasoning_details": [entry]})
    for _ in range(5):
        decoder.feed(data)
    assert isinstance(decoder.failure, MalformedStream)


def test_tool_arguments_have_a_bound_and_may_be_huge() -> None:
    huge = json.dumps({"content": "x" * (7 * MIB)})
    pieces = [huge[at : at + MIB] for at in range(0, len(huge), MIB)]
    start = call_chunk(index=0, id="a", function={"name": "write", "arguments": ""})
    data = [start, *(call_chunk(index=0, function={"arguments": piece}) for piece in pieces)]
    decoded = decode(Decoder, [*data, chunk({}, "tool_calls")])
    assert decoded.done
    assert said(decoded.events, "tool_call") == [("write", huge)]
    assert decode(Decoder, [*data[:-1], *data[1:], chunk({}, "tool_calls")]).failure == "malformed_stream"
    unnamed = [call_chunk(index=n, function={"arguments": "x" * (7 * MIB)}) for n in range(5)]
    assert decode(Decoder, [*unnamed, chunk({}, "tool_calls")]).failure == "malformed_stream"


@pytest.mark.parametrize("name", ["f", ""])
def test_tool_calls_have_a_bound(name: str) -> None:
    calls = b"".join(
        call_chunk(index=0, id=f"t{n}", function={"name": name, "arguments": "{}"})
        for n in range(REPLY_MAX_PARTS + 1)
    )
    assert decode(Decoder, [calls, chunk({}, "tool_calls")]).failure == "malformed_stream"


def test_names_have_a_bound() -> None:
    assert decode(Decoder, [call_chunk(index=0, function={"name": "x" * 300})]).failure == "malformed_stream"
    fragments = [call_chunk(index=0, function={"name": f"{n:02}"}) for n in range(99)] * 2
    assert decode(Decoder, fragments).failure == "malformed_stream"


def test_bodies_have_a_bound() -> None:
    decoder = BodyDecoder()
    piece = b" " * (BODY_MAX_BYTES // 4)
    for _ in range(5):
        assert decoder.feed(piece) == []
    assert isinstance(decoder.failure, MalformedStream)
    assert decoder.close() == []


# --- the contract ---------------------------------------------------------------------------------------


def test_numbers_are_what_the_caller_says() -> None:
    decoded = decode(
        partial(Decoder, 7, 40), [call_chunk(function={"name": "f", "arguments": "{}"}), chunk({}, "stop")]
    )
    item = '{"id":"call_7_40","type":"function","function":{"name":"f","arguments":"{}"}}'
    assert decoded.events == [
        PartStarted(7, 40, "tool_call", "call_7_40", "f"),
        PartGrew(7, 40, "{}"),
        PartClosed(7, 40, item),
        ReplyEnded(7, "tool_calls", "m", "stop"),
    ]


@pytest.mark.parametrize(
    "given_ids", [["call_1_2", "", "call_1_2", "call_1_2_2"], ["t_3", "t", "t", "t_3_3"]]
)
def test_made_up_ids_are_nobody_elses(given_ids: list[str]) -> None:
    calls = [{"id": tool_id} if tool_id else {} for tool_id in given_ids]
    data = [
        call_chunk(index=n, function={"name": "f", "arguments": "{}"}, **call) for n, call in enumerate(calls)
    ]
    events = decode(Decoder, [*data, chunk({}, "stop")]).events
    ids = [e.tool_id for e in events if isinstance(e, PartStarted)]
    assert len(set(ids)) == 4
    assert [json.loads(e.item)["id"] for e in events if isinstance(e, PartClosed)] == ids


def test_finished_comes_before_done() -> None:
    decoder = Decoder()
    assert not decoder.finished
    decoder.feed(chunk({"content": "Hi"}, "stop"))
    assert decoder.finished
    assert not decoder.done
    decoder.feed(DONE)
    assert decoder.done


def test_events_come_with_the_bytes_that_bring_them() -> None:
    decoder = Decoder()
    assert decoder.feed(chunk({"content": "Hi"})[:-1]) == []
    assert decoder.feed(b"\n") == [PartStarted(1, 1, "text"), PartGrew(1, 1, "Hi")]
    assert decoder.feed(b": keep-alive\n\n") == []
    named = call_chunk(index=0, id="a", function={"name": "f", "arguments": "{"})
    assert decoder.feed(named)[1:] == [PartStarted(1, 2, "tool_call", "a", "f"), PartGrew(1, 2, "{")]


@pytest.mark.parametrize(
    ("opening", "known"),
    [
        ({"id": "a", "function": {"name": "find", "arguments": ""}}, True),
        ({"id": "a", "function": {"name": "get_ti", "arguments": ""}}, False),
        ({"id": "a", "function": {"name": "get", "arguments": ""}}, False),  # get_time begins with it
        ({"id": "a", "function": {"name": "nothing", "arguments": ""}}, False),
        ({"function": {"name": "find", "arguments": ""}}, False),  # its id may follow
    ],
)
def test_a_call_is_known_by_its_name_where_no_other_can_be_meant(opening: Any, *, known: bool) -> None:
    decoder = Decoder(tools={"find": {}, "get": {}, "get_time": {}})
    events = decoder.feed(chunk({"content": "I look."}) + call_chunk(index=0, **opening))
    started = [e for e in events if isinstance(e, PartStarted) and e.kind == "tool_call"]
    assert started == ([PartStarted(1, 2, "tool_call", "a", "find")] if known else [])


# --- cost -----------------------------------------------------------------------------------------------


def grown(delta: dict[str, Any], n: int, end: bytes = DONE, **dialect: Any) -> None:
    decoder = Decoder(dialect=Dialect(**dialect), tools={"f": {}})
    data = chunk(delta)
    for _ in range(n):
        decoder.feed(data)
    decoder.feed(end)
    decoder.close()


def named(arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}]}


@pytest.mark.parametrize(
    "delta",
    [
        pytest.param({"content": "word "}, id="text"),
        pytest.param({"content": " ", "unknown": "field"}, id="unknown-field"),
        pytest.param({"reasoning_content": "word "}, id="reasoning"),
        pytest.param(
            {"reasoning": "word ", "reasoning_details": [{"index": 0, "type": "t", "text": "word " * 20}]},
            id="reasoning-details",
        ),
        pytest.param({"content": "a", "reasoning": "b"}, id="reasoning-alternating"),
        pytest.param(named("}"), id="name-in-every-delta"),
        pytest.param(named("{}"), id="many-calls"),
        pytest.param(named("word " * 20), id="long-arguments"),
        pytest.param({"tool_calls": [{"index": 0, "function": {"arguments": "word"}}]}, id="nameless"),
    ],
)
@pytest.mark.slow
def test_cost_is_linear(delta: dict[str, Any]) -> None:
    assert_linear(lambda n: grown(delta, n), 500)


@pytest.mark.slow
def test_a_name_beside_arguments_full_of_braces_costs_linear_time() -> None:
    def run(n: int) -> None:
        decoder = Decoder()
        decoder.feed(chunk(named('{"code":"')))
        data = chunk(named("}" + "x" * 60 + "}")) + chunk(named("{"))
        for _ in range(n):
            decoder.feed(data)

    assert_linear(run, 500)


@pytest.mark.slow
def test_one_byte_at_a_time_costs_linear_time() -> None:
    def run(n: int) -> None:
        decoder = Decoder()
        for byte in chunk({"content": "x" * n}):
            decoder.feed(bytes((byte,)))

    assert_linear(run, 20_000)


@pytest.mark.slow
def test_fragments_are_not_copied_again_and_again() -> None:
    kept = Kept(lambda _: None)
    for _ in range(50):
        kept.add({"details": [{"index": 0, "type": "t", "text": "ab"}]})
    assert kept.fields() == {"details": [{"index": 0, "type": "t", "text": "ab" * 50}]}

    def run(n: int) -> None:
        for _ in range(n):
            kept.add({"details": [{"index": 0, "type": "t", "text": "a" * 99}]})

    assert_linear(run, 2_000)
