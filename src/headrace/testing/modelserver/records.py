"""What the server remembers of every request, for tests and benchmarks to look at."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from headrace.ports import ProtocolName

EndedBy = Literal["answer", "client", "server"]
"""`answer`: all of it was written. `client`: the client left first. `server`: a fault closed the connection,
or the server was closed."""


class Ending(NamedTuple):
    by: EndedBy
    at: float
    """On the event loop's clock; under asyncio's own loop on Linux that is `time.monotonic`."""


@dataclass(frozen=True, eq=False)
class RecordedRequest:
    """One request as it came, and how its answer ended.

    An answer counts as ended by itself once the kernel has all of it; whether the client read that far, no
    server can know.
    """

    protocol: ProtocolName
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: dict[str, Any]
    arrived_at: float
    connection: int
    """Counts the server's connections from 1."""
    _ended: "asyncio.Future[Ending]" = field(repr=False)

    @property
    def ending(self) -> Ending | None:
        return self._ended.result() if self._ended.done() else None

    @property
    def client_left_at(self) -> float | None:
        """When the connection was seen closed by the client, before the answer was complete."""
        ending = self.ending
        return ending.at if ending and ending.by == "client" else None

    def end(self, ending: Ending) -> None:
        """Only the server calls this."""
        self._ended.set_result(ending)

    async def wait_ended(self) -> Ending:
        # Shielded, so that a waiter that gives up leaves the record as it is.
        return await asyncio.shield(self._ended)
