"""`headrace follow`: a turn that was started elsewhere, as if it had been started here.

Theory of operation. The turn is found by its name, by its session's, or because it is the only one that runs. What it
has said until now comes as one batch, in which questions that have been settled are told and not asked; then it is
shown, asked and answered as in `headrace chat`. A follower that leaves is one follower less and nothing else: only
--stop and a second Ctrl-C end the turn.

    following --closed--> its exit status, or with --keep the next turn of the session
        '--Ctrl-C--> leaving, output held back --Ctrl-C--> stopping, followed to its end
                         '--nothing for a moment--> left
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TextIO

from headrace.doors.terminal import EXIT
from headrace.doors.terminal.leaving import leaving
from headrace.doors.terminal.person import Person
from headrace.doors.terminal.plain import Printer, json_lines, on_interrupt
from headrace.doors.terminal.remote import Refused, RemoteTurn, Row, Server
from headrace.errors import Outcome, UserError
from headrace.limits import FOLLOW_LOOK_S, FOLLOW_PRESS_S
from headrace.views.asides import Aside, Asking, Settled
from headrace.views.terminal import Piece, TerminalView

WAITS: Final = "It waits for an answer, which cannot be given here."
LEFT: Final = 0
INTERRUPTED: Final = 130


class Wanted(NamedTuple):
    """What the person has asked for."""

    name: str = ""
    """Of a turn or a session; empty for the turn that runs."""
    after: int = 0
    keep: bool = False
    stop: bool = False
    as_json: bool = False
    thoughts: bool = False
    elsewhere: bool = False
    """Whether the server was named, and has to be when it is asked for again."""


async def follow(server: Server, wanted: Wanted, stdin: TextIO, stdout: TextIO, stderr: TextIO) -> int:
    """Until the turn is closed or the person leaves; returns the exit status."""
    person = Person(stdin.fileno()) if stdin.isatty() and not wanted.as_json else None
    return await _Following(server, wanted, person, stdout, stderr).run()


class _Following:
    def __init__(
        self, server: Server, wanted: Wanted, person: Person | None, out: TextIO, err: TextIO
    ) -> None:
        self._server = server
        self._wanted = wanted
        self._person = person
        self._out = out
        self._err = err
        self._printer = Printer(out, err, thoughts=wanted.thoughts)
        self._turn: RemoteTurn | None = None
        self._waits = False  # for the next turn of a session
        self._unread = False  # because whoever read the output is gone
        self._pressed = asyncio.Event()
        self._going = asyncio.Event()
        self._going.set()

    # --- Ctrl-C

    async def run(self) -> int:
        work = asyncio.create_task(self._work())
        with (
            on_interrupt(asyncio.get_running_loop(), self._pressed.set),
            leaving(self._out, lambda: self._leave_unread(work)),
        ):
            try:
                return await self._until_left(work)
            except asyncio.CancelledError:
                if self._unread:
                    raise BrokenPipeError from None
                raise
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    def _leave_unread(self, work: "asyncio.Task[int]") -> None:
        self._unread = True
        work.cancel()

    async def _until_left(self, work: "asyncio.Task[int]") -> int:
        if not await self._interrupted(work):
            return work.result()
        turn = self._turn
        if turn is None:
            return LEFT if self._waits else INTERRUPTED
        self._going.clear()
        self._put_down()
        self._say_left(turn)
        if not turn.answerable or not await self._press_again():
            return LEFT
        self._going.set()
        stopping = asyncio.create_task(turn.stop())
        try:
            for task in (stopping, work):
                if await self._interrupted(task):
                    return INTERRUPTED
            await stopping
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
        return work.result()

    async def _interrupted(self, work: "asyncio.Task[Any]") -> bool:
        """Until the work is done, or Ctrl-C is pressed before."""
        press = asyncio.create_task(self._pressed.wait())
        try:
            await asyncio.wait([work, press], return_when=asyncio.FIRST_COMPLETED)
            return not work.done()
        finally:
            press.cancel()
            self._pressed.clear()

    async def _press_again(self) -> bool:
        try:
            async with self._server.clock.timeout(FOLLOW_PRESS_S):
                await self._pressed.wait()
        except TimeoutError:
            return False
        self._pressed.clear()
        return True

    def _say_left(self, turn: RemoteTurn) -> None:
        again = "headrace follow" + (f" --url {self._server.url}" if self._wanted.elsewhere else "")
        text = f"Left; the turn goes on. `{again} {turn.id}` comes back to it"
        if turn.answerable:
            text += f", `{again} --stop {turn.id}` stops it, and so does another Ctrl-C now"
        self._err.write(f"{text}.\n")
        self._err.flush()

    # --- which turn

    async def _work(self) -> int:
        row = await self._found()
        if self._wanted.stop:
            return await self._stop(row)
        if self._wanted.keep and row.session is None:
            raise UserError(f"{row.id} belongs to no session, so no turn follows it: leave out --keep.")
        outcome = await self._one(row, self._wanted.after)
        while self._wanted.keep:
            row = await self._next(row)
            outcome = await self._one(row, 0)
        return EXIT[outcome]

    async def _found(self) -> Row:
        name = self._wanted.name
        if not name:
            return _only([row for row in await self._server.turns() if row.runs_here], self._server.url)
        try:
            return await self._server.turn(name)
        except Refused as refused:
            if refused.status != 404:
                raise
        try:
            return _current(await self._server.session(name))
        except Refused as refused:
            if refused.status != 404:
                raise
            message = (
                f"{self._server.url} knows no session and no turn {name!r}. "
                "`headrace follow` without a name finds what runs; `headrace sessions list` shows what is kept."
            )
            raise UserError(message) from refused

    async def _next(self, row: Row) -> Row:
        """The session's turn after this one, once it is there."""
        session, known = row.session or "", -1
        self._waits = True
        self._say(f"Waiting for the next turn of {session}. Ctrl-C leaves.")
        self._put_down()
        while True:
            kept = await self._server.persist(self._server.sessions)
            count = next((each.turns for each in kept if each.name == session), 0)
            if count != known:
                turns = await self._server.persist(partial(self._server.session, session))
                later = [each for each in turns if each.opened_at > row.opened_at]
                if later:
                    self._waits = False
                    return later[0]
            known = count
            await self._server.clock.sleep(FOLLOW_LOOK_S)

    async def _stop(self, row: Row) -> int:
        ended = row.outcome or await RemoteTurn(self._server, row, self._say).stop()
        stopped = row.outcome is None and ended == "cancelled"
        self._err.write(f"{row.id} was stopped.\n" if stopped else f"{row.id} had ended already: {ended}.\n")
        return 0

    # --- showing it

    async def _one(self, row: Row, after: int) -> Outcome:
        turn = self._turn = RemoteTurn(self._server, row, self._say)
        try:
            await (self._print_log(turn, after) if self._wanted.as_json else self._show(turn, after))
        finally:
            self._turn = None
            await turn.close()
        assert turn.outcome is not None
        return turn.outcome

    async def _print_log(self, turn: RemoteTurn, after: int) -> None:
        async with contextlib.aclosing(turn.follow(after)) as batches:
            async for batch in batches:
                await self._going.wait()
                self._out.write(json_lines(batch))
                self._out.flush()

    async def _show(self, turn: RemoteTurn, after: int) -> None:
        """What came before is read too: what is shown later may go on from it, or still wait for an answer."""
        view = TerminalView(elsewhere=True)
        self._printer.start()
        try:
            async with contextlib.aclosing(turn.follow()) as batches:
                async for batch in batches:
                    await self._going.wait()
                    old = view.feed(recorded.event for recorded in batch if recorded.seq <= after)
                    new = view.feed(recorded.event for recorded in batch if recorded.seq > after)
                    self._print(turn, old, new)
        finally:
            self._put_down()

    def _print(self, turn: RemoteTurn, old: Iterable[Piece], new: Iterable[Piece]) -> None:
        told, asked = _sorted(turn, list(old), list(new))
        if self._person is None or not turn.answerable:
            told += [aside for asking in asked for aside in (*_asides(asking), Aside(WAITS))]
            self._printer.show(told)
        else:
            self._printer.show([*told, *asked])
            self._person.notice(turn, [*told, *asked])

    def _put_down(self) -> None:
        """Bring the screen to rest, and read nothing that is typed."""
        if self._person is not None:
            self._person.leave()
        with contextlib.suppress(BrokenPipeError):
            self._printer.finish()

    def _say(self, text: str) -> None:
        if self._wanted.as_json or not self._going.is_set():
            self._err.write(f"{text}\n")
            self._err.flush()
        else:
            self._printer.show([Aside(text)])


