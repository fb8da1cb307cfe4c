"""The laws of a turn over generated streams of all three protocols, from bytes to the turn's end."""

import itertools
import json
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.agent.decide import RELAY, Close, Plan, RunTools, decide
from headrace.errors import IllegalTransition
from headrace.events import (
    LOG_VERSION,
    AttemptReplaced,
    AttemptStarted,
    CallFailed,
    CallStarted,
    Event,
    PartGrew,
    PartKind,
    PartStarted,
    ReplyCut,
    ReplyEnded,
    ToolStarted,
    TurnClosed,
    TurnOpened,
    user_message,
)
from headrace.turn.folds import fold, joined
from headrace.turn.log import Log
from headrace.wire.dialect import Dialect
from tests.pure.protocols import ANY, PROTOCOLS, STREAMED, WIRES, Streamed
from tests.pure.wire_helpers import (
    AnyDecoder,
    MakeDecoder,
    assert_linear,
    check_legal,
    decode,
    texts,
)

PLACES = st.lists(st.floats(0, 1), max_size=6)


def cut(data: bytes, places: Iterable[float]) -> list[bytes]:
    edges = [0, *sorted(int(place * len(data)) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def said(events: list[Event], kind: PartKind) -> list[tuple[str, str]]:
    """Name and text of every part of a kind."""
    grown = texts(events)
    parts = [e for e in events if isinstance(e, PartStarted) and e.kind == kind]
    return [(part.name, grown.get(part.part, "")) for part in parts]


def total(events: list[Event], kind: PartKind) -> str:
    return "".join(text for _, text in said(events, kind))


# --- a turn, without anything around it


class Told:
    """A turn of one call, whose attempts end as their streams do; what replaces them is told like them."""

    def __init__(self) -> None:
        self.log = Log("t")
        self._write(TurnOpened(LOG_VERSION, (user_message("?"),)), CallStarted(1, "reply", "p:m"))
        self._attempts = 0

    def attempt(self, decoder: AnyDecoder, data: bytes) -> bool:
        """Whether the call has ended: the reply did, or was cut; else another attempt may follow."""
        self._attempts += 1
        self._write(AttemptStarted(1, self._attempts, "p:m"))
        self._write(*decoder.feed(data), *decoder.close())
        if decoder.failure is None:
            return True
        visible = self.log.machine.state("call", 1) == "visible"
        if visible:
            dropped = fold(self.log.since(0)).open_tool_names(1)
            self._write(ReplyCut(1, decoder.failure.cause, dropped))
        return visible

    def replaced(self, decoder: AnyDecoder) -> None:
        assert decoder.failure is not None
        self._write(AttemptReplaced(1, self._attempts, decoder.failure.cause))

    def failed(self, decoder: AnyDecoder) -> None:
        assert decoder.failure is not None
        self._write(CallFailed(1, decoder.failure.cause))

    def close(self) -> TurnClosed:
        action = decide(fold(self.log.since(0)), RELAY)
        assert isinstance(action, Close)
        self._write(TurnClosed(action.outcome, action.cause))
        assert self.log.closed is not None
        return self.log.closed

    def _write(self, *events: Event) -> None:
        self.log.extend(events, 0.0)

    def events(self) -> list[Event]:
        return [recorded.event for recorded in self.log.since(0)]


# --- 1: splits, and the whole answer


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data(), places=PLACES)
def test_any_split_of_the_bytes_gives_the_same_events_and_they_are_what_was_sent(
    protocol: Any, data: st.DataObject, places: list[float]
) -> None:
    reply: Streamed = data.draw(STREAMED[protocol])
    decoded = decode(reply.decoder, [reply.data])
    assert decoded.done, decoded.failure
    check_legal(decoded.events)
    assert decode(reply.decoder, cut(reply.data, places)) == decoded
    assert total(decoded.events, "text") == reply.said("text")
    assert total(decoded.events, "reasoning") == reply.said("reasoning")
    assert said(decoded.events, "tool_call") == reply.calls
    end = decoded.events[-1]
    assert isinstance(end, ReplyEnded)
    assert end.reason == ("tool_calls" if reply.calls else "stop")


@pytest.mark.parametrize("protocol", ["responses", "messages"])
@given(data=st.data())
def test_a_stream_and_the_whole_answer_give_the_same_events(protocol: Any, data: st.DataObject) -> None:
    """But for the spaces of arguments, which a whole answer does not keep; chat completions have a test of their own."""
    reply: Streamed = data.draw(STREAMED[protocol])
    assert reply.body is not None
    streamed, whole = decode(reply.decoder, [reply.data]), decode(reply.body_decoder, [reply.body])
    kinds: list[PartKind] = ["text", "reasoning"]
    for kind in kinds:
        assert said(whole.events, kind) == said(streamed.events, kind)
    calls = [[(n, json.loads(a)) for n, a in said(d.events, "tool_call")] for d in (whole, streamed)]
    assert calls[0] == calls[1]
    order = [[e.kind for e in d.events if isinstance(e, PartStarted)] for d in (whole, streamed)]
    assert order[0] == order[1]
    assert whole.events[-2:] == streamed.events[-2:]


# --- 2 and 3: cuts


@given(ANY, st.floats(0, 1))
def test_any_cut_before_the_evidence_has_one_end_that_is_no_answer(reply: Streamed, place: float) -> None:
    turn, decoder = Told(), reply.decoder()
    if not turn.attempt(decoder, reply.data[: round(place * reply.evidence)]):
        turn.failed(decoder)
    end = turn.close()
    visible = fold(turn.log.since(0)).visible
    calls = any(isinstance(e, PartStarted) and e.kind == "tool_call" for e in turn.events())
    assert end.outcome == ("cut" if visible and not calls else "error")
    assert sum(isinstance(e, TurnClosed) for e in turn.events()) == 1


@given(ANY, st.floats(0, 1))
def test_no_tool_starts_from_a_reply_that_was_cut(reply: Streamed, place: float) -> None:
    turn, decoder = Told(), reply.decoder()
    if not turn.attempt(decoder, reply.data[: round(place * reply.evidence)]):
        turn.failed(decoder)
    assert not isinstance(decide(fold(turn.log.since(0)), Plan(runs_tools=True)), RunTools)
    for part in {e.part for e in turn.events() if isinstance(e, PartStarted)}:
        with pytest.raises(IllegalTransition):
            turn.log.append(ToolStarted(1, part, "f", "{}"), 0.0)


@given(ANY)
def test_every_tool_that_runs_is_whole(reply: Streamed) -> None:
    turn = Told()
    assert turn.attempt(reply.decoder(), reply.data)
    action = decide(fold(turn.log.since(0)), Plan(runs_tools=True))
    assert isinstance(action, RunTools) is bool(reply.calls)
    if isinstance(action, RunTools):
        parts = fold(turn.log.since(0)).replies[1].parts
        assert [(parts[n].name, parts[n].text) for n in action.parts] == reply.calls


# --- 6: attempts


@given(ANY, ANY, st.floats(0, 1))
def test_what_an_attempt_said_is_never_joined_to_what_replaced_it(
    first: Streamed, second: Streamed, place: float
) -> None:
    turn, decoder = Told(), first.decoder()
    data = first.data[: round(place * first.evidence)]
    if turn.attempt(decoder, data):
        shown = fold(turn.log.since(0))
        assert first.said("text").startswith(shown.answer_text())
        return
    turn.replaced(decoder)
    number = max((e.part for e in turn.events() if isinstance(e, PartStarted)), default=0)
    assert turn.attempt(WIRES[second.protocol].Decoder(1, number + 1, tools={}), second.data)
    folded = fold(turn.log.since(0))
    assert folded.answer_text() == second.said("text")
    assert folded.reasoning_text() == second.said("reasoning")
    kinds = {(e.part): e.kind for e in turn.events() if isinstance(e, PartStarted)}
    shown_all = [e.text for e in turn.events() if isinstance(e, PartGrew) and kinds[e.part] == "text"]
    assert "".join(shown_all) == second.said("text")


# --- bytes nobody should send

CHUNK = {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}}
DELTA = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hi"}
GOOD: dict[str, dict[str, Any]] = {"chat_completions": CHUNK, "messages": BLOCK, "responses": DELTA}
# An event of the protocol with room for a value that nobody should send.
ROOM = {
    "chat_completions": b'{"choices":[{"index":0,"delta":{"content":"a","x":%s}}]}',
    "messages": b'{"type":"content_block_start","index":1,"content_block":{"type":"odd","x":%s}}',
    "responses": b'{"type":"response.output_item.done","output_index":1,"item":{"type":"odd","x":%s}}',
}
BAD_VALUES = {
    "NaN": b"NaN",
    "infinite": b"-Infinity",
    "too large": b"1e999",
    "too many digits": b"9" * 5000,
    "too deep": b"[" * 100_000,
    "closed and too deep": b"[" * 100_000 + b"]" * 100_000,
    "not UTF-8": b'"\xff"',
    "half": b'{"a":',
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("bad", sorted(BAD_VALUES))
@pytest.mark.parametrize("at_once", [True, False])
def test_what_was_whole_before_a_bad_event_is_told(protocol: Any, bad: str, *, at_once: bool) -> None:
    decoder: AnyDecoder = WIRES[protocol].Decoder()
    good = b"data: " + json.dumps(GOOD[protocol]).encode() + b"\n\n"
    broken = b"data: " + ROOM[protocol] % BAD_VALUES[bad] + b"\n\n"
    events = decoder.feed(good + broken) if at_once else decoder.feed(good) + decoder.feed(broken)
    assert joined(events) == [PartStarted(1, 1, "text"), PartGrew(1, 1, "Hi")]
    assert decoder.failure is not None
    assert decoder.failure.cause.code == "malformed_stream"
    assert len(str(decoder.failure)) < 600
    assert decoder.feed(good) == decoder.close() == []


NAMES = ["type", "index", "delta", "content_block", "message", "text", "thinking", "partial_json", "signature", "data",
         "id", "name", "input", "citation", "citations", "stop_reason", "usage", "error", "model", "content",
         "output_index", "item_id", "content_index", "summary_index", "arguments", "item", "response", "status",
         "output", "call_id", "summary", "encrypted_content", "incomplete_details", "reason", "code"]  # fmt: skip
TYPES = {
    "messages": ["content_block_start", "content_block_delta", "content_block_stop", "message_start", "message_delta",
                 "message_stop", "error", "ping", "text", "thinking", "tool_use", "odd", "text_delta",
                 "thinking_delta", "input_json_delta", "signature_delta", "citations_delta"],
    "responses": ["error", "message", "reasoning", "function_call", "custom_tool_call", "odd", "output_text",
                  "refusal", "summary_text",
                  *(f"response.{name}" for name in (
                      "created", "completed", "incomplete", "failed", "cancelled", "output_item.added",
                      "output_item.done", "output_text.delta", "output_text.done", "refusal.delta",
                      "reasoning_summary_text.delta", "function_call_arguments.delta",
                      "function_call_arguments.done", "custom_tool_call_input.delta"))],
}  # fmt: skip
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 2),
    st.sampled_from([2**70, 0.5, "", "a", "end_turn", "tool_use", "completed", "get_time", "{}", "{", "\ud83d", "\ude00",
                     "<think>", '<tool_call>{"name":"get_time","arguments":{}}</tool_call>']),
)  # fmt: skip


