"""Sessions in SQLite: what was appended is read back exactly, whatever happened in between."""

import contextlib
import random
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import events
from headrace.agent.history import Past, PastTurn, Room, told
from headrace.errors import Bug, Cause, UserError
from headrace.events import (
    LOG_VERSION,
    Event,
    Message,
    PartGrew,
    Recorded,
    TurnClosed,
    TurnOpened,
    user_message,
)
from headrace.runtime.session import CRASHED
from headrace.stores.journal import BrokenJournal, SessionBusy
from headrace.stores.sqlite import SessionStore
from headrace.stores.sqlite.packing import packed, unpacked
from headrace.turn.closing import closing
from headrace.turn.folds import fold
from headrace.turn.log import Log
from tests.journals import JournalStore
from tests.pure.turns import TURN, a_reply, text

ANSWERED = TurnClosed("stop", Cause("answered", ""))
TIMES = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=200)


def a_turn(name: str, asked: str = "?", answer: str = "!", at: float = 1000.0) -> list[Recorded]:
    opened = TurnOpened(LOG_VERSION, (user_message(asked),))
    return [
        Recorded(name, n, at, event)
        for n, event in enumerate((opened, *a_reply(*text(1, answer)), ANSWERED), start=1)
    ]


def numbered(turn: str, sequence: Sequence[Event], times: Sequence[float] = ()) -> list[Recorded]:
    return [
        Recorded(turn, n, times[n % len(times)] if times else 1.0, event)
        for n, event in enumerate(sequence, start=1)
    ]


def flat(turns: Iterator[list[Recorded]]) -> list[Recorded]:
    return [recorded for entries in turns for recorded in entries]


@contextlib.contextmanager
def opened(home: Path) -> Iterator[SessionStore]:
    with contextlib.closing(SessionStore(home)) as store:
        yield store


def settle(store: SessionStore) -> None:
    """Until the worker has taken in what is closed."""
    store._catching_up.wait()


def in_database(home: Path) -> int:
    with contextlib.closing(sqlite3.connect(home / "sessions" / "sessions.sqlite")) as connection:
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            return 0
        return int(connection.execute("SELECT count(*) FROM turns").fetchone()[0])


# --- reading back


@given(TURN, TIMES)
def test_packing_is_undone_exactly(sequence: list[Event], times: list[float]) -> None:
    entries = numbered("t", sequence, times)
    rows = packed(entries)
    assert list(unpacked("t", rows)) == entries
    assert [events.encode(r) for r in unpacked("t", rows)] == [events.encode(r) for r in entries]
    assert [seq for row in rows for seq in range(row.seq, row.last + 1)] == [r.seq for r in entries]


@given(st.lists(TURN, min_size=1, max_size=4), TIMES, st.randoms(use_true_random=False), st.integers(0, 130))
def test_what_is_appended_is_read_back_from_any_cursor(
    tmp_path_factory: pytest.TempPathFactory,
    sequences: list[list[Event]],
    times: list[float],
    chance: random.Random,
    cursor: int,
) -> None:
    home = tmp_path_factory.mktemp("home")
    turns = [numbered(f"t{n}", sequence, times) for n, sequence in enumerate(sequences)]
    everything = [recorded for turn in turns for recorded in turn]

    def check(store: SessionStore) -> None:
        assert flat(store.turns("s")) == everything
        for turn in turns:
            assert store.since("s", turn[0].turn, cursor) == turn[cursor:]

    with opened(home) as store:
        left = everything
        while left:
            size = chance.randint(1, 40)
            store.append("s", left[:size])
            left = left[size:]
        check(store)
        settle(store)
        check(store)
        assert store.read("s") == everything
        with opened(home) as another:
            check(another)
    with opened(home) as store:
        check(store)
        assert store.read("s") == everything


