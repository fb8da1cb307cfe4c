"""How callers of an API hear of what an agent does beside answering."""

from collections.abc import Iterable
from typing import Final, Literal

from headrace.events import Event, NoticeShown
from headrace.views.asides import Aside, Asking, Told

Progress = Literal["reasoning", "chunks", "off"]
"""As lines of reasoning, which clients fold away; as frames of their own, which they pass over; not at all."""

NEVER_OFF: Final = "tool_call_dropped"
"""The notice that a tool call was lost."""


def lines(progress: Progress, event: Event, pieces: Iterable[Told]) -> tuple[Progress, list[str]]:
    """What callers who want `progress` are told of the event, and how."""
    if progress == "off" and isinstance(event, NoticeShown) and event.code == NEVER_OFF:
        progress = "reasoning"
    shown = () if progress == "off" else pieces
    return progress, [told(piece) for piece in shown if isinstance(piece, Aside | Asking)]


def told(piece: Aside | Asking) -> str:
    """A line of progress; who is asked something learns where it can be answered."""
    if isinstance(piece, Aside):
        return piece.text
    choices = "".join(f" [{choice}]" for choice in piece.choices)
    what = "Allow it" if piece.kind == "approval" else "Answer"
    return f"{piece.text}{choices} ({what} in a terminal: headrace follow)"
