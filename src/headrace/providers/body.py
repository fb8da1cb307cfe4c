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
    """Of one response; nobody else reads it meanwhile."""

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
            with _Ear(self._response.connection, self._heard, self._lost) as ear:
                self._heard()  # what has come before
                if not ear.listens or self._content.exception() is not None:
                    self._lost()
                await self._enough
        finally:
            self._enough = None  # what it raises holds this frame, which holds it

    def _heard(self) -> None:
        enough, content = self._enough, self._content
        if enough is None or enough.done():
            return
        try:
            # What is taken may make room for what was held back.
            while content.total_bytes > self._taken and (data := content.read_nowait()):
                self._taken += len(data)
                if self._take(data) or enough.done():
                    break
            else:
                if not content.is_eof():
                    return
                self._take(b"")
        except Exception as error:  # noqa: BLE001 - it is raised where the body is read
            self._over(error)
        else:
            self._over(None)

    def _lost(self) -> None:
        """Nothing comes any more. aiohttp does not say so of a body whose framing it could not read."""
        error = self._content.exception()
        if not isinstance(error, Exception):
            error = aiohttp.ClientPayloadError("The connection ended within the body.")
        self._over(error)

    def _over(self, error: Exception | None) -> None:
        enough = self._enough
        if enough is None or enough.done():  # who takes may have stopped who reads
            return
        if error is None:
            enough.set_result(None)
        else:
            enough.set_exception(error)


class _Ear(asyncio.Protocol):
    """While within, stands for the protocol of a connection, passes everything on to it, and says so.

    A body that has come whole has no connection any more.
    """

    def __init__(
        self,
        connection: aiohttp.connector.Connection | None,
        heard: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self._transport = connection.transport if connection else None
        protocol = connection.protocol if connection else None
        self._protocol: asyncio.Protocol = asyncio.Protocol() if protocol is None else protocol
        self._heard = heard
        self._lost = lost

    @property
    def listens(self) -> bool:
        return self._transport is not None

    def __enter__(self) -> Self:
        if self._transport is not None:
            self._transport.set_protocol(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        line = self._transport
        # One that is closing is given to nobody, and over TLS it may not even know its protocol any more.
        if line is not None and not line.is_closing() and line.get_protocol() is self:
            line.set_protocol(self._protocol)

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
        self._lost()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
