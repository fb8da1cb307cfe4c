"""A request in OpenAI's chat completions."""

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
from headrace.ports import Request, ToolSpec
from headrace.providers.history import arguments_of, distinct_tool_ids, item_of, only_text, refused, text_of
from headrace.wire import jsontext

PATH: Final = "/chat/completions"

# Reasoning that a provider sent as a plain field is wanted back while tools are being used, and refused elsewhere.
_TOOL_TURN_FIELDS: Final = frozenset({"reasoning_content", "reasoning"})


def body(request: Request, model_id: str) -> dict[str, Any]:
    out: dict[str, Any] = {
        "model": request.model,
        "messages": [
            said for m in distinct_tool_ids(request.messages) if (said := _message(m, model_id)) is not None
        ],
    }
    if request.tools:
        out["tools"] = [{"type": "function", "function": _function(tool)} for tool in request.tools]
    out |= _parameters(request)
    if request.stream:
        out["stream"] = True
        if "stream_options" not in request.dropped:
            options = request.stream_options
            out["stream_options"] = {"include_usage": True} if options is None else dict(options)
    return out


def _function(tool: ToolSpec) -> dict[str, Any]:
    out = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return out if tool.strict is None else {**out, "strict": tool.strict}


def _parameters(request: Request) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if request.max_tokens is not None and "max_completion_tokens" not in request.extra:
        # Newer models know the bound by its newer name only.
        renamed = "max_tokens" in request.dropped
        out["max_completion_tokens" if renamed else "max_tokens"] = request.max_tokens
    if request.temperature is not None:
        out["temperature"] = request.temperature
    if request.reasoning_effort is not None:
        out["reasoning_effort"] = request.reasoning_effort
    out |= request.extra
    return {name: value for name, value in out.items() if name not in request.dropped}


def _message(message: Message, model_id: str) -> dict[str, Any] | None:
    match message:
        case SystemMessage(text):
            return {"role": "system", "content": text}
        case UserMessage(content):
            return {"role": "user", "content": _content(content)}
        case ToolMessage(tool_id, content):
            return {"role": "tool", "tool_call_id": tool_id, "content": _content(content)}
        case AssistantMessage(parts, model):
            return _assistant(parts, same_model=model == model_id)


def _content(content: tuple[Content, ...]) -> str | list[dict[str, Any]]:
    if only_text(content):
        return text_of(content)
    return [_content_part(c) for c in content]


def _content_part(content: Content) -> dict[str, Any]:
    match content:
        case TextContent(text):
            return {"type": "text", "text": text}
        case ImageContent(url, detail):
            return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if detail else {})}}
        case OtherContent("chat_completions", item):
            value: dict[str, Any] = jsontext.parse(item)
            return value
        case OtherContent():
            raise refused(
                "messages", "This content cannot be sent to a provider that speaks chat completions."
            )


def _assistant(parts: tuple[ReplyPart, ...], *, same_model: bool) -> dict[str, Any] | None:
    """None for a reply that said nothing: who only thought is not quoted."""
    text = "".join(p.text for p in parts if p.kind == "text")
    out: dict[str, Any] = {"role": "assistant", "content": text or None}
    refusal = "".join(p.text for p in parts if p.kind == "refusal")
    if refusal:
        out["refusal"] = refusal
    calls = [_call(p, item_of(p, same_model=same_model)) for p in parts if p.kind == "tool_call"]
    if calls:
        out["tool_calls"] = calls
    if not (text or refusal or calls):
        return None
    for part in parts:
        item = item_of(part, same_model=same_model) if part.kind in ("reasoning", "opaque") else None
        out |= {k: v for k, v in (item or {}).items() if calls or k not in _TOOL_TURN_FIELDS}
    return out


def _call(part: ReplyPart, item: dict[str, Any] | None) -> dict[str, Any]:
    arguments = part.text if jsontext.is_whole_object(part.text) else jsontext.dump(arguments_of(part))
    function = {**(item or {}).get("function", {}), "name": part.name, "arguments": arguments}
    return {**(item or {}), "id": part.tool_id, "type": "function", "function": function}
