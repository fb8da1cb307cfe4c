"""Inline reasoning: any split gives what a reading of the whole text gives, and no tag is ever shown."""

import itertools
import re
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.limits import MARKUP_HOLD_MAX_CHARS
from headrace.wire.dialect import ThinkMode
from headrace.wire.think import Pieces, Splitter
from tests.pure.wire_helpers import assert_linear

MODES: tuple[ThinkMode, ...] = get_args(ThinkMode)
TAG = re.compile(r"<(think|thinking|mm:think)>")


def split(mode: ThinkMode, pieces: list[str]) -> Pieces:
    """What comes out, neighbours of one kind joined."""
    splitter = Splitter(mode)
    found = [piece for text in pieces for piece in splitter.feed(text)] + splitter.end()
    assert splitter.end() == []
    assert all(text for _, text in found)
    out: Pieces = []
    for kind, text in found:
        if out and out[-1][0] == kind:
            out[-1] = (kind, out[-1][1] + text)
        else:
            out.append((kind, text))
    return out


def whole(mode: ThinkMode, text: str) -> Pieces:
    """The rules again, for a text that is there at once."""
    out: Pieces = []

    def add(kind: str, piece: str) -> None:
        if piece and out and out[-1][0] == kind:
            out[-1] = (out[-1][0], out[-1][1] + piece)
        elif piece:
            out.append(("reasoning" if kind == "reasoning" else "text", piece))

    if mode == "off":
        add("text", text)
        return out
    body = text.lstrip()
    near = len(text) - len(body) <= MARKUP_HOLD_MAX_CHARS
    if near and TAG.match(body):
        text = body
    elif mode == "prefilled":
        thought, closing, text = _partition(text, r"</(think|thinking|mm:think)>")
        add("reasoning", thought)
        if not closing:
            return out
        text = text.lstrip()
    while text:
        opening = TAG.search(text) if mode == "anywhere" else TAG.match(text)
        if opening is None:
            add("text", text)
            break
        add("text", text[: opening.start()])
        thought, _, text = _partition(text[opening.end() :], f"</{opening[1]}>")
        add("reasoning", thought)
        text = text.lstrip()
    return out


def _partition(text: str, pattern: str) -> tuple[str, str, str]:
    found = re.search(pattern, text)
    return (text, "", "") if found is None else (text[: found.start()], found[0], text[found.end() :])


def cut(text: str, places: list[float]) -> list[str]:
    edges = [0, *sorted(int(place * len(text)) for place in places), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


PLACES = st.lists(st.floats(0, 1), max_size=8)
BITS = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<thinking>",
        "</thinking>",
        "<mm:think>",
        "</mm:think>",
        "<",
        "</",
        "<th",
        "think>",
        ">",
        " ",
        "\n",
        "\u3000",
        "a",
        "ß",
        "😀",
        "�",
        "<<think>",
        "<THINK>",
        "< think>",
    ]
)
TEXT = st.lists(BITS, max_size=10).map("".join)


@pytest.mark.parametrize("mode", MODES)
@given(TEXT, PLACES)
@example("\n" * MARKUP_HOLD_MAX_CHARS + "<think>a</think>b", [0.3])
@example("\n" * (MARKUP_HOLD_MAX_CHARS + 1) + "<think>a</think>b", [0.3])
@example("<think>a</think>\n <th", [0.9])
@example("<think>a</thi</think>b", [0.5])
@example("<<think>a</think>", [])
@example("a<think>b</think> c <thinking>d</think></thinking>\n", [0.5])
def test_every_split_gives_what_the_whole_text_gives(mode: ThinkMode, text: str, places: list[float]) -> None:
    expected = whole(mode, text)
    assert split(mode, [text]) == expected
    assert split(mode, cut(text, places)) == expected
    assert split(mode, list(text)) == expected


PLAIN = st.text(st.sampled_from("ab <>/\n😀"), max_size=20).filter(lambda t: not re.search("<$|<[/tm]", t))


@pytest.mark.parametrize("mode", ["auto", "anywhere", "off"])
@given(PLAIN, PLACES)
def test_text_without_tags_is_not_changed(mode: ThinkMode, text: str, places: list[float]) -> None:
    assert "".join(piece for _, piece in split(mode, cut(text, places))) == text
    assert {kind for kind, _ in split(mode, [text])} <= {"text"}


WORDS = st.text(st.sampled_from("ab ß😀\n"), min_size=1, max_size=5)
BLOCKS = st.lists(st.tuples(st.sampled_from(["think", "thinking", "mm:think"]), WORDS, WORDS), max_size=4)


@pytest.mark.parametrize("mode", ["auto", "anywhere"])
@given(BLOCKS, WORDS, PLACES)
def test_no_character_of_a_tag_is_shown(
    mode: ThinkMode, blocks: list[tuple[str, str, str]], last: str, places: list[float]
) -> None:
    anywhere = mode == "anywhere"
    text = "".join(f"<{n}>{thought}</{n}>{said if anywhere else ' '}" for n, thought, said in blocks) + last
    out = split(mode, cut(text, places))
    assert not any(char in piece for _, piece in out for char in "<>/")
    thoughts = "".join(piece for kind, piece in out if kind == "reasoning")
    assert thoughts == "".join(thought for _, thought, _ in blocks)


def test_what_is_decided_is_not_held() -> None:
    splitter = Splitter("auto")
    assert splitter.feed("<") == []
    assert splitter.feed("b") == [("text", "<b")]
    assert splitter.passes
    inside = Splitter("auto")
    assert inside.feed("<think>Hm </th") == [("reasoning", "Hm ")]
    assert inside.feed("ink> \n") == []
    assert inside.feed("Yes") == [("text", "Yes")]


def test_white_space_is_held_within_bounds() -> None:
    splitter = Splitter("auto")
    held = [splitter.feed(" ") for _ in range(MARKUP_HOLD_MAX_CHARS + 1)]
    assert held[-1] == [("text", " " * (MARKUP_HOLD_MAX_CHARS + 1))]
    after = Splitter("auto")
    after.feed("<think>a</think>")
    for _ in range(1000):
        assert after.feed(" ") == []
    assert len(after._held) == 0


@pytest.mark.parametrize("text", ["a<b", " ", "<think>x</think>", "<think>" + "y" * 30])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.slow
def test_cost_is_linear_in_small_pieces_and_in_one(mode: ThinkMode, text: str) -> None:
    assert_linear(lambda n: split(mode, list(text * (n // len(text)))), 3_000)
    assert_linear(lambda n: Splitter(mode).feed(text * (n // len(text))), 30_000)
