"""A request in Anthropic's messages."""

from collections.abc import Iterable
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
from headrace.limits import MESSAGES_MAX_TOKENS
from headrace.ports import Request
from headrace.providers.history import arguments_of, distinct_tool_ids, item_of, refused
from headrace.wire import jsontext

PATH: Final = "/messages"
HEADERS: Final = {"anthropic-version": "2023-06-01"}

# How many tokens a model may think, for the words other protocols use.
_THINKING_TOKENS: Final = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 24576, "xhigh": 49152}

_THINKING: Final = frozenset({"thinking", "redacted_thinking"})

Block = dict[str, Any]


def body(request: Request, model_id: str) -> dict[str, Any]:
    system = "\n\n".join(m.text for m in request.messages if isinstance(m, SystemMessage))
    out: dict[str, Any] = {
        "model": request.model,
        "messages": _turns(distinct_tool_ids(request.messages), model_id),
    }
    if system:
        out["system"] = system
    if request.tools:
        out["tools"] = [
            {"name": t.name, "description": t.description, "input_schema": t.parameters}
            for t in request.tools
        ]
    if request.stream:
        out["stream"] = True
    return out | _parameters(request)


def _parameters(request: Request) -> dict[str, Any]:
    out: dict[str, Any] = {"max_tokens": _max_tokens(request)}
    if request.temperature is not None:
        out["temperature"] = request.temperature
    if request.reasoning_effort not in (None, "none"):
        budget = _THINKING_TOKENS.get(str(request.reasoning_effort))
        if budget is None:
            words = ", ".join(_THINKING_TOKENS)
            raise refused("reasoning_effort", f"reasoning_effort is one of: none, {words}.")
        if "max_tokens" in request.dropped:
            budget = min(budget, out["max_tokens"] // 2)
        else:
            out["max_tokens"] += budget  # it bounds thinking and answer together
        out["thinking"] = {"type": "enabled", "budget_tokens": budget}
        out.pop("temperature", None)  # is refused beside thinking
    for name, value in request.extra.items():
        out |= _extra(name, value)
    return {name: value for name, value in out.items() if name == "max_tokens" or name not in request.dropped}


def _max_tokens(request: Request) -> int:
    if "max_tokens" in request.dropped:
        return MESSAGES_MAX_TOKENS // 2  # a bound is required; this one every model accepts
    newer = request.extra.get("max_completion_tokens")
    return newer if isinstance(newer, int) else request.max_tokens or MESSAGES_MAX_TOKENS


def _extra(name: str, value: Any) -> dict[str, Any]:
    match name, value:
        case (_, None) | ("max_completion_tokens", int()):
            return {}
        case (("top_p" | "top_k" | "metadata" | "service_tier"), _):
            return {name: value}
        case "stop", str():
            return {"stop_sequences": [value]}
        case "stop", list():
            return {"stop_sequences": value}
        case "tool_choice", "auto" | "none":
            return {"tool_choice": {"type": value}}
        case "tool_choice", "required":
            return {"tool_choice": {"type": "any"}}
        case "tool_choice", {"function": {"name": function}}:
            return {"tool_choice": {"type": "tool", "name": function}}
        case _:
            raise refused(
                name, f"{name} cannot be sent to a model that is spoken to in Anthropic's messages."
            )


def _turns(history: Iterable[Message], model_id: str) -> list[dict[str, Any]]:
    """Roles take turns in this protocol, and all results of one reply's tools belong into one message."""
    out: list[dict[str, Any]] = []
    for message in history:
        role, blocks = _said(message, model_id)
        if out and blocks and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        elif blocks:
            out.append({"role": role, "content": blocks})
    return out


def _said(message: Message, model_id: str) -> tuple[str, list[Block]]:
    match message:
        case SystemMessage():
            return "system", []
        case UserMessage(content):
            return "user", _content_blocks(content)
        case ToolMessage(tool_id, content):
            inner = _content_blocks(content)
            result = {"type": "tool_result", "tool_use_id": tool_id}
            return "user", [{**result, "content": inner} if inner else result]
        case AssistantMessage(parts, model):
            same = model == model_id
            blocks = [b for p in parts for b in _part(p, item_of(p, same_model=same))]
            while blocks and blocks[-1].get("type") in _THINKING:
                blocks.pop()  # is refused as the end of a message
            return "assistant", blocks


def _content_blocks(content: Iterable[Content]) -> list[Block]:
    """Text with nothing in it is refused."""
    return [_content_block(c) for c in content if not isinstance(c, TextContent) or c.text.strip()]


def _content_block(content: Content) -> Block:
    match content:
        case TextContent(text):
            return {"type": "text", "text": text}
        case ImageContent(url):
            return {"type": "image", "source": _source(url)}
        case OtherContent("messages", item):
            value: Block = jsontext.parse(item)
            return value
        case OtherContent():
            raise refused(
                "messages", "This content cannot be sent to a provider that speaks Anthropic's messages."
            )


def _source(url: str) -> Block:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    kind, _, data = url.removeprefix("data:").partition(",")
    if not kind.endswith(";base64"):
        raise refused("messages", "An image in a data: URL can be sent in base64 alone.")
    return {"type": "base64", "media_type": kind.partition(";")[0], "data": data}


def _part(part: ReplyPart, item: Block | None) -> list[Block]:
    if item is not None:
        # The id may have been made unique since.
        return [{**item, "id": part.tool_id} if part.kind == "tool_call" else item] if item else []
    match part.kind:
        case "text" | "refusal":
            return [{"type": "text", "text": part.text}] if part.text.strip() else []
        case "tool_call":
            return [{"type": "tool_use", "id": part.tool_id, "name": part.name, "input": arguments_of(part)}]
        case _:
            return []
