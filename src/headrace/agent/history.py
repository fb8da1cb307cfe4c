"""How much of a session's past a call is given."""

from collections.abc import Sequence

from headrace.events import AssistantMessage, Message, SystemMessage, TextContent


def fitting(turns: Sequence[tuple[Message, ...]], most_chars: int) -> tuple[Message, ...]:
    """The latest whole turns that fit, oldest first. A turn is never cut, so no tool result loses its call."""
    kept: list[tuple[Message, ...]] = []
    room = most_chars
    for turn in reversed(turns):
        room -= sum(map(_size, turn))
        if room < 0:
            break
        kept.append(turn)
    return tuple(message for turn in reversed(kept) for message in turn)


def _size(message: Message) -> int:
    match message:
        case SystemMessage(text):
            return len(text)
        case AssistantMessage(parts):
            return sum(max(len(part.text), len(part.item)) for part in parts)
        case _:
            return sum(len(c.text) for c in message.content if isinstance(c, TextContent))
