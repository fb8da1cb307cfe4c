"""Events as JSON: what is written is read back, today and by later releases."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given

from headrace import events
from headrace.errors import CAUSES, OUTCOMES, CallError, Cause, CauseCode
from headrace.events import EVENTS, Event, Recorded
from headrace.turn.log import Log
from tests.pure.turns import TURN

GOLDEN = Path(__file__).parent.parent / "golden"


@given(TURN)
def test_every_event_survives_json(sequence: list[Event]) -> None:
    for seq, event in enumerate(sequence, start=1):
        recorded = Recorded("t", seq, 1.25, event)
        line = events.encode(recorded)
        assert b"\n" not in line
        assert events.decode(line) == recorded


def test_tags_are_unique_and_in_the_past_tense_of_their_class() -> None:
    tags = [cls.__struct_config__.tag for cls in EVENTS]
    assert len(set(tags)) == len(EVENTS)
    assert all(
        tag == "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__).lstrip("_")
        for tag, cls in zip(tags, EVENTS, strict=True)
    )


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("log-v*.jsonl")), ids=lambda p: p.name)
def test_a_log_written_by_an_earlier_release_is_still_read(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    entries = [events.decode(line) for line in lines]
    log = Log.restored(entries)
    assert log.closed is not None
    kinds = {type(e.event) for e in entries}
    assert kinds == set(EVENTS), "the golden log holds every event of its version"
    if path.name == f"log-v{events.LOG_VERSION}.jsonl":
        assert [events.encode(e) for e in entries] == lines, "this version is written exactly so"


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        events.decode(b'{"turn":"t","seq":1,"at":0,"event":{"type":"turn_exploded"}}')


def test_every_cause_has_its_traits_and_every_outcome_a_cause() -> None:
    assert set(CAUSES) == set(CauseCode.__args__)  # type: ignore[attr-defined]
    assert {trait.outcome for trait in CAUSES.values()} | {"cut"} == set(OUTCOMES)


def test_only_a_finished_answer_is_a_stop() -> None:
    assert [code for code, trait in CAUSES.items() if trait.outcome == "stop"] == ["answered"]


@pytest.mark.parametrize("code", sorted(CAUSES))
def test_a_broken_stream_is_cut_only_after_something_visible(code: CauseCode) -> None:
    cause = Cause(code, "")
    assert cause.outcome(visible=False) == cause.trait.outcome
    assert cause.outcome(visible=True) == ("cut" if cause.trait.cuts else cause.trait.outcome)


def test_a_call_error_knows_who_must_act() -> None:
    assert CallError(Cause("key_rejected", "no")).who == "user"
