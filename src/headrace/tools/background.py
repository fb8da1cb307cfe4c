"""Commands that go on running in the background, and the two tools that read and end them.

Theory of operation. A background command is under guard like any other and is over when its last process is, so
`server &` lives on. It belongs to the owner of the run that started it (`ToolRun.owner`) and is numbered there; nobody
else can read or end it. What ends it is `terminal_kill`, its own timeout, a Stop of the turn that started it, and
`close`. What it prints is kept, head and tail, until it is read; reading takes it away. A command that is over is
forgotten with the read that says so.
"""

import asyncio
import codecs
from collections.abc import Hashable, Mapping
from typing import Any, Final

import msgspec

from headrace.limits import BACKGROUND_MOST, BACKGROUND_WATCH_S, TERMINAL_HEAD_CHARS, TERMINAL_TAIL_CHARS
from headrace.ports import Clock, ToolResult, ToolRun, Touch
from headrace.tools.answers import Refused, Stateless, answering, described
from headrace.tools.keeping import Kept
from headrace.tools.processes import Ending, Guarded, signal_name

_STOPPED: Final = "ended because the turn that started it was stopped"


def ending_said(ending: Ending, late: str = "") -> str:
    """How a command ended, in a line."""
    if ending.failure:
        return f"it could not be started: {ending.failure}"
    words = [late] if late else []
    if ending.flood:
        words.append(f"ended because it had {ending.flood:,} processes running at once")
    elif ending.status is None and not late:
        words.append("ended")
    elif ending.status is not None:
        killed = ending.status < 0
        words.append(f"ended by {signal_name(-ending.status)}" if killed else f"exit status {ending.status}")
    if ending.left:
        what = "1 process" if ending.left == 1 else f"{ending.left} processes"
        words.append(f"{what} left in the background ended with it; background: true keeps a command running")
    if ending.stuck:
        words.append(f"{ending.stuck} of its processes could not be ended")
    return "; ".join(words)


class _Job:
    """One background command."""

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self._late = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unread = Kept(TERMINAL_HEAD_CHARS, TERMINAL_TAIL_CHARS)

    async def start(self, command: str, run: ToolRun, timeout_s: float | None) -> None:
        self._guarded = await Guarded.start(command, run, self._received, linger=True)
        self._task = asyncio.create_task(self._live(run.clock, timeout_s), name="a background command")

    def _received(self, data: bytes) -> None:
        self._unread.add(self._decoder.decode(data))

    async def _live(self, clock: Clock, timeout_s: float | None) -> None:
        try:
            async with clock.timeout(timeout_s):
                await self._guarded.wait()
        except TimeoutError:
            self._late = f"timed out after {timeout_s:g} s"
        self.ending = await self._guarded.end()

    async def stop(self) -> None:
        await self.end(_STOPPED)

    async def watch(self, clock: Clock, most_s: float) -> None:
        """For a while, or until it is over."""
        try:
            async with clock.timeout(most_s):
                await asyncio.wait([self._task])
        except TimeoutError:
            return

    async def end(self, why: str = "") -> None:
        if self.ending is None:
            self._late = why
        self._task.cancel()
        await asyncio.wait([self._task])
        self.ending = await self._guarded.end()

    def told(self, name: str) -> ToolResult:
        """What is new of it."""
        output, self._unread = self._unread.text(), Kept(TERMINAL_HEAD_CHARS, TERMINAL_TAIL_CHARS)
        if output and not output.endswith("\n"):
            output += "\n"
        if self.ending is None:
            return ToolResult(f"{output}[{name} is running]", detail=f"{name} is running")
        end = ending_said(self.ending, self._late)
        return ToolResult(f"{output}[{name}: {end}]", self.ending.status in (0, None), f"{name}: {end}")


class _Jobs:
    """The commands of one owner, by their names."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._count = 0

    async def start(self, command: str, run: ToolRun, timeout_s: float | None) -> ToolResult:
        self._make_room()
        job = _Job()
        await job.start(command, run, timeout_s)
        self._count += 1
        name = f"bg-{self._count}"
        self._jobs[name] = job
        try:
            await job.watch(run.clock, BACKGROUND_WATCH_S)
        except asyncio.CancelledError:
            await self._end(name)  # nobody has been told its name
            raise
        if job.ending:
            return self.read(name)
        run.when_stopped(job.stop)
        return ToolResult(f"[{name} is running]", detail=f"{name}: {command}")

    def read(self, name: str) -> ToolResult:
        job = self._job(name)
        if job.ending is not None:
            del self._jobs[name]
        return job.told(name)

    async def kill(self, name: str) -> ToolResult:
        job = self._job(name)
        await self._end(name)
        return msgspec.structs.replace(job.told(name), ok=True)

    async def close(self) -> None:
        await asyncio.gather(*(self._end(name) for name in list(self._jobs)))

    async def _end(self, name: str) -> None:
        await self._jobs.pop(name).end()

    def _job(self, name: str) -> _Job:
        if name in self._jobs:
            return self._jobs[name]
        names = ", ".join(self._jobs)
        raise Refused(
            f"There is no background command {name!r}. " + (f"There are: {names}." if names else "None.")
        )

    def _make_room(self) -> None:
        running = [name for name, job in self._jobs.items() if job.ending is None]
        if len(running) >= BACKGROUND_MOST:
            raise Refused(
                f"{len(running)} commands run in the background: {', '.join(running)}. End one first."
            )
        over = [name for name, job in self._jobs.items() if job.ending is not None]
        for name in over[: len(self._jobs) + 1 - 2 * BACKGROUND_MOST]:
            del self._jobs[name]


class Background:
    """The commands that are running in the background, by whose they are."""

    def __init__(self) -> None:
        self._owners: dict[Hashable, _Jobs] = {}

    def of(self, owner: Hashable) -> _Jobs:
        return self._owners.setdefault(owner, _Jobs())

    async def close(self) -> None:
        await asyncio.gather(*(jobs.close() for jobs in self._owners.values()))


class TerminalRead(Stateless):
    spec = described(
        "terminal_read",
        "What a background command has printed since it was last read, and whether it is still running.",
        id={"type": "string", "description": "The id that terminal gave, such as bg-1."},
    )
    only_reads = True

    def __init__(self, background: Background) -> None:
        self._background = background

    def touches(self, arguments: Mapping[str, Any]) -> Touch:
        return Touch("nothing", arguments["id"])

    @answering
    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        return self._background.of(run.owner).read(arguments["id"])


class TerminalKill(Stateless):
    spec = described(
        "terminal_kill",
        "End a background command and everything it has started.",
        id={"type": "string", "description": "The id that terminal gave, such as bg-1."},
    )
    only_reads = False

    def __init__(self, background: Background) -> None:
        self._background = background

    def touches(self, arguments: Mapping[str, Any]) -> Touch:
        return Touch("nothing", arguments["id"])

    @answering
    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        return await self._background.of(run.owner).kill(arguments["id"])
