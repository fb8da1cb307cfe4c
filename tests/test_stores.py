"""Sessions on disk: what was shown is there, half a line is not, and a disk that is full ends a turn truthfully."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import events
from headrace.errors import StoreError
from headrace.events import Event, Recorded, user_message
from headrace.runtime.clock import SystemClock
from headrace.runtime.session import Session
from headrace.runtime.turn import Turn
from headrace.stores.journal import BrokenJournal, JournalFile, SessionBusy, Tail
from headrace.stores.sqlite.live import by_turn
from headrace.testing.modelserver import Reply, Say, Script
from headrace.turn.log import Log
from tests.journals import JournalStore
from tests.pure.turns import TURN
from tests.turns import bench, closed, shown


def recorded(sequence: list[Event], turn: str = "t") -> list[Recorded]:
    return [Recorded(turn, n, 1.0, event) for n, event in enumerate(sequence, start=1)]


@given(TURN, st.integers(0, 10_000))
def test_a_file_cut_anywhere_gives_whole_events_and_goes_on(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[Event], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("s")
    store = JournalStore(folder)
    store.append("s", recorded(sequence))
    store.close()
    path = folder / "s.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[: cut % (len(data) + 1)])
    store = JournalStore(folder)
    kept = store.read("s")
    assert kept == recorded(sequence)[: len(kept)]
    session = Session.opened("s", JournalStoreOnce(store), SystemClock())
    assert len(session.past.turns) == len({r.turn for r in kept})
    again = [events.decode(line) for line in path.read_bytes().splitlines()]
    assert not again or Log.restored(again).closed is not None
    store.close()


class JournalStoreOnce:
    """The same open file for a second reader in this process."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.append = store.append

    def recent_turns(self, session: str, most_chars: int) -> list[list[Recorded]]:
        return list(by_turn(self._store.read(session), Path(session)).values())


def test_a_second_process_is_told(tmp_path: Path) -> None:
    first, second = JournalStore(tmp_path), JournalStore(tmp_path)
    first.read("s")
    with pytest.raises(SessionBusy):
        second.read("s")
    first.close()
    assert second.read("s") == []
    second.close()


def test_a_file_of_something_else_is_said_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text("hello\n")
    store = JournalStore(tmp_path)
    with pytest.raises(BrokenJournal, match="Move it away"):
        store.read("s")
    store.close()
    assert (tmp_path / "s.jsonl").read_text() == "hello\n"


def test_a_full_disk_leaves_no_half_batch(tmp_path: Path) -> None:
    """/dev/full takes nothing, as a full disk does."""
    (tmp_path / "s.jsonl").symlink_to("/dev/full")
    store = JournalStore(tmp_path)
    with pytest.raises(StoreError, match="No space left on device"):
        store.append("s", recorded([]) or [Recorded("t", 1, 0.0, events.InputAdded(()))])
    store.close()


def test_a_home_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("a file stands here")
    with pytest.raises(StoreError, match="cannot be written"):
        JournalStore(tmp_path / "sessions").append("s", [])


@given(
    st.lists(st.one_of(TURN, st.just("look"), st.just("clear"), st.just("reopen")), max_size=12), st.data()
)
def test_a_tail_reads_every_line_once_whatever_the_writer_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[Event] | str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("s")
    tail, file = Tail(folder, "s"), JournalFile(folder, "s")
    written: list[Recorded] = []
    seen: list[Recorded] = []
    for number, step in enumerate([*steps, "look"]):
        if isinstance(step, list):
            batch = recorded(step, f"turn_{number}")
            cut = data.draw(st.integers(0, len(batch)))
            for part in (batch[:cut], batch[cut:]):
                file.append(part)
                written += part
                if cut % 2:
                    seen += tail.more()[0]
        elif step == "look":
            added, anew = tail.more()
            seen += added
            assert anew or seen == written
        else:
            seen += tail.more()[0]
            if step == "clear":
                file.clear()
            else:
                file.close()
                file = JournalFile(folder, "s")
    file.close()
    assert seen == written


class FullAfter:
    """A store whose disk is full after so many batches."""

    def __init__(self, batches: int) -> None:
        self.left = batches
        self.kept: list[Recorded] = []

    def recent_turns(self, session: str, most_chars: int) -> list[list[Recorded]]:
        return []

    def append(self, session: str, batch: Sequence[Recorded]) -> None:
        self.left -= 1
        if self.left < 0:
            raise StoreError("the disk", OSError(28, os.strerror(28)))
        self.kept += batch


@pytest.mark.parametrize("batches", range(1, 9))
async def test_a_disk_that_fills_ends_the_turn_and_stops_the_provider(batches: int) -> None:
    async with bench() as lab:
        lab.server.default = Script(Reply((Say("One two three four five."),)), pace_s=0.01)
        store = FullAfter(batches)
        session = Session("s", store)
        turn = Turn(session.log("t"), [lab.candidate()], lab.around)
        turn.start([user_message("?")])
        async with asyncio.timeout(5):
            followed = [r async for batch in turn.follow() for r in batch]
            await turn.wait()
        assert closed(turn).cause.code == "store_failed"
        assert "No space left on device" in closed(turn).cause.message
        # What a follower saw of the answer was written before.
        assert shown(turn) == "".join(
            r.event.text for r in store.kept if isinstance(r.event, events.PartGrew)
        )
        assert followed == turn.log.since(0)
        await asyncio.wait_for(lab.server.until(lambda: lab.server.open_requests == 0), 5)


async def test_a_turn_that_cannot_be_written_down_does_not_start() -> None:
    async with bench() as lab:
        turn = Turn(Session("s", FullAfter(0)).log("t"), [lab.candidate()], lab.around)
        with pytest.raises(StoreError):
            turn.start([user_message("?")])
        assert not lab.server.requests
