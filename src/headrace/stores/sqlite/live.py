"""A session that this process writes: its journal, and the turns that are not in the database yet.

Theory of operation. The journal is the truth of a turn until the database has it:

    A  at rest  --append-->  B  written ahead  --TurnClosed-->  C  closed  --commit-->  D  in both  --clear-->  A

The database takes closed turns in the order they were opened, and the journal is cleared once nothing in it is missing
there. A process may die anywhere. The next to open the journal finds in B a turn to be closed honestly, in C one to be
committed, and in D one that is skipped because the database has it. What is read is therefore: what is here first,
then the database, and of a turn that is in both the database's; in this order no turn falls between the two.

Appending checks that every turn's numbers go on without a gap, so that what follows may rely on it.
"""

import threading
from collections.abc import Collection, Sequence
from itertools import takewhile
from pathlib import Path

from headrace.errors import Bug, HeadraceError, IllegalTransition
from headrace.events import Recorded, TurnClosed
from headrace.stores.journal import BrokenJournal, JournalFile, path_of, peek
from headrace.turn.log import Log

Turns = dict[str, list[Recorded]]
"""By turn, in the order they were opened."""


class Released(HeadraceError):
    """The session is not held any more; open it again."""


class Live:
    def __init__(self, folder: Path, session: str) -> None:
        self.session = session
        self._lock = threading.Lock()
        self._released = False
        self._journal = JournalFile(folder, session)
        try:
            self._turns = by_turn(self._journal.read(), self._journal.path)
        except BaseException:
            self._journal.close()
            raise

    def append(self, batch: Sequence[Recorded]) -> bool:
        """Write it down; whether it closed a turn."""
        closes = False
        with self._lock:
            if self._released:
                raise Released
            self._check(batch)
            self._journal.append(batch)
            for recorded in batch:
                self._turns.setdefault(recorded.turn, []).append(recorded)
                closes = closes or type(recorded.event) is TurnClosed
        return closes

    def turns(self) -> Turns:
        """What the database may not have yet, as it is now."""
        with self._lock:
            return {turn: entries.copy() for turn, entries in self._turns.items()}

    def has(self, turn: str) -> bool:
        """Whether the turn is here and perhaps not in the database."""
        with self._lock:
            return turn in self._turns

    def unfinished(self) -> list[list[Recorded]]:
        return [entries for entries in self.turns().values() if not is_closed(entries)]

    def closed(self) -> list[list[Recorded]]:
        """Turns the database may take now: closed, and every one before them as well."""
        with self._lock:
            return list(takewhile(is_closed, self._turns.values()))

    def committed(self, turns: Collection[str]) -> None:
        """The database has them, for good."""
        with self._lock:
            for turn in turns:
                self._turns.pop(turn, None)
            if turns and not self._turns and not self._released:
                self._journal.clear()

    def forget(self, *, open_too: bool) -> bool:
        """Drop what the database does not have, because the session is to be deleted; whether that may be."""
        with self._lock:
            if not open_too and not all(map(is_closed, self._turns.values())):
                return False
            self._turns.clear()
            self._journal.clear()
            return True

    def release(self, *, only_at_rest: bool = False) -> bool:
        """Let another process write the session; whether that could be done."""
        with self._lock:
            if only_at_rest and self._turns:
                return False
            if not self._released:
                self._released = True
                self._journal.close()
            return True

    def _check(self, batch: Sequence[Recorded]) -> None:
        last: dict[str, int] = {}
        for recorded in batch:
            turn = recorded.turn
            before = last[turn] if turn in last else len(self._turns.get(turn, ()))
            if recorded.seq != before + 1:
                raise Bug(f"event {recorded.seq} of {turn} cannot be written after {before}")
            last[turn] = recorded.seq


def is_closed(entries: Sequence[Recorded]) -> bool:
    return type(entries[-1].event) is TurnClosed


def by_turn(entries: Sequence[Recorded], path: Path) -> Turns:
    """Raises BrokenJournal where they are no logs."""
    turns: Turns = {}
    for recorded in entries:
        turns.setdefault(recorded.turn, []).append(recorded)
    try:
        for turn in turns.values():
            Log.restored(turn)
    except IllegalTransition as error:
        raise BrokenJournal(f"{path} holds what is no log ({error}). Move it away to begin anew.") from error
    return turns


def looked_at(folder: Path, session: str) -> Turns:
    """The same of a session that another process may be writing."""
    return by_turn(peek(folder, session), path_of(folder, session))
