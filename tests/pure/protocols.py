"""Random replies as any of the three protocols sends them: what was said, the stream, and the same as a whole answer."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from hypothesis import strategies as st

from headrace.ports import ProtocolName
from headrace.wire import chat_completions, messages, responses
from tests.pure import replies
from tests.pure.replies import SEGMENT, TOOLS, Segment, fragments
from tests.pure.wire_helpers import MakeDecoder

PROTOCOLS: tuple[ProtocolName, ...] = ("chat_completions", "responses", "messages")
WIRES: dict[ProtocolName, Any] = {
    "chat_completions": chat_completions,
    "responses": responses,
    "messages": messages,
}


class Streamed(NamedTuple):
    protocol: ProtocolName
    segments: list[Segment]
    data: bytes
    evidence: int
    """A stream cut here or earlier has no terminal evidence."""
    body: bytes | None
    """The same as a whole answer; None where this protocol has no whole answer that says the same."""

    @property
    def decoder(self) -> MakeDecoder:
        return partial(WIRES[self.protocol].Decoder, tools=TOOLS)

    @property
    def body_decoder(self) -> MakeDecoder:
        return partial(WIRES[self.protocol].BodyDecoder, tools=TOOLS)

    def said(self, kind: str) -> str:
        return "".join(s.text for s in self.segments if s.kind == kind)

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(s.name, s.text) for s in self.segments if s.kind == "call"]


class Sse:
    """Writes events in one of the ways servers do."""

    def __init__(self, draw: st.DrawFn, *, named: bool) -> None:
        self._newline = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
        self._named = named and draw(st.booleans())
        self._space = draw(st.sampled_from([" ", ""]))
        self._comments = draw(st.booleans())
        self.ascii = draw(st.booleans())
        self.data = b"\xef\xbb\xbf" if draw(st.booleans()) else b""
        self.evidence = 0

    def write(self, *events: dict[str, Any], evidence: bool = False) -> None:
        for event in events:
            lines = [": keep-alive", ""] if self._comments else []
            if self._named:
                lines.append(f"event: {event['type']}")
            lines.append(f"data:{self._space}{json.dumps(event, ensure_ascii=self.ascii)}")
            self.data += self._newline.join(lines).encode()
            if evidence:
                self.evidence = len(self.data)
            self.data += self._newline.encode() * 2


def cuts(draw: st.DrawFn, sse: Sse, text: str) -> list[str]:
    return fragments(draw, text, halves=sse.ascii and draw(st.booleans()))


# --- messages


def _block(segment: Segment, number: int) -> dict[str, Any]:
    match segment.kind:
        case "text":
            return {"type": "text", "text": segment.text}
        case "reasoning":
            return {"type": "thinking", "thinking": segment.text, "signature": f"s{number}"}
        case "call":
            return {
                "type": "tool_use",
                "id": f"t{number}",
                "name": segment.name,
                "input": json.loads(segment.text),
            }


_EMPTY = {"text": {"text": ""}, "thinking": {"thinking": ""}, "tool_use": {"input": {}}}


def _block_events(
    draw: st.DrawFn, sse: Sse, segment: Segment, block: dict[str, Any], index: int
) -> Iterator[dict[str, Any]]:
    at = {"index": index}
    empty = {name: value for name, value in block.items() if name != "signature"} | _EMPTY[block["type"]]
    yield {"type": "content_block_start", **at, "content_block": empty}
    kind, field = {
        "text": ("text_delta", "text"),
        "reasoning": ("thinking_delta", "thinking"),
        "call": ("input_json_delta", "partial_json"),
    }[segment.kind]
    for piece in cuts(draw, sse, segment.text):
        yield {"type": "content_block_delta", **at, "delta": {"type": kind, field: piece}}
        if draw(st.booleans()):
            yield {"type": "ping"}
    if segment.kind == "reasoning":
        signature = {"type": "signature_delta", "signature": block["signature"]}
        yield {"type": "content_block_delta", **at, "delta": signature}
    yield {"type": "content_block_stop", **at}


@st.composite
def messages_reply(draw: st.DrawFn) -> Streamed:
    segments = draw(st.lists(SEGMENT, max_size=5))
    sse = Sse(draw, named=True)
    blocks = [_block(segment, number) for number, segment in enumerate(segments)]
    reason = "tool_use" if any(s.kind == "call" for s in segments) else "end_turn"
    answer = {"type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    sse.write({"type": "message_start", "message": {**answer, "usage": {"input_tokens": 9}}})
    for index, (segment, block) in enumerate(zip(segments, blocks, strict=True)):
        sse.write(*_block_events(draw, sse, segment, block, index))
    usage = {"output_tokens": 4}
    sse.write({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, evidence=True)
    if draw(st.booleans()):
        sse.write({"type": "message_stop"})
    whole = {**answer, "content": blocks, "stop_reason": reason, "usage": {"input_tokens": 9, **usage}}
    return Streamed("messages", segments, sse.data, sse.evidence, json.dumps(whole).encode())


# --- responses


def _item(segment: Segment, number: int) -> dict[str, Any]:
    match segment.kind:
        case "text":
            content = {"type": "output_text", "text": segment.text, "annotations": []}
            return {"id": f"i{number}", "type": "message", "role": "assistant", "content": [content]}
        case "reasoning":
            summary = [{"type": "summary_text", "text": segment.text}]
            return {"id": f"i{number}", "type": "reasoning", "summary": summary, "encrypted_content": "x"}
        case "call":
            call = {"call_id": f"t{number}", "name": segment.name, "arguments": segment.text}
            return {"id": f"i{number}", "type": "function_call", **call}


_EMPTY_ITEM = {"message": {"content": []}, "reasoning": {"summary": []}, "function_call": {"arguments": ""}}


def _item_events(
    draw: st.DrawFn, sse: Sse, segment: Segment, item: dict[str, Any], index: int
) -> Iterator[dict[str, Any]]:
    """Announced, grown and handed over done; each of the three may be missing, though not the name of a call."""
    at = {"output_index": index, "item_id": item["id"]}
    announced, grown = draw(st.booleans()), draw(st.booleans())
    if announced or (grown and segment.kind == "call"):
        announcement = {**item, **_EMPTY_ITEM[item["type"]]}
        yield {"type": "response.output_item.added", "output_index": index, "item": announcement}
    what, place, field = {
        "text": ("output_text", {"content_index": 0}, "text"),
        "reasoning": ("reasoning_summary_text", {"summary_index": 0}, "text"),
        "call": ("function_call_arguments", {}, "arguments"),
    }[segment.kind]
    if grown:
        for piece in cuts(draw, sse, segment.text):
            yield {"type": f"response.{what}.delta", **at, **place, "delta": piece}
        if draw(st.booleans()):
            yield {"type": f"response.{what}.done", **at, **place, field: segment.text}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


@st.composite
def responses_reply(draw: st.DrawFn) -> Streamed:
    segments = draw(st.lists(SEGMENT, max_size=5))
    sse = Sse(draw, named=True)
    items = [_item(segment, number) for number, segment in enumerate(segments)]
    answer = {"id": "r", "object": "response", "model": "m", "status": "in_progress", "output": []}
    sse.write({"type": "response.created", "response": answer})
    for index, (segment, item) in enumerate(zip(segments, items, strict=True)):
        sse.write(*_item_events(draw, sse, segment, item, index))
    usage = {"input_tokens": 9, "output_tokens": 4}
    whole = {**answer, "status": "completed", "output": items, "usage": usage}
    repeated = draw(st.sampled_from([{}, {"output": []}]))
    sse.write({"type": "response.completed", "response": {**whole, **repeated}}, evidence=True)
    return Streamed("responses", segments, sse.data, sse.evidence, json.dumps(whole).encode())


# --- chat completions, and any of them


def _chat(reply: replies.Sent) -> Streamed:
    """Here a whole answer has its text in one piece, before its calls."""
    body = replies.body(reply) if reply.style.reason is not None else None
    return Streamed("chat_completions", reply.segments, reply.data, reply.evidence, body)


STREAMED: dict[ProtocolName, st.SearchStrategy[Streamed]] = {
    "chat_completions": replies.sent().map(_chat),
    "responses": responses_reply(),
    "messages": messages_reply(),
}
ANY = st.one_of(*STREAMED.values())
