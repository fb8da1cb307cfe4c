"""Replacing one piece of a file by another.

Theory of operation. The piece has to occur exactly once; an edit that might hit another place is worse than one more
question. So where it occurs never or often, the answer says where to look and what would make it one. The rest of the
file stays as it is to the byte; in a file whose lines end in CRLF, the ends of the given lines are taken to mean that.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.limits import EDIT_MAX_BYTES, EDIT_PLACES_MOST
from headrace.ports import ToolResult, ToolRun, Touch
from headrace.tools.answers import Refused, Stateless, answering, described
from headrace.tools.diffs import unified
from headrace.tools.paths import open_file, shown
from headrace.tools.replacing import replace
from headrace.tools.threads import Check, in_thread
from headrace.tools.write_file import encoded


class EditFile(Stateless):
    spec = described(
        "edit_file",
        "Replace one piece of a text file. `old` must be exactly as in the file, white space included, and occur once.",
        path={"type": "string", "description": "Relative to the working folder, or absolute."},
        old={
            "type": "string",
            "minLength": 1,
            "description": "What is there now; as many lines as make it unique.",
        },
        new={"type": "string", "description": "What is to be there instead."},
    )
    only_reads = False

    def touches(self, arguments: Mapping[str, Any]) -> Touch:
        return Touch("write", arguments["path"])

    @answering
    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        def work(_: Check) -> ToolResult:
            return _edit(run.target, arguments["old"], arguments["new"], shown(run.target, run.folder))

        return await in_thread(work)


def _edit(real: Path, old: str, new: str, name: str) -> ToolResult:
    before = _text(real, name)
    if old == new:
        raise Refused("Old and new are the same; there is nothing to change.")
    if _in_crlf(before) or ("\r\n" in before and old not in before):
        old, new = (re.sub(r"\r?\n", "\r\n", text) for text in (old, new))
    at = _place(before, old, name)
    after = before[:at] + new + before[at + len(old) :]
    replace(real, encoded(after))
    first = before.count("\n", 0, at) + 1
    last = first + new.removesuffix("\n").count("\n")
    where = f"line {first}" if first == last else f"lines {first} to {last}"
    return ToolResult(f"Edited {name}, now {where}.", detail=unified(before, after, name))


def _in_crlf(text: str) -> bool:
    """Whether all its lines end so."""
    return 0 < text.count("\n") == text.count("\r\n")


def _text(real: Path, name: str) -> str:
    with open_file(real) as file:
        data = file.read(EDIT_MAX_BYTES + 1)
    if len(data) > EDIT_MAX_BYTES:
        raise Refused(f"{name} is larger than {EDIT_MAX_BYTES:,} bytes. Use a command such as sed.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refused(
            f"{name} is not UTF-8 text (byte {error.start:,}), so it cannot be edited here."
        ) from error


def _place(text: str, old: str, name: str) -> int:
    """Where `old` is, if it is once."""
    if not old:
        raise Refused("The text to replace is empty. To write a whole file use write_file.")
    at = text.find(old)
    if at < 0:
        raise Refused(f"That text is not in {name}. {_nearly(text, old)}")
    if text.find(old, at + 1) < 0:
        return at
    places = _lines_of(text, old, at)
    often = (
        f"{len(places)} times" if len(places) <= EDIT_PLACES_MOST else f"more than {EDIT_PLACES_MOST} times"
    )
    lines = ", ".join(str(line) for line in places[:EDIT_PLACES_MOST])
    raise Refused(
        f"That text occurs {often} in {name}, at lines {lines}. Nothing was changed. "
        "Give more of the lines around the one you mean, so that it occurs once."
    )


def _lines_of(text: str, old: str, at: int) -> list[int]:
    """The lines where `old` begins, the first of them at `at`; one more than are told at most."""
    lines: list[int] = []
    line, seen = 1, 0
    while at >= 0 and len(lines) <= EDIT_PLACES_MOST:
        line += text.count("\n", seen, at)
        seen = at
        lines.append(line)
        at = text.find(old, at + 1)
    return lines


def _nearly(text: str, old: str) -> str:
    """A hint at where it may have been meant: the same but for white space, or at least its first line."""
    words = old.split()
    again = "Read the file again and copy the text exactly."
    if not words:
        return again
    wanted = "".join(words)
    squeezed = "".join(text.split())
    at = squeezed.find(wanted)
    if at >= 0:
        return f"It differs only in white space from line {_line_of(text, at)}. {again}"
    first = next(line.strip() for line in old.splitlines() if line.strip())
    found = text.find(first)
    if found >= 0:
        return f"Its first line is at line {text.count(chr(10), 0, found) + 1}, but what follows differs. {again}"
    return again


def _line_of(text: str, at: int) -> int:
    """The line of the `at`-th character that is not white space."""
    for number, line in enumerate(text.split("\n"), 1):
        at -= len("".join(line.split()))
        if at < 0:
            return number
    return 1
