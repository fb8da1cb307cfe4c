"""The database catches up with the journals.

Theory of operation. A closed turn is due. One worker thread takes everything that is due by then into the database in
one transaction and clears the journals, so a thousand turns that close at once cost few commits, and nobody who appends
waits for SQLite. If it cannot be done (the disk is full, another process writes for long), nothing is lost: the turns
stay in their journals and are due again with the next one that closes, or at the next start.
"""

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from headrace.errors import HeadraceError
from headrace.stores.sqlite.database import Database
from headrace.stores.sqlite.digest import Digest, digest
from headrace.stores.sqlite.live import Live
from headrace.stores.sqlite.tables import add_turn

_log = logging.getLogger(__name__)


class CatchingUp:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._due: dict[Live, None] = {}
        self._asked = False
        self._worker: ThreadPoolExecutor | None = None

    def later(self, live: Live) -> None:
        with self._lock:
            self._due[live] = None
            if self._asked:
                return
            self._asked = True
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, "headrace-sessions")
            self._worker.submit(self._take_what_is_due)

    def now(self, lives: Iterable[Live]) -> None:
        """Take their closed turns; raises what keeps them out."""
        # Nothing is deleted between looking at the turns and having them.
        with self._database.lock:
            taken = [(live, turns) for live in lives if (turns := _digests(live))]
            if not taken:
                return
            with self._database.writing() as connection:
                for live, turns in taken:
                    for turn in turns:
                        add_turn(connection, live.session, turn)
            for live, turns in taken:
                live.committed([turn.turn for turn in turns])

    def wait(self) -> None:
        """Until nothing is under way."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown()

    def _take_what_is_due(self) -> None:
        with self._lock:
            lives, self._due = list(self._due), {}
            self._asked = False
        try:
            self.now(lives)
        except HeadraceError as error:
            _log.warning("closed turns are kept in their journals for now: %s", error)
            with self._lock:
                self._due |= dict.fromkeys(lives)


def _digests(live: Live) -> list[Digest]:
    try:
        return [digest(entries) for entries in live.closed()]
    except (KeyError, AssertionError):
        _log.exception("the session %s stays in its journal: it holds what is no log", live.session)
        return []
