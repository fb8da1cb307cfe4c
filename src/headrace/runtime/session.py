"""A session: turns that share a history, one at a time, every message answered or superseded.

Theory of operation. Opening a session reads as much of its past as a model may be told; a turn that a dead process left
open is closed there and then, as what it is: crashed. Posting a message opens its turn at once, which writes it down;
turns then work one after the other, in the order they were posted. What a message does to the turn that is working is
said with it:

    queue       nothing; it waits for its place
    interrupt   the working turn is stopped; what it has shown stays in the history, and the next turn sees it
    steer       no turn of its own: it is delivered at the working turn's next tool boundary; if none comes, it opens
                the next turn, before anything that was posted later

    idle --post--> working --closed--> working on the next, or idle

What a turn said becomes history once it is closed, however it was closed. A session without a store lives in memory.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from headrace.agent.history import Past, PastTurn
from headrace.errors import Cause, HeadraceError, StoreError
from headrace.events import Message, Recorded, TurnClosed
from headrace.limits import SESSION_PAST_MAX_CHARS
from headrace.ports import Clock, Store
from headrace.runtime.turn import Turn
from headrace.turn.closing import closing
from headrace.turn.folds import Folded, fold
from headrace.turn.log import Journal, Log

_log = logging.getLogger(__name__)

Manner = Literal["queue", "interrupt", "steer"]

CRASHED: Final = Cause("crashed", "The process ended while this turn was running.")
INTERRUPTED: Final = Cause("interrupted", "A new message came, and the turn was stopped for it.")

MakeTurn = Callable[[], Turn]
"""A turn of the session that has not been opened."""


class _Posted(NamedTuple):
    turn: Turn
    make: MakeTurn
    """Makes another of its kind, for what comes too late for it."""


class Session:
    def __init__(self, name: str = "", store: Store | None = None) -> None:
        self.name = name
        self._store = store
        self._past = Past()
        self._waiting: deque[_Posted] = deque()
        self._active: Turn | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing: Cause | None = None
        self._moved = asyncio.Event()
        self.latest = ""
        """The turn that was opened last: what is posted now follows it."""

    @classmethod
    def opened(
        cls, name: str, store: Store, clock: Clock, most_chars: int = SESSION_PAST_MAX_CHARS
    ) -> "Session":
        """The session as it was left, with every turn closed; raises what keeps it from being opened."""
        session = cls(name, store)
        past = Past()
        for entries in store.recent_turns(name, most_chars):
            session.latest = entries[0].turn
            past = _with(past, session.latest, session._closed(entries, clock))
        session._past = _bounded(past)
        return session

    @property
    def past(self) -> Past:
        return self._past

    @property
    def active(self) -> Turn | None:
        """The turn that is working."""
        return self._active

    @property
    def busy(self) -> bool:
        return self._task is not None

    def log(self, turn_id: str) -> Log:
        """An empty log that is written down wherever this session is."""
        return Log(turn_id, self._journal())

    # --- the actor

    def post(self, messages: Sequence[Message], make: MakeTurn, manner: Manner = "queue") -> Turn:
        """Accept messages; returns the turn that answers them, or that they were given to."""
        if manner == "steer" and self._active is not None and self._active.steer(messages):
            return self._active
        turn = make()
        turn.open(messages, self.name)
        self.latest = turn.id
        posted = _Posted(turn, make)
        if self._task is None:  # it begins here and now: a step of the loop less until the model is asked
            self._begin(posted)
            self._task = asyncio.create_task(self._work(posted), name=f"session {self.name}")
            return turn
        self._waiting.append(posted)
        if manner == "interrupt" and self._active is not None:
            self._active.stop(INTERRUPTED)
        return turn

    async def after(self, turn: Turn) -> Turn | None:
        """The turn that works once `turn` is over; None if none waits."""
        await turn.wait()
        while self._active is turn:
            self._moved.clear()
            await self._moved.wait()
        return self._active

    def forget(self, turn: str) -> None:
        """It was deleted: turns that begin from here on are told nothing of it."""
        turns = tuple(past for past in self._past.turns if past.turn != turn)
        self._past = Past(turns=turns, summary=self._past.summary)

    async def idle(self) -> None:
        """Until nothing is working and nothing waits."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def close(self, cause: Cause) -> None:
        """Stop the working turn, and close those that wait as superseded."""
        self._closing = cause
        while self._waiting:
            self._supersede(self._waiting.popleft().turn, cause)
        if self._active is not None:
            self._active.stop(cause)
        await self.idle()

    @staticmethod
    def _supersede(turn: Turn, cause: Cause) -> None:
        turn.stop(Cause("superseded", f"It was never begun. {cause.message}"))

    def _begin(self, posted: _Posted) -> None:
        self._active = posted.turn
        posted.turn.begin()

    async def _work(self, posted: _Posted) -> None:
        try:
            await self._one(posted)
            while self._waiting:
                posted = self._waiting.popleft()
                self._begin(posted)
                await self._one(posted)
        finally:
            self._task = None

    async def _one(self, posted: _Posted) -> None:
        """Until the turn that has begun is over."""
        turn = posted.turn
        try:
            await turn.wait()
        except HeadraceError:  # not even its end could be written; those that wait have to get their turn
            _log.exception("turn %s of session %s failed", turn.id, self.name)
        finally:
            self._active = None
            self._moved.set()
        folded = turn.folded()
        self._add(turn.id, folded)
        if late := folded.unheard():
            self._hear(late, posted.make)

    def _hear(self, late: Sequence[Message], make: MakeTurn) -> None:
        """What came too late for a turn opens the next one."""
        turn = make()
        try:
            turn.open(late, self.name)
        except StoreError:  # it is in the log of the turn it came too late for
            _log.exception("what was added to a turn of session %s could not open the next", self.name)
            return
        if self._closing is not None:
            self._supersede(turn, self._closing)
        else:
            self._waiting.appendleft(_Posted(turn, make))

    # --- the history

    def _add(self, turn: str, folded: Folded) -> None:
        self._past = _bounded(_with(self._past, turn, folded))

    def _journal(self) -> Journal | None:
        store = self._store
        if store is None:
            return None

        def journal(batch: Sequence[Recorded]) -> None:
            store.append(self.name, batch)

        return journal

    def _closed(self, entries: Sequence[Recorded], clock: Clock) -> Folded:
        """The turn folded, its end written first if it has none."""
        if isinstance(entries[-1].event, TurnClosed):
            return fold(entries)
        log = Log.restored(entries, self._journal())
        turn = fold(log.since(0))
        log.extend(closing(log.machine, turn, CRASHED), clock.now())
        return turn.catch_up(log.since(turn.seq))


def close_crashed(entries: Sequence[Recorded], journal: Journal, clock: Clock) -> None:
    """Write the end of a turn that a dead process left open."""
    log = Log.restored(entries, journal)
    log.extend(closing(log.machine, fold(entries), CRASHED), clock.now())


def _with(past: Past, turn: str, folded: Folded) -> Past:
    """The past once this turn belongs to it."""
    if folded.compaction is not None:
        past = past.after(folded.compaction)
    return Past(turns=(*past.turns, PastTurn.of(turn, folded.messages())), summary=past.summary)


def _bounded(past: Past) -> Past:
    """Without the oldest turns, which no model can be told any more."""
    room = SESSION_PAST_MAX_CHARS
    for count, turn in enumerate(reversed(past.turns)):
        room -= turn.least
        if room < 0:
            return Past(turns=past.turns[len(past.turns) - count :], summary=past.summary)
    return past
