"""Reading a text file, a stretch at a time, whatever its size.

Theory of operation. The file is gone through from its start in blocks that are counted and let go, up to the first line
asked for; from there lines are taken until the last one asked for, the end, or the bound of one answer. No more than a
block is held. Lines are shown without their ends, so that what is read is what `edit_file` is to be given.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from headrace.limits import BINARY_SNIFF_BYTES, MIB, READ_FILE_MAX_CHARS, READ_LINE_MAX_CHARS
from headrace.ports import ToolResult, ToolRun, Touch
from headrace.tools.answers import Refused, Stateless, answering, described
from headrace.tools.paths import open_file
from headrace.tools.threads import Check, in_thread

_LINE_BYTES: Final = 4 * READ_LINE_MAX_CHARS
_BLOCK_BYTES: Final = MIB


class ReadFile(Stateless):
    spec = described(
        "read_file",
        "Read a text file, or lines start to end of it. Long files come in pieces; the last line says how to read on.",
        optional=2,
        path={"type": "string", "description": "Relative to the working folder, or absolute."},
        start={"type": "integer", "minimum": 1, "description": "First line, counted from 1."},
        end={"type": "integer", "minimum": 1, "description": "Last line, included."},
    )
    only_reads = True

    def touches(self, arguments: Mapping[str, Any]) -> Touch:
        return Touch("read", arguments["path"])

    @answering
    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        start = int(arguments.get("start", 1))
        end = int(arguments["end"]) if "end" in arguments else None
        if end is not None and end < start:
            raise Refused(f"The end, line {end}, is before the start, line {start}.")

        def work(check: Check) -> str:
            return _read(run.target, start, end, check)

        return ToolResult(await in_thread(work))


def _read(real: Path, start: int, end: int | None, check: Check) -> str:
    with open_file(real) as file:
        if b"\0" in file.read(BINARY_SNIFF_BYTES):
            size = file.seek(0, 2)
            raise Refused(f"{real.name} is a binary file of {size:,} bytes, not text.")
        file.seek(0)
        before = _skip(file, start - 1, check)
        if before < start - 1:
            raise Refused(f"{real.name} has {before:,} lines; there is no line {start:,}.")
        return _Stretch(file, start, end).read(check)


def _skip(file: BinaryIO, lines: int, check: Check) -> int:
    """Go to where `lines` lines have passed, or to the end; how many have."""
    passed = 0
    last = b"\n"
    while passed < lines:
        check()
        block = file.read(_BLOCK_BYTES)
        if not block:
            return passed + (last != b"\n")
        last = block[-1:]
        count = block.count(b"\n")
        if passed + count < lines:
            passed += count
            continue
        at = -1
        for _ in range(lines - passed):
            at = block.index(b"\n", at + 1)
        file.seek(at + 1 - len(block), 1)
        passed = lines
    return passed


class _Stretch:
    """Lines of a file from where it stands, within the bound of one answer."""

    def __init__(self, file: BinaryIO, start: int, end: int | None) -> None:
        self._file = file
        self._start = start
        self._end = end
        self._lines: list[str] = []
        self._room = READ_FILE_MAX_CHARS
        self._crlf = False

    def read(self, check: Check) -> str:
        note = ""
        while (line := self._line(check)) is not None:
            number = self._start + len(self._lines)
            if self._end is not None and number > self._end:
                note = f"[lines {self._start:,} to {self._end:,}; the file goes on]"
                break
            self._room -= len(line) + 1
            if self._room < 0:
                note = f"[lines {self._start:,} to {number - 1:,}; to read on: start={number}]"
                break
            self._lines.append(line)
        return "\n".join([*self._lines, *self._notes(note)])

    def _notes(self, note: str) -> list[str]:
        if not note and self._start > 1:
            last = self._start + len(self._lines) - 1
            note = (
                f"[lines {self._start:,} to {last:,}, where the file ends]"
                if self._lines
                else "[the file ends here]"
            )
        if not note and not self._lines:
            note = "[the file is empty]"
        notes = [note] if note else []
        return [*notes, "[its lines end in CRLF]"] if self._crlf else notes

    def _line(self, check: Check) -> str | None:
        data = self._file.readline(_LINE_BYTES)
        if not data:
            return None
        more = 0
        if len(data) == _LINE_BYTES and not data.endswith(b"\n"):
            more = self._pass_the_rest(check)
        if data.endswith(b"\r\n"):
            self._crlf = True
        text = data.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace")
        kept = text[:READ_LINE_MAX_CHARS]
        if kept == text and not more:
            return text
        return f"{kept} [... the line goes on for {len(data) - len(kept.encode()) + more:,} bytes]"

    def _pass_the_rest(self, check: Check) -> int:
        passed = 0
        while rest := self._file.readline(_BLOCK_BYTES):
            check()
            passed += len(rest)
            if rest.endswith(b"\n"):
                return passed - 1
        return passed
