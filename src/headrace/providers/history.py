"""What all protocols have to settle before a history can be sent."""

from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.errors import CallError, Cause
from headrace.events import AssistantMessage, Content, Message, ReplyPart, TextContent, ToolMessage
from headrace.wire import jsontext


def distinct_tool_ids(messages: Iterable[Message]) -> list[Message]:
    """Make ids of tool calls unique: some providers count them anew in every reply, and others refuse repeats."""
    seen: set[str] = set()
    renamed: dict[str, str] = {}
    out: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            renamed = _renamed(message, seen)
            seen.update(renamed.get(p.tool_id, p.tool_id) for p in message.parts if p.kind == "tool_call")
            out.append(_with_ids(message, renamed) if renamed else message)
        elif isinstance(message, ToolMessage) and message.tool_id in renamed:
            out.append(msgspec.structs.replace(message, tool_id=renamed[message.tool_id]))
        else:
            out.append(message)
    return out


def _renamed(message: AssistantMessage, seen: set[str]) -> dict[str, str]:
    ids = [p.tool_id for p in message.parts if p.kind == "tool_call" and p.tool_id in seen]
    out: dict[str, str] = {}
    for tool_id in ids:
        number = 2
        while f"{tool_id}_{number}" in seen:
            number += 1
        out[tool_id] = f"{tool_id}_{number}"
    return out


def _with_ids(message: AssistantMessage, renamed: dict[str, str]) -> AssistantMessage:
    """The new ids, and no items where an old one may be inside."""
    parts = tuple(
        msgspec.structs.replace(p, tool_id=renamed[p.tool_id], item="") if p.tool_id in renamed else p
        for p in message.parts
    )
    return msgspec.structs.replace(message, parts=parts)


def item_of(part: ReplyPart, *, same_model: bool) -> dict[str, Any] | None:
    """What the provider sent, for the model that sent it; None: rebuild it."""
    if not same_model or not part.item:
        return None
    item = jsontext.parse(part.item, "a stored item")
    return item if isinstance(item, dict) else None


def arguments_of(part: ReplyPart) -> dict[str, Any]:
    """A call's arguments as an object; what was no object was refused when it came, and is sent as an empty one."""
    if jsontext.is_whole_object(part.text):
        value: dict[str, Any] = jsontext.parse(part.text)
        return value
    return {}


def text_of(content: Iterable[Content]) -> str:
    return "".join(c.text for c in content if isinstance(c, TextContent))


def only_text(content: Iterable[Content]) -> bool:
    return all(isinstance(c, TextContent) for c in content)


def refused(parameter: str, why: str) -> CallError:
    """A request that this protocol cannot carry."""
    return CallError(Cause("bad_request", why, parameter=parameter))
