"""`headrace serve`: the server from its first line to its last words.

Theory of operation. One event loop, one handler a request. A pulse beats four times a second: it wakes streams that
are silent, cuts off clients that do not read, and notes how late the loop is. On SIGTERM or Ctrl-C nothing new is
begun; what runs may end within a time, is closed honestly after it, and those who follow read the last frames before
the door shuts.

    starting --listening, "ready"--> serving --signal--> draining --turns closed, streams read--> shut
"""

import asyncio
import contextlib
import ctypes
import errno
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, TextIO

from aiohttp import web

from headrace.doors.api import answers
from headrace.doors.api.chat import ChatEndpoint
from headrace.doors.api.desk import Desk
from headrace.doors.api.gate import Gate
from headrace.doors.api.keys import key_of
from headrace.doors.api.metrics import Metrics
from headrace.doors.api.native import NativeEndpoints
from headrace.doors.api.openapi import description
from headrace.doors.api.readers import Readers
from headrace.doors.api.responses import ResponsesEndpoint
from headrace.doors.api.turns import Turns, model_names
from headrace.doors.api.wired import Wired
from headrace.errors import Cause, HeadraceError, UserError
from headrace.limits import (
    API_BODY_MAX_BYTES,
    API_COLLECTOR,
    API_FILES_BESIDE,
    API_FILES_PER_STREAM,
    API_HEAP_BYTES,
    API_KEEPALIVE_S,
    API_LAST_WORDS_S,
    API_PULSE_S,
    API_STOP_S,
    API_SWITCH_S,
    API_TIDY_S,
)

_log = logging.getLogger(__name__)

SHUT_DOWN: Final = Cause("shutdown", "The server was shut down while the turn was running.")

# As malloc.h has them.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

# How long a connection may stay open between two requests.
_KEEP_ALIVE_S: Final = 75.0


