"""A tool that does what it was told when it was made, and remembers its runs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headrace.ports import ToolResult, ToolRun, ToolSpec, Touch

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
