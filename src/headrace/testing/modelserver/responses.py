"""A reply in OpenAI's Responses, streamed and whole.

Every part is an item of the output. A stream adds each item empty, lets it grow and hands it over done; the
last event repeats the whole response. Events are numbered from 0 without gaps.
"""

from collections.abc import Iterator
from typing import Any, Final

from headrace.testing.modelserver.frames import CREATED, Frame, Role, sse
from headrace.testing.scripts import CallTool, Part, Refuse, Reply, Say, Think, Usage, whole

_INCOMPLETE: Final = {"length": "max_output_tokens", "refused": "content_filter"}
_COMPLETE: Final = ("stop", "tool_calls", "pause")
_Numberless = tuple[Role, dict[str, Any]]


def stream(reply: Reply, model: str) -> Iterator[Frame]:
    for number, (role, event) in enumerate(_events(reply, model)):
        yield Frame(role, sse({**event, "sequence_number": number}, event["type"]))


def answer(reply: Reply, model: str, *, finished: bool = True) -> dict[str, Any]:
    if not finished:
        return response(model, "in_progress", [_item(part, n) for n, part in enumerate(reply.parts)])
    status = "completed" if reply.end in _COMPLETE else "incomplete"
    ended = response(model, status, [_item(part, n) for n, part in enumerate(reply.parts)])
    ended["usage"] = _usage(reply.usage)
    if status == "incomplete":
        ended["incomplete_details"] = {"reason": _INCOMPLETE.get(reply.end, reply.end)}
    return ended


def response(model: str, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "resp_scripted",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "user": None,
    }


def _events(reply: Reply, model: str) -> Iterator[_Numberless]:
    opened = response(model, "in_progress", [])
    yield "open", {"type": "response.created", "response": opened}
    yield "open", {"type": "response.in_progress", "response": opened}
    for index, part in enumerate(reply.parts):
        yield "inner", _added_or_done("added", index, _item(part, index, done=False))
        match part:
            case Say() | Refuse():
                yield from _message(reply, part, index)
            case Think():
                yield from _reasoning(reply, part, index)
            case CallTool():
                yield from _function_call(reply, part, index)
        yield "inner", _added_or_done("done", index, _item(part, index))
    ended = answer(reply, model)
    yield "finish", {"type": f"response.{ended['status']}", "response": ended}


def _added_or_done(which: str, index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"response.output_item.{which}", "output_index": index, "item": item}


def _message(reply: Reply, part: Say | Refuse, index: int) -> Iterator[_Numberless]:
    at = {"item_id": f"msg_{index}", "output_index": index, "content_index": 0}
    said = isinstance(part, Say)
    kind = "output_text" if said else "refusal"
    logprobs: dict[str, Any] = {"logprobs": []} if said else {}
    yield "inner", {"type": "response.content_part.added", **at, "part": _content(part, "")}
    for delta in reply.deltas(part.text):
        yield "text", {"type": f"response.{kind}.delta", **at, "delta": delta, **logprobs}
    text = whole(part.text)
    yield "inner", {"type": f"response.{kind}.done", **at, "text" if said else "refusal": text, **logprobs}
    yield "inner", {"type": "response.content_part.done", **at, "part": _content(part, text)}


def _reasoning(reply: Reply, part: Think, index: int) -> Iterator[_Numberless]:
    at = {"item_id": f"rs_{index}", "output_index": index, "summary_index": 0}
    name = "response.reasoning_summary"
    text = whole(part.text)
    yield "inner", {"type": f"{name}_part.added", **at, "part": {"type": "summary_text", "text": ""}}
    for delta in reply.deltas(part.text):
        yield "reasoning", {"type": f"{name}_text.delta", **at, "delta": delta}
    yield "inner", {"type": f"{name}_text.done", **at, "text": text}
    yield "inner", {"type": f"{name}_part.done", **at, "part": {"type": "summary_text", "text": text}}


def _function_call(reply: Reply, part: CallTool, index: int) -> Iterator[_Numberless]:
    at = {"item_id": f"fc_{index}", "output_index": index}
    name = "response.function_call_arguments"
    for delta in reply.deltas(part.text):
        yield "arguments", {"type": f"{name}.delta", **at, "delta": delta}
    yield "inner", {"type": f"{name}.done", **at, "arguments": part.text, "name": part.name}


def _item(part: Part, index: int, *, done: bool = True) -> dict[str, Any]:
    status = "completed" if done else "in_progress"
    match part:
        case Say() | Refuse():
            return {
                "id": f"msg_{index}",
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": [_content(part, whole(part.text))] if done else [],
            }
        case Think():
            return {
                "id": f"rs_{index}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": whole(part.text)}] if done else [],
                "encrypted_content": part.signature if done else "",
            }
        case CallTool():
            return {
                "id": f"fc_{index}",
                "type": "function_call",
                "status": status,
                "call_id": part.id or f"call_{index + 1}",
                "name": part.name,
                "arguments": part.text if done else "",
            }


def _content(part: Say | Refuse, text: str) -> dict[str, Any]:
    if isinstance(part, Refuse):
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
