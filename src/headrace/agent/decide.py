"""What follows a reply: the next action of a turn.

nothing yet --> compact a past that there is no room for, once; seek advice in a mixture; then ask
reply ended:  stop, length, content_filter, refused --> close          pause --> ask again, bounded
              tool_calls --> run what has no result, then ask again, within the limits; close where the caller runs
reply cut:    an agent asks again for a lost tool call, or to go on with a lost text, each bounded
              a relayed call has nobody to decide and closes
call failed --> close
"""

from functools import partial
from typing import Final, assert_never

import msgspec

from headrace.agent.history import Context, minutes, to_summarise, whole
from headrace.agent.mixture import Mixture, advice, question, wants_advice
from headrace.errors import Cause, CauseCode, Outcome
from headrace.events import (
    CallFailed,
    EndReason,
    Message,
    ReplyCut,
    ReplyEnded,
    user_message,
)
from headrace.limits import CONTINUATIONS, PAUSES, REPEATS_AFTER_CUT_CALL, SEAM_CHARS
from headrace.turn import costs
from headrace.turn.folds import Folded, Reply


class Plan(msgspec.Struct, frozen=True):
    """What a turn may decide by itself."""

    repeats: int = 0
    """Times a reply is asked for again because its tool call was cut."""
    continuations: int = 0
    """Times a cut text is gone on with."""
    runs_tools: bool = False
    """Whether tool calls are run here; else they are the caller's."""
    max_steps: int | None = None
    """Replies in one turn."""
    max_tokens: int | None = None
    """Tokens in one turn, sent and generated."""
    max_wall_s: float | None = None
    """Seconds from a turn's beginning to its end."""
    max_cost: float | None = None
    """Money in one turn, in the currency the prices are in; calls of models without a price are not counted."""
    prices: costs.PriceList = {}
    mixture: Mixture | None = None
    """Whose advice is sought before a reply."""
    compacts: bool = False
    """Whether a past that does not fit is summarised; else its oldest turns are left out."""


RELAY: Final = Plan()
AGENT: Final = Plan(repeats=REPEATS_AFTER_CUT_CALL, continuations=CONTINUATIONS, compacts=True)


class Ask(msgspec.Struct, frozen=True):
    """Put the question to the model."""

    messages: tuple[Message, ...]
    seam: str = ""
    """The end of a cut text that the reply goes on with; it may begin by repeating some of it."""


class Compact(msgspec.Struct, frozen=True):
    """Have the past up to and including the turn `through` summarised."""

    through: str
    messages: tuple[Message, ...]


class Advise(msgspec.Struct, frozen=True):
    """Ask the mixture's references, side by side."""

    messages: tuple[Message, ...]


class RunTools(msgspec.Struct, frozen=True):
    """Run what the reply asks for; `parts` are those that have no result yet."""

    call: int
    parts: tuple[int, ...]


class Close(msgspec.Struct, frozen=True):
    outcome: Outcome
    cause: Cause


Action = Ask | Compact | Advise | RunTools | Close

ALONE: Final = Context()
"""Nothing but the turn itself."""

GO_ON: Final = user_message(
    "[The connection broke in the middle of your answer. Go on exactly where it stops, in the middle of a word if need "
    "be. Repeat nothing and do not mention the interruption.]"
)

_ENDS: Final[dict[EndReason, tuple[Outcome, CauseCode, str]]] = {
    "stop": ("stop", "answered", "The model has finished its answer."),
    "tool_calls": ("tool_calls", "calls_returned", "The model asks for tools that the caller runs."),
    "length": (
        "length",
        "output_truncated",
        "The answer reached the bound on its length. Raise max_tokens for more.",
    ),
    "content_filter": ("content_filter", "filtered", "The provider's content filter ended the answer."),
    "refused": ("refused", "declined", "The model declined to answer."),
    "pause": (
        "limit",
        "step_limit",
        f"The provider paused more than {PAUSES} times without ending its answer.",
    ),
}


