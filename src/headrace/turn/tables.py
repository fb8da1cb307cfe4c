"""What may follow what: one transition table per kind of thing a turn holds.

    turn       new --TurnOpened--> open --TurnClosed--> closed
    call       new --CallStarted--> waiting --AttemptStarted--> trying --Shown--> visible --ReplyEnded--> ended
                                       ^-----AttemptReplaced------'        '-------ReplyCut--> cut
               trying --ReplyEnded--> ended                waiting, trying --CallFailed--> failed
    part       new --PartStarted--> open --PartClosed--> closed
    tool       asked --ToolStarted--> running --ToolFinished--> finished    (asked --ToolFinished--> finished)
    approval   new --ApprovalAsked--> asked --ApprovalGiven--> given
    question   new --QuestionAsked--> asked --QuestionAnswered--> answered

A tool becomes `asked` in no table: `Machine` puts it there when a reply that ended asks for it, so a tool of a cut
reply can never start. In the same way parts that are open when their attempt ends badly become `dropped`.

Symbols are the names of events, but for two: growth of a part is `Shown` to its call where people see it and
`Thought` where they do not.
"""

from collections.abc import Mapping
from typing import Final, Literal

Kind = Literal["turn", "call", "part", "tool", "approval", "question"]
State = str
Symbol = str
Table = Mapping[tuple[State, Symbol], State]

NEW: Final = "new"


def _stays(state: State, *symbols: Symbol) -> dict[tuple[State, Symbol], State]:
    return {(state, symbol): state for symbol in symbols}


TURN: Final[Table] = {
    (NEW, "TurnOpened"): "open",
    **_stays(
        "open", "InputAdded", "CallStarted", "ToolStarted", "ApprovalAsked", "QuestionAsked", "NoticeShown",
        "HistoryCompacted", "AdviceSought",
    ),
    ("open", "TurnClosed"): "closed",
}  # fmt: skip

CALL: Final[Table] = {
    (NEW, "CallStarted"): "waiting",
    ("waiting", "AttemptStarted"): "trying",
    ("trying", "AttemptReplaced"): "waiting",
    **_stays("trying", "PartStarted", "Thought", "PartClosed", "UsageReported"),
    ("trying", "Shown"): "visible",
    **_stays("visible", "PartStarted", "Thought", "Shown", "PartClosed", "UsageReported"),
    ("trying", "ReplyEnded"): "ended",
    ("visible", "ReplyEnded"): "ended",
    ("visible", "ReplyCut"): "cut",
    ("waiting", "CallFailed"): "failed",
    ("trying", "CallFailed"): "failed",
}

PART: Final[Table] = {
    (NEW, "PartStarted"): "open",
    ("open", "PartGrew"): "open",
    ("open", "PartClosed"): "closed",
}

TOOL: Final[Table] = {
    ("asked", "ToolStarted"): "running",
    ("asked", "ToolFinished"): "finished",
    ("running", "ToolPrinted"): "running",
    ("running", "ToolFinished"): "finished",
}

APPROVAL: Final[Table] = {(NEW, "ApprovalAsked"): "asked", ("asked", "ApprovalGiven"): "given"}

QUESTION: Final[Table] = {(NEW, "QuestionAsked"): "asked", ("asked", "QuestionAnswered"): "answered"}

TABLES: Final[Mapping[Kind, Table]] = {
    "turn": TURN,
    "call": CALL,
    "part": PART,
    "tool": TOOL,
    "approval": APPROVAL,
    "question": QUESTION,
}

UNFINISHED: Final[Mapping[Kind, frozenset[State]]] = {
    "call": frozenset({"waiting", "trying", "visible"}),
    "part": frozenset({"open"}),
    "tool": frozenset({"running"}),
    "approval": frozenset({"asked"}),
    "question": frozenset({"asked"}),
}
"""Nothing of this may be left when a turn closes."""
