"""Noticing that whoever read our output has left, while there is nothing to write to them yet.

A pipe's writing end becomes readable when nobody reads it any more. A model may think for minutes before its first
word, and a mixture asks several before one answers: all of that would be paid for nobody.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import TextIO


@contextlib.contextmanager
def leaving(out: TextIO, left: Callable[[], None]) -> Iterator[None]:
    """While within, have `left` called when the reader of `out` closes it; for what is no pipe, nothing."""
    pipe = _pipe(out)
    if pipe is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def closed() -> None:
        loop.remove_reader(pipe)
        left()

    loop.add_reader(pipe, closed)
    try:
        yield
    finally:
        loop.remove_reader(pipe)


def _pipe(out: TextIO) -> int | None:
    try:
        descriptor = out.fileno()
        return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
    except (OSError, ValueError):  # it is no file at all, or closed
        return None
