"""Opening exactly the file that was judged.

Theory of operation. A tool is not given a path to resolve but what the path meant when the call was judged
(`ToolRun.target`), absolute and free of links. It may mean something else by the time it is used, because a command may
put a link in its place in between. So `open_folder` and `open_file` go to it from the root, component by component,
and follow no link at all: what is opened is what was judged, or nothing is. What remains: a hard link cannot be told
from the file (writing replaces the name and so never reaches through one), and a search goes where the name leads.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from headrace.tools.answers import Refused

# To pass through a folder needs no right to list it.
_STEP: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def shown(real: Path, folder: Path) -> str:
    """A resolved path as people and models read it best."""
    return str(real.relative_to(folder)) if real.is_relative_to(folder) else str(real)


def open_folder(real: Path, *, make: bool = False) -> int:
    """A descriptor of the folder at the resolved path `real`, reached through no link; missing folders may be made."""
    here = os.open("/", _STEP)
    for name in real.parts[1:]:
        try:
            following = _step(name, here, make=make)
        except OSError as error:
            raise _seen(error, real) from error
        finally:
            os.close(here)
        here = following
    return here


def _step(name: str, here: int, *, make: bool) -> int:
    try:
        return os.open(name, _STEP, dir_fd=here)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):  # somebody else may just have made it
        os.mkdir(name, dir_fd=here)
    return os.open(name, _STEP, dir_fd=here)


def open_file(real: Path) -> BinaryIO:
    """The regular file at the resolved path `real`, for reading."""
    parent = open_folder(real.parent)
    try:
        # Opening a pipe that nobody writes to would wait for ever.
        descriptor = os.open(
            real.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent
        )
    except OSError as error:
        raise _seen(error, real) from error
    finally:
        os.close(parent)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise Refused(f"{real} is {kind(mode)}, not a file.")
    return os.fdopen(descriptor, "rb")


def kind(mode: int) -> str:
    """What there is at a path, in words."""
    match stat.S_IFMT(mode):
        case stat.S_IFDIR:
            return "a folder"
        case stat.S_IFIFO:
            return "a pipe"
        case stat.S_IFSOCK:
            return "a socket"
        case stat.S_IFCHR | stat.S_IFBLK:
            return "a device"
        case stat.S_IFLNK:
            return "a link"
        case _:
            return "a file"


def _seen(error: OSError, real: Path) -> OSError | Refused:
    """The error with the whole path in it; a link where there was none a moment ago has its own sentence."""
    if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and os.path.islink(real)):  # noqa: PTH114
        return Refused(
            f"{real} leads through a link that cannot be followed. Look at it again and use its real path."
        )
    return OSError(error.errno, error.strerror, str(real))
