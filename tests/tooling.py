"""Running one tool as a turn would run it, without the turn; and looking for processes it may have left."""

import asyncio
import os
import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

from headrace.ports import Clock, Tool, ToolResult
from headrace.runtime.clock import SystemClock
from headrace.testing.tools import BareRun
from headrace.tools import child_environment

ENV: Mapping[str, str] = child_environment({"PATH": os.environ["PATH"], "HOME": "/"}, ())


def bare(
    folder: Path,
    tool: Tool,
    arguments: Mapping[str, Any],
    *,
    env: Mapping[str, str] = ENV,
    home: Path | None = None,
    owner: Hashable = "",
    answer: str | None = None,
    clock: Clock | None = None,
) -> BareRun:
    """The run of one call; the path it touches is resolved as for any call."""
    folder = folder.resolve()
    touch = tool.touches(arguments)
    on_disk = touch.kind in ("read", "write")
    target = Path(os.path.realpath(folder / touch.target)) if on_disk else None
    return BareRun(
        folder, clock or SystemClock(), target=target, home=home, env=env, owner=owner, answer=answer
    )


async def call(tool: Tool, folder: Path, **arguments: Any) -> ToolResult:
    return await tool.run(arguments, bare(folder, tool, arguments))


async def said_no(tool: Tool, folder: Path, **arguments: Any) -> str:
    """What a model is told by a tool that does not do it."""
    result = await call(tool, folder, **arguments)
    assert not result.ok, result.text
    return result.text


def marked(mark: str) -> list[int]:
    """The living processes whose command line or environment holds `mark`."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                said = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in said:
                found.append(int(folder.name))
    return found


async def until(holds: Callable[[], object], within_s: float = 20) -> None:
    """Look until something that nobody announces has come about."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - other processes set no events
            await asyncio.sleep(0.01)


async def gone(mark: str, within_s: float) -> float:
    """Wait until nothing marked lives; how long that took."""
    began = time.monotonic()
    await until(lambda: not marked(mark), within_s)
    return time.monotonic() - began


async def there(mark: str, count: int = 1) -> list[int]:
    """Wait until so many marked processes live."""
    await until(lambda: len(marked(mark)) >= count)
    return marked(mark)
