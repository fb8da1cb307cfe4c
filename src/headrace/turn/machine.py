"""Runs the tables of `tables` over a turn's events.

Theory of operation. `TOUCHED` says of each event which things it touches; its name is the symbol they move by, but for
calls, which move by what people see. `apply` looks every move up, refuses the event if one has no entry, and only then
changes states. Three events also move things they do not name: the end of a reply makes its tools `asked`, a bad end of
an attempt drops the parts it left open, and a turn may close only when nothing in it is unfinished.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from headrace.errors import IllegalTransition
from headrace.events import (
    VISIBLE_KINDS,
    AdviceSought,
    ApprovalAsked,
    ApprovalGiven,
    AttemptReplaced,
    AttemptStarted,
    CallFailed,
    CallStarted,
    Event,
    HistoryCompacted,
    InputAdded,
    NoticeShown,
    PartClosed,
    PartGrew,
    PartKind,
    PartStarted,
    QuestionAnswered,
    QuestionAsked,
    ReplyCut,
    ReplyEnded,
    ToolFinished,
    ToolPrinted,
    ToolStarted,
    TurnClosed,
    TurnOpened,
    UsageReported,
)
from headrace.turn.tables import NEW, TABLES, UNFINISHED, Kind, State, Symbol

Key = int | str | tuple[int, int]
Move = tuple[Kind, Key, Symbol]

TURN_KEY: Final = 0


def _the_turn(_: Event) -> Key:
    return TURN_KEY


_Touch = tuple[Kind, Callable[[Any], Key]]

_TURN: Final[_Touch] = ("turn", _the_turn)
_CALL: Final[_Touch] = ("call", attrgetter("call"))
_PART: Final[_Touch] = ("part", attrgetter("call", "part"))
_TOOL: Final[_Touch] = ("tool", attrgetter("call", "part"))
_APPROVAL: Final[_Touch] = ("approval", attrgetter("approval"))
_QUESTION: Final[_Touch] = ("question", attrgetter("question"))

TOUCHED: Final[Mapping[type[Event], tuple[_Touch, ...]]] = {
    TurnOpened: (_TURN,),
    InputAdded: (_TURN,),
    AdviceSought: (_TURN,),
    CallStarted: (_TURN, _CALL),
    AttemptStarted: (_CALL,),
    AttemptReplaced: (_CALL,),
    PartStarted: (_PART, _CALL),
    PartGrew: (_PART,),
    PartClosed: (_PART, _CALL),
    UsageReported: (_CALL,),
    ReplyEnded: (_CALL,),
    ReplyCut: (_CALL,),
    CallFailed: (_CALL,),
    ToolStarted: (_TURN, _TOOL),
    ToolPrinted: (_TOOL,),
    ToolFinished: (_TOOL,),
    ApprovalAsked: (_TURN, _APPROVAL),
    ApprovalGiven: (_APPROVAL,),
    QuestionAsked: (_TURN, _QUESTION),
    QuestionAnswered: (_QUESTION,),
    NoticeShown: (_TURN,),
    HistoryCompacted: (_TURN,),
    TurnClosed: (_TURN,),
}


class Machine:
    """The state of everything in one turn."""

    def __init__(self) -> None:
        self._states: dict[tuple[Kind, Key], State] = {}
        self._kinds: dict[tuple[int, int], PartKind] = {}
        self._attempts: dict[int, int] = {}
        self._open_parts: dict[int, list[int]] = {}
        self._tool_parts: dict[int, list[int]] = {}
        self._growing: tuple[int, int] | None = None

    def state(self, kind: Kind, key: Key = TURN_KEY) -> State:
        return self._states.get((kind, key), NEW)

    def unfinished(self, kind: Kind) -> list[Key]:
        """What of this kind has begun and not ended, oldest first."""
        states = UNFINISHED[kind]
        return [key for (k, key), state in self._states.items() if k == kind and state in states]

    def attempt(self, call: int) -> int:
        """The number of the call's latest attempt; 0 before the first."""
        return self._attempts.get(call, 0)

    def apply(self, event: Event) -> None:
        """Move on, or raise IllegalTransition and change nothing."""
        if type(event) is PartGrew:
            # Growth after growth of the same part repeats moves that lead back to where they started.
            if self._growing == (event.call, event.part):
                return
            growing = (event.call, event.part)
        else:
            growing = None
        after = [(kind, key, self._next(kind, key, symbol)) for kind, key, symbol in self._moves(event)]
        self._check(event)
        for kind, key, state in after:
            self._states[kind, key] = state
        self._follow(event)
        self._growing = growing

    def _next(self, kind: Kind, key: Key, symbol: Symbol) -> State:
        state = self._states.get((kind, key), NEW)
        after = TABLES[kind].get((state, symbol))
        if after is None:
            raise IllegalTransition(f"{symbol} may not follow: {kind} {key} is {state}")
        return after

    def _moves(self, event: Event) -> list[Move]:
        symbol = type(event).__name__
        moves: list[Move] = [(kind, key(event), symbol) for kind, key in TOUCHED[type(event)]]
        if type(event) is PartGrew:
            moves.append(("call", event.call, self._symbol(event.call, event.part)))
        elif type(event) is PartStarted and event.kind == "tool_call":
            moves.append(
                ("call", event.call, "Shown")
            )  # it is seen by its name, before the first of its arguments
        return moves

    def _symbol(self, call: int, part: int) -> Symbol:
        return "Shown" if self._kinds.get((call, part)) in VISIBLE_KINDS else "Thought"

    def _check(self, event: Event) -> None:
        """What a table cannot say: numbers that count on, and that an end leaves nothing open."""
        match event:
            case AttemptStarted(call, attempt) if attempt != self.attempt(call) + 1:
                raise IllegalTransition(f"attempt {attempt} of call {call} follows {self.attempt(call)}")
            case AttemptReplaced(call, attempt) if attempt != self.attempt(call):
                raise IllegalTransition(f"attempt {attempt} of call {call} is not the one under way")
            case ReplyEnded(call) if self._open_parts.get(call):
                raise IllegalTransition(f"the reply to call {call} ended with open parts")
            case TurnClosed():
                for kind in UNFINISHED:
                    if left := self.unfinished(kind):
                        raise IllegalTransition(f"a turn closed with {kind} {left[0]} unfinished")
            case _:
                pass

    def _follow(self, event: Event) -> None:
        match event:
            case PartStarted(call, part, kind):
                self._kinds[call, part] = kind
                self._open_parts.setdefault(call, []).append(part)
                if kind == "tool_call":
                    self._tool_parts.setdefault(call, []).append(part)
            case PartClosed(call, part):
                self._open_parts[call].remove(part)
            case AttemptStarted(call, attempt):
                self._attempts[call] = attempt
            case AttemptReplaced(call) | ReplyCut(call) | CallFailed(call):
                for part in self._open_parts.pop(call, []):
                    self._states["part", (call, part)] = "dropped"
                self._tool_parts.pop(call, None)
            case ReplyEnded(call, "tool_calls"):
                for part in self._tool_parts.pop(call, []):
                    self._states["tool", (call, part)] = "asked"
            case _:
                pass
