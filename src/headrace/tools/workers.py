"""A helper process whose whole output is wanted: bounded in size and time, and ended with its run.

Theory of operation. What may take long or never end (a regular expression that backtracks, a page made to be slow) runs
in a process, because a thread can neither be ended nor kept from holding the loop up. The process is given its input,
its output is read up to a bound, and whatever happens it is dead when `output` returns or raises.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headrace.limits import ERROR_BODY_MAX_BYTES, READ_BYTES
from headrace.ports import Clock
from headrace.tools import guard
from headrace.tools.cancelling import whole

PYTHON: Final = (sys.executable, "-I", "-S", "-X", "utf8")
"""Runs a file of this room that imports nothing but the standard library: it starts in a few hundredths of a second."""


class Output(NamedTuple):
    data: bytes
    errors: str
    status: int | None
    """None if it was ended because of a bound."""
    late: bool


class _Taken(NamedTuple):
    data: bytes
    more: bool


async def output(
    command: Sequence[str],
    given: bytes,
    *,
    clock: Clock,
    within_s: float,
    most_bytes: int,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Output:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env=env or {}, start_new_session=True
    )
    talk = asyncio.create_task(_talk(process, given, most_bytes))
    late = False
    try:
        async with clock.timeout(within_s):
            await asyncio.wait([talk])
            await process.wait()
    except TimeoutError:
        late = True
    finally:
        _kill(process)
        await whole(_gone(process, talk))
    taken, errors = talk.result()
    bounded = late or taken.more
    return Output(
        taken.data, errors.data.decode(errors="replace"), None if bounded else process.returncode, late
    )


def _kill(process: asyncio.subprocess.Process) -> None:
    # `process.kill` would first look whether it is over, and so take its end from the one who waits for it.
    if process.returncode is None:
        guard.send({process.pid}, signal.SIGKILL)


async def _gone(process: asyncio.subprocess.Process, talk: "asyncio.Task[tuple[_Taken, _Taken]]") -> None:
    """Killed, it has no more to say than is in its pipes."""
    await asyncio.wait([talk])
    await process.wait()


async def _talk(process: asyncio.subprocess.Process, given: bytes, most: int) -> tuple[_Taken, _Taken]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(_taken(process.stderr, ERROR_BODY_MAX_BYTES))
    with contextlib.suppress(OSError):  # it may have ended without reading; its status says why
        process.stdin.write(given)
        await process.stdin.drain()
    process.stdin.close()
    taken = await _taken(process.stdout, most, lambda: _kill(process))
    return taken, await errors


async def _taken(
    stream: asyncio.StreamReader, most: int, enough: Callable[[], None] = lambda: None
) -> _Taken:
    """What comes until the end, or the first `most` bytes of it; there is said to be `enough` then."""
    data = b""
    while len(data) <= most and (more := await stream.read(READ_BYTES)):
        data += more
    if len(data) > most:
        enough()
    while await stream.read(READ_BYTES):
        pass
    return _Taken(data[:most], len(data) > most)
