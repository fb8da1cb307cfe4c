"""The clocks of an attempt.

Theory of operation. Four clocks, of which the one that is due first counts:

    connect        until the request has gone out
    first event    from there until the first bytes of the answer
    gap            since the last bytes of any kind: a comment that keeps the connection alive counts
    progress       since the last event that was decoded, thinking included: comments alone are no progress

An attempt that does not stream has two: connect, and a total. Signs of life only note the time; one timer wakes at the
earliest moment a clock can be due and looks again, so neither a busy stream nor a quick answer costs more timers.
"""

from types import TracebackType
from typing import Self

import msgspec

from headrace.errors import CallError, Cause, CauseCode
from headrace.ports import Clock, Deadline, Timer


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    connect_s: float = 10.0
    first_event_s: float = 180.0
    gap_s: float = 90.0
    no_progress_s: float = 600.0


class StallWatch:
    """`async with` it around an attempt; a clock that is due ends the attempt as a CallError."""

    def __init__(self, clock: Clock, patience: Patience, *, streamed: bool, who: str) -> None:
        self._clock = clock
        self._who = who
        self._patience = patience
        self._streamed = streamed
        self._deadline: Deadline = clock.timeout(None)
        self._timer: Timer | None = None
        self._looks_at = 0.0
        self._started = self._life = self._progress = 0.0
        self._connected = self._answered = False
        self._due: tuple[CauseCode, float] | None = None

    async def __aenter__(self) -> Self:
        self._started = self._clock.monotonic()
        await self._deadline.__aenter__()
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._deadline.__aexit__(kind, error, trace)
        except TimeoutError:
            assert self._due is not None
            code, length_s = self._due
            raise CallError(Cause(code, f"{self._who}: {_SAID[code].format(f'{length_s:g}')}")) from None

    def connected(self) -> None:
        if not self._connected:
            self._connected = True
            self._life = self._progress = self._clock.monotonic()
            self._arm()

    def received(self, at: float, *, progress: bool) -> None:
        """Bytes came, at this moment of the clock."""
        self._life = at
        if progress:
            self._progress = self._life
        if not self._answered:
            self._answered = self._connected = True
            self._progress = self._life
            self._arm()

    def _next(self) -> tuple[float, CauseCode, float]:
        """When the first clock is due, which it is, and how long it is."""
        patience = self._patience
        if not self._connected:
            return self._started + patience.connect_s, "stalled_connect", patience.connect_s
        if not self._streamed:
            return self._started + patience.no_progress_s, "stalled_total", patience.no_progress_s
        if not self._answered:
            return self._life + patience.first_event_s, "stalled_first_event", patience.first_event_s
        gap_at, progress_at = self._life + patience.gap_s, self._progress + patience.no_progress_s
        if gap_at <= progress_at:
            return gap_at, "stalled_gap", patience.gap_s
        return progress_at, "stalled_progress", patience.no_progress_s

    def _arm(self) -> None:
        """See to it that somebody looks when the next clock is due; looking too early does no harm."""
        at, _, _ = self._next()
        if self._timer is not None:
            if self._looks_at <= at:
                return
            self._timer.cancel()
        self._looks_at = at
        self._timer = self._clock.call_later(max(0.0, at - self._clock.monotonic()), self._look)

    def _look(self) -> None:
        self._timer = None
        at, code, length_s = self._next()
        if at > self._clock.monotonic():
            self._arm()
        elif self._due is None:
            self._due = (code, length_s)
            self._deadline.expire()


_SAID: dict[CauseCode, str] = {
    "stalled_connect": "No connection came about within {} s.",
    "stalled_first_event": "The question was taken and nothing came back for {} s.",
    "stalled_gap": "The stream stalled: nothing came for {} s.",
    "stalled_progress": "The stream stalled: it was kept open, but nothing of an answer came for {} s.",
    "stalled_total": "The answer, asked for in one piece, did not come within {} s.",
}
