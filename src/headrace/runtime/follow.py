"""Following a log live.

Theory of operation. A batch in the log wakes every follower that waits, together; each reads from where it stopped. A
follower that does not come back holds nothing, because what it waits for is a number, not a queue.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from headrace.events import Recorded
from headrace.turn.log import Log


class Signal:
    """Wakes everybody who waits."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def __call__(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def wait(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)


@contextlib.contextmanager
def watching(log: Log) -> Iterator[Signal]:
    """A signal that the log gives whenever it has grown."""
    signal = Signal()
    unwatch = log.watch(signal)
    try:
        yield signal
    finally:
        unwatch()


async def follow(log: Log, after: int = 0) -> AsyncIterator[list[Recorded]]:
    """Everything after number `after`, in batches as it comes, until the turn is closed."""
    with watching(log) as signal:
        while True:
            batch = log.since(after)
            if batch:
                after = batch[-1].seq
                yield batch
            elif log.closed is not None:
                return
            else:
                await signal.wait()
