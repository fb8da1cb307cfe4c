"""A server's turns, from outside: its native endpoints, as a terminal needs them.

Theory of operation. A request is answered, refused, or lost. What is refused is somebody's to change and raised as a
UserError at once. What is lost (no connection, silence, a server with no room) may come back: `RemoteTurn` tries again
for a while, from its cursor on, so nothing is shown twice and nothing is left out; `Lost` is raised when it gives up.

    connect --state: so many events--> past, as one batch --> live, batch by batch --closed--> end
       ^------------------------ pause <--lost--'----------------'

Answers a person gives are sent beside the stream. One that comes too late is no failure: the log says who was first.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from headrace import events
from headrace.config.loading import API_KEY_FILE
from headrace.config.schema import Api
from headrace.errors import HeadraceError, MalformedStream, Outcome, UserError
from headrace.events import Recorded, TurnClosed
from headrace.limits import (
    FOLLOW_ANSWER_S,
    FOLLOW_CONNECT_S,
    FOLLOW_MAX_BYTES,
    FOLLOW_PATIENCE_S,
    FOLLOW_PAUSE_FIRST_S,
    FOLLOW_PAUSE_MOST_S,
    FOLLOW_SILENCE_S,
    FOLLOW_STEADY_S,
    READ_BYTES,
)
from headrace.ports import Clock
from headrace.version import __version__
from headrace.wire import sse

T = TypeVar("T")

Say = Callable[[str], None]
"""Takes a line for the person."""

# Answers of a server that is there and has no room, is going, or stands behind something that is.
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a server listens, not where we do


class Lost(HeadraceError):
    """The server cannot be reached, or its answer broke off."""

    who = "network"


class Refused(UserError):
    """The server has said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Row(msgspec.Struct, frozen=True):
    """A turn as lists show it."""

    id: str
    opened_at: float
    events: int
    session: str | None = None
    question: str = ""
    outcome: Outcome | None = None
    runs_here: bool = False


class SessionRow(msgspec.Struct, frozen=True):
    name: str
    turns: int


class _Turns(msgspec.Struct):
    data: list[Row]


class _Sessions(msgspec.Struct):
    data: list[SessionRow]


class _Session(msgspec.Struct):
    turns: list[Row]


class _Error(msgspec.Struct):
    message: str


class _Envelope(msgspec.Struct):
    error: _Error


class Key(NamedTuple):
    secret: str
    origin: str
    """Where it was found; where it would be looked for, if it was not."""


def address_of(api: Api) -> str:
    """Where the configured server is reached from this machine."""
    host = _ANYWHERE.get(api.host, api.host)
    return f"http://[{host}]:{api.port}" if ":" in host else f"http://{host}:{api.port}"


def address(text: str) -> str:
    """What a person calls a server, as a URL; raises UserError."""
    url = (text if "://" in text else f"http://{text}").rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise UserError(f"{text!r} is no address of a server; one looks like http://127.0.0.1:8700.")
    return url


def key_of(api: Api, home: Path, env: Mapping[str, str]) -> Key:
    """The key a server of this home folder asks for."""
    if given := env.get(api.key_env, "").strip():
        return Key(given, f"the variable {api.key_env}")
    path = home / API_KEY_FILE
    try:
        return Key(path.read_text(encoding="ascii", errors="replace").strip(), str(path))
    except FileNotFoundError:
        return Key("", f"the variable {api.key_env} or the file {path}")
    except OSError as error:
        raise UserError(f"The key in {path} cannot be read: {error.strerror or error}.") from error


