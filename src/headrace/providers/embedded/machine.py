"""What this machine has to spare: memory and processors, also within a container.

Linux says both in files. Elsewhere nothing is known, and nothing is refused.
"""

import os
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path("/")


def free_memory_bytes(root: Path = ROOT) -> int | None:
    """Memory that a new process may take; None: unknown."""
    known = [free for free in (_of_system(root), _of_container(root)) if free is not None]
    return min(known, default=None)


def processors(root: Path = ROOT) -> int | None:
    """How many processors may be used, where that is fewer than there are."""
    allowed = [_quota(root)]
    if sys.platform == "linux":
        allowed.append(len(os.sched_getaffinity(0)))
    fewest = min((count for count in allowed if count is not None), default=None)
    return fewest if fewest is not None and fewest < (os.cpu_count() or 1) else None


def _of_system(root: Path) -> int | None:
    kilobytes = _fields(root / "proc/meminfo").get("MemAvailable:")
    return None if kilobytes is None else kilobytes * 1024


def _of_container(root: Path) -> int | None:
    group = root / "sys/fs/cgroup"
    most, used = _number(group / "memory.max"), _number(group / "memory.current")
    if most is None or used is None:
        return None
    cached = _fields(group / "memory.stat").get("inactive_file", 0)
    return max(0, most - used + cached)


def _quota(root: Path) -> int | None:
    """A container's share of time, in whole processors: its file holds `200000 100000`, or `max 100000`."""
    words = _text(root / "sys/fs/cgroup/cpu.max").split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return None
    return max(1, int(words[0]) // max(1, int(words[1])))


def _fields(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    rows = [line.split() for line in _text(path).splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
