"""One client that is shown one turn as it happens.

Theory of operation. A stream holds a cursor into the log and a view. Whenever the log has grown it feeds the view and
writes what comes out, everything that is new in one write. It waits for the client as long as the client reads: what a
slow one has not read yet is in the log anyway, so it holds no more than one batch. The server's pulse wakes a silent
one to write a comment; a client that takes nothing loses its connection (`readers`), which ends its stream.

    opening: waits a moment for something to show, so that a refusal can still be an HTTP status
    flow:    frames, comments, until the turn is closed

A client that keeps up is written to as the log grows, in the very step of the loop in which the delta was read from the
provider; waking the flow for every delta would cost another step, which is most of what a delta costs.
"""

import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Final, Protocol

from aiohttp import web

from headrace.doors.api.gate import STREAMING
from headrace.events import Recorded
from headrace.limits import API_AT_ONCE_BYTES, API_BATCH_EVENTS
from headrace.ports import Clock
from headrace.runtime.follow import Signal
from headrace.turn.log import Log
from headrace.wire import sse

_log = logging.getLogger(__name__)

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
        self._written_at = clock.monotonic()
        self._response: web.StreamResponse | None = None
        self._request: web.Request | None = None
        self._rests = False  # whether the flow has written all there was, and waits
        self._unwatch = log.watch(self._woken)

    def close(self) -> None:
        self._unwatch()
        self._unwatch = _nothing  # it refers back to this stream

    async def opening(self, view: BeginningView, patience_s: float) -> None:
        """Until there is something to show, the turn is over, or so much time has passed."""
        try:
            async with self._clock.timeout(patience_s):
                while not view.begun:
                    if not self._gather():
                        if self._log.closed is not None:
                            return
                        await self._signal.wait()
        except TimeoutError:
            return  # a client that waits for a sign of life gets one

    async def flow(self, request: web.Request, headers: dict[str, str]) -> web.StreamResponse:
        """Write to the client until the turn is closed."""
        response = web.StreamResponse(headers={**HEADERS, **headers})
        request[STREAMING] = True
        await response.prepare(request)
        self._request, self._response = request, response
        while True:
            if self._frames:
                data = b"".join(self._frames)
                self._frames.clear()
                await self._write(response, data)
            elif self._gather():
                continue
            elif self._log.closed is not None:
                await response.write_eof()
                return response
            elif self._is_silent():
                await self._write(response, KEEPALIVE)
            else:
                await self._rest()

    async def _rest(self) -> None:
        self._rests = True
        try:
            await self._signal.wait()
        finally:
            self._rests = False

    def _woken(self) -> None:
        """The log has grown. Must not raise: whoever writes the log has nothing to do with this client."""
        if not self._rests or self._log.closed is not None or not self._keeps_up():
            self._signal()
            return
        try:
            self._write_at_once()
        except ConnectionError:
            self._lose_client()
        except Exception:  # noqa: BLE001 - it is told: in the program's own log, and by the end of the stream
            _log.exception("a stream of %s failed", self._log.turn)
            self._lose_client()

    def _write_at_once(self) -> None:
        self._gather()
        if sum(map(len, self._frames)) > API_AT_ONCE_BYTES:
            self._signal()  # the flow can wait for the client
        elif self._frames and self._response is not None:
            data = b"".join(self._frames)
            self._frames.clear()
            self._written_at = self._clock.monotonic()
            _at_once(self._response.write(data))

    def _keeps_up(self) -> bool:
        """Whether the client has taken all there was, so that no write has to wait."""
        transport = self._request.transport if self._request is not None else None
        return transport is not None and transport.get_write_buffer_size() == 0

    def pulse(self) -> None:
        """Called by the server now and then."""
        if self._response is not None and self._is_silent():
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
        return self._clock.monotonic() - self._written_at >= self._keepalive_s

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        self._written_at = self._clock.monotonic()
        await response.write(data)

    def _lose_client(self) -> None:
        """Its connection is cut, which cancels the handler; it can come back with its cursor."""
        if self._request is not None and self._request.transport is not None:
            self._request.transport.abort()


def _nothing() -> None:
    """There is nothing left to end."""


def _at_once(write: Coroutine[Any, Any, None]) -> None:
    """Do what does not wait."""
    try:
        write.send(None)
    except StopIteration:
        return
    write.close()
    raise ConnectionError("a write had to wait although nothing was before it")
