"""Work that may block on a disk, done in a thread, one portion at a time.

A cancelled caller waits for the portion at hand: a file is never closed under a thread that still writes to it.
"""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headrace.providers.embedded.weights.bounds import HASH_BYTES

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


async def sha256(path: Path, start: int, end: int) -> str:
    """The hash of a stretch of a file, of what there is of it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)

        def portion(count: int) -> int:
            data = file.read(count)
            digest.update(data)
            return len(data)

        while start < end:
            count = min(HASH_BYTES, end - start)
            taken = await in_thread(lambda count=count: portion(count))  # type: ignore[misc]
            if not taken:
                break
            start += taken
    return digest.hexdigest()
