"""A session's mailbox: one turn at a time, and every message answered or superseded.

Theory of operation. Posting a message opens its turn at once, which writes it down; turns then work one after the
other, in the order they were posted. What a message does to the turn that is working is said with it:

    queue       nothing; it waits for its place
    interrupt   the working turn is stopped; what it has shown stays in the history, and the next turn sees it
    steer       no turn of its own: it is delivered at the working turn's next tool boundary; if none comes, it opens
                the next turn, before anything that was posted later

    idle --post--> working --closed--> working on the next, or idle
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal

from headrace.errors import Cause
from headrace.events import Message
from headrace.runtime.session import Session
from headrace.runtime.turn import Turn

Manner = Literal["queue", "interrupt", "steer"]

INTERRUPTED: Final = Cause("interrupted", "A new message came, and the turn was stopped for it.")

MakeTurn = Callable[[], Turn]
"""A turn of the session that has not been opened."""


class Mailbox:
    def __init__(self, session: Session, make: MakeTurn) -> None:
        self._session = session
        self._make = make
        self._waiting: deque[Turn] = deque()
        self._active: Turn | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def active(self) -> Turn | None:
        """The turn that is working."""
        return self._active

    def post(self, messages: Sequence[Message], manner: Manner = "queue") -> Turn:
        """Accept messages; returns the turn that answers them, or that they were given to."""
        if manner == "steer" and self._active is not None:
            self._active.steer(messages)
            return self._active
        turn = self._make()
        turn.open(messages, self._session.name)
        self._waiting.append(turn)
        if manner == "interrupt" and self._active is not None:
            self._active.stop(INTERRUPTED)
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name=f"session {self._session.name}")
        return turn

    async def idle(self) -> None:
        """Until nothing is working and nothing waits."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def close(self, cause: Cause) -> None:
        """Stop the working turn, and close those that wait as superseded."""
        while self._waiting:
            self._waiting.popleft().stop(Cause("superseded", f"It was never begun. {cause.message}"))
        if self._active is not None:
            self._active.stop(cause)
        await self.idle()

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._one(self._waiting.popleft())
        finally:
            self._task = None

    async def _one(self, turn: Turn) -> None:
        self._active = turn
        try:
            turn.begin()
            await turn.wait()
        finally:
            self._active = None
        self._session.add(turn.folded())
        if late := turn.unsteered():
            following = self._make()
            following.open(late, self._session.name)
            self._waiting.appendleft(following)
