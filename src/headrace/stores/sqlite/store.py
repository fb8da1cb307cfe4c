"""Sessions: written ahead to journals, kept in a database.

Theory of operation. `append` writes to the session's journal (`stores.journal`) and returns: a microsecond or two, no
lock of SQLite's, no waiting for another process. When a turn closes, a worker thread takes it into the database
(`catching_up`) and the journal is cleared; `live` has the states in between. So the database holds closed turns only,
and reading asks both: first what is in a journal, then the database, and of a turn in both the database's copy.

A session is written by one process at a time, the one that holds its journal; opening it elsewhere is `SessionBusy`.
Any process may look at any session at any time. Journals left by a process that died, or by a release that knew nothing
else, are taken in by the first that asks for `unfinished` or `catch_up`.

Threads: every method may be called from any. `append`, `read`, `recent_turns` and `since` do not wait for writers, so
an event loop may call them; everything else may take long and belongs into `asyncio.to_thread` there.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.errors import HeadraceError, StoreError, UserError
from headrace.events import Recorded
from headrace.limits import STORE_LOOKED_AT, STORE_OPEN_SESSIONS
from headrace.stores.journal import BrokenJournal, SessionBusy, with_lines
from headrace.stores.sqlite import tables
from headrace.stores.sqlite.catching_up import CatchingUp
from headrace.stores.sqlite.database import Database
from headrace.stores.sqlite.digest import asked_text, context_chars, title
from headrace.stores.sqlite.failures import StoreBusy
from headrace.stores.sqlite.live import Live, Released, Turns, is_closed, looked_at
from headrace.stores.sqlite.tables import Found, SessionInfo
from headrace.stores.sqlite.watched import Watched
from headrace.turn.folds import fold

_log = logging.getLogger(__name__)

_DAY_S = 24 * 60 * 60


class Unfinished(NamedTuple):
    """A turn that a dead process has left open. Its session is held until it is released."""

    session: str
    entries: list[Recorded]


class SessionStore:
    """Implements the Store port; `home` is headrace's folder."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "sessions"
        self._database = Database(self._folder / "sessions.sqlite")
        self._catching_up = CatchingUp(self._database)
        self._lock = threading.Lock()
        self._held: dict[str, Live] = {}

    # --- writing a session: these hold it for this process

    def append(self, session: str, batch: Sequence[Recorded]) -> None:
        while True:
            live = self._held.get(session) or self._open(session)
            try:
                closes = live.append(batch)
            except Released:  # to make room, between these two steps
                continue
            if closes:
                self._catching_up.later(live)
            return

    def read(self, session: str) -> list[Recorded]:
        """Every event of the session's turns, oldest first."""
        self._open(session)
        return [recorded for entries in self.turns(session) for recorded in entries]

    def recent_turns(self, session: str, most_chars: int) -> list[list[Recorded]]:
        """The latest turns that fit into so much of a model's context, newest last, and every one that is open.

        Only these are read, however long the session is, and growth may come in one event where it was many: what
        they fold to is the same.
        """
        ahead = self._open(session).turns()
        recent = []
        for entries in reversed(ahead.values()):
            most_chars -= context_chars(fold(entries)) if is_closed(entries) else 0
            if most_chars >= 0 or not is_closed(entries):
                recent.append(entries)
        with self._database.reading() as connection:
            places = tables.latest_turns(connection, session, most_chars, ahead)
            recent += [tables.joined(connection, place) for place in places]
        return recent[::-1]

    def release(self, session: str) -> bool:
        """Let other processes write the session; not while a turn of it is open."""
        live = self._held.get(session)
        if live is None:
            return True
        if live.unfinished():
            return False
        self._taken_in(live)
        with self._lock:
            if live.unfinished():
                return False
            self._held.pop(session, None)
            return live.release()

    def release_at_rest(self, session: str) -> bool:
        """The same, but only where that takes no time: the database has all of it."""
        with self._lock:
            live = self._held.get(session)
            if live is None:
                return True
            if not live.release(only_at_rest=True):
                return False
            del self._held[session]
            return True

    def close(self) -> None:
        """Catch up, and let go of every session."""
        self._catching_up.wait()
        with self._lock:
            held, self._held = self._held, {}
        for live in held.values():
            self._taken_in(live)
            live.release()
        self._database.close()

    # --- after a crash

    def unfinished(self) -> list[Unfinished]:
        """Take in what dead processes and earlier releases have left, but for turns that are open: the caller closes
        those and releases their sessions. Called once, before this process opens sessions of its own.
        """
        remarks: list[str] = []
        out = []
        for live in self._left_behind(remarks):
            open_turns = [Unfinished(live.session, entries) for entries in live.unfinished()]
            if not open_turns:
                self._let_go(live)
            out += open_turns
        for remark in remarks:
            _log.warning("%s", remark)
        return out

    def catch_up(self) -> list[str]:
        """The same in a process that only looks: open turns stay as they are. Says what could not be taken in."""
        remarks: list[str] = []
        for live in self._left_behind(remarks):
            self._let_go(live)
        return remarks

    # --- looking, whoever writes

    def sessions(self) -> list[SessionInfo]:
        """Latest first."""
        ahead = self._all_ahead()
        with self._database.reading() as connection:
            known = {info.name: info for info in tables.sessions(connection)}
            missing = {
                name: [t for t in turns if tables.turn_place(connection, name, t) is None]
                for name, turns in ahead.items()
            }
        for name, names in missing.items():
            if names:
                known[name] = _with(known.get(name), name, [ahead[name][turn] for turn in names])
        return sorted(known.values(), key=lambda info: -info.updated)

    def turns(self, session: str) -> Iterator[list[Recorded]]:
        """The logs of the session's turns, oldest first, each read when its turn comes."""
        ahead = self._ahead(session)
        with self._database.reading() as connection:
            places = tables.turns(connection, session)
        for place in places:
            ahead.pop(place.turn, None)
            with self._database.reading() as connection:
                entries = tables.entries(connection, place)
            if entries:  # or else it was deleted meanwhile
                yield entries
        yield from ahead.values()

    def since(self, session: str, turn: str, seq: int = 0) -> list[Recorded]:
        """A turn's log after number `seq`; empty if there is no such turn."""
        ahead = self._ahead(session).get(turn)
        if ahead is not None:
            return ahead[seq:]
        with self._database.reading() as connection:
            place = tables.turn_place(connection, session, turn)
            return tables.entries(connection, place, seq) if place else []

    def watch(self, session: str, turn: str, seq: int) -> Watched:
        """For a turn that another process writes: to be asked for what comes after number `seq`."""
        return Watched(self._folder, session, turn, seq, self.since)

    def session_of(self, turn: str) -> str | None:
        """Where a turn is kept; None if it is not."""
        held = next((name for name, live in list(self._held.items()) if live.has(turn)), None)
        if held is not None:
            return held
        with self._database.reading() as connection:
            kept = tables.session_of(connection, turn)
        if kept is not None:
            return kept
        return next((name for name, turns in self._all_ahead().items() if turn in turns), None)

    def search(self, text: str) -> list[Found]:
        """Turns whose question or answer holds every word, or words that begin so; latest first."""
        self._catching_up.wait()  # what was said a moment ago is looked for too
        with self._database.reading() as connection:
            return tables.search(connection, text)

    # --- deleting: what was deleted cannot be read from the file either

    def delete(self, session: str) -> bool:
        """Whether there was one. SessionBusy if another process writes it, UserError if a turn is open here."""
        deleted = self._deleted(session, left_open_too=True)
        if deleted is None:
            raise UserError(f"A turn of the session {session} is running. Stop it first.")
        if deleted:
            self._database.forget()
        return deleted

    def delete_turn(self, session: str, turn: str) -> bool:
        """Whether there was one. SessionBusy if another process writes the session, UserError if it is open here."""
        with self._database.lock:
            ours = session in self._held
            live = self._open(session)
            try:
                if any(entries[0].turn == turn for entries in live.unfinished()):
                    raise UserError(f"The turn {turn} is running. Stop it first.")
                self._catching_up.now([live])
                with self._database.writing() as connection:
                    deleted = tables.delete_turn(connection, session, turn)
            finally:
                if not ours:
                    self._let_go(live)
        if deleted:
            self._database.forget()
        return deleted

    def prune(self, now: float, max_age_days: float | None = None, max_bytes: int | None = None) -> list[str]:
        """Delete sessions whose last turn is too old, then the oldest until the rest is small enough.

        Never one with an open turn. Returns the names of those that are gone.
        """
        with self._database.reading() as connection:
            oldest_first = tables.oldest_first(connection)
        left = sum(size for _, _, size in oldest_first)
        gone = []
        for name, updated, size in oldest_first:
            old = max_age_days is not None and now - updated > max_age_days * _DAY_S
            if (old or (max_bytes is not None and left > max_bytes)) and self._pruned(name):
                left -= size
                gone.append(name)
        if gone:
            self._database.forget()
        return gone

    # --- within

    def _open(self, session: str) -> Live:
        """Hold the session for this process."""
        live = self._held.get(session)
        if live is not None:
            return live
        with self._lock:
            if session not in self._held:
                if len(self._held) >= STORE_OPEN_SESSIONS:
                    self._make_room()
                self._held[session] = Live(self._folder, session)
            return self._held[session]

    def _make_room(self) -> None:
        """One that is at rest gives way; those that are not are looked at again last."""
        for _ in range(STORE_LOOKED_AT):
            name, live = next(iter(self._held.items()))
            del self._held[name]
            if live.release(only_at_rest=True):
                return
            self._held[name] = live

    def _let_go(self, live: Live) -> None:
        with self._lock:
            self._held.pop(live.session, None)
            live.release()

    def _taken_in(self, live: Live) -> None:
        try:
            self._catching_up.now([live])
        except HeadraceError as error:
            _log.warning("closed turns of %s are kept in its journal for now: %s", live.session, error)

    def _left_behind(self, remarks: list[str]) -> Iterator[Live]:
        """Sessions with lines in their journals that nobody holds, what can be taken in taken in."""
        for session in with_lines(self._folder):
            if session in self._held:
                continue
            try:
                live = self._open(session)
            except SessionBusy:
                continue
            except (BrokenJournal, StoreError) as error:
                remarks.append(str(error))
                continue
            try:
                self._catching_up.now([live])
            except (StoreError, StoreBusy) as error:
                remarks.append(str(error))
            yield live

    def _ahead(self, session: str) -> Turns:
        """What the database may not have yet. To be asked before the database is."""
        live = self._held.get(session)
        return live.turns() if live else looked_at(self._folder, session)

    def _all_ahead(self) -> dict[str, Turns]:
        out = {}
        for session in {*with_lines(self._folder), *self._held}:
            with contextlib.suppress(BrokenJournal):  # `catch_up` tells of it
                out[session] = self._ahead(session)
        return out

    def _deleted(self, session: str, *, left_open_too: bool) -> bool | None:
        """Whether there was one; None if a turn of it is open."""
        with self._database.lock:
            ours = session in self._held
            live = self._open(session)
            try:
                ahead = bool(live.turns())
                if not live.forget(open_too=left_open_too and not ours):
                    return None
                with self._database.writing() as connection:
                    return tables.delete_session(connection, session) or ahead
            finally:
                if not ours:
                    self._let_go(live)

    def _pruned(self, session: str) -> bool:
        try:
            return bool(self._deleted(session, left_open_too=False))
        except (SessionBusy, BrokenJournal):
            return False


def _with(known: SessionInfo | None, name: str, turns: Sequence[Sequence[Recorded]]) -> SessionInfo:
    """The session with turns the database does not have yet."""
    info = known or SessionInfo(name, title(asked_text(turns[0])), turns[0][0].at, turns[0][0].at, 0, 0)
    return info._replace(
        updated=max(info.updated, *(entries[-1].at for entries in turns)),
        turns=info.turns + len(turns),
        running=not all(map(is_closed, turns)),
    )
