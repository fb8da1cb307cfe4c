"""Random replies as chat completions: what was said, and one of the many ways to send it."""

import itertools
import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from hypothesis import strategies as st

TOOLS: dict[str, Any] = {"get_weather": {}, "get_time": {}, "find": {}}
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


class Segment(NamedTuple):
    kind: Literal["text", "reasoning", "call"]
    text: str
    """Of a call: its arguments."""
    name: str = ""


class Style(NamedTuple):
    """How a provider writes."""

    newline: str
    bom: bool
    space: bool
    comments: bool
    ascii: bool
    halves: bool
    """Cut emoji in two; only escapes can say that."""
    role: str
    reasoning: Literal["reasoning_content", "reasoning", "both"]
    numbering: Literal["index", "ids", "zero", "nothing", "finish each"]
    naming: Literal["once", "always", "fragments", "growing", "late"]
    usage: Literal["none", "last", "choice", "every"]
    reason: str | None
    done: bool
    unknown: bool
    """Send fields nobody knows, which takes every chunk the slow way."""


class Sent(NamedTuple):
    segments: list[Segment]
    style: Style
    data: bytes
    evidence: int
    """A stream cut here or earlier has no terminal evidence."""

    def total(self, kind: str) -> str:
        return "".join(s.text for s in self.segments if s.kind == kind)

    @property
    def usage_told(self) -> bool:
        return self.style.usage in ("last", "every") or (
            self.style.usage == "choice" and self.style.reason is not None
        )

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(s.name, s.text) for s in self.segments if s.kind == "call"]


TEXT = st.text(st.sampled_from('aß😀\n"\\ <>é'), min_size=1, max_size=12)
VALUE = st.none() | st.booleans() | st.integers(-9, 9) | st.text(st.sampled_from('a😀"{}\\\n'), max_size=4)
ARGUMENTS = st.dictionaries(st.sampled_from("abc"), VALUE | st.lists(VALUE, max_size=2), max_size=3)
SEGMENT = st.one_of(
    st.builds(Segment, st.just("text"), TEXT),
    st.builds(Segment, st.just("reasoning"), TEXT),
    st.builds(Segment, st.just("call"), ARGUMENTS.map(json.dumps), st.sampled_from(sorted(TOOLS))),
)


@st.composite
def styles(draw: st.DrawFn, segments: list[Segment]) -> Style:
    calls = any(s.kind == "call" for s in segments)
    done = draw(st.booleans())
    numbering: Any = draw(st.sampled_from(["index", "ids", "zero", "nothing", "finish each"]))
    naming: Any = draw(
        st.sampled_from(
            {"index": ["once", "always", "fragments", "growing", "late"], "nothing": ["once", "always"]}.get(
                numbering, ["once", "always", "fragments", "growing"]
            )
        )
    )
    reasons = ["stop", "tool_calls"] if calls else ["stop"]
    return Style(
        newline=draw(st.sampled_from(["\n", "\n", "\r\n", "\r"])),
        bom=draw(st.booleans()),
        space=draw(st.booleans()),
        comments=draw(st.booleans()),
        ascii=(ascii_only := draw(st.booleans())),
        halves=ascii_only and draw(st.booleans()),
        role=draw(st.sampled_from(["assistant", ""])),
        reasoning=draw(st.sampled_from(["reasoning_content", "reasoning", "both"])),
        numbering=numbering,
        naming=naming,
        usage=draw(st.sampled_from(["none", "last", "choice", "every"])),
        reason=draw(st.sampled_from([*reasons, None] if done and numbering != "finish each" else reasons)),
        done=done,
        unknown=draw(st.booleans()),
    )


