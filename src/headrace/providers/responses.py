"""A request in OpenAI's Responses."""

from collections.abc import Mapping
from typing import Any, Final

from headrace.events import (
    AssistantMessage,
    Content,
    ImageContent,
    Message,
    OtherContent,
    ReplyPart,
    SystemMessage,
    TextContent,
    ToolMessage,
    UserMessage,
)
from headrace.ports import Request
from headrace.providers.history import arguments_of, distinct_tool_ids, item_of, only_text, refused, text_of
from headrace.wire import jsontext

PATH: Final = "/responses"

_ENCRYPTED: Final = "reasoning.encrypted_content"

# Parameters of chat completions that Responses knows under the same name.
_SAME: Final = frozenset(
    {"top_p", "parallel_tool_calls", "metadata", "user", "service_tier", "top_logprobs", "prompt_cache_key",
     "safety_identifier", "truncation", "store", "include"}
)  # fmt: skip


def body(request: Request, model_id: str) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for message in distinct_tool_ids(request.messages):
        items += _items(message, model_id)
    out: dict[str, Any] = {
        "model": request.model,
        "input": items,
        # Nothing is left with the provider: what it wants to see again comes back encrypted and is sent along.
        "store": False,
        "include": [_ENCRYPTED],
    }
    if request.tools:
        out["tools"] = [
            {
                "type": "function",
                "name": t.name,
                "description": t.description,
                "parameters": t.parameters,
                "strict": bool(t.strict),
            }
            for t in request.tools
        ]
    out |= _parameters(request)
    if request.stream:
        out["stream"] = True
        # The caller's include_usage has no meaning here: usage always comes.
        options = {k: v for k, v in (request.stream_options or {}).items() if k != "include_usage"}
        if options and "stream_options" not in request.dropped:
            out["stream_options"] = options
    return out


def _parameters(request: Request) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if request.max_tokens is not None and "max_tokens" not in request.dropped:
        out["max_output_tokens"] = request.max_tokens
    if request.temperature is not None:
        out["temperature"] = request.temperature
    thinking = {"effort": request.reasoning_effort, "summary": request.extra.get("reasoning_summary")}
    if reasoning := {name: value for name, value in thinking.items() if value is not None}:
        out["reasoning"] = reasoning
    for name, value in request.extra.items():
        found = _extra(name, value)
        if "text" in found:  # its form and how much of it are one parameter here
            found["text"] = {**out.get("text", {}), **found["text"]}
        out |= found
    return {name: value for name, value in out.items() if name not in request.dropped}


def _extra(name: str, value: Any) -> dict[str, Any]:
    match name, value:
        case _, None:
            return {}
        case "include", list():
            return {"include": [_ENCRYPTED, *(v for v in value if v != _ENCRYPTED)]}
        case "tool_choice", {"type": "function", "function": {"name": function}}:
            return {"tool_choice": {"type": "function", "name": function}}
        case "tool_choice", _:
            return {"tool_choice": value}
        case "response_format", {"type": "json_schema", "json_schema": {**schema}}:
            return {"text": {"format": {"type": "json_schema", **schema}}}
        case "response_format", _:
            return {"text": {"format": value}}
        case "verbosity", _:
            return {"text": {"verbosity": value}}
        case "max_completion_tokens", _:
            return {"max_output_tokens": value}
        case "reasoning_summary", _:
            return {}  # stands beside the effort
        case _ if name in _SAME:
            return {name: value}
        case _:
            raise refused(name, f"{name} cannot be sent to a model that is spoken to in OpenAI's Responses.")


def _items(message: Message, model_id: str) -> list[dict[str, Any]]:
    match message:
        case SystemMessage(text):
            return [{"role": "system", "content": text}]
        case UserMessage(content):
            return [{"role": "user", "content": [_content_part(c) for c in content]}]
        case ToolMessage(tool_id, content):
            output = text_of(content) if only_text(content) else [_content_part(c) for c in content]
            return [{"type": "function_call_output", "call_id": tool_id, "output": output}]
        case AssistantMessage(parts, model):
            items = [item for p in parts for item in _part(p, item_of(p, same_model=model == model_id))]
            while items and items[-1].get("type") == "reasoning":
                items.pop()  # is refused without what followed it
            return items


def _content_part(content: Content) -> dict[str, Any]:
    match content:
        case TextContent(text):
            return {"type": "input_text", "text": text}
        case ImageContent(url, detail):
            return {"type": "input_image", "image_url": url, "detail": detail or "auto"}
        case OtherContent("responses", item):
            value: dict[str, Any] = jsontext.parse(item)
            return value
        case OtherContent():
            raise refused(
                "input", "This content cannot be sent to a provider that speaks OpenAI's Responses."
            )


def _part(part: ReplyPart, item: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    if item is not None:
        return [_replayed(item, part)] if item else []
    match part.kind:
        case "text" | "refusal":
            return [{"role": "assistant", "content": part.text}] if part.text else []
        case "tool_call":
            call = {
                "call_id": part.tool_id,
                "name": part.name,
                "arguments": jsontext.dump(arguments_of(part)),
            }
            return [{"type": "function_call", **call}]
        case _:
            return []


def _replayed(item: Mapping[str, Any], part: ReplyPart) -> dict[str, Any]:
    """What the provider sent; but a status of null is refused, and a call's id may have been made unique since."""
    kept = {k: v for k, v in item.items() if k != "status" or v is not None}
    return {**kept, "call_id": part.tool_id} if part.kind == "tool_call" else kept