def odd(protocol: str) -> st.SearchStrategy[Any]:
    """Objects of the protocol's own words, in places they may have and others."""
    types = st.sampled_from(TYPES[protocol])

    def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        fields = st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
        return st.lists(inner, max_size=2) | st.builds(lambda f, t: {"type": t, **f}, fields, types)

    return nested(st.recursive(SCALAR, nested, max_leaves=10))


@pytest.mark.parametrize("protocol", sorted(TYPES))
@given(data=st.data())
def test_odd_events_never_raise(protocol: str, data: st.DataObject) -> None:
    events = data.draw(st.lists(odd(protocol), max_size=6))
    dialect = Dialect("anywhere", "hermes")
    tools = data.draw(st.sampled_from([{}, {"get_time": {}}]))
    make: MakeDecoder = partial(WIRES[protocol].Decoder, dialect=dialect, tools=tools)  # type: ignore[index]
    body: MakeDecoder = partial(WIRES[protocol].BodyDecoder, dialect=dialect, tools=tools)  # type: ignore[index]
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    decoded = decode(make, [stream])
    check_legal(decoded.events)
    assert decode(make, cut(stream, data.draw(PLACES))) == decoded
    for event in events:
        check_legal(decode(body, [json.dumps(event).encode()]).events)


# --- 7: cost

