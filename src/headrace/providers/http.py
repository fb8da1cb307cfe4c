"""One endpoint over HTTP: opens a request, feeds a decoder, and tells a CallError from everything that can go wrong.

Theory of operation. All endpoints share one aiohttp session: one connector, one TLS context, connections kept alive.
`attempt` has three stages, and cancelling any of them closes the connection on the way out:

    open --status 200--> read --ReplyEnded--> drained, connection kept
      |                    '--broken, malformed, an error object--> CallError, connection closed
      '--another status, no connection--> CallError

The sink hears `connected` when the request's headers have gone out, and then once per socket read. A body whose answer
is complete is waited for only briefly: some servers never end theirs.
"""

import asyncio
import contextlib
import email.utils
import math
import os
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter

from headrace.errors import CallError, Cause, CauseCode
from headrace.events import Event
from headrace.limits import (
    AFTER_FINISH_S,
    DRAIN_S,
    ERROR_BODY_MAX_BYTES,
    ERROR_BODY_S,
    KEEP_ALIVE_S,
    READ_BYTES,
    SECRET_LEAST_CHARS,
)
from headrace.ports import AttemptIds, Clock, ProtocolName, Request, Sink
from headrace.providers import chat_completions, messages, phrases, responses
from headrace.providers.body import Body
from headrace.providers.proxy import proxy_of
from headrace.version import __version__
from headrace.wire import chat_completions as chat_wire
from headrace.wire import failures, jsontext
from headrace.wire import messages as messages_wire
from headrace.wire import responses as responses_wire


class WireDecoder(Protocol):
    """The contract of `headrace.wire`."""

    @property
    def failure(self) -> CallError | None: ...

    @property
    def done(self) -> bool: ...

    @property
    def finished(self) -> bool: ...

    def feed(self, data: bytes) -> list[Event]: ...

    def close(self) -> list[Event]: ...


class Spoken(NamedTuple):
    """A protocol: how a request is written, and what reads the answer."""

    path: str
    body: Callable[[Request, str], dict[str, Any]]
    decoder: Callable[..., WireDecoder]
    body_decoder: Callable[..., WireDecoder]
    headers: Mapping[str, str] = {}


PROTOCOLS: Final[Mapping[ProtocolName, Spoken]] = {
    "chat_completions": Spoken(
        chat_completions.PATH, chat_completions.body, chat_wire.Decoder, chat_wire.BodyDecoder
    ),
    "responses": Spoken(responses.PATH, responses.body, responses_wire.Decoder, responses_wire.BodyDecoder),
    "messages": Spoken(
        messages.PATH, messages.body, messages_wire.Decoder, messages_wire.BodyDecoder, messages.HEADERS
    ),
}

Dump = Callable[[str, Mapping[str, Any]], None]
"""Takes the endpoint's name and a request without its secrets."""


