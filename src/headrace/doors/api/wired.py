"""As much of an App as this door needs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from headrace.agent.decide import Plan
from headrace.config import Config
from headrace.events import Message
from headrace.ports import Clock
from headrace.runtime.question import Acting, Options
from headrace.runtime.session import Manner, Session
from headrace.runtime.turn import Turn
from headrace.stores.sqlite import SessionStore


class Wired(Protocol):
    @property
    def config(self) -> Config: ...

    @property
    def home(self) -> Path: ...

    @property
    def clock(self) -> Clock: ...

    def start(
        self,
        messages: Sequence[Message],
        model: str | None = None,
        session: Session | None = None,
        options: Options | None = None,
        plan: Plan | None = None,
        acting: Acting | None = None,
        manner: Manner = "queue",
    ) -> Turn: ...

    def session(self, name: str = "") -> Session: ...

    def forget(self, name: str, turn: str = "") -> None:
        """What is kept of the session has changed: it is read anew when it is next asked for. One that is busy goes
        on without the turn.
        """

    def leave(self, name: str) -> None:
        """Let other processes write the session, if nothing runs in it here."""

    def turn(self, turn_id: str) -> Turn | None:
        """A turn of this process that somebody still holds."""

    def store(self) -> SessionStore: ...

    async def tidy(self) -> None:
        """Delete what the configuration says is kept no longer."""