GROWTHS: dict[str, tuple[Any, list[dict[str, Any]], dict[str, Any]]] = {
    f"messages-{kind}": (
        "messages",
        [{"type": "content_block_start", "index": 0, "content_block": block}],
        {"type": "content_block_delta", "index": 0, "delta": delta},
    )
    for kind, block, delta in [
        ("text", {"type": "text", "text": ""}, {"type": "text_delta", "text": "word "}),
        ("thinking", {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "word "}),
        (
            "arguments",
            {"type": "tool_use", "id": "t", "name": "f"},
            {"type": "input_json_delta", "partial_json": "word "},
        ),
        (
            "citations",
            {"type": "text", "text": ""},
            {"type": "citations_delta", "citation": {"cited_text": "word " * 9}},
        ),
        ("unknown", {"type": "odd", "data": ""}, {"type": "odd_delta", "data": "word " * 20}),
    ]
} | {
    f"responses-{kind}": ("responses", [], {"type": f"response.{kind}.delta", "output_index": 0, "delta": "word "})
    for kind in ("output_text", "refusal", "reasoning_summary_text", "reasoning_text", "function_call_arguments")
}  # fmt: skip


@pytest.mark.parametrize("growth", sorted(GROWTHS))
@pytest.mark.slow
def test_cost_is_linear(growth: str) -> None:
    protocol, opening, event = GROWTHS[growth]

    def run(n: int) -> None:
        turn = Log("t")
        turn.extend(
            [
                TurnOpened(LOG_VERSION, (user_message("?"),)),
                CallStarted(1, "reply", "p:m"),
                AttemptStarted(1, 1, "p:m"),
            ],
            0.0,
        )
        decoder: AnyDecoder = WIRES[protocol].Decoder()
        for each in opening:
            turn.extend(decoder.feed(b"data: " + json.dumps(each).encode() + b"\n\n"), 0.0)
        data = b"data: " + json.dumps(event).encode() + b"\n\n"
        for _ in range(n):
            turn.extend(decoder.feed(data), 0.0)
        turn.extend(decoder.close(), 0.0)

    assert_linear(run, 2000)
