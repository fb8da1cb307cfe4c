"""Putting new content in a file's place, whole or not at all.

Theory of operation. The content is written beside the file under a name of its own, given the file's mode and owner,
brought to the disk and renamed over it. A reader sees the old file or the new one; a failure or a cancellation leaves
the old one. All of it happens in the one folder that was opened without following a link (`paths`). A file that nobody
may write is left as it is, although a rename would not ask. Access control lists and extended attributes are not kept.
"""

import contextlib
import os
import secrets
import stat
from pathlib import Path

from headrace.tools.answers import Refused
from headrace.tools.paths import kind, open_folder

_EXCLUSIVE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace(real: Path, data: bytes, mode: int = 0o666) -> None:
    """Make `data` the content of the file at the resolved path `real`; missing folders are made. `mode` is for a new
    file, less what the process masks."""
    if not real.name:
        raise Refused(f"{real} is a folder, not a file.")
    parent = open_folder(real.parent, make=True)
    try:
        _replace_in(parent, real, data, mode)
    finally:
        os.close(parent)


def _replace_in(parent: int, real: Path, data: bytes, mode: int) -> None:
    before = _before(parent, real)
    temporary = f".headrace-{secrets.token_hex(6)}.tmp"
    made = mode if before is None else stat.S_IMODE(before.st_mode) & 0o777
    descriptor = os.open(temporary, _EXCLUSIVE, made, dir_fd=parent)
    try:
        try:
            _write(descriptor, data)
            if before is not None:
                _keep(descriptor, before)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, real.name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=parent)
        raise


def _before(parent: int, real: Path) -> os.stat_result | None:
    try:
        found = os.stat(real.name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise Refused(f"{real} is {kind(found.st_mode)}, not a file.")
    if not found.st_mode & 0o222:
        raise Refused(f"{real} is read-only. If it is to be changed, make it writable first.")
    return found


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _keep(descriptor: int, before: os.stat_result) -> None:
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with contextlib.suppress(PermissionError):  # only root gives files away; then it is ours from now on
            os.fchown(descriptor, before.st_uid, before.st_gid)
    # Not its set-user and set-group bits: what is written by somebody else must not run as the file's owner.
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)
