"""What is kept of an output that may have no end, for the model and for people.

Theory of operation. `Kept` holds the head and the tail of a text within a bound, whatever its length, and says how much
was left out between them. `Shown` passes a text on as it comes, at a bounded rate and up to a bounded size: at once
where nothing was shown lately, otherwise together with what else comes until the next tick.
"""

from collections import deque

from headrace.limits import SHOWN_EVERY_S, SHOWN_MAX_CHARS, SHOWN_PIECE_CHARS
from headrace.ports import Timer, ToolRun


class Kept:
    """The first `head` and the last `tail` characters of a text, which is whole as long as they hold it."""

    def __init__(self, head: int, tail: int) -> None:
        self._head_room = head
        self._tail_most = tail
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._out_chars = 0
        self._out_lines = 0

    def __bool__(self) -> bool:
        return bool(self._head or self._tail or self._out_chars)

    def add(self, text: str) -> None:
        if self._head_room and text:
            self._head.append(text[: self._head_room])
            text = text[self._head_room :]
            self._head_room -= len(self._head[-1])
        if text:
            self._tail.append(text)
            self._tail_size += len(text)
            self._trim()

    def _trim(self) -> None:
        while (excess := self._tail_size - self._tail_most) > 0:
            first = self._tail.popleft()
            gone = first[:excess]
            if len(first) > excess:
                self._tail.appendleft(first[excess:])
            self._tail_size -= len(gone)
            self._out_chars += len(gone)
            self._out_lines += gone.count("\n")

    def text(self) -> str:
        head, tail = "".join(self._head), "".join(self._tail)
        if not self._out_chars:
            return head + tail
        note = f"[... {self._out_chars:,} characters ({self._out_lines:,} line ends) left out here ...]"
        return f"{head}\n{note}\n{tail}"


class Shown:
    """Passes an output on to people while it comes. Close it when it has ended."""

    def __init__(self, run: ToolRun) -> None:
        self._run = run
        self._waiting = Kept(0, SHOWN_PIECE_CHARS)
        self._room = SHOWN_MAX_CHARS
        self._timer: Timer | None = None

    def add(self, text: str) -> None:
        if self._room <= 0 or not text:
            return
        self._waiting.add(text)
        if self._timer is None:
            self._pass_on()
            self._timer = self._run.clock.call_later(SHOWN_EVERY_S, self._tick)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pass_on()
        self._room = 0

    def _tick(self) -> None:
        self._timer = None
        if self._waiting:
            self._pass_on()
            self._timer = self._run.clock.call_later(SHOWN_EVERY_S, self._tick)

    def _pass_on(self) -> None:
        text, self._waiting = self._waiting.text(), Kept(0, SHOWN_PIECE_CHARS)
        if not text or self._room <= 0:
            return
        piece = text[: self._room]
        self._room -= len(piece)
        self._run.printed(piece if self._room else f"{piece}\n[what follows is not shown]\n")
