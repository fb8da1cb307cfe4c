"""The body of an answer, taken in the step of the loop that reads it from the socket.

Theory of operation. To wait for every piece costs a future, a callback and a step through all that awaits it: more than
to decode the piece. So while a body is read, an ear stands between the transport and aiohttp's protocol; what that one
has made of a piece is taken from its stream at once, and whoever reads is woken when there is enough.

    reading --enough, or the body's end--> woken        reading --`take` raises, the connection breaks--> raised
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import aiohttp

Take = Callable[[bytes], bool]
"""Takes a piece, an empty one being the end; whether it is enough for now."""


class Body:
    """Of one response, read by one task."""

    def __init__(self, response: aiohttp.ClientResponse, take: Take) -> None:
        self._response = response
        self._content = response.content
        self._take = take
        self._taken = 0
        self._enough: asyncio.Future[None] | None = None

    async def read(self) -> None:
        """Until `take` has enough; raises what it raises, and what aiohttp raises for a connection that breaks."""
        self._enough = asyncio.get_running_loop().create_future()
        try:
            with _Ear(self._response.connection, self._heard):
                self._heard()  # what has come before
                await self._enough
        finally:
            self._enough = None  # what it raises holds this frame, which holds it

    def _heard(self) -> None:
        enough, content = self._enough, self._content
        if enough is None or enough.done():
            return
        try:
            while content.total_bytes > self._taken:  # what is taken may make room for what was held back
                data = content.read_nowait()
                self._taken += len(data)
                if self._take(data):
                    enough.set_result(None)
                    return
            if content.exception() is not None or content.is_eof():
                self._over(enough)
        except Exception as error:  # noqa: BLE001 - it is raised where the body is read
            enough.set_exception(error)

    def _over(self, enough: asyncio.Future[None]) -> None:
        error = self._content.exception()
        if error is not None:
            raise error
        self._take(b"")
        enough.set_result(None)


class _Ear(asyncio.Protocol):
    """While within, stands for the protocol of a connection, passes everything on to it, and says so.

    A body that has come whole has no connection any more.
    """

    def __init__(self, connection: aiohttp.connector.Connection | None, heard: Callable[[], None]) -> None:
        self._transport = connection.transport if connection else None
        protocol = connection.protocol if connection else None
        self._protocol: asyncio.Protocol = asyncio.Protocol() if protocol is None else protocol
        self._heard = heard

    def __enter__(self) -> Self:
        if self._transport is not None:
            self._transport.set_protocol(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transport is not None and self._transport.get_protocol() is self:
            self._transport.set_protocol(self._protocol)

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)
        self._heard()

    def eof_received(self) -> bool | None:
        stays_open = self._protocol.eof_received()
        self._heard()
        return stays_open

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)
        self._heard()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
