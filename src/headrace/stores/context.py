"""What the person has written down for the agent: context files of a project, and the memory file.

Theory of operation. `AGENTS.md` and its kin are read from the working folder upward to the home folder or the root, one
per folder, and given outermost first, so that the nearest has the last word. Each is bounded; what is left out is said.
A link that leads out of its folder is not one of them: a project made by somebody else could send any file of this
machine to a provider by it.
"""

from pathlib import Path
from typing import Final

from headrace.limits import CONTEXT_FILE_MAX_CHARS, CONTEXT_FILES_MAX
from headrace.ports import ContextFile

NAMES: Final = ("AGENTS.md", "HEADRACE.md", "CLAUDE.md")
MEMORY: Final = "memory.md"


def context_files(folder: Path, stop: Path) -> tuple[ContextFile, ...]:
    """The context files that hold for `folder`; nothing above `stop` is looked at."""
    found: list[ContextFile] = []
    for place in (folder, *folder.parents):
        file = next((place / name for name in NAMES if _is_here(place / name)), None)
        if file is not None and (text := _text(file)):
            found.append(ContextFile(str(file), text))
        if place == stop or len(found) == CONTEXT_FILES_MAX:
            break
    return tuple(reversed(found))


def _is_here(path: Path) -> bool:
    """Whether it is a file of the folder it is named in."""
    return path.is_file() and path.resolve().is_relative_to(path.parent.resolve())


def memory(home: Path) -> str:
    """The facts the person wanted kept."""
    return _text(home / MEMORY)


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(CONTEXT_FILE_MAX_CHARS + 1)
    except OSError:
        return ""  # a file that is gone or may not be read has nothing to say
    if len(text) > CONTEXT_FILE_MAX_CHARS:
        text = f"{text[:CONTEXT_FILE_MAX_CHARS]}\n[the rest of {path.name} was left out]"
    return text.strip()
