"""One client that is shown one turn as it happens.

Theory of operation. A stream holds a cursor into the log and a view. Whenever the log has grown it feeds the view and
writes what comes out, everything that is new in one write. It waits for the client as long as the client reads: what a
slow one has not read yet is in the log anyway, so it holds no more than one batch. The server's pulse wakes a silent
one to write a comment; a client that takes nothing loses its connection (`readers`), which ends its stream.

    opening: waits a moment for something to show, so that a refusal can still be an HTTP status
    flow:    frames, comments, until the turn is closed

A client that keeps up is written to as the log grows, in the very step of the loop in which the delta was read from the
provider, and past aiohttp's writer, which can wait: waking the flow for every delta, and asking a coroutine to put a
length before it, would cost more than all that has been done to the delta before.
"""

import asyncio
import math
from collections.abc import Iterable
from typing import Final, Protocol

from aiohttp import HttpVersion11, web

from headrace.doors.api.gate import STREAMING
from headrace.events import Recorded
from headrace.limits import API_AT_ONCE_BYTES, API_BATCH_EVENTS
from headrace.ports import Clock
from headrace.runtime.follow import Signal
from headrace.turn.log import Log
from headrace.wire import sse

KEEPALIVE: Final = sse.comment(b"keepalive")
HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class View(Protocol):
    """A log as frames."""

    def feed(self, entries: Iterable[Recorded]) -> list[bytes]: ...


class BeginningView(View, Protocol):
    @property
    def begun(self) -> bool:
        """Whether more than the opening has been told."""


class _Response(web.StreamResponse):
    """Its headers wait for what is written first, so that both are one packet; two again, should aiohttp not look here
    any more.
    """

    _send_headers_immediately = False


class Stream:
    def __init__(
        self, log: Log, view: View, clock: Clock, keepalive_s: float, after: int = 0, skip: int = 0
    ) -> None:
        """After entry number `after` of the log; the first `skip` frames have been seen."""
        self._log = log
        self._view = view
        self._clock = clock
        self._keepalive_s = keepalive_s
        self._cursor = after
        self._skip = skip
        self._frames: list[bytes] = []
        self._signal = Signal()
        self._wrote = False  # since the last beat of the pulse
        self._quiet_since = -math.inf  # a sign of life is due from the start
        self._line: asyncio.Transport | None = None
        self._chunked = False
        self._opening: BeginningView | None = None
        self._rests = False  # whether the flow has written all there was, and waits
        self._failure: Exception | None = None
        self._unwatch = log.watch(self._woken)

    def close(self) -> None:
        self._unwatch()
        self._unwatch = _nothing  # it refers back to this stream

    async def opening(self, view: BeginningView, patience_s: float) -> None:
        """Until there is something to show, the turn is over, or so much time has passed."""
        self._opening = view
        timer = self._clock.call_later(patience_s, self._opened)
        try:
            while self._opens() and not self._has_begun(view):
                await self._wait()
        finally:
            self._opening = None
            timer.cancel()

    def _opens(self) -> bool:
        return self._opening is not None

    def _opened(self) -> None:
        """A client that waits for a sign of life gets one."""
        self._opening = None
        self._signal()

    def _has_begun(self, view: BeginningView) -> bool:
        while self._cursor < len(self._log) and not view.begun:
            self._gather()
        return view.begun or self._log.closed is not None

    async def flow(self, request: web.Request, headers: dict[str, str]) -> web.StreamResponse:
        """Write to the client until the turn is closed."""
        self._gather()
        response = _Response(headers={**HEADERS, **headers})
        if request.version < HttpVersion11:
            response.force_close()  # whatever the client would like: the end is the connection's
        request[STREAMING] = True
        await response.prepare(request)
        self._chunked = "Transfer-Encoding" in response.headers
        self._line = request.transport
        while True:  # the headers go out with what is written first
            more = self._gather()
            if self._log.closed is not None and self._cursor == len(self._log):
                await response.write_eof(self._taken())
                return response
            if self._frames:
                await self._write(response, self._taken())
            elif self._is_silent():
                await self._write(response, KEEPALIVE)
            elif not more:
                await self._rest()

    def _taken(self) -> bytes:
        """What is to be written."""
        data = b"".join(self._frames)
        self._frames.clear()
        return data

    async def _rest(self) -> None:
        self._rests = True
        try:
            await self._wait()
        finally:
            self._rests = False

    async def _wait(self) -> None:
        await self._signal.wait()
        if self._failure is not None:
            raise self._failure

    def _woken(self) -> None:
        """The log has grown. Must not raise: whoever writes the log has nothing to do with this client."""
        try:
            done = self._wrote_at_once() if self._opening is None else not self._has_begun(self._opening)
        except Exception as error:  # noqa: BLE001 - it is raised in the handler, which waits
            self._failure, done = error, False
        if not done:
            self._signal()

    def _wrote_at_once(self) -> bool:
        """Whether the client has been given what is new; the flow can wait for one that does not keep up."""
        line = self._line
        if not self._rests or line is None or line.get_write_buffer_size() or line.is_closing():
            return False
        if self._log.closed is not None:  # what is last goes out with the end of the body
            return False
        self._gather()
        data = b"".join(self._frames)
        size = len(data)
        if size > API_AT_ONCE_BYTES:
            return False
        if size:
            self._frames.clear()
            self._wrote = True
            line.write(b"%x\r\n%b\r\n" % (size, data) if self._chunked else data)
        return self._cursor == len(self._log)

    def pulse(self) -> None:
        """Called by the server now and then."""
        if self._wrote:
            self._wrote = False
            self._quiet_since = self._clock.monotonic()
        elif self._line is not None and self._is_silent():
            self._signal()

    def _gather(self) -> bool:
        """Take what is new in the log; whether anything was."""
        batch = self._log.since(self._cursor, API_BATCH_EVENTS)
        if not batch:
            return False
        self._cursor = batch[-1].seq
        frames = self._view.feed(batch)
        if self._skip:
            seen = min(self._skip, len(frames))
            self._skip -= seen
            frames = frames[seen:]
        self._frames += frames
        return True

    def _is_silent(self) -> bool:
        return not self._wrote and self._clock.monotonic() - self._quiet_since >= self._keepalive_s

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        self._wrote = True
        await response.write(data)


def _nothing() -> None:
    """There is nothing left to end."""
