"""A plain conversation in a terminal: ask, watch the answer stream, ask again.

Theory of operation. Questions are read while nothing runs, with the terminal's own line editing; turns run on the
event loop in between, which is kept, so connections and the embedded model stay warm. What is typed while a turn runs
is posted to the session, which interrupts the turn, waits or steers as configured; turns are shown one after the other
until none waits. Ctrl-C stops a running turn and keeps what has been shown; a second one, or one at an empty prompt
twice, leaves. Ctrl-D leaves.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TextIO

from headrace.doors.terminal.person import Person
from headrace.doors.terminal.plain import Printer, Stop, show, stopping
from headrace.errors import HeadraceError
from headrace.runtime.session import Session
from headrace.runtime.turn import Turn
from headrace.views.asides import harmless

Start = Callable[[str, Printer], Turn]
"""Starts a turn of the session with a question; the printer shows what has to be fetched for it."""

PROMPT: Final = "> "
LEAVE: Final = "(Ctrl-C again or Ctrl-D leaves)"
KEYS: Final = "Ctrl-C stops an answer, Ctrl-D leaves."


class Conversation:
    """Runs turns of one session, each on the same event loop."""

    def __init__(
        self, answering: str, start: Start, session: Session, *, thoughts: bool, err: TextIO
    ) -> None:
        self._answering = harmless(answering)
        self._start = start
        self._session = session
        self._thoughts = thoughts
        self._err = err

    def run(self, runner: asyncio.Runner, read: Callable[[str], str]) -> int:
        """Until the person leaves; returns the exit status."""
        self._say(f"{self._answering} {KEYS}")
        leaving = False
        while True:
            try:
                question = read(PROMPT)
                leaving = False
                if question.strip() and not self._turn(runner, question):
                    return 130
            except EOFError:
                self._say("")
                return 0
            except KeyboardInterrupt:
                if leaving:
                    self._say("")
                    return 0
                leaving = True
                self._say(f"\n{LEAVE}")

    def _turn(self, runner: asyncio.Runner, question: str) -> bool:
        """One question; whether to go on. A turn that cannot start is said and changes nothing."""
        try:
            # Set before the runner begins: what it has begun, Ctrl-C could leave half done.
            with stopping(runner.get_loop()) as stop:
                runner.run(self._ask(question, stop))
        except HeadraceError as error:
            self._fail(error)
            return True
        else:
            return stop.presses < 2

    async def _ask(self, question: str, stop: Stop) -> None:
        printer = Printer(sys.stdout, self._err, thoughts=self._thoughts)

        def said(text: str) -> None:
            try:
                self._start(text, printer)
            except HeadraceError as error:
                self._fail(error)

        person = Person(sys.stdin.fileno(), said)
        turn: Turn | None = self._start(question, printer)
        while turn is not None:
            stop.watch(turn)
            await show(turn, printer, person)
            turn = await self._session.after(turn)
        await self._session.idle()
        if person.gone:
            raise EOFError

    def _fail(self, error: HeadraceError) -> None:
        self._say(f"headrace: {harmless(str(error))}")

    def _say(self, text: str) -> None:
        self._err.write(f"{text}\n")
        self._err.flush()


def converse(
    answering: str,
    start: Start,
    session: Session,
    close: Callable[[], Coroutine[Any, Any, None]],
    *,
    thoughts: bool,
) -> int:
    """Say who is answering, talk until the person leaves, and close what the turns used."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401, PLC0415 - gives input() line editing and a history, where there is one
    talk = Conversation(answering, start, session, thoughts=thoughts, err=sys.stderr)
    with asyncio.Runner() as runner:
        try:
            return talk.run(runner, input)
        finally:
            runner.run(close())
