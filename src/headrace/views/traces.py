"""A mixture's turn as one line of a trace: who was asked, what came of it, when, and what it cost.

Times are seconds since the turn was opened, so that a fast and a slow adviser can be told apart at a glance.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.events import (
    CallFailed,
    CallStarted,
    PartGrew,
    Recorded,
    ReplyCut,
    ReplyEnded,
    TurnClosed,
    TurnOpened,
)
from headrace.turn import costs
from headrace.turn.folds import Usage, fold, total


def trace(entries: Sequence[Recorded], prices: costs.PriceList) -> bytes:
    """The line, without its end; `entries` are a closed turn's log. Costs are in it where `prices` are known."""
    began = entries[0].at
    calls: dict[int, dict[str, Any]] = {}
    line: dict[str, Any] = {"turn": entries[0].turn, "at": began, "calls": []}
    for recorded in entries:
        event, after_s = recorded.event, round(recorded.at - began, 3)
        match event:
            case TurnOpened(model=model):
                line["mixture"] = model
            case CallStarted(call, purpose, model):
                calls[call] = {"purpose": purpose, "model": model, "started_s": after_s}
            case PartGrew(call):
                calls[call].setdefault("first_token_s", after_s)
            case ReplyEnded(call, reason):
                calls[call] |= {"ended_s": after_s, "end": reason}
            case ReplyCut(call, cause) | CallFailed(call, cause):
                end = "cut" if isinstance(event, ReplyCut) else "failed"
                calls[call] |= {"ended_s": after_s, "end": end, "cause": cause.code}
            case TurnClosed(outcome, cause):
                line |= {"outcome": outcome, "cause": cause.code, "took_s": after_s}
            case _:
                pass
    folded = fold(entries)
    for call, known in calls.items():
        reply = folded.replies[call]
        spent = total([usage for _, usage in reply.attempted()])
        paid = _paid(spent, costs.of_reply(reply, prices))
        line["calls"].append({**known, "text": reply.text(), **paid})
    line |= _paid(folded.spent(), costs.of_turn(folded, prices))
    return msgspec.json.encode(line)


def _paid(usage: Usage, cost: float | None) -> dict[str, Any]:
    return {"usage": _counts(usage)} | ({} if cost is None else {"cost": cost})


def _counts(usage: Usage) -> dict[str, int]:
    """What is known of it."""
    return {name: count for name, count in msgspec.structs.asdict(usage).items() if count is not None}