def fragments(draw: st.DrawFn, text: str, *, halves: bool = False) -> list[str]:
    """`text` cut at random places, between the halves of a surrogate pair if it may be."""
    units = text.encode("utf-16-le")
    step = 2 if halves else 1
    whole = units if halves else text
    edges = sorted(
        {0, len(whole), *(step * n for n in draw(st.lists(st.integers(0, len(whole) // step), max_size=4)))}
    )
    cuts = [whole[start:end] for start, end in itertools.pairwise(edges)]
    return [cut if isinstance(cut, str) else cut.decode("utf-16-le", "surrogatepass") for cut in cuts]


def _name_deltas(style: Style, name: str) -> list[str]:
    if style.naming == "fragments":
        return [name[:2], name[2:3], name[3:]]
    if style.naming == "growing":
        return [name[:2], name[:3], name]
    return [] if style.naming == "late" else [name]


def _call_deltas(draw: st.DrawFn, style: Style, segment: Segment, number: int) -> Iterator[dict[str, Any]]:
    place: dict[str, Any] = {}
    if style.numbering == "index":
        place = {"index": number}
    elif style.numbering in ("zero", "finish each"):
        place = {"index": 0}
    tool_id = (
        {}
        if style.numbering == "nothing"
        else {"id": "t" if style.numbering == "finish each" else f"t{number}"}
    )
    pieces = fragments(draw, segment.text, halves=style.halves)
    if style.naming == "once" and draw(st.booleans()):
        yield {
            **place,
            **tool_id,
            "type": "function",
            "function": {"name": segment.name, "arguments": pieces.pop(0)},
        }
    elif style.naming == "always":
        yield from (
            {**place, **tool_id, "function": {"name": segment.name, "arguments": piece}} for piece in pieces
        )
        return
    else:
        first = True
        for name in _name_deltas(style, segment.name) or [""]:
            named = {"name": name} if name else {}
            yield {**place, **(tool_id if first else {}), "function": {**named, "arguments": ""}}
            first = False
    repeat = tool_id if style.numbering == "zero" else {}
    yield from ({**place, **repeat, "function": {"arguments": piece}} for piece in pieces)
    if style.naming == "late":
        yield {**place, "function": {"name": segment.name}}


def _deltas(
    draw: st.DrawFn, style: Style, segments: list[Segment]
) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Each delta, with a finish reason where one comes with it."""
    yield {"role": style.role, "content": ""}, None
    calls = 0
    for segment in segments:
        if segment.kind == "call":
            for delta in _call_deltas(draw, style, segment, calls):
                yield {"tool_calls": [delta]}, None
            if style.numbering == "finish each":
                yield {}, style.reason
            calls += 1
            continue
        names = ["content"]
        if segment.kind == "reasoning":
            both = style.reasoning == "both"
            names = ["reasoning", "reasoning_content"] if both else [style.reasoning]
        for piece in fragments(draw, segment.text, halves=style.halves):
            yield dict.fromkeys(names, piece), None
    if style.reason is not None:
        yield {}, style.reason


class _Writer:
    def __init__(self, style: Style) -> None:
        self.style = style
        self.data = b"\xef\xbb\xbf" if style.bom else b""
        self.evidence: int | None = None

    def event(self, value: Any, *, evidence: bool = False) -> None:
        style = self.style
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=style.ascii)
        if style.comments:
            self.data += f": OPENROUTER PROCESSING{style.newline * 2}".encode()
        self.data += (b"data: " if style.space else b"data:") + text.encode()
        if evidence and self.evidence is None:
            self.evidence = len(self.data)
        self.data += (style.newline * 2).encode()

    def chunk(self, delta: dict[str, Any], reason: str | None) -> None:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": reason}
        chunk: dict[str, Any] = {"id": "c", "model": "m", "choices": [choice]}
        if self.style.unknown:
            delta["mood"] = "fine"
        if self.style.usage == "every":
            chunk["usage"] = USAGE
        if self.style.usage == "choice" and reason:
            choice["usage"] = USAGE
        self.event(chunk, evidence=reason is not None)


@st.composite
def sent(draw: st.DrawFn) -> Sent:
    segments = draw(st.lists(SEGMENT, max_size=6))
    style = draw(styles(segments))
    writer = _Writer(style)
    for delta, reason in _deltas(draw, style, segments):
        writer.chunk(delta, reason)
    if style.usage == "last":
        writer.event({"id": "c", "model": "m", "choices": [], "usage": USAGE})
    if style.done:
        writer.event("[DONE]", evidence=True)
    assert writer.evidence is not None
    return Sent(segments, style, writer.data, writer.evidence)


def body(reply: Sent) -> bytes:
    """The same reply as a whole."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.total("text") or None}
    if reasoning := reply.total("reasoning"):
        names = {"both": ["reasoning", "reasoning_content"]}.get(
            reply.style.reasoning, [reply.style.reasoning]
        )
        message |= dict.fromkeys(names, reasoning)
    if reply.calls:
        message["tool_calls"] = [
            {"id": f"t{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (name, arguments) in enumerate(reply.calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": reply.style.reason}
    usage = {"usage": USAGE} if reply.usage_told else {}
    return json.dumps({"model": "m", "choices": [choice], **usage}).encode()
