"""The turns of this server: begun, come back to, and let go.

Theory of operation. A turn is held while it runs and while clients follow it, and a while longer where somebody may
come back to it. What its last follower's leaving means is said when it begins:

    stays      it goes on: it is stored, runs in the background, or the configuration says so
    otherwise  it is stopped, at once, or where a retry may attach to it after a time of grace

                begin --> running, followed <--> running, alone --stays--> ... --closed--> lingering --> let go
                                                      '-- not: stopped, after its grace

Stored turns outlive being held; they are read from the store, and one that another process writes is followed by
looking at what it has written. If that process is gone, the turn is closed as what it is: crashed.
"""

import asyncio
import contextlib
import hashlib
import logging
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from headrace.agent.decide import RELAY
from headrace.agent.history import answered
from headrace.config import Config
from headrace.config.schema import Api
from headrace.doors.api.asked import AGENT_MODEL, Asked, Refused
from headrace.doors.api.metrics import Metrics
from headrace.doors.api.wired import Wired
from headrace.errors import Cause, ConfigError, UserError
from headrace.events import Message
from headrace.limits import API_IDEMPOTENT_MOST, API_LINGER_S, API_LOOK_S
from headrace.ports import ProtocolName, Timer
from headrace.runtime.question import Acting
from headrace.runtime.session import Manner
from headrace.runtime.turn import Turn
from headrace.stores.sqlite.watched import Watched
from headrace.turn.folds import fold
from headrace.turn.log import Log

_log = logging.getLogger(__name__)

# A name that is no path, wherever it is looked up.
_PLAIN: Final = re.compile(r"local:[a-z0-9][a-z0-9._-]*(?<!\.gguf)", re.IGNORECASE)

GONE: Final = Cause("client_disconnected", "SSE client disconnected")
LEFT: Final = Cause("client_disconnected", "The client disconnected before the answer was whole.")


class Held:
    """A turn that clients of this server follow or may come back to."""

    def __init__(self, turn: Turn, asked: Asked, session: str, *, stays: bool) -> None:
        self.turn = turn
        self.asked = asked
        """What the turn was begun with."""
        self.session = session
        """Empty where nothing is kept."""
        self.stays = stays
        self.tickets: list[Ticket] = []
        self.followers = 0
        self.timer: Timer | None = None

    @property
    def grace_s(self) -> float:
        """How long the turn goes on without followers, and is kept without them when it is closed."""
        return API_LINGER_S if self.tickets or self.stays else 0

    @property
    def closed(self) -> bool:
        return self.turn.log.closed is not None


class Ticket(msgspec.Struct, frozen=True):
    """An idempotency key and what was asked with it."""

    key: str
    digest: bytes

    @classmethod
    def of(cls, key: str, path: str, body: bytes) -> "Ticket":
        return cls(key, hashlib.sha256(path.encode() + b"\0" + body).digest())


