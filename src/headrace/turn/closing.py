"""Bringing a turn to its end from any state: after Stop, after a crash, after a bug of our own."""

from typing import Final

from headrace.errors import Cause, Outcome
from headrace.events import (
    ApprovalGiven,
    CallFailed,
    Event,
    QuestionAnswered,
    ReplyCut,
    ToolFinished,
    ToolStatus,
    TurnClosed,
)
from headrace.turn.folds import Folded
from headrace.turn.machine import Machine

UNKNOWN_RESULT: Final = (
    "The process ended while this tool was running. What it did is unknown. It has not been run again."
)
CANCELLED_RESULT: Final = "The turn was stopped before this tool had finished."


def closing(machine: Machine, folded: Folded, cause: Cause, outcome: Outcome | None = None) -> list[Event]:
    """Every event that is still missing, `TurnClosed` last; nothing if the turn is closed.

    The outcome follows from the cause and from what was visible, unless the caller knows better.
    """
    if machine.state("turn") != "open":
        return []
    return [
        *ending(machine, folded, cause),
        TurnClosed(outcome or cause.outcome(visible=folded.visible), cause),
    ]


def ending_of(call: int, machine: Machine, folded: Folded, cause: Cause) -> Event:
    """What ends a call that is under way."""
    if machine.state("call", call) == "visible":
        return ReplyCut(call, cause, folded.open_tool_names(call))
    return CallFailed(call, cause)


def ending(machine: Machine, folded: Folded, cause: Cause) -> list[Event]:
    """What ends everything that is under way within the turn."""
    events = [ending_of(call, machine, folded, cause) for call in _numbers(machine.unfinished("call"))]
    status: ToolStatus = "unknown" if cause.code == "crashed" else "cancelled"
    result = UNKNOWN_RESULT if status == "unknown" else CANCELLED_RESULT
    for key in machine.unfinished("tool"):
        assert isinstance(key, tuple)
        events.append(ToolFinished(*key, status, result))
    events += [ApprovalGiven(str(key), "withdrawn") for key in machine.unfinished("approval")]
    events += [QuestionAnswered(str(key)) for key in machine.unfinished("question")]
    return events


def _numbers(keys: list[int | str | tuple[int, int]]) -> list[int]:
    return [key for key in keys if isinstance(key, int)]
