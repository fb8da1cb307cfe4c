"""Generated turns: random events over few ids, of which a machine takes those that may follow."""

from typing import Any

from hypothesis import strategies as st

from headrace.errors import CAUSES, OUTCOMES, Cause, IllegalTransition
from headrace.events import (
    LOG_VERSION,
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
    user_message,
)
from headrace.turn.machine import Machine

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
CALLS = st.integers(1, 2)
PARTS = st.integers(1, 3)
COUNTS = st.none() | st.integers(0, 10**9)
CAUSE = st.builds(Cause, st.sampled_from(sorted(CAUSES)), TEXT, COUNTS)
INPUT = st.tuples(TEXT.map(user_message))

EVENT: st.SearchStrategy[Any] = st.one_of(
    st.builds(CallStarted, CALLS, st.sampled_from(["reply", "advice", "summary"]), st.just("p:m")),
    st.builds(AttemptStarted, CALLS, st.integers(1, 3), st.just("p:m")),
    st.builds(AttemptReplaced, CALLS, st.integers(1, 3), CAUSE),
    st.builds(
        PartStarted,
        CALLS,
        PARTS,
        st.sampled_from(["text", "refusal", "reasoning", "tool_call", "opaque"]),
        st.just("id"),
        st.just("name"),
    ),
    st.builds(PartGrew, CALLS, PARTS, TEXT),
    st.builds(PartGrew, CALLS, PARTS, TEXT),
    st.builds(PartClosed, CALLS, PARTS, st.sampled_from(["", "{}", '{"a":"\\ud800"}'])),
    st.builds(UsageReported, CALLS, COUNTS, COUNTS),
    st.builds(ReplyEnded, CALLS, st.sampled_from(["stop", "tool_calls", "length", "refused", "pause"])),
    st.builds(ReplyEnded, CALLS, st.just("tool_calls")),
    st.builds(ReplyCut, CALLS, CAUSE),
    st.builds(CallFailed, CALLS, CAUSE),
    st.builds(ToolStarted, CALLS, PARTS, TEXT, TEXT),
    st.builds(ToolPrinted, CALLS, PARTS, TEXT),
    st.builds(ToolFinished, CALLS, PARTS, st.sampled_from(["ok", "error", "denied"]), TEXT),
    st.builds(ApprovalAsked, st.sampled_from("ab"), CALLS, PARTS, TEXT),
    st.builds(ApprovalGiven, st.sampled_from("ab"), st.sampled_from(["allowed", "denied"])),
    st.builds(QuestionAsked, st.sampled_from("ab"), CALLS, PARTS, TEXT),
    st.builds(QuestionAnswered, st.sampled_from("ab"), TEXT),
    st.builds(NoticeShown, TEXT, TEXT),
    st.builds(InputAdded, INPUT),
    st.builds(HistoryCompacted, TEXT, TEXT),
    st.builds(AdviceSought, st.lists(CALLS, max_size=2).map(tuple), st.sampled_from(["off", "full"])),
    st.builds(TurnClosed, st.sampled_from(OUTCOMES), CAUSE),
)


def accepted(events: list[Event]) -> list[Event]:
    """The events that a machine takes, in order, after a turn has been opened."""
    machine = Machine()
    opened = TurnOpened(LOG_VERSION, (user_message("?"),))
    machine.apply(opened)
    out: list[Event] = [opened]
    for event in events:
        try:
            machine.apply(event)
        except IllegalTransition:
            continue
        out.append(event)
    return out


TURN = st.lists(EVENT, max_size=120).map(accepted)


def a_reply(*parts: Event, call: int = 1, reason: str = "stop") -> list[Event]:
    """A call with one attempt around `parts`."""
    return [
        CallStarted(call, "reply", "p:m"),
        AttemptStarted(call, 1, "p:m"),
        *parts,
        ReplyEnded(call, reason),  # type: ignore[arg-type]
    ]


def text(part: int, content: str, call: int = 1) -> list[Event]:
    return [PartStarted(call, part, "text"), PartGrew(call, part, content), PartClosed(call, part)]


def tool(part: int, name: str, arguments: str, call: int = 1) -> list[Event]:
    return [
        PartStarted(call, part, "tool_call", f"id{part}", name),
        PartGrew(call, part, arguments),
        PartClosed(call, part, "{}"),
    ]
