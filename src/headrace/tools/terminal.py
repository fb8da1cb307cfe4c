"""Running a shell command: shown while it prints, bounded, and ended with everything it has started.

Theory of operation. The command runs under a guard (`processes`), so that it ends whole: when its shell exits, what it
left in the background is ended too and the result says so; at its timeout; and when the run is cancelled. What is to
live longer is started with `background: true` and then belongs to `background`. A command is for a shell, so nothing in
it is escaped or looked at: whether it may run is decided before it gets here.
"""

import codecs
from collections.abc import Mapping
from typing import Any

from headrace.limits import (
    TERMINAL_COMMAND_MAX_BYTES,
    TERMINAL_HEAD_CHARS,
    TERMINAL_TAIL_CHARS,
    TERMINAL_TIMEOUT_MOST_S,
    TERMINAL_TIMEOUT_S,
)
from headrace.ports import ToolResult, ToolRun, Touch
from headrace.tools.answers import answering, described
from headrace.tools.background import Background, ending_said
from headrace.tools.keeping import Kept, Shown
from headrace.tools.processes import Ending, Guarded, command_checked, folder_checked


class Terminal:
    """Its background commands are what outlives a run."""

    spec = described(
        "terminal",
        "Run a shell command in the working folder. Its output (stdout and stderr together) and its exit status come "
        "back when it has ended; processes it leaves behind are ended with it. There is no input: use flags such as "
        "--yes. For a server or a watcher use background: true, then terminal_read and terminal_kill.",
        optional=2,
        command={
            "type": "string",
            "description": "What the shell runs; each run starts in the working folder.",
        },
        timeout_s={
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": TERMINAL_TIMEOUT_MOST_S,
            "description": f"Seconds until it is ended; {TERMINAL_TIMEOUT_S:.0f} unless given.",
        },
        background={"type": "boolean", "description": "Return at once with an id while it goes on running."},
    )
    only_reads = False

    def __init__(self, background: Background) -> None:
        self._background = background

    def touches(self, arguments: Mapping[str, Any]) -> Touch:
        return Touch("run", arguments["command"])

    @answering
    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        command = command_checked(arguments["command"], TERMINAL_COMMAND_MAX_BYTES)
        folder_checked(run.folder)
        if arguments.get("background"):
            return await self._background.of(run.owner).start(command, run, arguments.get("timeout_s"))
        return await _foreground(command, run, float(arguments.get("timeout_s", TERMINAL_TIMEOUT_S)))

    async def close(self) -> None:
        await self._background.close()


async def _foreground(command: str, run: ToolRun, timeout_s: float) -> ToolResult:
    kept, shown = Kept(TERMINAL_HEAD_CHARS, TERMINAL_TAIL_CHARS), Shown(run)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def received(data: bytes) -> None:
        text = decoder.decode(data)
        kept.add(text)
        shown.add(text)

    late = False
    began = run.clock.monotonic()
    guarded = await Guarded.start(command, run, received)
    try:
        async with run.clock.timeout(timeout_s):
            await guarded.wait()
    except TimeoutError:
        late = True
    finally:
        ending = await guarded.end()
        kept.add(decoder.decode(b"", final=True))
        shown.close()
    took_s = run.clock.monotonic() - began
    return _result(kept.text(), ending, f"timed out after {timeout_s:g} s" if late else "", took_s)


def _result(output: str, ending: Ending, late: str, took_s: float) -> ToolResult:
    end = ending_said(ending, late)
    ok = ending.status == 0 and not late and not ending.flood
    if output and not output.endswith("\n"):
        output += "\n"
    return ToolResult(f"{output}[{end}]", ok, f"{end}, {took_s:.1f} s")
