"""A turn that another process writes, looked at again and again.

Theory of operation. As long as the turn grows in its session's journal, each look reads what was added and nothing
else, however long the turn is. Once the journal has been emptied the database has it.
"""

from collections.abc import Callable
from pathlib import Path

from headrace.events import Recorded
from headrace.stores.journal import Tail

Since = Callable[[str, str, int], list[Recorded]]
"""Takes a session, a turn and a number: what came after it, wherever that is."""


class Watched:
    def __init__(self, folder: Path, session: str, turn: str, seq: int, since: Since) -> None:
        self._session = session
        self._turn = turn
        self._seq = seq
        self._since = since
        self._tail = Tail(folder, session)

    def more(self) -> list[Recorded]:
        """What was added since the last look."""
        added, anew = self._tail.more()
        news = [recorded for recorded in added if recorded.turn == self._turn and recorded.seq > self._seq]
        if anew and not news:
            news = self._since(self._session, self._turn, self._seq)
        self._seq += len(news)
        return news
