"""A reply in Anthropic's messages, streamed and whole.

Every part is a content block: started, grown by deltas, stopped. `message_delta` holds the stop reason and
the final usage, and `message_stop` ends the stream.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from headrace.testing.modelserver.frames import Frame, Role, sse
from headrace.testing.scripts import CallTool, Part, Refuse, Reply, Say, Think, Usage, whole

_STOP_REASON: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "refused": "refusal",
    "pause": "pause_turn",
}


def stream(reply: Reply, model: str) -> Iterator[Frame]:
    for role, event in _events(reply, model):
        yield Frame(role, sse(event, event["type"]))


def answer(reply: Reply, model: str, *, finished: bool = True) -> dict[str, Any]:
    blocks = [_block(part, index) for index, part in enumerate(reply.parts)]
    return _message(model, blocks, _stop_reason(reply) if finished else None, _usage(reply.usage))


def _events(reply: Reply, model: str) -> Iterator[tuple[Role, dict[str, Any]]]:
    opened = _message(model, [], None, {**_usage(reply.usage), "output_tokens": 1})
    yield "open", {"type": "message_start", "message": opened}
    yield "open", {"type": "ping"}
    for index, part in enumerate(reply.parts):
        at = {"index": index}
        yield "inner", {"type": "content_block_start", **at, "content_block": _block(part, index, done=False)}
        for role, delta in _deltas(reply, part):
            yield role, {"type": "content_block_delta", **at, "delta": delta}
        yield "inner", {"type": "content_block_stop", **at}
    end = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield "finish", {"type": "message_delta", "delta": end, "usage": _usage(reply.usage)}
    yield "done", {"type": "message_stop"}


def _deltas(reply: Reply, part: Part) -> Iterator[tuple[Role, dict[str, Any]]]:
    match part:
        case Say() | Refuse():
            for delta in reply.deltas(part.text):
                yield "text", {"type": "text_delta", "text": delta}
        case Think():
            for delta in reply.deltas(part.text):
                yield "reasoning", {"type": "thinking_delta", "thinking": delta}
            yield "inner", {"type": "signature_delta", "signature": part.signature}
        case CallTool():
            yield "inner", {"type": "input_json_delta", "partial_json": ""}
            for delta in reply.deltas(part.text):
                yield "arguments", {"type": "input_json_delta", "partial_json": delta}


def _block(part: Part, index: int, *, done: bool = True) -> dict[str, Any]:
    match part:
        case Say() | Refuse():
            return {"type": "text", "text": whole(part.text) if done else ""}
        case Think():
            text, signature = (whole(part.text), part.signature) if done else ("", "")
            return {"type": "thinking", "thinking": text, "signature": signature}
        case CallTool():
            called = part.id or f"toolu_{index + 1}"
            return {
                "type": "tool_use",
                "id": called,
                "name": part.name,
                "input": _input(part) if done else {},
            }


def _input(part: CallTool) -> Any:
    """A whole answer holds the input as an object; what is not JSON goes out as the string it is."""
    try:
        return json.loads(part.text)
    except ValueError:
        return part.text


def _message(
    model: str, content: list[dict[str, Any]], stop_reason: str | None, usage: dict[str, Any]
) -> dict[str, Any]:
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def _stop_reason(reply: Reply) -> str:
    refused = reply.end == "stop" and any(isinstance(part, Refuse) for part in reply.parts)
    return "refusal" if refused else _STOP_REASON.get(reply.end, reply.end)


def _usage(usage: Usage) -> dict[str, Any]:
    # Anthropic counts what came from the cache, and what went into it, apart from the input.
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "input_tokens": usage.input_tokens - cached,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