def _only(running: Sequence[Row], url: str) -> Row:
    if not running:
        raise UserError(f"No turn is running at {url}. Name a session or a turn to see it again.")
    if len(running) > 1:
        rows = "".join(f"\n  {row.id}  {row.session or '(no session)'}  {row.question}" for row in running)
        raise UserError(f"{len(running)} turns are running at {url}; name the one to follow:{rows}")
    return running[0]


def _current(turns: Sequence[Row]) -> Row:
    """The one that runs, of several that wait the first, or else the latest."""
    return next((row for row in turns if row.outcome is None), turns[-1])


def _sorted(turn: RemoteTurn, old: Sequence[Piece], new: Sequence[Piece]) -> tuple[list[Piece], list[Asking]]:
    """What is to be told of what is new, and what is open and to be asked."""
    settled = {piece.key for piece in (*old, *new) if isinstance(piece, Settled)}
    told: list[Piece] = []
    asked = [piece for piece in old if isinstance(piece, Asking) and piece.key not in settled]
    for piece in new:
        match piece:
            case Asking(key=key) if key in settled:
                told += _asides(piece)
            case Asking():
                asked.append(piece)
            case Settled(key, how) if how and key not in turn.answered:
                told += [piece, Aside(how)]
            case _:
                told.append(piece)
    return told, asked


def _asides(asking: Asking) -> list[Aside]:
    choices = (Aside(f"{number}. {choice}") for number, choice in enumerate(asking.choices, start=1))
    return [Aside(asking.text), *choices]