class HttpClient:
    """The session all endpoints share. It is made with the first request and closed once."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=60),
                # The caller's clocks rule; aiohttp's own would cut an answer that thinks for long.
                timeout=aiohttp.ClientTimeout(total=None),
                read_bufsize=READ_BYTES,
                trust_env=False,  # see `proxy`
                headers={"User-Agent": f"headrace/{__version__}", "Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
                json_serialize=lambda value: msgspec.json.encode(value).decode(),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class _Sent(aiohttp.BytesPayload):
    """A request's body, which is asked for once there is a connection and the headers have been written."""

    def __init__(self, value: bytes, sink: Sink) -> None:
        super().__init__(value, content_type="application/json")
        self._sink = sink

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._sink.connected()
        await super().write_with_length(writer, content_length)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how, as configured."""

    name: str
    protocol: ProtocolName
    base_url: str
    auth: str = "bearer"
    """bearer, x-api-key or none."""
    headers: Mapping[str, str] = {}


class HttpProvider:
    """Implements the Provider port."""

    def __init__(
        self,
        endpoint: Endpoint,
        client: HttpClient,
        keys: Callable[[], tuple[str, ...]] = tuple,
        dump: Dump | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._client = client
        self._keys = keys
        self._dump = dump
        self._spoken = PROTOCOLS[endpoint.protocol]
        self._url = endpoint.base_url.rstrip("/") + self._spoken.path
        self.tap: Callable[[bytes], None] | None = None
        """Sees every piece of an answer's body before it is decoded, for whoever examines an endpoint."""

    @property
    def name(self) -> str:
        return self._endpoint.name

    @property
    def key_count(self) -> int:
        return len(self._keys())

    async def close(self) -> None:
        """The shared client is closed by whoever made it."""

    async def attempt(self, request: Request, ids: AttemptIds, sink: Sink) -> None:
        try:
            await self._attempt(request, ids, sink)
        except CallError as failure:
            raise CallError(self._public(failure.cause)) from failure
        finally:
            # A socket is closed in the loop's next step; whoever waited for this call may stop the loop before it.
            await asyncio.sleep(0)

    async def _attempt(self, request: Request, ids: AttemptIds, sink: Sink) -> None:
        body = self._spoken.body(request, f"{self.name}:{request.model}")
        if self._dump is not None:
            self._dump(self.name, self._harmless(body))
        response = await self._open(body, request, sink)
        kept = False
        try:
            if response.status != 200:
                raise await self._refusal(response)
            await self._answer(response, request, ids, sink)
            kept = await self._drained(response)
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(error) from error
        finally:
            if kept:
                response.release()
            else:
                response.close()

    # --- open

    async def _open(self, body: dict[str, Any], request: Request, sink: Sink) -> aiohttp.ClientResponse:
        try:
            return await self._client.session().post(
                self._url,
                data=_Sent(jsontext.dump(body).encode(), sink),
                headers=self._headers(request),
                allow_redirects=False,
                **proxy_of(self._url),
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._broken(error) from error

    def _headers(self, request: Request) -> dict[str, str]:
        accept = "text/event-stream" if request.stream else "application/json"
        headers = {"Content-Type": "application/json", "Accept": accept, **self._spoken.headers}
        keys = self._keys()
        if keys and self._endpoint.auth != "none":
            key = keys[request.key % len(keys)]
            bearer = self._endpoint.auth == "bearer"
            headers |= {"Authorization": f"Bearer {key}"} if bearer else {"x-api-key": key}
        return headers | dict(self._endpoint.headers)

    async def _refusal(self, response: aiohttp.ClientResponse) -> CallError:
        text = await _error_text(self._client.clock, response.content)
        if response.status in range(300, 400):
            where = failures.clip(response.headers.get("Location", "nowhere"), 200)
            message = f"It redirects to {where}. Set the base_url of {self.name} to where it is now."
            return CallError(Cause("config_invalid", message, status=response.status))
        try:
            value = jsontext.parse(text)
        except CallError:
            value = "" if text.lstrip().startswith("<") else text  # a page of HTML tells a person nothing
        cause = failures.of_error(value, response.status)
        if cause.message == failures.NO_REASON:
            reason = f"HTTP {response.status} {response.reason or ''}".strip()
            cause = msgspec.structs.replace(cause, message=f"{reason}, without a reason.")
        wait_s = _retry_after_s(response.headers, self._client.clock.now())
        return CallError(msgspec.structs.replace(cause, retry_after_s=wait_s, status=response.status))

    # --- read

    async def _answer(
        self, response: aiohttp.ClientResponse, request: Request, ids: AttemptIds, sink: Sink
    ) -> None:
        """Read to the end; where that breaks or is cancelled, what the decoder knows of the usage is still told."""
        answer = _Answer(self._spoken, response.content_type, request, ids, sink, self.tap)
        body = Body(response, answer.take)
        try:
            await body.read()
            while not answer.done:
                await self._read_briefly(body, answer)
        except BaseException:
            answer.broken()
            raise

    async def _read_briefly(self, body: Body, answer: "_Answer") -> None:
        """What follows a finished answer; silence, or a connection that breaks there, is an end like any other."""
        try:
            async with self._client.clock.timeout(AFTER_FINISH_S):
                await body.read()
        except (TimeoutError, aiohttp.ClientError, OSError):
            answer.take(b"")

    async def _drained(self, response: aiohttp.ClientResponse) -> bool:
        """Whether the body has ended, so that its connection can be used again."""
        try:
            async with self._client.clock.timeout(DRAIN_S):
                while not response.content.at_eof():
                    await response.content.readany()
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False  # an answer that is complete is not harmed by what follows it
        return True

    # --- failures

    def _broken(self, error: Exception) -> CallError:
        code, what = _translated(error)
        return CallError(Cause(code, what))

    def _public(self, cause: Cause) -> Cause:
        """The cause as it may be shown: refined, with the endpoint's name, without secrets."""
        cause = phrases.refine(cause)
        message = self.redacted(cause.message)
        prefix = "" if message.startswith(f"{self.name}: ") else f"{self.name}: "
        return msgspec.structs.replace(
            cause,
            message=prefix + message,
            provider_code=self.redacted(cause.provider_code),
            parameter=self.redacted(cause.parameter),
        )

    def redacted(self, text: str) -> str:
        """`text` without the secrets this endpoint is sent."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, "[secret]")
            # Where a text was clipped, the start of a secret may be left.
            for size in range(len(secret) - 1, SECRET_LEAST_CHARS - 1, -1):
                if text.endswith(f"{secret[:size]}\u2026"):
                    text = f"{text[: -size - 1]}[secret]\u2026"
        return text

    def _harmless(self, value: Any) -> Any:
        """A request as it may be kept: what people and tools said may quote a secret too."""
        match value:
            case str():
                return self.redacted(value)
            case dict():
                return {name: self._harmless(inner) for name, inner in value.items()}
            case list() | tuple():
                return [self._harmless(inner) for inner in value]
            case _:
                return value

    def _secrets(self) -> set[str]:
        """Keys, the values of headers, and what follows the scheme in one: `Bearer`, `Basic`."""
        secrets = set(self._endpoint.headers.values())
        secrets |= {rest for value in secrets if (rest := value.partition(" ")[2]) and " " not in rest}
        with contextlib.suppress(CallError):  # a key that is missing is nobody's secret
            secrets |= set(self._keys())
        return {secret for secret in secrets if len(secret) >= SECRET_LEAST_CHARS}


class _Answer:
    """Decodes what comes and hands it to the sink, one batch of events a piece."""

    def __init__(
        self,
        spoken: Spoken,
        kind: str,
        request: Request,
        ids: AttemptIds,
        sink: Sink,
        tap: Callable[[bytes], None] | None,
    ) -> None:
        self._spoken = spoken
        self._kind = kind
        self._request = request
        self._ids = ids
        self._sink = sink
        self._tap = tap
        self._decoder: WireDecoder | None = None

    @property
    def done(self) -> bool:
        return self._decoder is not None and self._decoder.done

    def take(self, data: bytes) -> bool:
        """One piece, an empty one being the end; whether no more than a mark of the end can follow."""
        decoder = self._decoder
        if decoder is None:
            decoder = self._decoder = self._chosen(data)
        if data and self._tap is not None:
            self._tap(data)
        events = decoder.feed(data) if data else decoder.close()
        if data or events:
            self._sink.received(events)
        if decoder.failure is not None:
            raise decoder.failure
        return decoder.finished or decoder.done

    def broken(self) -> None:
        """Nothing more is read."""
        decoder = self._decoder
        if decoder is None or decoder.failure is not None or decoder.done:
            return
        if last := decoder.close():
            self._sink.received(last)

    def _chosen(self, first: bytes) -> WireDecoder:
        """What came decides, not what was asked for or what it is called: some servers answer whole though asked to
        stream, and some name a stream JSON, or an error a stream.
        """
        start = first.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        if "html" in self._kind or start == b"<":
            raise CallError(
                Cause("malformed_stream", "It answered with a web page. Check its base_url.", status=200)
            )
        if start:
            streams = start not in (b"{", b"[")
        else:
            asked_to = self._request.stream or self._kind == "text/event-stream"
            streams = self._kind != "application/json" and asked_to
        make = self._spoken.decoder if streams else self._spoken.body_decoder
        tools = {tool.name: tool.parameters for tool in self._request.tools}
        return make(self._ids.call, self._ids.first_part, self._request.dialect, tools)


async def _error_text(clock: Clock, content: aiohttp.StreamReader) -> str:
    """As much of an error's body as comes soon: the status has come, and says the most important."""
    data = bytearray()
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with clock.timeout(ERROR_BODY_S):
            while len(data) < ERROR_BODY_MAX_BYTES and (piece := await content.readany()):
                data += piece
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _translated(error: Exception) -> tuple[CauseCode, str]:
    """aiohttp's exceptions, most precise first."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            return (
                "tls_failed",
                f"No secure connection could be made ({_reason(error)}). Check the certificate.",
            )
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return "config_invalid", "Its base_url is not a web address."
        case ValueError():
            return "config_invalid", f"The request cannot be sent ({_reason(error)})."
        case aiohttp.ClientHttpProxyError(status=status):
            return "connect_failed", f"The proxy of the environment refused to connect (HTTP {status})."
        case aiohttp.ClientConnectorDNSError():
            return "connect_failed", "Its host name is not known. Check the network and its base_url."
        case aiohttp.ClientConnectorError() | aiohttp.ClientProxyConnectionError():
            return (
                "connect_failed",
                f"It cannot be reached ({_reason(error)}). Check the network and its base_url.",
            )
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | ConnectionError():
            return "connection_lost", "The connection was lost before the answer had ended."
        case aiohttp.ClientResponseError():
            return "malformed_stream", f"It did not answer in HTTP ({_reason(error)})."
        case _:
            return "connection_lost", f"The connection broke ({_reason(error)})."


def _reason(error: Exception) -> str:
    inner = getattr(error, "os_error", error)
    number = getattr(inner, "errno", None)
    text = os.strerror(number) if number else str(inner) or type(inner).__name__
    return failures.clip(str(text), 160)


def _retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value) / scale
            return max(0.0, number) if math.isfinite(number) else None
        with contextlib.suppress(ValueError, OverflowError):
            return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    return None
