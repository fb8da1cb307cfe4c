"""Searching files where ripgrep is not installed: a program of its own, which says what it finds as ripgrep does.

Theory of operation. headrace starts this file (it imports nothing but the standard library) and writes three fields to
its standard input, separated by zero bytes: the pattern, where to begin, a glob or nothing. For every line that matches
it prints `path NUL number:line`. A pattern that cannot be compiled is explained on standard error, with status 2.

It goes from folder to folder by descriptors and follows no link, so nothing that changes meanwhile leads it elsewhere.
Left out are hidden files and folders, folders that programs fill (`node_modules`, `__pycache__`) or that are nested 200
deep, and binary files.
"""

# It starts quickly because it imports little.
# ruff: noqa: PTH118

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

_SKIPPED: Final = frozenset({"node_modules", "__pycache__"})
_DEEPEST: Final = 200
"""Each folder on the way down is held open."""
_SNIFF_BYTES: Final = 8192
_LINE_BYTES: Final = 1 << 20
_SHOWN_CHARS: Final = 1000
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GLOB: Final = re.compile(
    r"(?P<deep>\*\*/)|(?P<all>\*\*)|(?P<any>\*)|(?P<one>\?)|\[(?P<not>!?)(?P<set>[^]]+)\]"
)


def glob_pattern(glob: str) -> re.Pattern[str]:
    """A glob as ripgrep reads it: without a slash it is for names at any depth, otherwise for paths."""
    if "/" not in glob:
        glob = f"**/{glob}"
    out, at, depth = "", 0, 0
    while at < len(glob):
        if found := _GLOB.match(glob, at):
            out += _translated(found)
            at = found.end()
            continue
        depth += {"{": 1, "}": -1}.get(glob[at], 0)
        out += {"{": "(?:", "}": ")", ",": "|" if depth else ","}.get(glob[at], re.escape(glob[at]))
        at += 1
    return re.compile(out.removeprefix("/"), re.DOTALL)


def _translated(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "deep":
            return "(?:.*/)?"
        case "all":
            return ".*"
        case "any":
            return "[^/]*"
        case "one":
            return "[^/]"
        case _:
            return f"[{'^' if found['not'] else ''}{re.escape(found['set']).replace(chr(92) + '-', '-')}]"


def files(root: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, BinaryIO]]:
    """Every regular file below `root` (or `root` itself) that is wanted, opened, in the order of names."""
    descriptor = os.open(root, _OPEN)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        yield from _below(descriptor, root, wanted, _DEEPEST)
    else:
        yield from _text(descriptor, root)


def _below(
    descriptor: int, folder: str, wanted: Callable[[str], bool], deepest: int
) -> Iterator[tuple[str, BinaryIO]]:
    try:
        with os.scandir(descriptor) as entries:
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        for name, is_folder in found:
            path = os.path.normpath(os.path.join(folder, name))
            if name.startswith(".") or not (is_folder or wanted(path)):
                continue
            if is_folder and (name in _SKIPPED or not deepest):
                continue
            opened = _opened(name, descriptor)
            if opened is not None:
                yield from _below(opened, path, wanted, deepest - 1) if is_folder else _text(opened, path)
    finally:
        os.close(descriptor)


def _opened(name: str, folder: int) -> int | None:
    try:
        return os.open(name, _OPEN, dir_fd=folder)
    except OSError:
        return None  # a link, or somebody else's


def _text(descriptor: int, path: str) -> Iterator[tuple[str, BinaryIO]]:
    """The file, if it is one and holds text."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return
    with os.fdopen(descriptor, "rb") as file:
        if b"\0" not in file.peek(_SNIFF_BYTES)[:_SNIFF_BYTES]:
            yield path, file


def search(file: BinaryIO, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """The lines that match, with their numbers. Only the first mebibyte of a line is looked at."""
    number = 0
    begins = True
    while data := file.readline(_LINE_BYTES):
        number += begins
        if begins:
            line = data.decode(errors="replace").rstrip("\r\n")
            if pattern.search(line):
                yield number, line[:_SHOWN_CHARS]
        begins = data.endswith(b"\n")


def main() -> int:
    expression, root, glob = sys.stdin.buffer.read().decode(errors="surrogateescape").split("\0")
    try:
        pattern = re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    fits = glob_pattern(glob).fullmatch if glob else None
    for path, file in files(root, lambda path: fits is None or fits(path) is not None):
        for number, line in search(file, pattern):
            sys.stdout.buffer.write(f"{path}\0{number}:{line}\n".encode(errors="surrogateescape"))
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
