"""From what was heard to findings, and from findings to lines."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CAUSES, Cause, CauseCode
from headrace.events import ReplyEnded, UsageReported
from headrace.views.doctor import Diagnosis, Finding, Heard, Numbers, Subject, judge, lines
from headrace.views.doctor.wording import QUIRKS, seconds
from headrace.wire.traits import Quirk, Traits

SUBJECT = Subject(
    model_id="lab:{model}",
    provider="lab",
    model="{model}",
    protocol="chat_completions",
    base_url="http://lab/v1",
    key_names=("LAB_KEY",),
)
TEXT = "one, two, three, four, five, six, seven, eight, nine"


def heard(**more: Any) -> Heard:
    facts: dict[str, Any] = {
        "question": "stream",
        "streamed": True,
        "connected_s": 0.1,
        "reads": 20,
        "growths": tuple(0.5 + n / 10 for n in range(11)),
        "ended_s": 1.6,
        "text": TEXT,
        "end": ReplyEnded(1, "stop"),
    }
    return Heard(**{**facts, **more})


def found(name: str, *all_heard: Heard, subject: Subject = SUBJECT) -> Finding:
    return next(f for f in judge(subject, all_heard).findings if f.name == name)


# --- streams


def test_what_comes_bit_by_bit_streams() -> None:
    assert found("streams", heard()).seen == "11 reads over 1.0 s"


@pytest.mark.parametrize("growths", [(3.0,), (3.0, 3.001, 3.002, 3.003, 3.004), (3.0, 3.1, 3.2)])
def test_what_comes_at_once_after_a_wait_is_held_back(growths: tuple[float, ...]) -> None:
    finding = found("streams", heard(growths=growths))
    assert finding.verdict == "problem"
    assert "3.0 s" in finding.seen
    assert "proxy_buffering off" in finding.advice


@pytest.mark.parametrize(("growths", "text"), [((0.2, 0.203), TEXT), ((3.0,), "one, two"), ((), "")])
def test_what_is_too_fast_or_too_short_to_tell_is_no_verdict(growths: tuple[float, ...], text: str) -> None:
    assert found("streams", heard(growths=growths, text=text)).verdict == "note"


def test_a_long_wait_for_the_first_token_is_no_block() -> None:
    growths = tuple(30 + n / 50 for n in range(20))
    assert found("streams", heard(growths=growths)).verdict == "ok"


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_speed_is_told_of_streams_alone(moments: list[float]) -> None:
    diagnosis = judge(SUBJECT, [heard(growths=tuple(sorted(moments)))])
    streams = next(f for f in diagnosis.findings if f.name == "streams")
    if streams.verdict != "ok":
        assert diagnosis.numbers.tokens_per_s is None


@pytest.mark.parametrize(
    ("usage", "reasoned", "seen"),
    [
        (UsageReported(1, 10, 50), False, "50 tokens/s"),
        (UsageReported(1, 10, 550, reasoning_tokens=500), False, "50 tokens/s"),
        (UsageReported(1, 10, 50, reasoning_tokens=20), True, "50 tokens/s"),
        (None, False, "about 13 tokens/s"),
    ],
)
def test_speed_counts_what_was_sent(usage: UsageReported | None, seen: str, *, reasoned: bool) -> None:
    assert found("speed", heard(usage=usage, reasoned=reasoned)).seen == seen


# --- other rows


def test_thinking_that_is_not_shown_is_noted() -> None:
    finding = found("reasoning", heard(usage=UsageReported(1, 10, 550, reasoning_tokens=500)))
    assert (finding.verdict, finding.seen) == ("note", "none shown, though it thought: 500 tokens")


def test_an_answer_that_was_all_thinking_is_no_fault() -> None:
    silent = heard(text="", reasoned=True, end=ReplyEnded(1, "length"))
    assert judge(SUBJECT, [silent]).exit_status == 0
    assert "thinking" in found("answers", silent).seen


def test_usage_that_only_whole_answers_report_is_noted() -> None:
    whole = heard(question="whole", usage=UsageReported(1, 3, 4))
    assert found("usage", heard(), whole).seen == "3 in, 4 out (not in streams)"
    assert found("usage", heard()).verdict == "note"


def test_a_cumulative_stream_is_a_problem_until_it_is_configured() -> None:
    cumulative = heard(traits=Traits(form="events", quirks=("cumulative",)))
    assert found("quirk", cumulative).advice == "Set models.lab:{model}.cumulative: true."
    told = Subject(model_id="lab:m", provider="lab", model="m", cumulative=True)
    assert judge(told, [cumulative]).exit_status == 0


@pytest.mark.parametrize("quirk", sorted(QUIRKS))
def test_each_quirk_is_told_once(quirk: Quirk) -> None:
    odd = heard(traits=Traits(form="events", quirks=(quirk,)))
    findings = [f for f in judge(SUBJECT, [odd, odd]).findings if f.name == "quirk"]
    assert [f.seen for f in findings] == [QUIRKS[quirk]]


@pytest.mark.parametrize("code", sorted(CAUSES))
def test_every_failure_has_one_row_with_advice(code: CauseCode) -> None:
    failed = heard(cause=Cause(code, "It {failed}."), end=None, text="", growths=())
    diagnosis = judge(SUBJECT, [failed], "stopped")
    (problem,) = [f for f in diagnosis.findings if f.verdict == "problem"]
    assert problem.seen == "It {failed}."
    assert problem.advice
    assert diagnosis.exit_status == 1


# --- the table


@given(
    st.lists(
        st.builds(
            Finding,
            name=st.sampled_from(["streams", "parallel_calls", "quirk"]),
            verdict=st.sampled_from(["ok", "note", "problem"]),
            seen=st.text(max_size=200),
            advice=st.text(max_size=200),
        ),
        max_size=4,
    ),
    st.integers(0, 200),
)
def test_lines_are_lines(findings: list[Finding], width: int) -> None:
    diagnosis = Diagnosis(
        subject=SUBJECT, works=True, findings=tuple(findings), numbers=Numbers(requests=1), stopped="\x1b"
    )
    for line in lines(diagnosis, width):
        assert len(line) <= max(width, 60)
        assert "\n" not in line
        assert not any(c in "\x1b\x9b\r\u202e\t" for c in line)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "1 ms"), (0.0123, "12 ms"), (0.9994, "999 ms"), (0.9996, "1.0 s"), (61.26, "61.3 s")],
)
def test_lengths_of_time(value: float, shown: str) -> None:
    assert seconds(value) == shown
