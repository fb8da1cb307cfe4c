"""What goes into the tables and comes out of them, each within a transaction of the caller's."""

import re
import sqlite3
from collections.abc import Container
from typing import Final, NamedTuple

from headrace.events import Recorded
from headrace.limits import SEARCH_MOST, SEARCH_QUERY_MAX_CHARS, SEARCH_QUOTE_CHARS
from headrace.stores.sqlite.digest import Digest, title
from headrace.stores.sqlite.packing import Row, unpacked, whole
from headrace.stores.sqlite.sql import query

# Scripts that put no spaces between words, which an index of words cannot look into.
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_WORD: Final = re.compile(r"[^\W_]")


class SessionInfo(NamedTuple):
    name: str
    title: str
    created: float
    updated: float
    turns: int
    bytes: int
    """What its events and texts take; the file is up to half as large again."""
    running: bool = False
    """A turn of it is not closed."""


class Found(NamedTuple):
    session: str
    turn: str
    at: float
    quote: str
    """Of what was asked or answered, around the first word that was looked for."""


class Place(NamedTuple):
    """Where a turn is."""

    id: int
    turn: str


def add_turn(connection: sqlite3.Connection, session: str, turn: Digest) -> None:
    """Nothing happens if it is there already."""
    values = {"name": session, **turn._asdict()}
    del values["rows"]
    connection.execute(
        query("add_session"), {"name": session, "title": title(turn.input), "at": turn.opened_at}
    )
    added = connection.execute(query("add_turn"), values)
    if added.rowcount == 0:
        return
    connection.execute(query("grow_session"), values)
    rows = [(added.lastrowid, *row) for row in turn.rows]
    connection.executemany(query("add_event"), rows)


def delete_session(connection: sqlite3.Connection, session: str) -> bool:
    """Whether there was one."""
    connection.execute(query("delete_turns"), (session,))
    return connection.execute(query("delete_session"), (session,)).rowcount > 0


def sessions(connection: sqlite3.Connection) -> list[SessionInfo]:
    return [SessionInfo(*row) for row in connection.execute(query("sessions"))]


def oldest_first(connection: sqlite3.Connection) -> list[tuple[str, float, int]]:
    """Name, time of the last turn, and bytes."""
    return connection.execute(query("oldest_first")).fetchall()


def turns(connection: sqlite3.Connection, session: str) -> list[Place]:
    """Oldest first."""
    return [Place(*row) for row in connection.execute(query("turns"), (session,))]


def turn_place(connection: sqlite3.Connection, session: str, turn: str) -> Place | None:
    row = connection.execute(query("turn"), (session, turn)).fetchone()
    return Place(row[0], turn) if row else None


def session_of(connection: sqlite3.Connection, turn: str) -> str | None:
    row = connection.execute(query("session_of"), (turn,)).fetchone()
    return row[0] if row else None


def delete_turn(connection: sqlite3.Connection, session: str, turn: str) -> bool:
    """Whether there was one; a session without turns goes with its last, and one is not called by what is gone."""
    place = turn_place(connection, session, turn)
    if place is None:
        return False
    connection.execute(query("shrink_session"), {"turn": place.id})
    connection.execute(query("delete_turn"), (place.id,))
    connection.execute(query("delete_empty_session"), (session,))
    if first := connection.execute(query("first_input"), (session,)).fetchone():
        connection.execute(query("set_title"), {"name": session, "title": title(first[0])})
    return True


def latest_turns(
    connection: sqlite3.Connection, session: str, most_chars: int, but: Container[str] = ()
) -> list[Place]:
    """Those that fit into so many characters, newest first; no more rows are read than that."""
    out = []
    for number, turn, chars in connection.execute(query("latest_turns"), (session,)):
        if turn in but:
            continue
        most_chars -= chars
        if most_chars < 0:
            break
        out.append(Place(number, turn))
    return out


def entries(connection: sqlite3.Connection, place: Place, after: int = 0) -> list[Recorded]:
    """The turn's log after number `after`."""
    rows = map(Row._make, connection.execute(query("events"), (place.id, after)))
    return [recorded for recorded in unpacked(place.turn, rows) if recorded.seq > after]


def joined(connection: sqlite3.Connection, place: Place) -> list[Recorded]:
    """The turn's log with adjacent growth of a part in one event: it folds to the same, and costs its words only."""
    rows = connection.execute(query("events"), (place.id, 0))
    return [Recorded(place.turn, last, at, whole(event)) for _, last, at, event, _ in rows]


def search(connection: sqlite3.Connection, text: str) -> list[Found]:
    """Turns that hold every word of `text`, or words that begin so; newest first."""
    words = text.replace("\0", " ")[:SEARCH_QUERY_MAX_CHARS].split()
    if not words:
        return []
    indexed = all(_WORD.search(word) and not _UNSPACED.search(word) for word in words)
    rows = _by_index(connection, words) if indexed else _by_reading(connection, words)
    return [
        Found(session, turn, at, _quote(words, asked, answer)) for session, turn, at, asked, answer in rows
    ]


_Hit = tuple[str, str, float, str, str]


def _by_index(connection: sqlite3.Connection, words: list[str]) -> list[_Hit]:
    # Within double quotes nothing is an operator.
    wanted = " ".join('"' + word.replace('"', '""') + '"*' for word in words)
    return connection.execute(query("find_words"), (wanted, SEARCH_MOST)).fetchall()


def _by_reading(connection: sqlite3.Connection, words: list[str]) -> list[_Hit]:
    first = re.sub(r"([\\%_])", r"\\\1", words[0])
    out: list[_Hit] = []
    for hit in connection.execute(query("find_text"), {"pattern": f"%{first}%"}):
        texts = f"{hit[3]}\n{hit[4]}".casefold()
        if all(word.casefold() in texts for word in words):
            out.append(hit)
        if len(out) == SEARCH_MOST:
            break
    return out


def _quote(words: list[str], asked: str, answer: str) -> str:
    for text in (asked, answer):
        # The index looks past accents and punctuation, so a word may stand there otherwise.
        at = text.casefold().find(words[0].casefold())
        if at >= 0:
            return _around(text, at)
    return _around(asked, 0)


def _around(text: str, at: int) -> str:
    start = max(0, at - SEARCH_QUOTE_CHARS // 3)
    piece = " ".join(text[start : start + SEARCH_QUOTE_CHARS].split())
    before = "…" if start else ""
    after = "…" if start + SEARCH_QUOTE_CHARS < len(text) else ""
    return f"{before}{piece}{after}"
