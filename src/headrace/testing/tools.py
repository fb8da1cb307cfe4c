"""A tool that does what it was told when it was made, and a run that remembers what a tool did with it."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.ports import Clock, ToolResult, ToolRun, ToolSpec, Touch

Behaviour = Callable[[Mapping[str, Any], ToolRun], Awaitable[ToolResult]]


class ScriptedTool:
    """Implements the Tool port."""

    def __init__(
        self,
        name: str,
        result: str | Behaviour = "done",
        *,
        only_reads: bool = True,
        touch: Touch | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        anything: Mapping[str, Any] = {"type": "object", "properties": {}}
        self._spec = ToolSpec(name, f"Does {name}.", parameters or anything)
        self._result = result
        self._only_reads = only_reads
        self._touch = touch or Touch("nothing")
        self.runs: list[Mapping[str, Any]] = []
        self.running = 0
        self.most_at_once = 0
        self.cancelled = 0
        self.closed = False

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    @property
    def only_reads(self) -> bool:
        return self._only_reads

    def touches(self, arguments: Mapping[str, Any]) -> Touch:  # noqa: ARG002
        return self._touch

    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        self.runs.append(arguments)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            if isinstance(self._result, str):
                await asyncio.sleep(0)
                return ToolResult(self._result)
            return await self._result(arguments, run)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def close(self) -> None:
        self.closed = True


class BareRun:
    """Implements the ToolRun port for one run outside of any turn, and remembers what the tool did with it."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        target: Path | None = None,
        home: Path | None = None,
        env: Mapping[str, str] | None = None,
        owner: Hashable = "",
        answer: str | None = None,
    ) -> None:
        self.folder = folder
        self.target = folder if target is None else target
        self.home = folder if home is None else home
        self.env: Mapping[str, str] = {} if env is None else env
        self.owner = owner
        self.clock = clock
        self.shown: list[str] = []
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self._answer = answer
        self._ends: list[Callable[[], Awaitable[None]]] = []

    def printed(self, text: str) -> None:
        self.shown.append(text)

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str | None:
        self.asked.append((question, tuple(choices)))
        return self._answer

    def when_stopped(self, end: Callable[[], Awaitable[None]]) -> None:
        self._ends.append(end)

    async def stop(self) -> None:
        """What a Stop of the turn would do once the run is over."""
        for end in self._ends:
            await end()
