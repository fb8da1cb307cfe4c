"""One process at a time fetches a model; the system lets go of the lock when its holder dies, however it dies.

The lock's file stays: removing it would let two processes hold locks on two files of one name. Where the system has
no locks for files (some network and FUSE mounts) there is none: two processes then write the same bytes to the same
places, and the hash decides as always.
"""

import contextlib
import errno
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

from headrace.ports import Clock
from headrace.providers.embedded.weights.bounds import LOCK_POLL_S

_TAKEN: Final = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _taken(descriptor: int) -> bool:
    """Whether the lock is ours now."""
    try:
        _take(descriptor)
    except OSError as error:
        return error.errno not in _TAKEN
    return True


@contextlib.asynccontextmanager
async def held(path: Path, clock: Clock, waiting: Callable[[], None]) -> AsyncIterator[None]:
    """Hold the lock for a while; `waiting` is told of every look at one that another process holds."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while not _taken(descriptor):
            waiting()
            await clock.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def held_at_once(path: Path) -> Iterator[bool]:
    """Hold the lock if nobody else does; says whether that is so."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield _taken(descriptor)
    finally:
        os.close(descriptor)