class Turns:
    def __init__(self, wired: Wired, settings: Api, folder: Path, metrics: Metrics) -> None:
        self._wired = wired
        self._settings = settings
        self._folder = folder
        self._metrics = metrics
        self._held: dict[str, Held] = {}
        self._running: set[Turn] = set()
        self._tickets: dict[str, Held] = {}
        self._draining = False

    # --- beginning

    def begin(
        self,
        asked: Asked,
        *,
        session: str = "",
        request: str = "",
        manner: Manner | None = None,
        attended: bool = True,
        ticket: Ticket | None = None,
    ) -> Held:
        """Start a turn; raises Refused where it cannot be begun. A session's name makes it a stored one; without a
        `manner`, what it does to a turn of the session that runs is as configured.
        """
        manner = manner or self._wired.config.sessions.when_busy.api
        self._check_room()
        if asked.acts:
            asked = asked.told_apart()
        if not asked.messages:
            raise Refused(
                409, "There is no message after the last answer.", param="messages", code="nothing_new"
            )
        turn = self._start(asked, session, request, manner, attended=attended)
        held = self._held.get(turn.id) or self._hold(turn, asked, session)  # it may be given to one that runs
        if ticket is not None:
            self._remember(ticket, held)
        return held

    def _hold(self, turn: Turn, asked: Asked, session: str) -> Held:
        stays = bool(session) or asked.background or self._settings.on_disconnect == "detach"
        held = self._held[turn.id] = Held(turn, asked, session, stays=stays)
        self._running.add(turn)
        turn.log.await_end(partial(self._ended, held))
        return held

    def _remember(self, ticket: Ticket, held: Held) -> None:
        held.tickets.append(ticket)
        self._tickets[ticket.key] = held
        if len(self._tickets) > API_IDEMPOTENT_MOST:
            del self._tickets[next(iter(self._tickets))]

    def attached(self, ticket: Ticket | None) -> Held | None:
        """The turn that was begun with the same idempotency key; raises Refused if it was asked something else."""
        held = self._tickets.get(ticket.key) if ticket else None
        if held is not None and ticket not in held.tickets:
            raise Refused(
                422,
                "This Idempotency-Key was used with another request. Use a new one.",
                code="idempotency_key_reused",
            )
        return held

    async def continued(self, asked: Asked, turn: str) -> tuple[Asked, str]:
        """What is asked, and the session it is asked in, so that it follows the turn; raises Refused if it is unknown.

        A turn that others have followed already is gone on with in a session of its own, which begins with what was
        said until then.
        """
        store = self._wired.store()
        name = await asyncio.to_thread(store.session_of, turn)
        if name is None:
            raise Refused(
                404,
                f"There is no stored response {asked.previous}.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        if asked.stored and self._wired.session(name).latest == turn:
            return asked.news(), name
        past = await asyncio.to_thread(self._until, name, turn)
        asked = asked.told_apart()
        return msgspec.structs.replace(asked, messages=(*past, *asked.messages)), ""

    def _until(self, session: str, turn: str) -> list[Message]:
        said: list[Message] = []
        for entries in self._wired.store().turns(session):
            said += fold(entries).messages()
            if entries[0].turn == turn:
                break
        return answered(said)

    def _start(self, asked: Asked, session: str, request: str, manner: Manner, *, attended: bool) -> Turn:
        wired = self._wired
        owner = wired.session(session) if session else None
        options = msgspec.structs.replace(asked.options, request=request)
        if asked.acts:
            acting = Acting(folder=self._folder, attended=attended)
            return wired.start(asked.messages, None, owner, options, None, acting, manner)
        self._check_model(asked.model)
        try:
            return wired.start(asked.messages, asked.model, owner, options, RELAY, None, manner)
        except ConfigError as error:
            raise _no_model(asked.model, str(error)) from error

    def _check_model(self, model: str) -> None:
        """A file on this machine is a model only where the configuration says so."""
        if not model.startswith("local:") or _PLAIN.fullmatch(model):
            return
        if model not in model_names(self._wired.config):
            raise _no_model(model, "a file can be named in the configuration only, under `models`")

    def _check_room(self) -> None:
        if self._draining:
            raise Refused(
                503, "The server is shutting down and begins nothing new.", code="shutdown", retry_after_s=5
            )
        if len(self._running) >= self._settings.max_concurrent:
            raise Refused(
                429,
                f"{len(self._running)} turns are running, which is as many as api.max_concurrent allows.",
                code="too_many_turns",
                retry_after_s=1,
            )

    # --- following

    def held(self, turn: str) -> Held | None:
        return self._held.get(turn)

    def here(self, turn: str) -> Turn | None:
        """A turn that is held, or that a session runs by itself: what came too late for one opens the next."""
        held = self._held.get(turn)
        own = held.turn if held else self._wired.turn(turn)
        return own if held or (own and own.log.closed is None) else None

    def all_held(self) -> list[Held]:
        return list(self._held.values())

    def new_session(self) -> str:
        """For a turn that is kept and was asked in no session: one of its own."""
        return f"api-{int(self._wired.clock.now() * 1000):x}{secrets.token_hex(4)}"

    def let_go(self, turn: str) -> None:
        """Hold the turn no longer, because it was deleted; not while it runs."""
        held = self._held.get(turn)
        if held is not None and held.closed:
            self._no_timer(held)
            self._let_go(held)

    def protocol(self, model: str) -> ProtocolName | None:
        """What a direct model is spoken to in, where it is known."""
        provider = self._wired.config.providers.get(model.partition(":")[0])
        return provider.protocol if provider else None

    @property
    def running(self) -> int:
        return len(self._running)

    @contextlib.contextmanager
    def followed(self, held: Held, cause: Cause = GONE) -> Iterator[None]:
        """While within, the turn has one follower more; `cause` is told if it ends for want of followers."""
        held.followers += 1
        self._no_timer(held)
        try:
            yield
        finally:
            held.followers -= 1
            if not held.followers:
                self._left_alone(held, cause)

    @contextlib.asynccontextmanager
    async def log(self, turn: str, cause: Cause = GONE) -> AsyncIterator[Log]:
        """The turn's log, followed while within; raises Refused if there is no such turn."""
        held = self._held.get(turn)
        if held is not None:
            with self.followed(held, cause):
                yield held.turn.log
            return
        if (own := self.here(turn)) is not None:
            yield own.log
            return
        session, log = await asyncio.to_thread(self._stored, turn)
        try:
            async with (
                asyncio.TaskGroup() as group
            ):  # who follows a log that cannot be looked at learns of it
                looking = group.create_task(self._look(log, session))
                yield log
                looking.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def _stored(self, turn: str) -> tuple[str, Log]:
        store = self._wired.store()
        session = store.session_of(turn)
        entries = store.since(session, turn) if session else []
        if session is None or not entries:
            raise NoTurn(turn)
        return session, Log.restored(entries)

    async def _look(self, log: Log, session: str) -> None:
        """Bring the log up to what another process writes."""
        watched = self._wired.store().watch(session, log.turn, len(log))
        while log.closed is None:
            if not (
                await self._caught_up(log, watched)
                or self._is_written(session)
                or await self._caught_up(log, watched)  # with the end it has got for want of a writer
            ):
                raise NoTurn(log.turn)  # it was deleted
            await self._wired.clock.sleep(API_LOOK_S)

    @staticmethod
    async def _caught_up(log: Log, watched: Watched) -> bool:
        """Whether there was anything new."""
        news = await asyncio.to_thread(watched.more)
        for entry in news:
            log.append(entry.event, entry.at)
        return bool(news)

    def _is_written(self, session: str) -> bool:
        """Whether another process writes the session; if none does, what was left open in it is closed."""
        try:
            self._wired.session(session)
        except UserError:  # it is busy
            return True
        self._wired.leave(session)
        return False

    # --- letting go

    def _ended(self, held: Held) -> None:
        closed = held.turn.log.closed
        if closed is not None and closed.cause.code == "store_failed":
            _log.error("turn %s ended: %s", held.turn.id, closed.cause.message)
        self._running.discard(held.turn)
        self._metrics.turn(held.turn.log.since(0))
        if not held.followers:
            self._left_alone(held, GONE)

    def _left_alone(self, held: Held, cause: Cause) -> None:
        if not held.closed and held.stays:
            return
        if held.grace_s:
            self._no_timer(held)
            held.timer = self._wired.clock.call_later(held.grace_s, partial(self._over, held, cause))
        else:
            self._over(held, cause)

    def _over(self, held: Held, cause: Cause) -> None:
        """Nobody has come back."""
        if held.closed:
            self._let_go(held)
        else:
            held.turn.stop(cause)

    def _let_go(self, held: Held) -> None:
        self._held.pop(held.turn.id, None)
        for ticket in held.tickets:
            if self._tickets.get(ticket.key) is held:
                del self._tickets[ticket.key]

    @staticmethod
    def _no_timer(held: Held) -> None:
        if held.timer is not None:
            held.timer.cancel()
            held.timer = None

    # --- the end of the server

    async def drain(self, patience_s: float, cause: Cause) -> None:
        """Begin nothing new, let what runs end, and end what has not by then."""
        self._draining = True
        running = list(self._running)
        ended = asyncio.gather(*(turn.wait() for turn in running), return_exceptions=True)
        try:
            async with self._wired.clock.timeout(patience_s):
                await asyncio.shield(ended)
        except TimeoutError:
            for turn in running:
                turn.stop(cause)
        await ended

    @property
    def draining(self) -> bool:
        return self._draining


def model_names(config: Config) -> list[str]:
    """The agent, and what the configuration names. Any other model of a known provider can be named too."""
    named = [
        AGENT_MODEL,
        *([str(config.model)] if config.model else []),
        *map(str, config.fallback_models),
        *map(str, config.models),
        *(f"moa:{name}" for name in config.presets),
        "local",
    ]
    return list(dict.fromkeys(named))


class NoTurn(Refused):
    def __init__(self, turn: str, where: str = "here") -> None:
        super().__init__(404, f"There is no turn {turn} {where}.", code="not_found")


def _no_model(model: str, why: str) -> Refused:
    return Refused(
        404,
        f"There is no model {model!r} here: {why}. GET /v1/models lists what is configured.",
        param="model",
        code="model_not_found",
    )
