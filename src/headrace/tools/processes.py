"""A shell command under guard, as the tools see it.

Theory of operation. `guard` says how a command's processes are kept together; this is headrace's side of it.

    start --> running --the command ends, with everything it started--> over
                 '--end()--> being ended, within two seconds, whatever else happens --> over

`start` and `end` leave nothing half done when they are cancelled: a guard without an order starts nothing, and an end
that has begun goes on to its end before the cancellation leaves. A guard that was killed, which only its own command or
the system does, is swept up after from here: what is left of the command's session, and whoever has the command's mark,
a random word, in the environment it was started with.
"""

import asyncio
import contextlib
import secrets
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Self

from headrace.limits import (
    FULL_READ_BYTES,
    FULL_READ_PAUSE_S,
    GUARD_S,
    KILL_S,
    PIPE_DRAIN_S,
    READ_BYTES,
    SWEEP_S,
    TERM_S,
    TERMINAL_MAX_PROCESSES,
)
from headrace.ports import Clock, ToolRun
from headrace.tools import guard
from headrace.tools.answers import Refused
from headrace.tools.cancelling import whole

GUARD: Final = (sys.executable, "-I", "-S", guard.__file__)
_MARK: Final = "HEADRACE_COMMAND"


class Ending(NamedTuple):
    """How a command ended."""

    status: int | None = None
    """Its exit status, negative for the signal that ended it; None if it was ended before it could have one."""
    left: int = 0
    """Processes it had left behind, which were ended."""
    stuck: int = 0
    """Processes that would not end."""
    flood: int = 0
    """Processes it had when they became too many."""
    failure: str = ""
    """Why it could not be started."""


class Guarded:
    """One command and everything it starts."""

    def __init__(
        self, process: asyncio.subprocess.Process, mark: str, clock: Clock, received: Callable[[bytes], None]
    ) -> None:
        self._process = process
        self._mark = mark
        self._clock = clock
        self._received = received
        assert process.stderr is not None
        self._report = asyncio.create_task(process.stderr.read(), name="a guard's report")
        self._output = asyncio.create_task(self._pump(), name="a command's output")

    @classmethod
    async def start(
        cls, command: str, run: ToolRun, received: Callable[[bytes], None], *, linger: bool = False
    ) -> Self:
        """Start it in the run's folder with the run's environment. `linger`: it lasts as long as any of its
        processes, not only as long as its shell."""
        shell = shutil.which("bash", path=run.env.get("PATH")) or "/bin/sh"
        mark = secrets.token_hex(8)
        env = {**run.env, _MARK: mark}
        order = guard.Order(
            shell, command, str(run.folder), linger, TERM_S, KILL_S, TERMINAL_MAX_PROCESSES, env
        )
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *GUARD, stdin=pipe, stdout=pipe, stderr=pipe, env={}, cwd="/", start_new_session=True
        )
        assert process.stdin is not None
        process.stdin.write(order.packed())
        return cls(process, mark, run.clock, received)

    @property
    def over(self) -> bool:
        return self._report.done()

    async def wait(self) -> Ending:
        """Until it is over. Cancelling this ends nothing."""
        await asyncio.wait([self._report])
        await self._drain()
        return _ending(self._report.result().decode(errors="replace"))

    async def end(self) -> Ending:
        """End it, if it is not over."""
        await whole(self._end())
        return await self.wait()

    async def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._send(signal.SIGCONT)  # its command may have stopped it
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(GUARD_S):
                await asyncio.wait([self._report])
        if self._process.returncode is None and not self._report.done():
            await self._sweep(self._process.pid, None)
            self._send(signal.SIGKILL)
        await asyncio.wait([self._report])
        words = self._report.result().split()
        if b"started" in words and b"ended" not in words:
            await self._sweep(None, int(words[words.index(b"started") + 1]))
        await self._drain()
        await self._process.wait()

    def _send(self, number: signal.Signals) -> None:
        # asyncio's own way looks first whether it is over, and so takes its end from the one who waits for it.
        if self._process.returncode is None:
            guard.send({self._process.pid}, number)

    async def _sweep(self, root: int | None, session: int | None) -> None:
        """End what is left of a command whose guard does not: all below `root`, in `session`, or with the mark."""
        mark = f"{_MARK}={self._mark}"

        def find() -> set[int]:
            return guard.descendants(root, session) | guard.marked(mark)

        await asyncio.to_thread(guard.end_all, find, 0, SWEEP_S)

    async def _pump(self) -> None:
        assert self._process.stdout is not None
        while data := await self._process.stdout.read(READ_BYTES):
            self._received(data)
            if len(data) >= FULL_READ_BYTES:
                await self._clock.sleep(FULL_READ_PAUSE_S)

    async def _drain(self) -> None:
        """What is still in the pipe; somebody out of reach may hold its other end open."""
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(PIPE_DRAIN_S):
                await asyncio.wait([self._output])
        if not self._output.done():
            self._output.cancel()
            await asyncio.wait([self._output])
            self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 -- no other way to let go of it


def _ending(report: str) -> Ending:
    ending = Ending()
    for line in report.splitlines():
        match line.split():
            case ["ended", status, left, stuck]:
                ending = ending._replace(status=_exit_status(int(status)), left=int(left), stuck=int(stuck))
            case ["flood", count]:
                ending = ending._replace(flood=int(count))
            case ["failed", *reason]:
                ending = ending._replace(failure=" ".join(reason))
            case _:
                pass  # `started`, and what Python may have to say of itself
    return ending


def _exit_status(status: int) -> int | None:
    if status < 0:
        return None
    return -(status & 0x7F) if status & 0x7F else status >> 8


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def command_checked(command: str, most_bytes: int) -> str:
    """A command as a shell can be given it."""
    if "\0" in command:
        raise Refused("A command has no zero byte.")
    try:
        size = len(command.encode())
    except UnicodeEncodeError as error:
        raise Refused(f"The command has half a character at {error.start}.") from error
    if size > most_bytes:
        raise Refused("The command is too long. Write it to a file and run that.")
    return command


def folder_checked(folder: Path) -> None:
    if not folder.is_dir():
        raise Refused(f"The working folder {folder} is gone.")
