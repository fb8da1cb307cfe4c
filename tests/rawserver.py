"""A server that sends exactly these bytes: for everything below HTTP that a well-behaved server cannot do."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Literal

Then = Literal["keep", "close", "hold", "again"]
"""After an answer: the next request is read, the connection is closed, nothing comes any more, or the last piece of
the answer is sent for as long as anybody reads."""


@dataclass(frozen=True)
class Sent:
    pieces: tuple[bytes, ...]
    then: Then = "keep"
    pause_s: float = 0.0
    """Between two pieces, for a reader to see them apart."""


@dataclass
class RawServer:
    answers: list[Sent]
    """One for each request; the last is given again and again."""
    requests: list[bytes] = field(default_factory=list)
    """Heads."""
    port: int = 0
    open: int = 0
    """Connections."""
    connections: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_open(self, count: int) -> None:
        while self.open != count:
            self.changed.clear()
            await self.changed.wait()

    def close_idle(self) -> None:
        """Close every connection, as a server does with those that nobody uses."""
        for writer in self.writers:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.connections += 1
        self.writers.append(writer)
        self.changed.set()
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            self.writers.remove(writer)
            self.changed.set()
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        await reader.readexactly(length)
        self.requests.append(head)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        for piece in answer.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(answer.pause_s)
        while answer.then == "again":
            writer.write(answer.pieces[-1])
            await writer.drain()
        if answer.then == "hold":
            await reader.read()
        return answer.then == "keep"


def http(
    body: bytes,
    content_type: str = "text/event-stream",
    status: str = "200 OK",
    *headers: str,
    length: int | None = None,
) -> bytes:
    """A whole response; `length` lies about the body's."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def endless(body: bytes, content_type: str = "text/event-stream") -> bytes:
    """The beginning of a response that has no end but the connection's."""
    return f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n\r\n".encode() + body


@asynccontextmanager
async def raw_server(
    answers: Sequence[Sent | bytes], tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    server = RawServer([Sent((a,)) if isinstance(a, bytes) else a for a in answers])
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for writer in server.writers:
            writer.transport.abort()
        await server.until_open(0)
        await listener.wait_closed()


@contextmanager
def full_backlog() -> Iterator[int]:
    """The port of an address that takes no connection: the backlog of a socket that nobody accepts from is full."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(silent.getsockname())
        try:
            yield silent.getsockname()[1]
        finally:
            for filler in fillers:
                filler.close()
