"""Leaked tool markup: any split gives the same, calls come out whole, and nothing inside is ever shown."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import MalformedStream
from headrace.limits import TOOL_ARGUMENTS_MAX_CHARS
from headrace.wire.dialect import ToolMarkup
from headrace.wire.toolmarkup import Finder, Found
from tests.pure.test_think import cut
from tests.pure.wire_helpers import assert_linear

TOOLS: dict[str, dict[str, Any]] = {
    "now": {"type": "object"},
    "find": {
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "exact": {"type": "boolean"},
            "among": {"type": "array"},
            "maybe": {"type": ["string", "null"]},
            "any": {},
        }
    },
}
MARKUPS: list[ToolMarkup] = ["hermes", "qwen", "mistral"]


def find(markup: ToolMarkup, pieces: list[str]) -> list[Found]:
    """What comes out, neighbouring text joined."""
    finder = Finder(markup, TOOLS)
    found = [piece for text in pieces for piece in finder.feed(text)] + finder.end()
    assert finder.end() == []
    out: list[Found] = []
    for piece in found:
        assert piece.kind != "text" or piece.text
        if out and out[-1].kind == piece.kind == "text":
            out[-1] = Found("text", out[-1].text + piece.text)
        else:
            out.append(piece)
    return out


PLACES = st.lists(st.floats(0, 1), max_size=8)
BITS = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "<function=now>",
        "<function=find>",
        "</function>",
        "<parameter=text>",
        "</parameter>",
        "[TOOL_CALLS]",
        "[ARGS]",
        '{"name":"now","arguments":{}}',
        '[{"name":"now"}]',
        "now{}",
        "<tool",
        "[TOOL",
        "</",
        "<",
        "[",
        "{",
        "}",
        "\n",
        " ",
        "a",
        "😀",
        "�",
        "<function=nope></function>",
    ]
)
TEXT = st.lists(BITS, max_size=10).map("".join)


@pytest.mark.parametrize("markup", MARKUPS)
@given(TEXT, PLACES)
@example('<tool_call>{"name":"now"}</tool_call>\n <tool_call>', [0.5])
@example("<function=now></function></function>", [0.2])
@example("[TOOL_CALLS] \n", [])
@example("[TOOL_CALLS]now{}[TOOL_CALLS]now", [0.8])
def test_every_split_gives_the_same(markup: ToolMarkup, text: str, places: list[float]) -> None:
    expected = find(markup, [text])
    assert find(markup, cut(text, places)) == expected
    assert find(markup, list(text)) == expected


@pytest.mark.parametrize("markup", MARKUPS)
@given(TEXT)
def test_nothing_inside_is_shown_and_nothing_is_lost(markup: ToolMarkup, text: str) -> None:
    openings = {"hermes": ["<tool_call>"], "qwen": ["<tool_call>", "<function="], "mistral": ["[TOOL_CALLS]"]}
    found = find(markup, [text])
    shown = "".join(piece.text for piece in found if piece.kind == "text")
    assert all(
        opening not in piece.text for piece in found if piece.kind == "text" for opening in openings[markup]
    )
    if not any(piece.kind == "call" for piece in found):
        everything = "".join(piece.text for piece in found)
        assert "".join(everything.split()) == "".join(text.split())
    if not any(opening in text for opening in openings[markup]):
        assert shown == text


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('aß😀"\\\n{}'), max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["text", "count", "any"]), VALUE, max_size=3)
PROSE = st.text(st.sampled_from("ab.ß"), max_size=4)
CALLS = st.lists(st.tuples(st.sampled_from(["now", "find"]), ARGUMENTS), min_size=1, max_size=3)


def calls_of(found: list[Found]) -> list[tuple[str, Any]]:
    return [(piece.name, json.loads(piece.text)) for piece in found if piece.kind == "call"]


@pytest.mark.parametrize("markup", ["hermes", "qwen"])
@given(CALLS, PROSE, PROSE, PLACES)
def test_hermes_calls_come_out_as_they_went_in(
    markup: ToolMarkup, calls: list[tuple[str, Any]], before: str, after: str, places: list[float]
) -> None:
    blocks = [
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
        for name, arguments in calls
    ]
    found = find(markup, cut(before + "\n".join(blocks) + "\n" + after, places))
    assert calls_of(found) == calls
    assert [piece.text for piece in found if piece.kind != "call"] == [t for t in (before, after) if t]


@given(CALLS, PROSE, PLACES, st.booleans())
def test_mistral_calls_come_out_as_they_went_in(
    calls: list[tuple[str, Any]], before: str, places: list[float], as_list: bool
) -> None:
    if as_list:
        inside = "[TOOL_CALLS]" + json.dumps([{"name": n, "arguments": a} for n, a in calls])
    else:
        inside = "".join(f"[TOOL_CALLS]{n}[CALL_ID]x1[ARGS]{json.dumps(a)}" for n, a in calls)
    found = find("mistral", cut(before + inside, places))
    assert calls_of(found) == calls
    assert [piece.text for piece in found if piece.kind != "call"] == ([before] if before else [])


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("text", "12", "12"),
        ("text", "\n12\n", "12"),
        ("text", "\n\nif a < b:\n  c\n\n", "\nif a < b:\n  c\n"),
        ("text", "null", "null"),
        ("count", "12", 12),
        ("count", "\n12\n", 12),
        ("count", "null", None),
        ("count", "many", "many"),
        ("exact", "True", True),
        ("exact", "false", False),
        ("among", '["a", 1]', ["a", 1]),
        ("maybe", "12", "12"),
        ("maybe", "null", None),
        ("any", "NaN", "NaN"),
        ("any", "1e999", "1e999"),
        ("nobody_knows", "{}", {}),
    ],
)
def test_qwen_parameters_take_the_type_of_their_schema(name: str, written: str, value: object) -> None:
    text = f"<tool_call>\n<function=find>\n<parameter={name}>{written}</parameter>\n</function>\n</tool_call>"
    assert calls_of(find("qwen", [text])) == [("find", {name: value})]


@pytest.mark.parametrize(
    "text",
    [
        "<function=find>",
        "<function=find></function",
        "<function=find><parameter=text>a</function>",
        "<function=find>text</function>",
        "<function=find><parameter=text</parameter></function>",
        "<function=find>a<parameter=text>a</parameter></function>",
        "<function=find ></function>",
        "<tool_call><function=now></function>.</tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>[]</tool_call>",
        '<tool_call>{"name":{"a":1}}</tool_call>',
        '<tool_call>{"name":"now","arguments":[]}</tool_call>',
        '<tool_call>{"name":"now","arguments":"nothing"}</tool_call>',
        '<tool_call>{"name":"now"} {"name":"now"}</tool_call>',
        '<tool_call>{"name":"now","arguments":' + '{"a":' * 5000 + "</tool_call>",
    ],
)
def test_what_is_not_quite_a_call_is_opaque(text: str) -> None:
    assert find("qwen", [text]) == find("qwen", list(text)) == [Found("opaque", text)]


@pytest.mark.parametrize(
    "text", ["now", "now{", "[", '[{"name":"nope"}]', "{}", "now{}.", "now 12", "[1]", "[]"]
)
def test_what_is_not_quite_a_mistral_call_is_opaque(text: str) -> None:
    assert find("mistral", ["[TOOL_CALLS]" + text]) == [Found("opaque", "[TOOL_CALLS]" + text)]


def test_what_is_held_has_a_bound() -> None:
    finder = Finder("hermes", TOOLS)
    finder.feed("<tool_call>" + "x" * (TOOL_ARGUMENTS_MAX_CHARS - 1))
    with pytest.raises(MalformedStream):
        finder.feed("xx")


@pytest.mark.parametrize("markup", MARKUPS)
@pytest.mark.parametrize(
    "text",
    [
        "a<b[c",
        "<tool_call>a</tool_call>",
        "[TOOL_CALLS]now{}",
        "<function=now><parameter=a>",
        "<tool_call>" + "y" * 40,
        '<tool_call>{"name":"now"}</tool_call>\n',
        "<tool_call>now</tool_cal",
        "</parameter>",
        "{",
    ],
)
@pytest.mark.slow
def test_cost_is_linear_in_small_pieces_and_in_one(markup: ToolMarkup, text: str) -> None:
    assert_linear(lambda n: find(markup, list(text * (n // len(text)))), 2_000)
    assert_linear(lambda n: find(markup, [text * (n // len(text))]), 8_000)


@pytest.mark.parametrize("inside", ["x", "<parameter=a>", "</parameter>", "{}", "</tool_cal", '"'])
@pytest.mark.parametrize("opening", ["<tool_call>", "<function=find>"])
@pytest.mark.slow
def test_a_long_call_is_read_in_linear_time(opening: str, inside: str) -> None:
    closing = "</tool_call>" if opening == "<tool_call>" else "</function>"
    assert_linear(lambda n: find("qwen", [opening, *(inside for _ in range(n)), closing]), 2_000)
