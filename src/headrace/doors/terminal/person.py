"""The person in front of the terminal, who answers what a running turn asks, and may say something else meanwhile.

Theory of operation. Lines typed on standard input are read on the event loop while something is asked; the first line
answers the oldest open question. What is answered elsewhere meanwhile is no longer read for. In a conversation they are
read while a turn is shown: lines that answer nothing, those that came together as one, are a new message. Ctrl-C stops
the turn as ever, and with it whatever it asked.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from headrace.views.asides import Asking, Settled
from headrace.views.terminal import Piece

BY: Final = "terminal"
_YES: Final = frozenset({"y", "yes"})
_READ_BYTES: Final = 4096


class Asker(Protocol):
    """A turn that asks, in this process or elsewhere."""

    def approve(self, approval: str, *, allowed: bool, by: str) -> bool:
        """Answer an approval; whether it could still be."""

    def answer(self, question: str, text: str, by: str) -> bool:
        """Answer a question; whether it could still be."""


class Person:
    def __init__(self, descriptor: int, said: Callable[[str], None] | None = None) -> None:
        """`said` hears what is typed and answers nothing."""
        self._descriptor = descriptor
        self._said = said
        self.gone = False
        """Whether the input has ended while nothing was asked."""
        self._open: dict[str, tuple[Asker, Asking]] = {}
        self._typed = b""
        self._reading = False

    def notice(self, turn: Asker, pieces: Iterable[Piece]) -> None:
        """Take up what is asked, and drop what has been answered."""
        for piece in pieces:
            if isinstance(piece, Asking):
                self._open[piece.key] = (turn, piece)
            elif isinstance(piece, Settled):
                self._open.pop(piece.key, None)
        self._read_while(wanted=bool(self._open) or self._listens())

    def leave(self) -> None:
        self._open.clear()
        self._read_while(wanted=False)

    def _listens(self) -> bool:
        return self._said is not None and not self.gone

    def _read_while(self, *, wanted: bool) -> None:
        if wanted != self._reading:
            loop = asyncio.get_running_loop()
            if wanted:
                loop.add_reader(self._descriptor, self._read)
            else:
                loop.remove_reader(self._descriptor)
            self._reading = wanted

    def _read(self) -> None:
        data = os.read(self._descriptor, _READ_BYTES)
        self._typed += data
        if not data:  # end of input: nobody is there any more
            self._typed += b"\n"
            self.gone = not self._open
        while b"\n" in self._typed and self._open:
            line, _, self._typed = self._typed.partition(b"\n")
            self._answer(line.decode(errors="replace").strip())
        if self._said is not None and not self._open:
            lines, _, self._typed = self._typed.rpartition(b"\n")
            if text := lines.decode(errors="replace").strip():
                self._said(text)
        self._read_while(wanted=bool(self._open) or self._listens())

    def _answer(self, line: str) -> None:
        key = next(iter(self._open))
        turn, asking = self._open.pop(key)
        if asking.kind == "approval":
            turn.approve(key, allowed=line.lower() in _YES, by=BY)
        else:
            turn.answer(key, _chosen(line, asking.choices), BY)


def _chosen(line: str, choices: tuple[str, ...]) -> str:
    """A choice by its number, or what was typed."""
    if line.isdecimal() and 0 < int(line) <= len(choices):
        return choices[int(line) - 1]
    return line
