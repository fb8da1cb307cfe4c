"""One connection of the server: how an answer goes out on it, how it is cut, and when it is seen closed.

Theory of operation. `connection_lost` is the moment a client's departure is known, in every state: it ends
the record of the request under way and cancels its handler (`handler_cancellation`), so a handler that has
nothing more to do simply waits to be cancelled. The transport's buffer is bounded by zero, so that `drain`
returns when the kernel has all of it, and a reset can follow without taking back what was sent.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn, cast

from aiohttp import web

from headrace.testing.modelserver.answers import Answer
from headrace.testing.modelserver.script import End

# On, with no time to linger: the kernel answers close() with RST and drops what it has.
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


class Connection(web.RequestHandler):
    __slots__ = ("_on_lost", "_on_made", "_wire", "closed_by_server", "number")

    def __init__(
        self,
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
        on_made: Callable[["Connection"], int],
        on_lost: Callable[["Connection"], None],
    ) -> None:
        super().__init__(server, loop=loop)
        self._on_made = on_made
        self._on_lost = on_lost
        self._wire: asyncio.Transport | None = None
        self.number = 0
        self.closed_by_server = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast("asyncio.Transport", transport)
        self._wire.set_write_buffer_limits(high=0)
        self.number = self._on_made(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._on_lost(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close it now, whatever is still to be sent."""
        assert self._wire is not None
        self.closed_by_server = True
        self._wire.abort()

    def leave(self, end: End) -> None:
        """End an answer in another way than by ending its body."""
        assert self._wire is not None
        match end:
            case "fin":
                self.closed_by_server = True
                self._wire.close()
            case "rst":
                peer = self._wire.get_extra_info("socket")
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
                self.abort()
            case "stall" | "eof":
                pass

    async def send(self, answer: Answer, request: web.BaseRequest) -> web.StreamResponse:
        """Send all of it and return; or be cancelled, when the connection is gone."""
        response = web.StreamResponse(status=answer.status, headers=_headers(answer))
        response.content_length = answer.content_length
        # A client that leaves between two writes: `connection_lost` follows and cancels.
        with suppress(ConnectionError):
            if not answer.headless:
                await response.prepare(request)
                await _write(answer, request, response)
                if answer.end == "eof":
                    await response.write_eof()
                    await request.writer.drain()
                    return response
            self.leave(answer.end)
        return await _cancellation()


def _headers(answer: Answer) -> dict[str, str]:
    headers = {"Content-Type": answer.content_type, "Cache-Control": "no-cache"}
    return headers | ({"Retry-After": answer.retry_after} if answer.retry_after else {})


async def _write(answer: Answer, request: web.BaseRequest, response: web.StreamResponse) -> None:
    await request.writer.drain()
    loop = asyncio.get_running_loop()
    due = loop.time()
    for number, piece in enumerate(answer.pieces):
        if number:
            # By the clock and not by the last write, so that a long stream keeps its pace.
            due += answer.pause_s
            await asyncio.sleep(max(0.0, due - loop.time()))
        await response.write(piece)
        await request.writer.drain()


async def _cancellation() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody resolves this future; it can only be cancelled")