class Server:
    """The API at `url`; for `async with`."""

    def __init__(self, url: str, key: Key, clock: Clock) -> None:
        self.url = url
        self.clock = clock
        self._key = key
        if not key.secret.isprintable():
            raise UserError(f"The key in {key.origin} holds characters that no request can carry.")

    async def __aenter__(self) -> Self:
        headers = {"User-Agent": f"headrace/{__version__}", "Accept-Encoding": "identity"}
        if self._key.secret:
            headers["Authorization"] = f"Bearer {self._key.secret}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, connect=FOLLOW_CONNECT_S, sock_read=FOLLOW_SILENCE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    # --- asking

    async def turns(self) -> list[Row]:
        """Those the server has at hand, latest first."""
        return (await self._ask("GET", "turns", _Turns)).data

    async def turn(self, turn: str) -> Row:
        return await self._ask("GET", f"turns/{_name(turn)}", Row)

    async def sessions(self) -> list[SessionRow]:
        """Latest first."""
        return (await self._ask("GET", "sessions", _Sessions)).data

    async def session(self, session: str) -> list[Row]:
        """Its turns, oldest first."""
        return (await self._ask("GET", f"sessions/{_name(session)}", _Session)).turns

    async def stop(self, turn: str) -> Row:
        return await self._ask("POST", f"turns/{_name(turn)}/stop", Row)

    async def settle(self, turn: str, what: str, key: str, answer: Mapping[str, Any]) -> None:
        """Answer one of the turn's `approvals` or `questions`."""
        await self._ask("POST", f"turns/{_name(turn)}/{what}/{_name(key)}", dict[str, Any], answer)

    async def events(self, turn: str, after: int) -> AsyncGenerator[list[Recorded]]:
        """What came after number `after`, as it is read, until the server ends the stream; nothing once it is open."""
        decoder = sse.Decoder(FOLLOW_MAX_BYTES, FOLLOW_MAX_BYTES)
        async with self._asked("GET", f"turns/{_name(turn)}/events?after={after}") as response:
            yield []
            while data := await _read(response):
                if frames := self._frames(decoder, data):
                    yield [self._decoded(events.decode, frame.data) for frame in frames]

    async def persist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer, for a while; raises Lost."""
        patience = Patience(self.clock)
        while True:
            try:
                return await ask()
            except Lost as lost:
                await patience.pause(lost)

    # --- within

    async def _ask(self, method: str, path: str, kind: type[T], body: Mapping[str, Any] | None = None) -> T:
        try:
            async with self.clock.timeout(FOLLOW_ANSWER_S), self._asked(method, path, body) as response:
                data = await self._whole(response)
        except TimeoutError:
            raise Lost(f"{self.url} did not answer within {FOLLOW_ANSWER_S:g} s.") from None
        return self._decoded(msgspec.json.Decoder(kind).decode, data)

    @contextlib.asynccontextmanager
    async def _asked(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer, if it is what was asked for; what was not read of it is dropped."""
        try:
            response = await self._session.request(
                method,
                f"{self.url}/v1/{path}",
                data=None if body is None else msgspec.json.encode(body),
                headers={} if body is None else {"Content-Type": "application/json"},
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Lost(
                f"No server answers at {self.url} ({_reason(error)}). Start one with `headrace serve`, or name another "
                "address with --url."
            ) from error
        try:
            if response.status != 200:
                raise await self._refusal(response)
            yield response
        finally:
            response.close()

    async def _refusal(self, response: aiohttp.ClientResponse) -> HeadraceError:
        status = response.status
        if status == 401:
            return Refused(status, self._wrong_key())
        try:
            why = msgspec.json.decode(await self._whole(response), type=_Envelope).error.message
        except msgspec.DecodeError:
            why = "It does not seem to be a headrace server."
        said = f"{self.url} answered {status}: {why}"
        return Lost(said) if status in _PASSING else Refused(status, said)

    def _wrong_key(self) -> str:
        if self._key.secret:
            return (
                f"The server at {self.url} does not take the key in {self._key.origin}. Its key is in the file "
                f"{API_KEY_FILE} of its home folder, or in the variable that api.key_env names there."
            )
        return f"The server at {self.url} asks for a key, and there is none in {self._key.origin}."

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        data = bytearray()
        while piece := await _read(response):
            data += piece
            if len(data) > FOLLOW_MAX_BYTES:
                raise self._strange(f"more than {FOLLOW_MAX_BYTES} bytes")
        return bytes(data)

    def _frames(self, decoder: sse.Decoder, data: bytes) -> list[sse.ServerSentEvent]:
        frames: list[sse.ServerSentEvent] = []
        try:
            decoder.feed(data, frames)
        except MalformedStream as error:
            raise self._strange(error.reason) from error
        return frames

    def _decoded(self, decode: Callable[[bytes], T], data: bytes) -> T:
        try:
            return decode(data)
        except msgspec.DecodeError as error:
            raise self._strange(str(error)) from error

    def _strange(self, what: str) -> UserError:
        return UserError(
            f"{self.url} answered with something unknown here ({what}). Is it a headrace server of this release?"
        )


class Patience:
    """Growing pauses between tries, until it has been too long since something came or a connection held."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.renew()

    def renew(self) -> None:
        self._pause_s = FOLLOW_PAUSE_FIRST_S
        self._since: float | None = None
        self._open_since: float | None = None

    def opened(self) -> None:
        self._open_since = self._clock.monotonic()

    @property
    def tried(self) -> bool:
        """Whether a try has failed since something came."""
        return self._since is not None

    async def pause(self, lost: Lost) -> None:
        """Raises `lost` when it has been too long."""
        now = self._clock.monotonic()
        if self._open_since is not None and now - self._open_since >= FOLLOW_STEADY_S:
            self.renew()
        self._open_since = None
        if self._since is None:
            self._since = now
        elif now - self._since > FOLLOW_PATIENCE_S:
            raise lost
        await self._clock.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, FOLLOW_PAUSE_MOST_S)


class RemoteTurn:
    """A turn that a server knows; what it asks can be answered here where the server runs it."""

    def __init__(self, server: Server, row: Row, say: Say) -> None:
        self.id = row.id
        self.session = row.session
        self.answerable = row.runs_here
        self.outcome: Outcome | None = None
        """How it ended, once it has been followed to its end."""
        self.answered: set[str] = set()
        """What has been answered here."""
        self._server = server
        self._say = say
        self._sending: set[asyncio.Task[None]] = set()

    # --- following

    async def follow(self, after: int = 0) -> AsyncGenerator[list[Recorded]]:
        """Everything after number `after`, until the turn is closed; what is known of it by now is one batch."""
        patience = Patience(self._server.clock)
        while True:
            try:
                async with contextlib.aclosing(self._connected(after)) as batches:
                    async for batch in batches:
                        if not batch:
                            patience.opened()
                            continue
                        patience.renew()
                        after = batch[-1].seq
                        yield batch
            except Lost as lost:
                if not patience.tried:
                    self._say("The connection to the server was lost; coming back to the turn.")
                await self._pause(patience, lost, after)
            else:
                return

    async def _pause(self, patience: "Patience", lost: Lost, after: int) -> None:
        try:
            await patience.pause(lost)
        except Lost:
            message = f"{lost} `headrace follow {self.id} --after {after}` goes on from where this ended."
            raise Lost(message) from lost

    async def _connected(self, after: int) -> AsyncGenerator[list[Recorded]]:
        """The same over one connection, and nothing once it is open; raises Lost if it ends before the turn has."""
        row = await self._known(after)
        self.answerable = row.runs_here
        if row.outcome is not None and after >= row.events:
            self.outcome = row.outcome
            return
        past: list[Recorded] = []
        async with contextlib.aclosing(self._server.events(self.id, after)) as batches:
            async for batch in batches:
                past += batch
                if not past:
                    yield past
                elif (last := past[-1]).seq >= row.events:
                    if isinstance(last.event, TurnClosed):
                        self.outcome = last.event.outcome
                    yield past
                    if self.outcome is not None:
                        return
                    past = []
        raise Lost(f"The stream of {self._server.url} ended before the turn did.")

    async def _known(self, after: int) -> Row:
        try:
            return await self._server.turn(self.id)
        except Refused as refused:
            if refused.status == 404 and after:
                message = f"{self._server.url} knows {self.id} no longer, so how it ended cannot be told."
                raise Refused(404, f"{message} It was not stored.") from refused
            raise

    # --- acting on it

    async def stop(self) -> Outcome | None:
        """End it; how it has ended, which may have been before."""
        try:
            return (await self._server.persist(lambda: self._server.stop(self.id))).outcome
        except Refused as refused:
            row = await self._server.turn(self.id)
            if refused.status == 404 and row.outcome is None:
                raise UserError(
                    f"{self.id} runs in another process and can only be stopped there."
                ) from refused
            return row.outcome

    def approve(self, approval: str, *, allowed: bool, by: str) -> bool:
        return self._settle("approvals", approval, {"allow": allowed, "by": by})

    def answer(self, question: str, text: str, by: str) -> bool:
        return self._settle("questions", question, {"text": text, "by": by})

    def _settle(self, what: str, key: str, answer: Mapping[str, Any]) -> bool:
        self.answered.add(key)
        task = asyncio.create_task(self._send(what, key, answer))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return True

    async def _send(self, what: str, key: str, answer: Mapping[str, Any]) -> None:
        try:
            await self._server.persist(lambda: self._server.settle(self.id, what, key, answer))
        except Refused as refused:
            if refused.status == 409:
                self._say("It had been answered already.")
            elif refused.status != 404:  # where the turn is over, its end is told
                self._say(f"Your answer was not taken. {refused}")
        except HeadraceError as error:
            self._say(f"Your answer has not arrived. {error}")

    async def close(self) -> None:
        """Send nothing any more."""
        for task in self._sending:
            task.cancel()
        if self._sending:
            await asyncio.wait(self._sending)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """What has come; nothing at the end."""
    try:
        return await response.content.readany()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise Lost(f"The connection to {response.url.origin()} broke ({_reason(error)}).") from error


def _name(text: str) -> str:
    return quote(text, safe="")


def _reason(error: BaseException) -> str:
    match error:
        case aiohttp.ClientConnectorError(os_error=OSError(strerror=str(reason))) if reason:
            return reason
        case OSError(strerror=str(reason)) if reason:
            return reason
        case _:
            return str(error) or type(error).__name__
