"""Work that may block on a disk, done in a thread that stops when its caller is cancelled.

Theory of operation. A thread cannot be ended from outside, so the work is given a `check` to call between its portions;
it raises once nobody waits any more. The caller leaves when the thread has: no file is written behind its back.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Check = Callable[[], None]


class Abandoned(Exception):
    """Nobody waits for this work any more."""


async def in_thread(work: Callable[[Check], T]) -> T:
    left = threading.Event()

    def check() -> None:
        if left.is_set():
            raise Abandoned

    running = asyncio.get_running_loop().run_in_executor(None, work, check)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        left.set()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # whatever it was, the cancellation goes before it
        raise
