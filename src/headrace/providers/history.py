"""What all protocols have to settle before a history can be sent."""

from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.errors import CallError, Cause
from headrace.events import AssistantMessage, Content, Message, ReplyPart, TextContent, ToolMessage
from headrace.wire import jsontext


def distinct_tool_ids(messages: Iterable[Message]) -> list[Message]:
    """Make ids of tool calls unique: some providers count them anew in every reply, and others refuse repeats.

    A result belongs to the oldest call of its id in the latest reply that is still without one.
    """
    taken: set[str] = set()
    waiting: dict[str, list[str]] = {}  # the id as it was -> the ids it has become
    out: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage) and any(p.kind == "tool_call" for p in message.parts):
            waiting = {}
            out.append(_with_own_ids(message, taken, waiting))
        elif isinstance(message, ToolMessage) and waiting.get(message.tool_id):
            out.append(msgspec.structs.replace(message, tool_id=waiting[message.tool_id].pop(0)))
        else:
            out.append(message)
    return out


def _with_own_ids(
    message: AssistantMessage, taken: set[str], waiting: dict[str, list[str]]
) -> AssistantMessage:
    parts: list[ReplyPart] = []
    for part in message.parts:
        if part.kind == "tool_call":
            tool_id = _own(part.tool_id, taken)
            waiting.setdefault(part.tool_id, []).append(tool_id)
            parts.append(msgspec.structs.replace(part, tool_id=tool_id))
        else:
            parts.append(part)
    return msgspec.structs.replace(message, parts=tuple(parts))


def _own(tool_id: str, taken: set[str]) -> str:
    own, number = tool_id or "call", 2
    while own in taken:
        own, number = f"{tool_id or 'call'}_{number}", number + 1
    taken.add(own)
    return own


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
