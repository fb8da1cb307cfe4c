"""How much of a model's context messages take, in characters, and their lean form.

Theory of operation. Characters are counted, because tokenizers differ and a turn's size has to be known before it is
sent. What tools returned is the bulk of most histories and the first to be spared: a lean message is the message with
such a result cut short. What people and models said is never touched.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.events import AssistantMessage, Message, SystemMessage, TextContent, ToolMessage
from headrace.limits import LEAN_RESULT_CHARS

_LEFT_OUT: Final = (
    "\n[{} more characters of this result are left out to save room. Run the tool again to see them.]"
)


def size(messages: Iterable[Message]) -> int:
    return sum(map(_size, messages))


def lean(messages: Iterable[Message]) -> tuple[Message, ...]:
    return tuple(clipped(message, LEAN_RESULT_CHARS) for message in messages)


def clipped(message: Message, most_chars: int) -> Message:
    """The message with what a tool returned cut to so many characters; any other message as it is."""
    if not isinstance(message, ToolMessage) or _size(message) <= most_chars:
        return message
    text = "".join(content.text for content in message.content if isinstance(content, TextContent))
    note = _LEFT_OUT.format(len(text) - most_chars)
    return msgspec.structs.replace(message, content=(TextContent(text[:most_chars] + note),))


def _size(message: Message) -> int:
    match message:
        case SystemMessage(text):
            return len(text)
        case AssistantMessage(parts):
            return sum(max(len(part.text), len(part.item)) for part in parts)
        case _:
            return sum(len(c.text) for c in message.content if isinstance(c, TextContent))
