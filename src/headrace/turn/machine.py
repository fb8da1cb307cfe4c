"""Runs the tables of `tables` over a turn's events.

Theory of operation. `moves` lists for an event which things it touches, each as (kind, key, symbol). `apply` looks
every one up, refuses the event if one has no entry, and only then changes states. Three events also move things they
do not name: the end of a reply makes its tools `asked`, a bad end of an attempt drops the parts it left open, and a
turn may close only when nothing in it is unfinished.
"""

from typing import Final, assert_never

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
        match event:
            case PartGrew(call, part):
                return [("part", (call, part), "PartGrew"), ("call", call, self._symbol(call, part))]
            case PartStarted(call, part, kind):
                moves: list[Move] = [("part", (call, part), "PartStarted"), ("call", call, "PartStarted")]
                # A tool call is seen by its name, before the first of its arguments.
                return [*moves, ("call", call, "Shown")] if kind == "tool_call" else moves
            case PartClosed(call, part):
                return [("part", (call, part), "PartClosed"), ("call", call, "PartClosed")]
            case CallStarted(call):
                return [("turn", TURN_KEY, "CallStarted"), ("call", call, "CallStarted")]
            case (
                AttemptStarted()
                | AttemptReplaced()
                | UsageReported()
                | ReplyEnded()
                | ReplyCut()
                | CallFailed()
            ):
                return [("call", event.call, type(event).__name__)]
            case ToolStarted(call, part):
                return [("turn", TURN_KEY, "ToolStarted"), ("tool", (call, part), "ToolStarted")]
            case ToolPrinted() | ToolFinished():
                return [("tool", (event.call, event.part), type(event).__name__)]
            case ApprovalAsked(approval):
                return [("turn", TURN_KEY, "ApprovalAsked"), ("approval", approval, "ApprovalAsked")]
            case ApprovalGiven(approval):
                return [("approval", approval, "ApprovalGiven")]
            case QuestionAsked(question):
                return [("turn", TURN_KEY, "QuestionAsked"), ("question", question, "QuestionAsked")]
            case QuestionAnswered(question):
                return [("question", question, "QuestionAnswered")]
            case (
                TurnOpened()
                | InputAdded()
                | AdviceSought()
                | NoticeShown()
                | HistoryCompacted()
                | TurnClosed()
            ):
                return [("turn", TURN_KEY, type(event).__name__)]
            case _:
                assert_never(event)

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
