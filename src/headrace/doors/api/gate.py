"""Who may ask, and how much: what every request passes before an endpoint sees it.

Theory of operation. A request is turned away, with the envelope every client knows, unless

    Host      names this machine: an address, localhost, or a name the configuration knows. A page of somebody else's
              that has its own name resolved to this address (DNS rebinding) sends its own name.
    Origin    is absent, this server's own, or one the configuration allows; only those get CORS headers.
    key       is right, compared in constant time; whoever guesses has to wait.
    rate      leaves room, to those who have the key.

Whatever an endpoint raises becomes an answer here, and nothing of an error that is our own is told to the outside.
"""

import hmac
import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from headrace.config.schema import Api
from headrace.doors.api.answers import refusal
from headrace.doors.api.asked import Refused
from headrace.errors import ConfigError, HeadraceError, StoreError, UserError
from headrace.limits import (
    API_ADDRESSES_MOST,
    API_BURST,
    API_REQUESTS_PER_S,
    API_WRONG_KEYS,
    API_WRONG_KEYS_PER_S,
)
from headrace.ports import Clock
from headrace.stores.journal import BrokenJournal
from headrace.stores.sqlite.failures import StoreBusy
from headrace.views import failing

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OPEN: Final = frozenset({"/health"})
"""Paths that need no key: they tell nothing but that the server is up."""

STREAMING: Final = web.RequestKey("streaming", bool)
"""Set on a request whose answer has begun."""

_BUG: Final = Refused(500, failing.BUG, code="bug")
_CORS_HEADERS: Final = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": "Authorization, *",
    "Access-Control-Expose-Headers": "X-Headrace-Turn, X-Headrace-Session, Retry-After",
    "Access-Control-Max-Age": "600",
    "Vary": "Origin",
}


class _Bucket:
    """Room for so many at once, refilled at a rate."""

    def __init__(self, most: float, per_s: float, now: float) -> None:
        self._most = most
        self._per_s = per_s
        self._left = most
        self._at = now

    def wait_s(self, now: float) -> float:
        """How long until there is room; 0 where there is."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_s)
        self._at = now
        return 0.0 if self._left >= 1 else (1 - self._left) / self._per_s

    def take(self) -> None:
        self._left -= 1


class Gate:
    def __init__(self, settings: Api, host: str, secret: str, clock: Clock) -> None:
        self._names = {"localhost", host.lower(), *map(str.lower, settings.hosts)}
        self._origins = frozenset(settings.origins)
        self._secret = secret.encode()
        self._clock = clock
        self._rate = _Bucket(API_BURST, API_REQUESTS_PER_S, clock.monotonic())
        self._guesses: OrderedDict[str, _Bucket] = OrderedDict()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin", "")
        try:
            self._check_host(request)
            self._check_origin(request, origin)
            if request.method == "OPTIONS" and origin:
                response: web.StreamResponse = web.Response(status=204)
            else:
                if request.path not in OPEN:
                    self._check_key(request)
                    self._check_rate()
                response = await handler(request)
        except Refused as refused:
            response = refusal(refused)
        except web.HTTPException as error:
            response = _http_error(error)
        except HeadraceError as error:
            response = refusal(_told(error))
        except ConnectionError:
            response = web.Response()  # there is nobody to read it
        except Exception:  # noqa: BLE001 - it is told: in the answer, and in the program's own log
            _log.exception("%s %s failed", request.method, request.path)
            response = refusal(_BUG)
        if request.get(STREAMING) and not response.prepared and request.transport is not None:
            request.transport.abort()  # half an answer is out; it must not look whole
        return response

    async def prepared(self, request: web.Request, response: web.StreamResponse) -> None:
        """What every answer carries: allowed pages of other places may read it, and no version is told."""
        response.headers["Server"] = "headrace"
        origin = request.headers.get("Origin", "")
        if origin in self._origins:
            response.headers.update({"Access-Control-Allow-Origin": origin, **_CORS_HEADERS})

    def _check_host(self, request: web.Request) -> None:
        name = _without_port(request.headers.get("Host", "")).lower()
        if name in self._names or _is_address(name):
            return
        raise Refused(
            403,
            "This server is not called by that name. Add the name to api.hosts in its configuration.",
            code="host_not_allowed",
        )

    def _check_origin(self, request: web.Request, origin: str) -> None:
        if not origin or origin in self._origins or origin.partition("://")[2] == request.headers.get("Host"):
            return
        raise Refused(
            403,
            "Pages of this origin may not ask. Add it to api.origins in the server's configuration.",
            code="origin_not_allowed",
        )

    def _check_key(self, request: web.Request) -> None:
        if not self._secret:
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
        now = self._clock.monotonic()
        guesses = self._guesses.get(request.remote or "")
        wait_s = guesses.wait_s(now) if guesses else 0.0
        if hmac.compare_digest(given.encode(errors="replace"), self._secret):
            return
        if wait_s:
            raise Refused(429, "Too many wrong keys.", code="too_many_wrong_keys", retry_after_s=wait_s)
        self._guessed(request.remote or "", now)
        raise Refused(
            401,
            "The key is missing or wrong. Send it as `Authorization: Bearer <key>`; it is in the file api_key of "
            "headrace's home folder, or in the variable api.key_env names.",
            code="invalid_api_key",
        )

    def _guessed(self, address: str, now: float) -> None:
        bucket = self._guesses.get(address)
        if bucket is None:
            bucket = self._guesses[address] = _Bucket(API_WRONG_KEYS, API_WRONG_KEYS_PER_S, now)
        bucket.take()
        self._guesses.move_to_end(address)
        while len(self._guesses) > API_ADDRESSES_MOST:
            self._guesses.popitem(last=False)

    def _check_rate(self) -> None:
        wait_s = self._rate.wait_s(self._clock.monotonic())
        if wait_s:
            raise Refused(429, "Too many requests.", code="rate_limited", retry_after_s=wait_s)
        self._rate.take()


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[")
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _http_error(error: web.HTTPException) -> web.Response:
    match error.status:
        case 404:
            why = "There is nothing here. GET /openapi.json says what there is."
        case 405:
            why = "This path does not know that method. GET /openapi.json says what there is."
        case 413:
            why = "The request is larger than this server takes."
        case _:
            why = error.reason
    response = refusal(Refused(error.status, why, code="not_found" if error.status == 404 else ""))
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


def _told(error: HeadraceError) -> Refused:
    match error:
        case StoreError():
            _log.error("%s", error)
            return Refused(507, failing.NOT_WRITTEN, code="store_failed")
        case StoreBusy():
            _log.error("%s", error)
            return Refused(503, "What is kept is in use by another process.", code="busy", retry_after_s=1)
        case BrokenJournal():
            _log.error("%s", error)
            return Refused(
                500,
                "What is kept of this session cannot be read. The server's own log says which file to move away.",
                code="store_failed",
            )
        case ConfigError():
            return Refused(500, str(error), code="config_invalid")
        case UserError():
            return Refused(409, str(error), code="conflict")
        case _:
            _log.error("%s", error)
            return _BUG
