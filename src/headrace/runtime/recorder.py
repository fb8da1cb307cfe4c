"""The one writer of a turn's log, and what can be asked of it while the turn runs."""

from collections.abc import Iterable

from headrace.events import Event
from headrace.ports import Clock
from headrace.turn.folds import Folded
from headrace.turn.log import Log


class Recorder:
    def __init__(self, log: Log, clock: Clock) -> None:
        self.log = log
        self._clock = clock
        self._folded = Folded()
        self.last_activity = clock.monotonic()
        """When a provider last gave a sign of life, on the monotonic clock."""

    def record(self, events: Iterable[Event]) -> None:
        self.log.extend(events, self._clock.now())

    def alive(self) -> float:
        """The provider has given a sign of life; says when."""
        self.last_activity = self._clock.monotonic()
        return self.last_activity

    def folded(self) -> Folded:
        """The turn as it stands; only what came since the last time is read."""
        return self._folded.catch_up(self.log.since(self._folded.seq))

    def visible(self, call: int) -> bool:
        """Whether something of the call's attempt has been seen."""
        return self.log.machine.state("call", call) == "visible"

    def next_part(self, call: int) -> int:
        """The number of the call's next part, counting on across its attempts."""
        return self.folded().replies[call].last_part + 1
