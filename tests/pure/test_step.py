"""Steps: any object, any split, the same as reading it whole."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedStream
from headrace.events import Event, PartClosed, PartGrew, PartStarted
from headrace.turn.folds import joined
from headrace.wire import jsontext
from headrace.wire.parts import Parts
from headrace.wire.step import HEAD_MAX_CHARS, Step, reply_word
from tests.pure.wire_helpers import assert_linear, check_legal

TOOLS = ("read_file", "grüße", 'odd "name"')
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)
_STYLES = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.sampled_from([None, 0, 2, "\t"]),
        "separators": st.just((",", " :")),
    }
)


@st.composite
def _cut(draw: st.DrawFn, text: str) -> list[str]:
    ends = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


def read(pieces: list[str], tools: tuple[str, ...] = TOOLS) -> list[Event]:
    parts = Parts(1, 1)
    step = Step(parts, tools)
    for piece in pieces:
        step.feed(piece)
    step.end()
    assert step.whole
    return joined(parts.take())


def grown(events: list[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, PartGrew))


@given(st.data(), _TEXT, _STYLES)
def test_a_reply_is_its_text(data: st.DataObject, text: str, style: dict[str, Any]) -> None:
    written = json.dumps({"tool": "reply", "text": text}, **style)
    events = read(data.draw(_cut(written)))
    assert grown(events) == json.loads(written)["text"]
    assert events[0] == PartStarted(1, 1, "text")
    assert events[-1] == PartClosed(1, 1)
    check_legal(events)


@given(st.data(), st.sampled_from(TOOLS), st.dictionaries(_TEXT, _VALUES), _STYLES)
def test_a_call_is_its_arguments(
    data: st.DataObject, tool: str, arguments: dict[str, Any], style: dict[str, Any]
) -> None:
    written = " " + json.dumps({"tool": tool, "arguments": arguments}, **style) + "\n"
    events = read(data.draw(_cut(written)))
    assert json.loads(grown(events)) == arguments
    start = events[0]
    assert isinstance(start, PartStarted)
    assert (start.kind, start.name) == ("tool_call", tool)
    assert start.tool_id
    check_legal(events)


def test_every_split_gives_the_same_events() -> None:
    reply = r'{"tool": "reply", "text": "a\n\"b\" \\ \u00e9 \ud83d\ude00 \/ 😀"}'
    call = r'{"tool":"read_file","arguments":{"path":"}\\\"{","deep":[{"x":["]"]}]}} '
    for written in (reply, call):
        whole = read([written])
        for at in range(len(written) + 1):
            assert read([written[:at], written[at:]]) == whole
        assert read(list(written)) == whole
    assert grown(read([reply])) == json.loads(reply)["text"]


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert grown(read([r'{"tool":"reply","text":"a\ud83d', r' b"}'])) == "a\ufffd b"


def test_text_streams_before_the_object_is_whole() -> None:
    parts = Parts(1, 1)
    step = Step(parts, TOOLS)
    step.feed('{"tool": "reply", "text": "Hel')
    assert parts.take() == [PartStarted(1, 1, "text"), PartGrew(1, 1, "Hel")]
    step.feed("lo\\")
    assert parts.take() == [PartGrew(1, 1, "lo")]
    step.feed("n")
    assert parts.take() == [PartGrew(1, 1, "\n")]
    assert not step.whole


def test_an_empty_reply_is_whole_and_says_nothing() -> None:
    assert read(['{"tool":"reply","text":""}']) == [PartStarted(1, 1, "text"), PartClosed(1, 1)]


@pytest.mark.parametrize(
    "written",
    [
        "",
        "{",
        '{"tool": "reply"}',
        '{"tool": "reply", "text": "x"',
        '{"tool": "reply", "text": "x"}}',
        '{"tool": "reply", "text": "x", "more": 1}',
        '{"tool": "reply", "text": "x\ny"}',
        '{"tool": "reply", "text": "\\x"}',
        '{"tool": "reply", "text": "\\u12g4"}',
        '{"tool": "reply", "arguments": {}}',
        '{"tool": "unknown", "arguments": {}}',
        '{"tool": "read_file", "text": "x"}',
        '{"tool": "read_file", "arguments": {]}}',
        '{"tool": "read_file", "arguments": {"a" 1}}',
        '{"tool": "read_file", "arguments": {}',
        '{"text": "x", "tool": "reply"}',
        "Hello! " * HEAD_MAX_CHARS,
    ],
)
def test_what_is_of_no_form_is_malformed(written: str) -> None:
    with pytest.raises(MalformedStream):
        read([written])
    with pytest.raises(MalformedStream):
        read(list(written))


@given(noise=st.text(alphabet='{}[]":, \\ntoolrepyxgums', max_size=80), formed=st.booleans())
def test_it_reads_or_says_malformed(noise: str, *, formed: bool) -> None:
    written = '{"tool": "read_file", "arguments": ' + noise if formed else noise
    try:
        events = read([written])
    except MalformedStream:
        return
    assert jsontext.is_whole_object(written)
    check_legal(events)


def test_a_cut_closes_what_is_open() -> None:
    for written, kind in (
        ('{"tool":"reply","text":"On', "text"),
        ('{"tool":"read_file","arguments":{"p', "tool_call"),
    ):
        parts = Parts(1, 1)
        step = Step(parts, TOOLS)
        step.feed(written)
        step.cut()
        events = parts.take()
        assert isinstance(events[0], PartStarted)
        assert events[0].kind == kind
        assert isinstance(events[-1], PartClosed)
        check_legal(events)


def test_a_tool_may_be_called_reply() -> None:
    tools = ("reply", "plain_reply")
    assert reply_word(tools) == "plain_plain_reply"
    call = read(['{"tool":"reply","arguments":{}}'], tools)
    assert call[0] == PartStarted(1, 1, "tool_call", "call_1_1", "reply")
    assert grown(read(['{"tool":"plain_plain_reply","text":"x"}'], tools)) == "x"


@pytest.mark.slow
def test_the_cost_is_linear() -> None:
    def run(size: int) -> None:
        body = json.dumps({"tool": "read_file", "arguments": {"text": 'a "b" \\ {[' * size}})
        read([body[at : at + 7] for at in range(0, len(body), 7)])

    assert_linear(run, 2000)