class Server:
    """Make it on the loop it is to run on; `start` it, and `stop` it."""

    def __init__(
        self,
        wired: Wired,
        env: Mapping[str, str],
        folder: Path,
        host: str | None = None,
        port: int | None = None,
        *,
        keepalive_s: float = API_KEEPALIVE_S,
    ) -> None:
        """In `folder` the agent works. Raises ConfigError where the server must not be opened like that."""
        settings = wired.config.api
        self.host = host or settings.host
        self.port = settings.port if port is None else port
        self.key = key_of(settings, self.host, wired.home, env)
        self._wired = wired
        self._metrics = Metrics()
        self._turns = Turns(wired, settings, folder, self._metrics)
        self._desk = Desk(wired, self._turns, keepalive_s)
        self._gate = Gate(settings, self.host, self.key.secret, wired.clock)
        self.most_streams = settings.max_concurrent
        self._readers = Readers(settings.write_stall_s)
        self._runner: web.AppRunner | None = None
        self._beside: list[asyncio.Task[None]] = []
        self._started_at = int(wired.clock.now())

    async def start(self) -> None:
        """Listen; raises UserError where that is not possible."""
        await asyncio.to_thread(self._wired.store)  # turns that a dead process left open get their end first
        self._runner = web.AppRunner(
            self._app(),
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_S,
            shutdown_timeout=API_LAST_WORDS_S,
        )
        await self._runner.setup()
        try:
            site = web.TCPSite(self._runner, self.host, self.port)
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise _not_listening(self.host, self.port, error) from error
        self.port = self._runner.addresses[0][1]
        self._beside = [
            asyncio.create_task(self._beat(), name="pulse of the API"),
            asyncio.create_task(self._tidy(), name="retention"),
        ]

    async def stop(self, patience_s: float = API_STOP_S) -> None:
        """Begin nothing new, let what runs end within `patience_s`, tell those who follow, and shut."""
        await self._turns.drain(patience_s, SHUT_DOWN)
        if self._runner is not None:
            await self._runner.cleanup()  # waits for streams that still write
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._gate.middleware], client_max_size=API_BODY_MAX_BYTES)
        app.on_response_prepare.append(self._gate.prepared)
        chat, responses = ChatEndpoint(self._desk), ResponsesEndpoint(self._desk)
        native = NativeEndpoints(self._desk)
        app.add_routes(
            [
                web.get("/health", self._health, allow_head=True),
                web.get("/metrics", self._show_metrics, allow_head=False),
                web.get("/openapi.json", self._describe, allow_head=False),
                web.get("/v1/models", self._models, allow_head=False),
                web.post("/v1/chat/completions", chat.post),
                web.post("/v1/responses", responses.post),
                web.get("/v1/responses/{id:resp_[0-9a-f]+}", responses.get, allow_head=False),
                web.delete("/v1/responses/{id:resp_[0-9a-f]+}", responses.delete),
                web.post("/v1/responses/{id:resp_[0-9a-f]+}/cancel", responses.cancel),
                web.get("/v1/turns", native.turns, allow_head=False),
                web.post("/v1/turns", native.start),
                web.get("/v1/turns/{turn}", native.turn, allow_head=False),
                web.get("/v1/turns/{turn}/events", native.events, allow_head=False),
                web.post("/v1/turns/{turn}/stop", native.stop),
                web.post("/v1/turns/{turn}/approvals/{approval}", native.approve),
                web.post("/v1/turns/{turn}/questions/{question}", native.answer),
                web.get("/v1/sessions", native.sessions, allow_head=False),
                web.get("/v1/sessions/{session}", native.session, allow_head=False),
                web.delete("/v1/sessions/{session}", native.delete),
                web.get("/v1/search", native.search, allow_head=False),
            ]
        )
        return app

    async def _beat(self) -> None:
        clock = self._wired.clock
        due = clock.monotonic()
        while True:
            due += API_PULSE_S
            await clock.sleep(max(0.0, due - clock.monotonic()))
            now = clock.monotonic()
            self._metrics.lag(max(0.0, now - due))
            due = now
            self._desk.pulse()
            self._readers.look(self._connections(), now)

    def _connections(self) -> list[asyncio.Transport]:
        server = self._runner.server if self._runner is not None else None
        return [each.transport for each in server.connections if each.transport is not None] if server else []

    async def _tidy(self) -> None:
        """A server lives long; what is too old goes while it runs."""
        while True:
            try:
                await self._wired.tidy()
            except HeadraceError as error:  # the next time may find it mended
                _log.warning("what is too old is still kept: %s", error)
            await self._wired.clock.sleep(API_TIDY_S)

    # --- small endpoints

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return answers.json({"status": "draining" if self._turns.draining else "ok"})

    async def _show_metrics(self, _: web.Request) -> web.StreamResponse:
        gauges = {"open_streams": self._desk.open_streams, "running_turns": self._turns.running}
        return web.Response(
            text=self._metrics.text(gauges),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _describe(self, _: web.Request) -> web.StreamResponse:
        return answers.json(description())

    async def _models(self, _: web.Request) -> web.StreamResponse:
        rows = [
            {"id": name, "object": "model", "created": self._started_at, "owned_by": "headrace"}
            for name in model_names(self._wired.config)
        ]
        return answers.json({"object": "list", "data": rows})


def _not_listening(host: str, port: int, error: OSError) -> UserError:
    if error.errno == errno.EADDRINUSE:
        return UserError(
            f"Port {port} of {host} is taken: name another with --port, or --port 0 for any free one."
        )
    return UserError(f"The API cannot listen on {host} port {port}: {error.strerror or error}.")


@contextlib.asynccontextmanager
async def signalled() -> AsyncIterator[asyncio.Event]:
    """Set once SIGTERM or Ctrl-C arrives; a second one does what it always does."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    kinds = (signal.SIGTERM, signal.SIGINT)

    def arrived() -> None:
        event.set()
        for kind in kinds:
            loop.remove_signal_handler(kind)

    for kind in kinds:
        loop.add_signal_handler(kind, arrived)
    try:
        yield event
    finally:
        for kind in kinds:
            loop.remove_signal_handler(kind)


def _open_enough(streams: int) -> None:
    """Have the system let this process hold open what so many streams need."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - Windows has none

    wanted = streams * API_FILES_PER_STREAM + API_FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):  # some systems allow less than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        _log.warning("%d streams need %d open files, and the system allows %d.", streams, wanted, most)


def _steady() -> None:
    """Keep the loop from being held up: the collector goes through everything that lives more rarely, and never through
    what was loaded at the start (an answer leaves it nothing to find); a thread that takes turns into the database
    hands back soon; memory for reads is at hand.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has these
        libc = ctypes.CDLL(None)
        libc.malloc_trim(0)  # compiling the schemas took 11 MB that are free again, and nobody else's yet
        libc.mallopt(_M_MMAP_THRESHOLD, API_HEAP_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, API_HEAP_BYTES)
    gc.freeze()
    gc.set_threshold(*API_COLLECTOR)
    sys.setswitchinterval(API_SWITCH_S)


async def serve(server: Server, out: TextIO, err: TextIO) -> int:
    """Until a signal says to stop; returns the exit status."""
    _open_enough(server.most_streams)
    async with signalled() as stopping:
        await server.start()
        _steady()
        if server.key.made is not None:
            err.write(f"The key of this API is {server.key.secret}\nIt is kept in {server.key.made}.\n")
            err.flush()
        out.write(f"ready {server.url}\n")
        out.flush()
        await stopping.wait()
        err.write("Stopping: running turns may end; Ctrl-C again leaves at once.\n")
        err.flush()
        await server.stop()
    return 0
