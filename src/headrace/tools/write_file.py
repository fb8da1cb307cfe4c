"""Writing a whole file: made with its folders, or replaced as `replacing` says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.limits import EDIT_MAX_BYTES
from headrace.ports import ToolResult, ToolRun, Touch
from headrace.tools.answers import Refused, Stateless, answering, described
from headrace.tools.diffs import unified
from headrace.tools.paths import open_file, shown
from headrace.tools.replacing import replace
from headrace.tools.threads import Check, in_thread


class WriteFile(Stateless):
    spec = described(
        "write_file",
        "Write a whole text file: a new one, or in place of what is there. Missing folders are made. To change a part "
        "of a file use edit_file.",
        path={"type": "string", "description": "Relative to the working folder, or absolute."},
        content={"type": "string", "description": "All of the file."},
    )
    only_reads = False

    def touches(self, arguments: Mapping[str, Any]) -> Touch:
        return Touch("write", arguments["path"])

    @answering
    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        def work(_: Check) -> ToolResult:
            return _write(run.target, arguments["content"], run.folder)

        return await in_thread(work)


def _write(real: Path, content: str, folder: Path) -> ToolResult:
    data = encoded(content)
    name = shown(real, folder)
    before = _text(real)
    replace(real, data)
    size = f"{len(data):,} bytes"
    if before is None:
        return ToolResult(f"Wrote {name}, {size}.", detail=f"{name}: {size} in place of what was no text")
    diff = unified(before, content, name)
    return ToolResult(f"Wrote {name}, {size}.", detail=diff or f"{name}: nothing changed")


def encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"The text has half a character at {error.start} that no file can hold.") from error


def _text(real: Path) -> str | None:
    """What is there now, "" if nothing; None if it is no text, or too much to compare."""
    try:
        with open_file(real) as file:
            data = file.read(EDIT_MAX_BYTES + 1)
    except FileNotFoundError:
        return ""
    if len(data) > EDIT_MAX_BYTES:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
