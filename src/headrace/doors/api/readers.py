"""Clients that take nothing of what is written to them lose their connection.

Theory of operation. What a client has not taken yet waits in its connection's buffer. The server's pulse looks at all
connections; one whose buffer has not shrunk for too long is cut, which ends whatever is being written to it: frames, a
whole answer, or the last bytes of either. A client that is cut can come back with its cursor.
"""

import asyncio
from collections.abc import Iterable

Waiting = tuple[int, float]
"""How many bytes wait, and since when none of them has been taken."""


class Readers:
    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._waiting: dict[asyncio.Transport, Waiting] = {}

    def look(self, connections: Iterable[asyncio.Transport], now: float) -> None:
        """At those that are open, now and then."""
        waiting: dict[asyncio.Transport, Waiting] = {}
        for connection in connections:
            size = connection.get_write_buffer_size()
            before, since = self._waiting.get(connection, (size, now))
            if size == 0:
                continue
            if size < before:
                since = now
            if now - since > self._stall_s:
                connection.abort()
            else:
                waiting[connection] = size, since
        self._waiting = waiting
