"""Showing how weights arrive: one line that is drawn again on a terminal, a line every tenth elsewhere."""

import shutil
import time
from typing import Final, TextIO

_WIDTH: Final = 24
_STEP_S: Final = 0.1
_CLEAR: Final = "\r\x1b[K"


class FetchBar:
    """Call it with bytes done, bytes in all, and where they come from."""

    def __init__(self, err: TextIO, what: str) -> None:
        self._err = err
        self._what = what
        self._lively = err.isatty()
        self._drawn_at = 0.0
        self._begun: tuple[float, int] | None = None
        self._tenth = -1
        self._source = ""

    def __call__(self, done: int, total: int, source: str) -> None:
        now = time.monotonic()
        self._begun = self._begun or (now, done)
        if source != self._source:
            self._source = source
            self._say(f"Fetching {self._what} ({_size(total)}) from {source}.")
        if self._lively:
            if now - self._drawn_at >= _STEP_S or done >= total:
                self._drawn_at = now
                self._draw(done, total, now)
        elif (tenth := 10 * done // max(total, 1)) > self._tenth:
            self._tenth = tenth
            self._say(f"{_size(done)} of {_size(total)}")

    def end(self) -> None:
        if self._lively and self._drawn_at:
            self._drawn_at = 0.0
            self._err.write(_CLEAR)
            self._err.flush()

    def _draw(self, done: int, total: int, now: float) -> None:
        share = done / max(total, 1)
        filled = "█" * int(share * _WIDTH)
        line = f"{filled:░<{_WIDTH}} {share:4.0%}  {_size(done)} of {_size(total)}{self._speed(done, now)}"
        self._err.write(_CLEAR + line[: shutil.get_terminal_size().columns - 1])  # a line that wraps stays
        self._err.flush()

    def _speed(self, done: int, now: float) -> str:
        assert self._begun is not None
        seconds, since = now - self._begun[0], done - self._begun[1]
        return f"  {_size(int(since / seconds))}/s" if seconds > 1 and since > 0 else ""

    def _say(self, text: str) -> None:
        self._err.write(f"{_CLEAR if self._lively else ''}{text}\n")
        self._err.flush()


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
