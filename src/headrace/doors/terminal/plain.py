"""Writing one turn to standard output and standard error as it happens."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TextIO

from headrace import events
from headrace.doors.terminal.fetching import FetchBar
from headrace.doors.terminal.person import Person
from headrace.errors import Cause
from headrace.events import Recorded
from headrace.runtime.turn import Turn
from headrace.views.asides import Aside, Asking, Settled, harmless_json
from headrace.views.terminal import Answer, Piece, Quote, TerminalView, Thought

STOPPED: Final = Cause("stopped", "You stopped the turn.")
GONE: Final = Cause("client_disconnected", "Whoever read the answer closed the pipe.")

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SPINNER_STEP_S: Final = 0.1
_CLEAR: Final = "\r\x1b[K"
_QUOTED_LINES: Final = 12


class Printer:
    """Writes pieces; on a terminal it shows a spinner while nothing has come yet."""

    def __init__(self, out: TextIO, err: TextIO, *, thoughts: bool = False) -> None:
        self._out = out
        self._err = err
        self._thoughts = thoughts
        self._lively = err.isatty() and out.isatty()
        self._bar = FetchBar(err, "the embedded model")
        self._spinner: asyncio.TimerHandle | None = None
        self._step = 0
        self._column = 0  # whether the answer's last line is unfinished
        self._thinking = False
        self._waits = False  # whether a spinner is to say that more is to come
        self._asked = False  # whether the line ends in a question that waits

    def start(self) -> None:
        if self._lively and self._spinner is None:
            self._spin()

    def fetching(self, done: int, total: int, source: str) -> None:
        """The embedded model's weights are on their way: a bar in the spinner's place."""
        self._stop_spinner()
        self._bar(done, total, source)
        if done >= total:
            self._bar.end()
            self.start()

    def show(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            match piece:
                case Answer(text):
                    self._answer(text)
                case Aside(text):
                    self._aside(text)
                case Thought(text):
                    self._thought(text)
                case Asking(kind, _, text, choices):
                    self._asking(kind, text, choices)
                case Quote(text):
                    self._quote(text)
                case Settled():
                    pass
        self._out.flush()
        self._err.flush()
        if self._waits:  # something was said beside the answer, and the answer is still to come
            self._waits = False
            self.start()

    def finish(self) -> None:
        self._clear()
        self._end_thought()
        if self._column:
            self._out.write("\n")
        self._column = 0
        self._out.flush()
        self._err.flush()

    def _answer(self, text: str) -> None:
        self._waits = False
        self._clear()
        self._end_thought()
        self._out.write(text)
        self._column = 0 if text.endswith("\n") else 1

    def _aside(self, text: str) -> None:
        self._clear()
        self._end_line()
        self._err.write(f"· {text}\n")
        self._waits = True

    def _quote(self, text: str) -> None:
        self._clear()
        self._end_line()
        lines = text.splitlines() or [""]
        self._err.writelines(f"> {line}\n" for line in lines[:_QUOTED_LINES])
        if len(lines) > _QUOTED_LINES:
            self._err.write(f"> ({len(lines) - _QUOTED_LINES} more lines)\n")
        self._waits = True

    def _end_line(self) -> None:
        """Bring the answer to the start of a line where what is said beside it shares its screen."""
        self._end_thought()
        if self._column and self._lively:
            self._out.write("\n")
            self._out.flush()
            self._column = 0

    def _asking(self, kind: str, text: str, choices: tuple[str, ...]) -> None:
        self._aside(text)
        for number, choice in enumerate(choices, start=1):
            self._aside(f"{number}. {choice}")
        self._waits = False
        self._err.write("Allow it? [y/N] " if kind == "approval" else "> ")
        self._asked = True

    def _thought(self, text: str) -> None:
        if not self._thoughts:
            return
        self._clear()
        self._thinking = True
        self._err.write(f"\x1b[2m{text}\x1b[22m" if self._lively else text)

    def _end_thought(self) -> None:
        if self._thinking:
            self._thinking = False
            self._err.write("\n")
            self._err.flush()

    def _clear(self) -> None:
        """Take away what only stood there for the moment. A question that was answered stands a line above."""
        self._stop_spinner()
        self._bar.end()
        if self._asked and self._lively:
            self._err.write(_CLEAR)
            self._err.flush()
        self._asked = False

    def _spin(self) -> None:
        self._err.write(f"\r{_SPINNER[self._step % len(_SPINNER)]} ")
        self._err.flush()
        self._step += 1
        self._spinner = asyncio.get_running_loop().call_later(_SPINNER_STEP_S, self._spin)

    def _stop_spinner(self) -> None:
        if self._spinner is not None:
            self._spinner.cancel()
            self._spinner = None
            self._err.write(_CLEAR)
            self._err.flush()


async def show(turn: Turn, printer: Printer, person: Person | None = None) -> None:
    """Print the turn until it is closed, and let the person answer what it asks. A closed pipe stops the turn."""
    view = TerminalView()
    printer.start()
    try:
        if person is not None:
            person.notice(turn, ())
        async for batch in turn.follow():
            pieces = view.feed(recorded.event for recorded in batch)
            printer.show(pieces)
            if person is not None:
                person.notice(turn, pieces)
        printer.show(view.advice())
    except BrokenPipeError:
        turn.stop(GONE)
        await turn.wait()
        raise
    finally:
        if person is not None:
            person.leave()
        with contextlib.suppress(BrokenPipeError):
            printer.finish()


async def show_json(turn: Turn, out: TextIO) -> None:
    """Print the turn's log, one line of JSON an event."""
    try:
        async for batch in turn.follow():
            out.write(json_lines(batch))
            out.flush()
    except BrokenPipeError:
        turn.stop(GONE)
        await turn.wait()
        raise


def json_lines(batch: Iterable[Recorded]) -> str:
    return "".join(harmless_json(events.encode(recorded).decode()) + "\n" for recorded in batch)


class Stop:
    """Ctrl-C while a turn runs: the first stops the turn, and how many came is for the door to judge."""

    def __init__(self) -> None:
        self._turn: Turn | None = None
        self.presses = 0

    def watch(self, turn: Turn) -> None:
        """This is the turn; a press that came before there was one is meant for it."""
        self._turn = turn
        if self.presses:
            turn.stop(STOPPED)

    def press(self) -> None:
        self.presses += 1
        if self._turn is not None:
            self._turn.stop(STOPPED)


@contextlib.contextmanager
def stopping(loop: asyncio.AbstractEventLoop) -> Iterator[Stop]:
    """While within, Ctrl-C stops the turn that is watched on the loop instead of the program."""
    stop = Stop()
    with on_interrupt(loop, stop.press):
        yield stop


@contextlib.contextmanager
def on_interrupt(loop: asyncio.AbstractEventLoop, press: Callable[[], None]) -> Iterator[None]:
    """While within, Ctrl-C calls `press` on the loop instead of ending the program."""
    before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(press))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
