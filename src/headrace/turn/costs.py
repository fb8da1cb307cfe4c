"""What calls have cost, where the prices of their models are known.

Every attempt is paid at the price of the model it asked, replaced ones included. Counts that nobody reported are
unknown: what is computed without them is what is known of the cost, and None is a cost of which nothing is known.
"""

from collections.abc import Iterable, Mapping

import msgspec

from headrace.events import UsageReported
from headrace.turn.folds import Folded, Reply


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Money for a million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    """Of those sent, the ones the provider had kept; None: like all others."""


PriceList = Mapping[str, Prices]
"""By model, as "<provider>:<model>"."""


def of_reply(reply: Reply, prices: PriceList) -> float | None:
    return _sum(
        _cost(usage, prices[model])
        for model, usage in reply.attempted()
        if usage is not None and model in prices
    )


def of_turn(turn: Folded, prices: PriceList) -> float | None:
    costs = (of_reply(reply, prices) for reply in turn.replies.values())
    return _sum(cost for cost in costs if cost is not None)


def _sum(costs: Iterable[float]) -> float | None:
    known = list(costs)
    return sum(known) if known else None


def _cost(usage: UsageReported, price: Prices) -> float:
    cached = (usage.cache_read_tokens or 0) if price.cache_read is not None else 0
    sent = (usage.input_tokens or 0) - cached
    millionths = (
        sent * price.input + cached * (price.cache_read or 0) + (usage.output_tokens or 0) * price.output
    )
    return millionths / 1e6
