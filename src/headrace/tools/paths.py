"""Which file a path of a model's means, and opening exactly that one.

Theory of operation. `resolve` makes a path absolute and free of links: relative to the working folder, `~` and `~/...`
being the person's home (`~name` is refused; a file of that name is `./~name`). `inside` says whether what it means lies
in the folder, after every link and every `..`.

A path that was inside when it was looked at may mean something else when it is used, because a command may put a link
in its place in between. So what is opened is what was resolved: `open_folder` and `open_file` go there from the root,
component by component, and follow no link at all. Whoever checks a resolved path and then opens that same path this way
leaves no gap between the two. What remains: a hard link cannot be told from the file (writing replaces the name and so
never reaches through one); and where paths outside of the folder may be used at all, what a person allowed was the
path as the model wrote it, which is resolved anew when the tool runs.
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


def resolve(path: str | Path, folder: Path) -> Path:
    """What `path` means, seen from `folder`: absolute, no link and no `..` in it. It need not exist."""
    text = os.fspath(path)
    if not text or "\0" in text:
        raise Refused("The path is empty." if not text else "A path has no zero byte.")
    if text == "~" or text.startswith("~/"):
        text = str(Path.home()) + text[1:]
    elif text.startswith("~"):
        raise Refused(
            f"{text}: other people's homes are not looked up. For a file of that name write ./{text}"
        )
    return Path(os.path.realpath(os.path.join(folder, text)))  # noqa: PTH118 -- pathlib would fold `a/..` too early


def inside(path: str | Path, folder: Path) -> bool:
    """Whether what `path` means lies in `folder`, or is it."""
    return resolve(path, folder).is_relative_to(os.path.realpath(folder))


def usable(path: str, folder: Path, *, everywhere: bool) -> Path:
    """What `path` means, if it may be used."""
    real = resolve(path, folder)
    if not everywhere and not inside(real, folder):
        raise Refused(f"{path} is outside of the working folder, {folder}. Use a path within it.")
    return real


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