def decide(turn: Folded, plan: Plan, context: Context = ALONE) -> Action:
    replies = [reply for reply in turn.replies.values() if reply.purpose == "reply"]
    if not replies:
        return _compaction(turn, plan, context) or _fresh(turn, plan, context)
    end = replies[-1].end
    match end:
        case ReplyEnded(reason="tool_calls") if plan.runs_tools:
            return _after_calls(turn, plan, context, replies)
        case ReplyEnded(reason="pause") if _count(replies, "pause") <= PAUSES:
            return Ask(_told(turn, context))
        case ReplyEnded():
            outcome, code, message = _ENDS[end.reason]
            return Close(outcome, Cause(code, message))
        case ReplyCut():
            return _after_cut(turn, plan, context, replies, end)
        case CallFailed(cause=cause):
            return _after_failure(replies, cause)
        case None:
            return Ask(_told(turn, context))
        case _:
            assert_never(end)


def _fresh(turn: Folded, plan: Plan, context: Context) -> Ask | Advise:
    """A reply that follows no broken one: in a mixture, with advice."""
    if plan.mixture is not None and wants_advice(turn, plan.mixture):
        return Advise(question(_told(turn, context)))
    return Ask(_told(turn, context))


def _told(turn: Folded, context: Context, *then: Message) -> tuple[Message, ...]:
    return whole(context, turn, *then, advised=partial(advice, turn))


def _compaction(turn: Folded, plan: Plan, context: Context) -> Action | None:
    if not plan.compacts or any(reply.purpose == "summary" for reply in turn.replies.values()):
        return None
    turns = to_summarise(context.past, context.room)
    if not turns:
        return None
    return Compact(turns[-1].turn, minutes(context.past, turns, context.room))


def _after_calls(turn: Folded, plan: Plan, context: Context, replies: list[Reply]) -> Action:
    last = replies[-1]
    waiting = tuple(p.number for p in last.tool_calls() if (last.call, p.number) not in turn.results)
    if waiting:
        return RunTools(last.call, waiting)
    limit = _limit(turn, plan, replies)
    return Close("limit", limit) if limit else _fresh(turn, plan, context)


def _limit(turn: Folded, plan: Plan, replies: list[Reply]) -> Cause | None:
    if plan.max_steps is not None and len(replies) >= plan.max_steps:
        return Cause("step_limit", f"The turn was ended after {plan.max_steps} replies, as configured.")
    spent = turn.spent()
    tokens = (spent.input_tokens or 0) + (spent.output_tokens or 0)
    if plan.max_tokens is not None and tokens >= plan.max_tokens:
        return Cause(
            "token_limit", f"The turn was ended after {tokens} tokens; the bound is {plan.max_tokens}."
        )
    cost = costs.of_turn(turn, plan.prices)
    if plan.max_cost is not None and cost is not None and cost >= plan.max_cost:
        return Cause(
            "cost_limit", f"The turn was ended after a cost of {cost:.4g}; the bound is {plan.max_cost:g}."
        )
    return None


def _after_cut(turn: Folded, plan: Plan, context: Context, replies: list[Reply], end: ReplyCut) -> Action:
    cuts = [reply.end for reply in replies if isinstance(reply.end, ReplyCut)]
    if end.dropped:
        if end.cause.transient and sum(bool(cut.dropped) for cut in cuts) <= plan.repeats:
            return Ask(_told(turn, context))
        return Close("error", _lost_calls(end))
    said = replies[-1].text()  # a refusal is not gone on with
    if said and end.cause.transient and sum(not cut.dropped for cut in cuts) <= plan.continuations:
        return Ask(_told(turn, context, GO_ON), seam=turn.answer_text()[-SEAM_CHARS:])
    return Close(end.cause.outcome(visible=True), end.cause)


def _after_failure(replies: list[Reply], cause: Cause) -> Action:
    """A call that failed while it was to mend a cut answer leaves the answer as it was: cut, for that reason."""
    if len(replies) > 1 and isinstance(replies[-2].end, ReplyCut):
        cut = replies[-2].end
        first = _lost_calls(cut) if cut.dropped else cut.cause
        return Close("error" if cut.dropped else first.outcome(visible=True), first)
    return Close(cause.outcome(visible=False), cause)


def _lost_calls(end: ReplyCut) -> Cause:
    names = ", ".join(end.dropped)
    return Cause(
        "tool_call_cut",
        f"The stream broke within a tool call ({names}), which was not run. {end.cause.message}",
    )


def _count(replies: list[Reply], reason: EndReason) -> int:
    return sum(isinstance(reply.end, ReplyEnded) and reply.end.reason == reason for reply in replies)
