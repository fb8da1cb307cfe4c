"""What the endpoints share: reading a request, and answering it with a turn, streamed or whole."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import fastjsonschema
import msgspec
from aiohttp import web

from headrace.config.schema import Api
from headrace.doors.api import answers
from headrace.doors.api.asked import Refused
from headrace.doors.api.misfit import misfit
from headrace.doors.api.schemas import SESSION, Schema
from headrace.doors.api.stream import BeginningView, Stream, View
from headrace.doors.api.turns import GONE, Held, Ticket, Turns
from headrace.doors.api.wired import Wired
from headrace.limits import (
    API_BODY_MAX_DEPTH,
    API_BODY_SMALL_BYTES,
    API_IDEMPOTENCY_KEY_MAX_CHARS,
    API_RECEIVE_S,
    API_STATUS_S,
)
from headrace.turn.log import Log
from headrace.views import failing

Check = Callable[[Any], Any]

SESSION_HEADER: Final = "X-Headrace-Session"
TURN_HEADER: Final = "X-Headrace-Turn"

_SESSION: Final = re.compile(SESSION["pattern"].removesuffix("$") + r"\Z")
_TICKET: Final = re.compile(rf"[ -~]{{1,{API_IDEMPOTENCY_KEY_MAX_CHARS}}}")


def checks(schema: Schema) -> Check:
    compiled: Check = fastjsonschema.compile(schema)
    return compiled


class Desk:
    def __init__(self, wired: Wired, turns: Turns, keepalive_s: float) -> None:
        """A silent stream gets a comment every `keepalive_s`, and at the pulse's beat."""
        self.wired = wired
        self.turns = turns
        self._keepalive_s = keepalive_s
        self.clock = wired.clock
        self.settings: Api = wired.config.api
        self._streams: set[Stream] = set()

    # --- reading

    async def body(self, request: web.Request, check: Check) -> tuple[dict[str, Any], bytes]:
        """The request's JSON, checked, and its bytes; raises Refused."""
        try:
            raw = await self._received(request)
        except TimeoutError:
            raise Refused(408, "The request did not arrive in time.") from None
        except web.RequestPayloadError:
            raise Refused(400, "The body cannot be read as its headers say it is written.") from None
        if len(raw) <= API_BODY_SMALL_BYTES:
            return _checked(raw, check), raw
        return await asyncio.to_thread(_checked, raw, check), raw

    async def _received(self, request: web.Request) -> bytes:
        if request.content.is_eof():  # it came with its headers, as most do
            return await request.read()
        async with self.clock.timeout(API_RECEIVE_S):
            return await request.read()

    @staticmethod
    def session(request: web.Request) -> str:
        name = request.headers.get(SESSION_HEADER, "")
        if name and not _SESSION.match(name):
            raise Refused(
                400,
                f"{SESSION_HEADER} is a name of letters, digits, dots, dashes and underscores, 100 at most.",
                param=SESSION_HEADER,
            )
        return name

    @staticmethod
    def ticket(request: web.Request, raw: bytes) -> Ticket | None:
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return None
        if not _TICKET.fullmatch(key):
            raise Refused(
                400, f"Idempotency-Key is 1 to {API_IDEMPOTENCY_KEY_MAX_CHARS} printable characters.",
                param="Idempotency-Key",
            )  # fmt: skip
        session = request.headers.get(SESSION_HEADER, "")
        return Ticket.of(key, f"{request.path}\n{session}", raw)

    # --- answering

    async def live(self, request: web.Request, held: Held, view: BeginningView) -> web.StreamResponse:
        """The turn as it happens; its failure is an HTTP status where nothing has been sent before."""
        with self.turns.followed(held, GONE), self.stream(held.turn.log, view) as stream:
            await stream.opening(view, API_STATUS_S)
            closed = held.turn.log.closed
            if closed is not None and failing.failed(closed) and not held.turn.folded().visible:
                return answers.failure(closed.cause, headers=self.headers(held))
            return await stream.flow(request, self.headers(held))

    @contextlib.contextmanager
    def stream(self, log: Log, view: View, *, after: int = 0, skip: int = 0) -> Iterator[Stream]:
        """After entry number `after`; `skip` frames have been seen. Raises Refused where too many are open."""
        if len(self._streams) >= self.settings.max_concurrent:
            raise Refused(429, "Too many streams are open.", code="too_many_streams", retry_after_s=1)
        stream = Stream(log, view, self.clock, self._keepalive_s, after, skip)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)
            stream.close()

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    @staticmethod
    def headers(held: Held) -> dict[str, str]:
        session = {SESSION_HEADER: held.session} if held.session else {}
        return {TURN_HEADER: held.turn.id, **session}

    def pulse(self) -> None:
        for stream in tuple(self._streams):
            stream.pulse()


def _checked(raw: bytes, check: Check) -> dict[str, Any]:
    """A body as its schema describes it; raises Refused."""
    value = _read(raw or b"{}")
    try:
        check(value)
    except fastjsonschema.JsonSchemaValueException as error:
        why, where = misfit(error)
        raise Refused(400, f"The request does not fit: {why}.", param=where) from None
    checked: dict[str, Any] = value
    return checked


def _read(raw: bytes) -> Any:
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # both of msgspec's errors are
        raise Refused(400, f"The request is not valid JSON: {error}.") from None
    level = [value]
    for _ in range(API_BODY_MAX_DEPTH):
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _within(outer)]
        if not level:
            return value
    raise _too_deep()


def _within(outer: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return outer.values() if isinstance(outer, dict) else outer


def _too_deep() -> Refused:
    return Refused(400, f"The request is nested more than {API_BODY_MAX_DEPTH} levels deep.")


def number(request: web.Request, name: str) -> int | None:
    """A whole number of the query."""
    text = request.query.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise Refused(400, f"{name} is a whole number.", param=name)
    return int(text)


def flag(request: web.Request, name: str) -> bool:
    """A true or false of the query."""
    match request.query.get(name, "false"):
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case _:
            raise Refused(400, f"{name} is true or false.", param=name)
