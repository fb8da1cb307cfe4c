"""The model server in a process of its own, so that its CPU is not in the figures."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def model_server() -> AsyncIterator[str]:
    """The address of a fresh server."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace.testing.modelserver", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        yield line.split()[1]
    finally:
        process.terminate()
        await process.wait()
