"""A reply in OpenAI's chat completions, streamed and whole.

A stream is one chunk for each delta. The first names the role, the last with a choice holds the finish
reason, a chunk without choices reports the usage if it was asked for, and `[DONE]` ends it.
"""

from collections.abc import Iterator
from typing import Any, Final

from headrace.testing.modelserver.frames import CREATED, DONE, Frame, sse
from headrace.testing.scripts import CallTool, Refuse, Reply, Say, Think, Usage, whole

_FINISH: Final = {"refused": "content_filter", "pause": "stop"}
_ID: Final = "chatcmpl-scripted"


def stream(reply: Reply, model: str, *, include_usage: bool) -> Iterator[Frame]:
    head = {"id": _ID, "object": "chat.completion.chunk", "created": CREATED, "model": model}
    # `usage` is null on every chunk but the last, and only if it was asked for.
    usage = {"usage": None} if include_usage else {}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return sse({**head, "choices": [choice], **usage})

    yield Frame("open", chunk({"role": "assistant", "content": "", "refusal": None}))
    tools = 0
    for part in reply.parts:
        match part:
            case Say(text):
                yield from (Frame("text", chunk({"content": delta})) for delta in reply.deltas(text))
            case Refuse(text):
                yield from (Frame("text", chunk({"refusal": delta})) for delta in reply.deltas(text))
            case Think(text):
                for delta in reply.deltas(text):
                    yield Frame("reasoning", chunk({"reasoning_content": delta}))
            case CallTool():
                opening = {"index": tools, **_tool(part, tools, arguments="")}
                yield Frame("inner", chunk({"tool_calls": [opening]}))
                for delta in reply.deltas(part.text):
                    growth = {"index": tools, "function": {"arguments": delta}}
                    yield Frame("arguments", chunk({"tool_calls": [growth]}))
                tools += 1
    yield Frame("finish", chunk({}, _FINISH.get(reply.end, reply.end)))
    if include_usage:
        yield Frame("done", sse({**head, "choices": [], "usage": _usage(reply.usage)}))
    yield DONE


def answer(reply: Reply, model: str, *, finished: bool = True) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": _joined(reply, Say) or None,
        "refusal": _joined(reply, Refuse) or None,
    }
    if reasoning := _joined(reply, Think):
        message["reasoning_content"] = reasoning
    tools = [part for part in reply.parts if isinstance(part, CallTool)]
    if tools:
        message["tool_calls"] = [_tool(part, index, part.text) for index, part in enumerate(tools)]
    finish = _FINISH.get(reply.end, reply.end) if finished else None
    return {
        "id": _ID,
        "object": "chat.completion",
        "created": CREATED,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": _usage(reply.usage),
    }


def _tool(part: CallTool, index: int, arguments: str) -> dict[str, Any]:
    return {
        "id": part.id or f"call_{index + 1}",
        "type": "function",
        "function": {"name": part.name, "arguments": arguments},
    }


def _joined(reply: Reply, kind: type[Say | Refuse | Think]) -> str:
    return "".join(whole(part.text) for part in reply.parts if isinstance(part, kind))


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens, "audio_tokens": 0},
    }
