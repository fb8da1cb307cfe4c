"""A session: turns that share a history, one after the other.

Theory of operation. Opening a session folds what its store holds; a turn that the last process left open is closed
there and then, as what it is: crashed. A session without a store lives in memory. What a turn said becomes history
once it is closed, however it was closed.
"""

from collections.abc import Sequence
from itertools import groupby

from headrace.agent.history import fitting
from headrace.errors import Cause
from headrace.events import Message, Recorded
from headrace.ports import Clock, Store
from headrace.turn.closing import closing
from headrace.turn.folds import Folded, fold
from headrace.turn.log import Journal, Log

CRASHED = Cause("crashed", "The process ended while this turn was running.")


class Session:
    def __init__(self, name: str = "", store: Store | None = None) -> None:
        self.name = name
        self._store = store
        self._turns: list[tuple[Message, ...]] = []

    @classmethod
    def opened(cls, name: str, store: Store, clock: Clock) -> "Session":
        """The session as it was left, with every turn closed."""
        session = cls(name, store)
        for _, recorded in groupby(store.read(name), key=lambda r: r.turn):
            session.add(session._closed(list(recorded), clock))
        return session

    def add(self, turn: Folded) -> None:
        self._turns.append(turn.messages())

    def history(self, most_chars: int) -> tuple[Message, ...]:
        return fitting(self._turns, most_chars)

    def log(self, turn_id: str) -> Log:
        """An empty log that is written down wherever this session is."""
        return Log(turn_id, self._journal())

    def _journal(self) -> Journal | None:
        store = self._store
        if store is None:
            return None

        def journal(batch: Sequence[Recorded]) -> None:
            store.append(self.name, batch)

        return journal

    def _closed(self, entries: list[Recorded], clock: Clock) -> Folded:
        log = Log.restored(entries, self._journal())
        turn = fold(log.since(0))
        log.extend(closing(log.machine, turn, CRASHED), clock.now())
        return turn.catch_up(log.since(turn.seq))
