"""What the server counts, as Prometheus reads it.

Theory of operation. Turns are counted once, when they are closed, from their logs; nothing is counted while a delta
passes. Streams and turns under way are asked for when somebody looks, and the loop's lag is noted by the pulse.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headrace.events import (
    AttemptReplaced,
    AttemptStarted,
    CallFailed,
    Event,
    PartGrew,
    PartStarted,
    Recorded,
    ReplyCut,
    TurnClosed,
    UsageReported,
)
from headrace.turn.folds import total

_FIRST_TOKEN_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LAG_S: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)


class _Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * len(bounds)
        self._count = 0
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._count += 1
        self._sum += value
        for place, bound in enumerate(self._bounds):
            if value <= bound:
                self._counts[place] += 1

    def lines(self, name: str) -> Iterable[str]:
        for bound, count in zip(self._bounds, self._counts, strict=True):
            yield f'{name}_bucket{{le="{bound:g}"}} {count}'
        yield f'{name}_bucket{{le="+Inf"}} {self._count}'
        yield f"{name}_sum {self._sum:.6f}"
        yield f"{name}_count {self._count}"


class Metrics:
    def __init__(self) -> None:
        self._turns: Counter[str] = Counter()
        self._attempts = 0
        self._retries = 0
        self._stalls: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._first_token = _Histogram(_FIRST_TOKEN_S)
        self._lag = _Histogram(_LAG_S)

    def turn(self, entries: Sequence[Recorded]) -> None:
        """A turn is closed."""
        usage: dict[int, UsageReported] = {}
        for entry in entries:
            event = entry.event
            if type(event) is not PartGrew:
                self._one(event, usage)
        spent = total([*usage.values()])
        self._tokens["input"] += spent.input_tokens or 0
        self._tokens["output"] += spent.output_tokens or 0
        first_at = _first_text_at(entries)
        if first_at is not None:
            self._first_token.add(max(0.0, first_at - entries[0].at))

    def lag(self, late_s: float) -> None:
        """The loop was late by so much."""
        self._lag.add(late_s)

    def _one(self, event: Event, usage: dict[int, UsageReported]) -> None:
        match event:
            case TurnClosed(outcome):
                self._turns[outcome] += 1
            case AttemptStarted():
                self._attempts += 1
            case AttemptReplaced(cause=cause):
                self._retries += 1
                self._stalled(cause.code)
            case ReplyCut(cause=cause) | CallFailed(cause=cause):
                self._stalled(cause.code)
            case UsageReported(call):
                usage[call] = event
            case _:
                pass

    def _stalled(self, code: str) -> None:
        if code.startswith("stalled_"):
            self._stalls[code.removeprefix("stalled_")] += 1

    def text(self, gauges: Mapping[str, int]) -> str:
        lines = [
            *_counter("headrace_turns_total", "Turns by how they ended.", "outcome", self._turns),
            *_plain("headrace_attempts_total", "counter", "Attempts at model calls.", self._attempts),
            *_plain("headrace_retries_total", "counter", "Attempts that were replaced.", self._retries),
            *_counter("headrace_stalls_total", "Attempts that stalled, by clock.", "clock", self._stalls),
            *_counter("headrace_tokens_total", "Tokens, as providers count them.", "direction", self._tokens),
            *_head("headrace_first_token_seconds", "histogram", "From a turn's opening to its first text."),
            *self._first_token.lines("headrace_first_token_seconds"),
            *_head("headrace_loop_lag_seconds", "histogram", "How late the event loop was."),
            *self._lag.lines("headrace_loop_lag_seconds"),
        ]
        for name, value in gauges.items():
            lines += _plain(f"headrace_{name}", "gauge", f"{name.replace('_', ' ').capitalize()}.", value)
        return "\n".join(lines) + "\n"


def _first_text_at(entries: Iterable[Recorded]) -> float | None:
    texts: set[tuple[int, int]] = set()
    for entry in entries:
        event = entry.event
        if isinstance(event, PartStarted) and event.kind == "text":
            texts.add((event.call, event.part))
        elif isinstance(event, PartGrew) and (event.call, event.part) in texts:
            return entry.at
    return None


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _plain(name: str, kind: str, about: str, value: float) -> list[str]:
    return [*_head(name, kind, about), f"{name} {value}"]


def _counter(name: str, about: str, label: str, counts: Mapping[str, int]) -> list[str]:
    return [*_head(name, "counter", about), *(f'{name}{{{label}="{key}"}} {n}' for key, n in counts.items())]