@given(st.lists(TURN, min_size=1, max_size=6), st.integers(0, 100))
def test_recent_turns_are_those_a_model_is_sent(
    tmp_path_factory: pytest.TempPathFactory, sequences: list[list[Event]], most_chars: int
) -> None:
    home = tmp_path_factory.mktemp("home")
    turns = []
    for n, sequence in enumerate(sequences):
        log = Log(f"t{n}")
        log.extend(sequence, 1.0)
        log.extend(closing(log.machine, fold(log.since(0)), CRASHED), 2.0)
        turns.append(log.since(0))
    wanted = as_told(turns, most_chars)
    with opened(home) as store:
        for turn in turns:
            store.append("s", turn)
        for _ in range(2):
            recent = store.recent_turns("s", most_chars)
            assert as_told(recent, most_chars) == wanted
            meant = turns[len(turns) - len(recent) :]
            assert [turn[-1] for turn in recent] == [turn[-1] for turn in meant]
            assert [fold(turn).messages() for turn in recent] == [fold(turn).messages() for turn in meant]
            assert sum(len(fold(turn).messages()) for turn in recent) == len(wanted)
            settle(store)


def as_told(turns: Sequence[Sequence[Recorded]], most_chars: int) -> tuple[Message, ...]:
    past = Past(turns=tuple(PastTurn.of(turn[0].turn, fold(turn).messages()) for turn in turns))
    return told(past, Room(most_chars, 0))


