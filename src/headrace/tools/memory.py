"""What headrace remembers of a person: bullet lines in a Markdown file that the person may edit at any time.

Theory of operation. `<home>/memory.md` is read anew for every action and replaced whole (`replacing`), one writer at a
time, also across processes. A fact is a line that begins with `- ` or `* `, with the indented lines that follow it;
headings, prose and everything else are the person's and stay as they are. Facts are added at the end.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.limits import MEMORY_FACT_MAX_CHARS, MEMORY_MAX_BYTES
from headrace.ports import ToolResult, ToolRun, Touch
from headrace.tools.answers import Refused, Stateless, answering, described
from headrace.tools.paths import open_file
from headrace.tools.replacing import replace
from headrace.tools.threads import Check, in_thread
from headrace.tools.write_file import encoded

FILE: Final = "memory.md"
_HEADING: Final = "# What headrace remembers\n\n"
_BULLET: Final = re.compile(r"[-*] +(?=\S)")


class Memory(Stateless):
    spec = described(
        "memory",
        "Remember facts about the person or their work across conversations: add one, remove one, or list them. Only "
        "what will matter later, one short sentence each; never a password or a key.",
        optional=1,
        action={"type": "string", "enum": ["add", "remove", "list"]},
        text={
            "type": "string",
            "description": "The fact; to remove one, all of it or a part no other fact has.",
        },
    )
    only_reads = False

    def touches(self, arguments: Mapping[str, Any]) -> Touch:
        return Touch("nothing" if arguments["action"] == "list" else "remember")

    @answering
    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        action = arguments["action"]
        text = " ".join(arguments.get("text", "").split())
        if action != "list" and not text:
            raise Refused(f"Say in `text` which fact to {action}.")

        def work(_: Check) -> ToolResult:
            match action:
                case "add":
                    return _add(run.home, text)
                case "remove":
                    return _remove(run.home, text)
                case _:
                    return _list(run.home)

        return await in_thread(work)


class _Fact(NamedTuple):
    first: int
    """The number of its first line, from 0."""
    last: int
    text: str


def _add(home: Path, fact: str) -> ToolResult:
    if len(fact) > MEMORY_FACT_MAX_CHARS:
        raise Refused(f"A fact has at most {MEMORY_FACT_MAX_CHARS} characters. Say it shorter.")
    with _alone(home):
        text = _read(home)
        if any(known.text == fact for known in _facts(text)):
            return ToolResult("That is known already.")
        text = text or _HEADING
        text += "" if text.endswith("\n") else "\n"
        text += f"- {fact}\n"
        if len(encoded(text)) > MEMORY_MAX_BYTES:
            raise Refused(
                f"The memory is full ({MEMORY_MAX_BYTES // 1024} KiB). Remove what no longer matters first."
            )
        _write(home, text)
    return ToolResult("Remembered.", detail=f"+ {fact}")


def _remove(home: Path, wanted: str) -> ToolResult:
    with _alone(home):
        text = _read(home)
        facts = _facts(text)
        found = [f for f in facts if f.text == wanted] or [f for f in facts if wanted in f.text]
        if not found:
            raise Refused("No fact says that. List them to see what is remembered.")
        if len(found) > 1 and len({f.text for f in found}) > 1:
            several = "\n".join(f"- {f.text}" for f in found)
            raise Refused(f"{len(found)} facts say that; give all of the one you mean:\n{several}")
        gone = {number for f in found for number in range(f.first, f.last + 1)}
        lines = text.splitlines(keepends=True)
        _write(home, "".join(line for number, line in enumerate(lines) if number not in gone))
    return ToolResult("Forgotten.", detail=f"- {found[0].text}")


def _list(home: Path) -> ToolResult:
    facts = _facts(_read(home))
    return ToolResult("\n".join(f"- {fact.text}" for fact in facts) or "Nothing is remembered yet.")


def _facts(text: str) -> list[_Fact]:
    facts: list[_Fact] = []
    within = False
    for number, line in enumerate(text.splitlines()):
        if bullet := _BULLET.match(line):
            facts.append(_Fact(number, number, line[bullet.end() :].strip()))
            within = True
        elif within and line[:1].isspace() and line.strip():
            facts[-1] = _Fact(facts[-1].first, number, f"{facts[-1].text} {line.strip()}")
        else:
            within = False
    return facts


def _read(home: Path) -> str:
    real = Path(os.path.realpath(home / FILE))
    try:
        with open_file(real) as file:
            data = file.read(MEMORY_MAX_BYTES * 2 + 1)
    except FileNotFoundError:
        return ""
    try:
        if len(data) <= MEMORY_MAX_BYTES * 2:
            return data.decode()
    except UnicodeDecodeError:
        pass
    raise Refused(f"{real} is too long, or no UTF-8 text. The person has to look at it; go on without it.")


def _write(home: Path, text: str) -> None:
    # A link to a file that is kept elsewhere stays one; what is remembered is for its owner alone.
    replace(Path(os.path.realpath(home / FILE)), encoded(text), 0o600)


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    """While no other process or thread changes the memory; the lock is held for milliseconds."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(home / f".{FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if sys.platform != "win32":
            import fcntl  # noqa: PLC0415 -- not everywhere

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
