"""Searching the text of files for a regular expression.

Theory of operation. A program searches, ripgrep where it is installed and `grepping` otherwise, so the event loop has
nothing to do with it and a search can be ended at any moment. Both are given the pattern, the place and the glob as
arguments that can be nothing else, and both print `path NUL number:line`, which is read up to a bound, in the order of
paths. Neither follows links, and that the place itself has not become one is looked at before they start. ripgrep also
leaves out what `.gitignore` names.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headrace.limits import (
    SEARCH_LINE_MAX_CHARS,
    SEARCH_MAX_BYTES,
    SEARCH_MAX_MATCHES,
    SEARCH_S,
    SEARCH_TEXT_MAX_CHARS,
)
from headrace.ports import ToolResult, ToolRun, Touch
from headrace.tools import grepping
from headrace.tools.answers import Refused, Stateless, answering, described
from headrace.tools.paths import open_file, open_folder
from headrace.tools.workers import PYTHON, Output, output

_FOUND: Final = re.compile(rb"^([^\0\n]+)\0(\d+):(.*)$", re.MULTILINE)
_RIPGREP: Final = (
    "--no-config", "--no-messages", "--no-heading", "--with-filename", "--line-number", "--null", "--crlf",
    "--color=never", "--no-require-git", "--sort=path", f"--max-columns={SEARCH_LINE_MAX_CHARS}",
    "--max-columns-preview",
)  # fmt: skip
_NOT_ALL: Final = 2
"""The status for an error; where nothing is said of it, it is about files that cannot be read."""


class SearchFiles(Stateless):
    spec = described(
        "search_files",
        "Search the text of files for a regular expression. Answers with lines as path:line: text. Hidden and binary "
        "files are left out.",
        optional=2,
        pattern={"type": "string", "minLength": 1, "description": "A regular expression; (?i) ignores case."},
        path={
            "type": "string",
            "description": "A file or a folder to search in; the working folder unless given.",
        },
        glob={"type": "string", "description": "Only files that fit, such as *.py or src/**/*.{ts,tsx}."},
    )
    only_reads = True

    def touches(self, arguments: Mapping[str, Any]) -> Touch:
        return Touch("read", arguments.get("path", "."))

    @answering
    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        pattern, glob = arguments["pattern"], arguments.get("glob", "")
        if "\0" in pattern or "\0" in glob or "\n" in pattern:
            raise Refused("A pattern is for one line: it has no line end and no zero byte.")
        _look(run.target)
        found = await _searched(pattern, glob, _seen_from(run.folder, run.target), run)
        return _result(found)


def _look(real: Path) -> None:
    """Refuse what is not there, or is a link now that was none when the call was judged."""
    try:
        os.close(open_folder(real))
    except NotADirectoryError:
        open_file(real).close()


def _seen_from(folder: Path, real: Path) -> str:
    if real == folder:
        return "."
    return f"./{real.relative_to(folder)}" if real.is_relative_to(folder) else str(real)


async def _searched(pattern: str, glob: str, where: str, run: ToolRun) -> Output:
    ripgrep = shutil.which("rg", path=run.env.get("PATH"))
    if ripgrep is not None:
        globs = [f"--glob={glob}"] if glob else []
        command = [ripgrep, *_RIPGREP, *globs, f"--regexp={pattern}", "--", where]
        given = b""
    else:
        command = [*PYTHON, grepping.__file__]
        given = f"{pattern}\0{where}\0{glob}".encode(errors="surrogateescape")
    return await output(
        command,
        given,
        clock=run.clock,
        within_s=SEARCH_S,
        most_bytes=SEARCH_MAX_BYTES,
        folder=run.folder,
        env=run.env,
    )


def _result(found: Output) -> ToolResult:
    if found.status == _NOT_ALL and found.errors:
        reason = found.errors.strip()[:1000]
        raise Refused(
            f"The pattern or the glob cannot be read: {reason}\nTo search for it literally, escape it with \\."
        )
    if found.status not in (None, 0, 1, _NOT_ALL):
        raise Refused(f"The search failed with status {found.status}. {found.errors.strip()[:1000]}")
    lines: list[str] = []
    room = SEARCH_TEXT_MAX_CHARS
    cut = found.status is None and not found.late
    for path, number, text in _FOUND.findall(found.data):
        line = _line(path, number, text)
        room -= len(line) + 1
        if room < 0 or len(lines) == SEARCH_MAX_MATCHES:
            cut = True
            break
        lines.append(line)
    if found.late:
        lines.append(f"[not all was searched within {SEARCH_S:.0f} s; name a folder or a glob]")
    elif found.status == _NOT_ALL:
        lines.append("[some files or folders could not be read]")
    elif cut:
        lines.append(
            f"[the first {len(lines)} lines; there are more: a narrower pattern, path or glob finds the rest]"
        )
    return ToolResult("\n".join(lines) or "No line matches.")


def _line(path: bytes, number: bytes, text: bytes) -> str:
    name = path.decode(errors="replace").removeprefix("./")
    shown = text.decode(errors="replace").rstrip("\r")
    if len(shown) > SEARCH_LINE_MAX_CHARS:
        shown = f"{shown[:SEARCH_LINE_MAX_CHARS]} [...]"
    return f"{name}:{int(number)}: {shown}"