def test_the_database_catches_up_and_the_journal_is_cleared(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append("s", a_turn("t1"))
        settle(store)
        assert in_database(tmp_path) == 1
        assert (tmp_path / "sessions" / "s.jsonl").stat().st_size == 0
        store.append("s", a_turn("t2")[:3])
        settle(store)
        assert in_database(tmp_path) == 1
    assert SessionStore(tmp_path).since("s", "t2") == a_turn("t2")[:3]


def test_a_session_at_rest_leaves_no_journal(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append("s", a_turn("t1"))
    assert not list(tmp_path.rglob("*.jsonl"))


def test_turns_that_overlap_are_kept_in_the_order_they_were_opened(tmp_path: Path) -> None:
    first, second = a_turn("t1"), a_turn("t2")
    with opened(tmp_path) as store:
        store.append("s", first[:2])
        store.append("s", second)
        settle(store)
        assert in_database(tmp_path) == 0
        store.append("s", first[2:])
        settle(store)
        assert in_database(tmp_path) == 2
        assert store.read("s") == first + second


def test_numbers_with_a_gap_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    turn = a_turn("t1")
    with opened(tmp_path) as store:
        store.append("s", turn[:2])
        for wrong in (turn[:1], turn[3:], [turn[2], turn[2]]):
            with pytest.raises(Bug):
                store.append("s", wrong)
        store.append("s", turn[2:])
        assert store.read("s") == turn


# --- after a crash


def test_unfinished_turns_are_closed_by_the_caller_and_kept(tmp_path: Path) -> None:
    dead = JournalStore(tmp_path / "sessions")
    dead.append("s", a_turn("t1"))
    dead.append("s", a_turn("t2")[:4])
    dead.append("other", a_turn("t3"))
    dead.close()
    with opened(tmp_path) as store:
        (left,) = store.unfinished()
        assert (left.session, left.entries) == ("s", a_turn("t2")[:4])
        assert in_database(tmp_path) == 2
        log = Log.restored(left.entries, lambda batch: store.append("s", batch))
        log.extend(closing(log.machine, fold(log.since(0)), CRASHED), 5.0)
        assert store.release("s")
        assert in_database(tmp_path) == 3
        with opened(tmp_path) as another:
            assert another.unfinished() == []
            assert another.read("s") == a_turn("t1") + log.since(0)
            assert another.recent_turns("s", 10**9) == [a_turn("t1"), log.since(0)]
            assert fold(another.since("s", "t2")).outcome == "error"


def test_open_turns_are_always_among_the_recent(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append("s", a_turn("t1", "x" * 100))
        store.append("s", a_turn("t2")[:3])
        settle(store)
        assert store.recent_turns("s", 0) == [a_turn("t2")[:3]]


def test_a_crash_between_commit_and_clearing_repeats_nothing(tmp_path: Path) -> None:
    turns = a_turn("t1") + a_turn("t2")
    with opened(tmp_path) as store:
        store.append("s", turns)
    dead = JournalStore(tmp_path / "sessions")
    dead.append("s", turns + a_turn("t3")[:2])
    dead.close()
    with opened(tmp_path) as store:
        assert flat(store.turns("s")) == turns + a_turn("t3")[:2]
        assert [i.entries for i in store.unfinished()] == [a_turn("t3")[:2]]
        assert store.read("s") == turns + a_turn("t3")[:2]
        assert [(i.turns, i.running) for i in store.sessions()] == [(3, True)]


def test_journals_of_the_release_before_are_taken_in(tmp_path: Path) -> None:
    """Its sessions are journals and nothing else, closed turns and all."""
    before = JournalStore(tmp_path / "sessions")
    golden = Path(__file__).parent / "golden" / "log-v1.jsonl"
    entries = [events.decode(line) for line in golden.read_bytes().splitlines()]
    for n in range(20):
        before.append("trip", a_turn(f"t{n}", f"question {n}", at=float(n)))
    before.append("golden", entries)
    before.close()
    with opened(tmp_path) as store:
        assert store.read("trip") == [
            r for n in range(20) for r in a_turn(f"t{n}", f"question {n}", at=float(n))
        ]
        assert store.unfinished() == [] or fold(entries).closed is None
        assert flat(store.turns("golden")) == entries
    with opened(tmp_path) as store:
        assert {i.name: i.turns for i in store.sessions()} == {"trip": 20, "golden": 1}
        assert [hit.turn for hit in store.search("question 7")] == ["t7"]


def test_one_broken_journal_keeps_nobody_else_out(tmp_path: Path) -> None:
    before = JournalStore(tmp_path / "sessions")
    before.append("good", a_turn("t1"))
    before.append("gap", [a_turn("t1")[0], a_turn("t1")[2]])
    before.close()
    (tmp_path / "sessions" / "bad.jsonl").write_text("hello\n")
    with opened(tmp_path) as store:
        remarks = store.catch_up()
        assert len(remarks) == 2
        assert all("Move it away" in remark for remark in remarks)
        assert [info.name for info in store.sessions()] == ["good"]
        for name in ("bad", "gap"):
            with pytest.raises(BrokenJournal):
                store.read(name)
        assert store.prune(1e12, max_age_days=1) == ["good"]


# --- several writers


def test_a_session_has_one_writer_and_any_number_of_readers(tmp_path: Path) -> None:
    turn = a_turn("t1")
    with opened(tmp_path) as first, opened(tmp_path) as second:
        first.append("s", turn[:3])
        for attempt in (
            lambda: second.append("s", turn),
            lambda: second.read("s"),
            lambda: second.recent_turns("s", 1),
            lambda: second.delete("s"),
        ):
            with pytest.raises(SessionBusy):
                attempt()
        assert second.unfinished() == []
        assert second.prune(1e12, max_age_days=0) == []
        assert flat(second.turns("s")) == turn[:3]
        assert not first.release("s")
        first.append("s", turn[3:])
        assert first.release("s")
        assert second.read("s") == turn
        with pytest.raises(SessionBusy):
            first.append("s", turn)


def test_sessions_at_rest_make_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.stores.sqlite.store.STORE_OPEN_SESSIONS", 3)
    with opened(tmp_path) as store:
        store.append("open", a_turn("t")[:2])
        for n in range(10):
            store.append(f"s{n}", a_turn("t"))
            settle(store)
        assert len(store._held) == 3
        store.append("open", a_turn("t")[2:])
        for n in range(10):
            assert store.read(f"s{n}") == a_turn("t")
        assert store.read("open") == a_turn("t")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".x", "a\0", "x" * 101])
def test_names_that_are_no_names(tmp_path: Path, name: str) -> None:
    with opened(tmp_path) as store:
        with pytest.raises(UserError):
            store.append(name, a_turn("t"))
        with pytest.raises(UserError):
            list(store.turns(name))


# --- finding


def test_search_finds_words_beginnings_accents_and_unspaced_scripts(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append("s", a_turn("t1", "Où est le café?", "In the Straße, naïvely."))
        store.append("s", a_turn("t2", "東京の天気は?", "晴れです"))
        store.append("s", a_turn("t3", "what does a => b mean", "100% of _it_ is an arrow"))
        settle(store)
        for query, hits in {
            "cafe": ["t1"], "CAFÉ naiv": ["t1"], "cafe arrow": [], "天気": ["t2"], "天気 晴れ": ["t2"], "天気 雨": [],
            "=>": ["t3"], "100%": ["t3"], "_it_": ["t3"], "%": ["t3"], "mean arr": ["t3"], "": [], "  ": [],
        }.items():  # fmt: skip
            assert [hit.turn for hit in store.search(query)] == hits, query
        assert "café" in store.search("café")[0].quote


@given(
    st.text(max_size=30)
    | st.lists(
        st.sampled_from(
            ['"', "'", "*", "NEAR(", "AND", "NOT", "a:", "^", "{", "-", "\0", "(", "%", "\\", "x"]
        )
    ).map(" ".join)
)
def test_search_takes_anything(shared: SessionStore, query: str) -> None:
    assert isinstance(shared.search(query), list)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionStore]:
    with opened(tmp_path_factory.mktemp("home")) as store:
        store.append("s", a_turn("t1", "x y z AND NOT", "a: b"))
        settle(store)
        yield store


# --- deleting


SECRET = "Xylophonist"


def holds(home: Path, text: str) -> list[str]:
    return [
        path.name
        for path in (home / "sessions").iterdir()
        if text.lower().encode() in path.read_bytes().lower()
    ]


def filled(store: SessionStore) -> None:
    for n in range(8):
        words = f"{SECRET} number{n} " * 300
        store.append(f"s{n}", a_turn("t", words, words, at=n * 86_400.0))
    settle(store)


def test_deleted_text_is_gone_from_the_disk(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        filled(store)
        assert holds(tmp_path, "number3")
        assert store.delete("s3")
        assert not store.delete("s3")
        assert holds(tmp_path, "number3") == []
        assert [hit.session for hit in store.search(SECRET)] == [f"s{n}" for n in (7, 6, 5, 4, 2, 1, 0)]
        assert list(store.turns("s3")) == []
        for n in (0, 1, 2, 4, 5, 6, 7):
            store.delete(f"s{n}")
        assert holds(tmp_path, SECRET) == []


def test_pruning_by_age_and_by_size_takes_the_oldest_and_no_open_turn(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        filled(store)
        size = store.sessions()[0].bytes
        store.append("s0", a_turn("u", at=8 * 86_400.0)[:3])
        store.append("s1", a_turn("u", at=1 * 86_400.0)[:3])
        assert store.prune(8 * 86_400.0) == []
        # s0 and s1 would be old enough.
        assert store.prune(8 * 86_400.0, max_age_days=5.5) == ["s2"]
        assert store.prune(8 * 86_400.0, max_bytes=5 * size) == ["s3", "s4"]
        assert sorted(info.name for info in store.sessions()) == ["s0", "s1", "s5", "s6", "s7"]
        assert holds(tmp_path, "number2") == holds(tmp_path, "number4") == []


def test_a_running_turn_is_not_deleted(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append("s", a_turn("t")[:3])
        with pytest.raises(UserError, match="Stop it first"):
            store.delete("s")
        store.append("s", a_turn("t")[3:])
        assert store.delete("s")
        store.append("s", a_turn("t2"))
        assert store.read("s") == a_turn("t2")


def test_what_a_dead_process_left_open_can_be_deleted(tmp_path: Path) -> None:
    dead = JournalStore(tmp_path / "sessions")
    dead.append("s", a_turn("t")[:3])
    dead.close()
    with opened(tmp_path) as store:
        assert store.prune(1e12, max_age_days=1, max_bytes=0) == []
        assert store.delete("s")
        assert store.sessions() == []
        assert not list(tmp_path.rglob("*.jsonl"))


def test_a_list_counts_what_the_database_does_not_have_yet(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append("a", a_turn("t1", "First  question\nof all", at=5.0))
        settle(store)
        store.append("a", a_turn("t2", at=7.0)[:4])
        store.append("b", a_turn("t1", "Hm?" * 100, at=6.0)[:4])
        with opened(tmp_path) as looking:
            first, second = looking.sessions()
        assert (first.name, first.title, first.turns, first.running) == (
            "a",
            "First question of all",
            2,
            True,
        )
        assert (first.created, first.updated) == (5.0, 7.0)
        assert (second.name, second.turns, second.running, len(second.title)) == ("b", 1, True, 80)


def test_growth_of_a_long_answer_is_few_rows(tmp_path: Path) -> None:
    grown = [PartGrew(1, 1, "word ") for _ in range(2000)]
    started, _, ended = text(1, "x")
    reply = a_reply(started, *grown, ended)
    entries = numbered("t", [a_turn("t")[0].event, *reply, ANSWERED], [1.7e9 + n * 0.02 for n in range(3000)])
    rows = packed(entries)
    assert len(rows) == len(entries) - 1999
    assert list(unpacked("t", rows)) == entries
