"""What is done to its end although its caller is cancelled meanwhile: ending processes, above all."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def whole(work: Coroutine[Any, Any, None]) -> None:
    """Do all of `work`, also when cancelled meanwhile; then be cancelled."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
