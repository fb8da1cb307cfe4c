"""The server: chooses a script for every request, has it answered, and records what happened.

A script is chosen, in this order, by the header `X-Script: NAME`, by the model name `script:NAME`, from the
queue (`enqueue`), by the function `respond`, and else it is `default`.

    async with ModelServer() as server:
        server.enqueue(Script(Reply((Say("Hello"),)), Close("mid_text"), times=2))
        ...                     # two requests are cut after the first delta, the third is answered whole
        ending = await server.requests[0].wait_ended()

Nothing polls: a change of any number below wakes whoever waits in `until`.
"""

import asyncio
import functools
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader

from headrace.limits import BODY_MAX_BYTES
from headrace.ports import ProtocolName
from headrace.testing.modelserver.answers import Ask, answer
from headrace.testing.modelserver.connection import Connection
from headrace.testing.modelserver.errors import envelope
from headrace.testing.modelserver.frames import CREATED, to_json
from headrace.testing.modelserver.records import EndedBy, Ending, RecordedRequest
from headrace.testing.modelserver.scenarios import SCENARIOS, ScenarioError, scenario
from headrace.testing.modelserver.script import Script, Status

PATHS: Final[dict[str, ProtocolName]] = {
    "/v1/chat/completions": "chat_completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
# A server that runs for a whole benchmark forgets its oldest requests.
RECORDS_MAX: Final = 10_000
# Connections that the kernel holds while a thousand clients connect at once.
_BACKLOG: Final = 1024


class ModelServer:
    """Answers on a loopback port in three protocols, as scripted."""

    def __init__(
        self,
        *,
        default: Script = Script(),  # noqa: B008  frozen, and the same for everybody
        scenarios: Mapping[str, Script] = SCENARIOS,
        port: int = 0,
    ) -> None:
        self.default = default
        self.respond: Callable[[RecordedRequest], Script] | None = None
        self.scenarios: dict[str, Script] = dict(scenarios)
        self.requests: list[RecordedRequest] = []
        self.total_requests = 0
        self.total_connections = 0
        self.total_disconnected = 0
        """Requests whose client left before the answer was complete."""
        self.open_requests = 0
        self._port = port
        self._queue: deque[Script] = deque()
        self._befallen: Counter[Script] = Counter()
        self._connections: dict[Connection, RecordedRequest | None] = {}
        self._changed = asyncio.Event()
        self._listener: asyncio.Server | None = None

    # --- scripts --------------------------------------------------------------------------------------

    def enqueue(self, *scripts: Script) -> None:
        """Each answers one request, in order; one with `times=N` answers N and then one more, whole."""
        for script in scripts:
            if script.times is None:
                self._queue.append(script)
            else:
                self._queue.extend([replace(script, times=None)] * script.times)
                self._queue.append(script.flawless)

    def _script(self, record: RecordedRequest) -> Script:
        script = self._chosen(record)
        if script.times is None:
            return script
        self._befallen[script] += 1
        return script if self._befallen[script] <= script.times else script.flawless

    def _chosen(self, record: RecordedRequest) -> Script:
        model = str(record.body.get("model", ""))
        named = model.removeprefix("script:") if model.startswith("script:") else ""
        if name := record.headers.get("x-script", named):
            return scenario(name, self.scenarios)
        if self._queue:
            return self._queue.popleft()
        return self.respond(record) if self.respond else self.default

    # --- life -----------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        assert self._listener is not None, "the server is not running"
        return f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        http = web.Server(self._handle, handler_cancellation=True, request_factory=_request)
        protocol = functools.partial(Connection, http, loop, self._connected, self._disconnected)
        self._listener = await loop.create_server(protocol, "127.0.0.1", self._port, backlog=_BACKLOG)

    async def close(self) -> None:
        """Stop listening and close every connection, whatever it is doing."""
        if self._listener is None:
            return
        self._listener.close()
        for connection in self._connections:
            connection.abort()
        await self.until(lambda: not self._connections and not self.open_requests)
        await self._listener.wait_closed()
        self._listener = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- waiting --------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns as soon as a condition on this server's numbers holds."""
        while not condition():
            await self._changed.wait()

    async def wait_requests(self, count: int) -> None:
        """Until so many requests have come in all."""
        await self.until(lambda: self.total_requests >= count)

    async def wait_disconnected(self, count: int) -> None:
        """Until so many requests have been left by their clients before the answer was complete."""
        await self.until(lambda: self.total_disconnected >= count)

    async def wait_idle(self) -> None:
        """Until no request is open and no connection either."""
        await self.until(lambda: not self.open_requests and not self._connections)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- connections ----------------------------------------------------------------------------------

    def _connected(self, connection: Connection) -> int:
        self._connections[connection] = None
        self.total_connections += 1
        self._notify()
        return self.total_connections

    def _disconnected(self, connection: Connection) -> None:
        record = self._connections.pop(connection)
        if record is not None:
            self._end(record, "server" if connection.closed_by_server else "client")
        self._notify()

    def _end(self, record: RecordedRequest, by: EndedBy) -> None:
        record.end(Ending(by, asyncio.get_running_loop().time()))
        self.total_disconnected += by == "client"

    # --- requests -------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        protocol = PATHS.get(request.path)
        if request.method == "POST" and protocol is not None:
            return await self._answer(request, protocol)
        if request.method == "GET" and request.path == "/v1/models":
            return _json(_models(self.scenarios))
        if request.method == "GET" and request.path == "/server":
            return _json(self.snapshot())
        return _refusal("chat_completions", Status(404, f"There is no {request.method} {request.path}."))

    async def _answer(self, request: web.BaseRequest, protocol: ProtocolName) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        try:
            body = msgspec.json.decode(await request.read(), type=dict[str, Any])
        except msgspec.DecodeError as error:
            return _refusal(protocol, Status(400, f"The body is not a JSON object: {error}."))
        record = self._record(request, protocol, body, connection)
        self.open_requests += 1
        try:
            response = await connection.send(answer(self._script(record), Ask.of(protocol, body)), request)
            self._finish(connection, record, "answer")
        except ScenarioError as error:
            self._finish(connection, record, "answer")
            response = _refusal(protocol, Status(404, str(error)))
        except Exception:
            # The script's own fault (`respond` raised): aiohttp logs it and answers 500.
            self._finish(connection, record, "server")
            raise
        finally:
            self.open_requests -= 1
            self._notify()
        return response

    def _finish(self, connection: Connection, record: RecordedRequest, by: EndedBy) -> None:
        if record.ending is None:
            self._connections[connection] = None
            self._end(record, by)

    def _record(
        self, request: web.BaseRequest, protocol: ProtocolName, body: dict[str, Any], connection: Connection
    ) -> RecordedRequest:
        loop = asyncio.get_running_loop()
        headers = {name.lower(): value for name, value in request.headers.items()}
        record = RecordedRequest(
            protocol, request.path, headers, body, loop.time(), connection.number, loop.create_future()
        )
        self.total_requests += 1
        self.requests.append(record)
        if len(self.requests) > RECORDS_MAX:
            del self.requests[0]
        self._connections[connection] = record
        self._notify()
        return record

    def snapshot(self) -> dict[str, Any]:
        """What `GET /server` tells another process."""
        return {
            "total_requests": self.total_requests,
            "total_connections": self.total_connections,
            "total_disconnected": self.total_disconnected,
            "open_requests": self.open_requests,
            "open_connections": self.open_connections,
            "requests": [
                {
                    "protocol": record.protocol,
                    "arrived_at": record.arrived_at,
                    "connection": record.connection,
                    "ending": record.ending and record.ending._asdict(),
                }
                for record in self.requests
            ],
        }


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=BODY_MAX_BYTES)


def _json(value: Any) -> web.Response:
    return web.Response(body=to_json(value), content_type="application/json")


def _refusal(protocol: ProtocolName, fault: Status) -> web.Response:
    return web.Response(body=envelope(protocol, fault), status=fault.status, content_type="application/json")


def _models(scenarios: Mapping[str, Script]) -> dict[str, Any]:
    """A list that OpenAI's clients can read, and Anthropic's too."""
    names = ["scripted", *(f"script:{name}" for name in scenarios)]
    models = [
        {
            "id": name,
            "object": "model",
            "created": CREATED,
            "owned_by": "headrace",
            "type": "model",
            "display_name": name,
            "created_at": "2025-10-09T00:00:00Z",
            "lifecycle": "active",
        }
        for name in names
    ]
    return {
        "object": "list",
        "data": models,
        "has_more": False,
        "first_id": names[0],
        "last_id": names[-1],
    }
