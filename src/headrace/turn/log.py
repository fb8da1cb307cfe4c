"""The append-only log of one turn.

Theory of operation. A log holds `Recorded` facts with contiguous numbers from 1. Followers are indexes into it: they
keep the last number they have shown and read what comes after, so a slow one costs nothing and any number may watch.
`watch` registers a wake-up, called once per batch after everything in the batch is readable.

    extend(events):   check each against the machine -> journal -> readable -> wake the watchers

The journal comes before the readers: whatever a follower has seen outlives the process. A journal that cannot be
written raises, and then nothing of the batch has happened.
"""

from collections.abc import Callable, Iterable, Sequence

from headrace.errors import Cause, HeadraceError, IllegalTransition
from headrace.events import Event, Recorded, TurnClosed
from headrace.limits import TURN_MAX_EVENTS
from headrace.turn.machine import Machine

Journal = Callable[[Sequence[Recorded]], None]
Wake = Callable[[], None]


class TurnTooLong(HeadraceError):
    """The turn has more events than a log may hold."""

    cause = Cause("step_limit", f"The turn was ended: it holds more than {TURN_MAX_EVENTS} events.")


class Log:
    def __init__(self, turn: str, journal: Journal | None = None, max_events: int = TURN_MAX_EVENTS) -> None:
        self.turn = turn
        self.machine = Machine()
        self._journal = journal
        self._max_events = max_events
        self.closed: TurnClosed | None = None
        """The turn's end, once it has one."""
        self._entries: list[Recorded] = []
        self._watchers: tuple[Wake, ...] = ()
        self._awaiting: list[Wake] = []

    @classmethod
    def restored(cls, entries: Sequence[Recorded], journal: Journal | None = None) -> "Log":
        """The log that was written as `entries`, ready to go on; raises IllegalTransition if they are no log."""
        log = cls(entries[0].turn if entries else "", None)
        for expected, recorded in enumerate(entries, start=1):
            if recorded.seq != expected or recorded.turn != log.turn:
                raise IllegalTransition(f"entry {expected} is {recorded.turn} {recorded.seq}")
            log.machine.apply(recorded.event)
        log._entries = list(entries)
        log._journal = journal
        log.closed = _end(entries[-1:])
        return log

    def __len__(self) -> int:
        """Also the number of the last event."""
        return len(self._entries)

    def since(self, seq: int, most: int | None = None) -> list[Recorded]:
        """What came after number `seq`, at most `most` of it."""
        return self._entries[seq : None if most is None else seq + most]

    def append(self, event: Event, at: float) -> None:
        self.extend((event,), at)

    def extend(self, events: Iterable[Event], at: float) -> None:
        """Write a batch. If one event is refused, those before it are written and the error is raised."""
        batch: list[Recorded] = []
        seq = len(self._entries)
        try:
            for event in events:
                if seq >= self._max_events and not _ends_something(event):
                    raise TurnTooLong(TurnTooLong.cause.message)
                self.machine.apply(event)
                seq += 1
                batch.append(Recorded(self.turn, seq, at, event))
        finally:
            self._publish(batch)

    def forsake_journal(self) -> None:
        """It cannot be written; go on without it from what was written, so that those who watch learn of the end."""
        self._journal = None
        self.machine = Machine()
        for recorded in self._entries:
            self.machine.apply(recorded.event)

    def watch(self, wake: Wake) -> Callable[[], None]:
        """Have `wake` called after every batch; returns the way to end that. `wake` must not raise.

        A log that is closed lets go of those who watched it: it grows no more.
        """
        self._watchers += (wake,)
        return lambda: self._unwatch(wake)

    def await_end(self, wake: Wake) -> None:
        """Have `wake` called once the turn is closed, before those who watch learn of it. It must not raise."""
        self._awaiting.append(wake)

    def _unwatch(self, wake: Wake) -> None:
        self._watchers = tuple(other for other in self._watchers if other != wake)

    def _publish(self, batch: list[Recorded]) -> None:
        if not batch:
            return
        if self._journal is not None:
            self._journal(batch)
        self._entries += batch
        watchers = self._watchers
        if type(batch[-1].event) is TurnClosed:
            self.closed = batch[-1].event
            watchers = (*self._awaiting, *watchers)
            self._watchers = ()
            self._awaiting.clear()
        for wake in watchers:
            wake()


def _end(entries: Sequence[Recorded]) -> TurnClosed | None:
    last = entries[-1].event if entries else None
    return last if isinstance(last, TurnClosed) else None


_ENDS = frozenset(
    {"PartClosed", "UsageReported", "ReplyEnded", "ReplyCut", "CallFailed", "AttemptReplaced", "ToolFinished",
     "ApprovalGiven", "QuestionAnswered", "TurnClosed"}
)  # fmt: skip


def _ends_something(event: Event) -> bool:
    """Ends are always let in, so that a log that is full can still be closed."""
    return type(event).__name__ in _ENDS
