"""The log, its machine and its folds, over generated turns and a few that tell a story."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Cause, IllegalTransition
from headrace.events import (
    EVENTS,
    LOG_VERSION,
    AssistantMessage,
    AttemptReplaced,
    AttemptStarted,
    CallStarted,
    Event,
    PartClosed,
    PartGrew,
    PartStarted,
    Recorded,
    ReplyCut,
    ReplyEnded,
    ToolFinished,
    ToolMessage,
    ToolStarted,
    TurnClosed,
    TurnOpened,
    UsageReported,
    user_message,
)
from headrace.turn import costs
from headrace.turn.closing import closing
from headrace.turn.costs import Prices
from headrace.turn.folds import NOT_RUN, Folded, Usage, fold, joined
from headrace.turn.log import Log, TurnTooLong
from headrace.turn.machine import TOUCHED, Machine
from headrace.turn.tables import NEW, TABLES
from tests.pure.turns import EVENT, TURN, a_reply, text, tool

OPENED = TurnOpened(LOG_VERSION, (user_message("hi"),))
LOST = Cause("connection_lost", "The connection broke.")
STOPPED = Cause("stopped", "You stopped it.")


def written(*events: Event) -> Log:
    log = Log("t1")
    log.extend([OPENED, *events], at=1.0)
    return log


def folded(*events: Event) -> Folded:
    return fold(written(*events).since(0))


# --- laws over generated turns


@given(TURN)
def test_numbers_are_contiguous_and_a_log_is_read_back_as_it_was_written(events: list[Event]) -> None:
    log = Log("t")
    log.extend(events, at=2.5)
    assert [r.seq for r in log.since(0)] == list(range(1, len(events) + 1))
    again = Log.restored(log.since(0))
    assert again.since(0) == log.since(0)
    assert again.machine.state("turn") == log.machine.state("turn")


@given(TURN, st.lists(st.integers(0, 120)))
def test_from_any_cursor_replay_and_follow_give_the_uninterrupted_sequence(
    events: list[Event], cuts: list[int]
) -> None:
    log = Log("t")
    seen: list[Recorded] = []
    late: list[Recorded] = []

    def follow() -> None:
        seen.extend(log.since(len(seen)))

    log.watch(follow)
    edges = sorted({min(c, len(events)) for c in cuts} | {0, len(events)})
    for start, end in itertools.pairwise(edges):
        log.extend(events[start:end], at=0)
        if (start + end) % 2:  # a follower that comes and goes
            late.extend(log.since(len(late), most=3))
    late.extend(log.since(len(late)))
    assert seen == late == log.since(0)


@given(TURN, st.integers(0, 120))
def test_a_fold_in_pieces_equals_a_fold_at_once(events: list[Event], cut: int) -> None:
    log = Log("t")
    log.extend(events, at=0)
    whole = fold(log.since(0))
    parts = Folded().catch_up(log.since(0)[:cut])
    parts.answer_text()  # asking in between changes nothing
    parts.catch_up(log.since(parts.seq))
    for ask in (Folded.answer_text, Folded.reasoning_text, Folded.messages, Folded.usage, Folded.spent):
        assert ask(parts) == ask(whole)


@given(TURN, st.sampled_from(["stopped", "crashed", "connection_lost", "bug", "shutdown"]))
def test_any_turn_can_be_closed_and_has_exactly_one_end(events: list[Event], code: str) -> None:
    log = Log("t")
    log.extend(events, at=0)
    log.extend(closing(log.machine, fold(log.since(0)), Cause(code, "")), at=0)  # type: ignore[arg-type]
    ends = [r.event for r in log.since(0) if isinstance(r.event, TurnClosed)]
    assert len(ends) == 1
    assert log.closed is ends[0]
    if not isinstance(events[-1], TurnClosed):
        assert ends[0].outcome in ("cut", "error", "cancelled")


@given(TURN)
def test_no_tool_runs_but_from_a_reply_that_ended_by_asking_for_it(events: list[Event]) -> None:
    ended = {e.call for e in events if isinstance(e, ReplyEnded) and e.reason == "tool_calls"}
    kinds = {(e.call, e.part): e.kind for e in events if isinstance(e, PartStarted)}
    for event in events:
        if isinstance(event, ToolStarted | ToolFinished):
            assert event.call in ended
            assert kinds[event.call, event.part] == "tool_call"


@given(TURN, EVENT)
def test_a_refused_event_changes_nothing(events: list[Event], event: Event) -> None:
    log = Log("t")
    log.extend(events, at=0)
    before = log.since(0)
    states = dict(log.machine._states)
    try:
        log.append(event, at=0)
    except IllegalTransition:
        assert log.since(0) == before
        assert log.machine._states == states
    else:
        assert len(log) == len(before) + 1


@given(st.lists(EVENT, max_size=60))
def test_the_shortcut_for_growth_allows_what_the_tables_allow(events: list[Event]) -> None:
    fast, slow = Machine(), Machine()
    for event in [OPENED, *events]:
        results = []
        for machine in (fast, slow):
            slow._growing = None
            try:
                machine.apply(event)
                results.append(True)
            except IllegalTransition:
                results.append(False)
        assert results[0] == results[1]


@given(TURN)
def test_visible_text_never_comes_from_a_replaced_attempt(events: list[Event]) -> None:
    """The machine lets no attempt be replaced from which something was seen."""
    shown: set[int] = set()
    kinds = {(e.call, e.part): e.kind for e in events if isinstance(e, PartStarted)}
    for event in events:
        match event:
            case PartGrew(call, part) if kinds[call, part] in ("text", "refusal", "tool_call"):
                shown.add(call)
            case AttemptReplaced(call):
                assert call not in shown


@given(TURN)
def test_joining_growth_keeps_every_text(events: list[Event]) -> None:
    short, long = Folded(), Folded()
    for event in events:
        long.apply(event)
    for event in joined(events):
        short.apply(event)
    assert short.messages() == long.messages()


# --- the tables themselves


def test_every_event_of_the_union_has_its_place_in_a_table() -> None:
    symbols = {symbol for table in TABLES.values() for _, symbol in table}
    assert {e.__name__ for e in EVENTS} <= symbols
    assert symbols - {e.__name__ for e in EVENTS} == {"Shown", "Thought"}


def test_growth_leads_back_to_where_it_started() -> None:
    """What the machine's shortcut for repeated growth relies on."""
    for kind in ("part", "call"):
        for (_, symbol), after in TABLES[kind].items():
            if symbol in ("PartGrew", "Shown", "Thought"):
                assert TABLES[kind][after, symbol] == after


def test_nothing_follows_a_closed_turn() -> None:
    assert all(state != "closed" for state, _ in TABLES["turn"])
    assert all(state != NEW or symbol == "TurnOpened" for state, symbol in TABLES["turn"])


# --- named examples


def test_an_illegal_transition_names_what_and_where() -> None:
    with pytest.raises(IllegalTransition, match=r"PartGrew may not follow: part \(1, 1\) is new"):
        written(PartGrew(1, 1, "x"))


def test_attempts_are_counted_without_gaps() -> None:
    with pytest.raises(IllegalTransition, match="attempt 2 of call 1 follows 0"):
        written(CallStarted(1, "reply", "m"), AttemptStarted(1, 2, "m"))


def test_a_visible_attempt_cannot_be_replaced() -> None:
    with pytest.raises(IllegalTransition):
        written(
            CallStarted(1, "reply", "m"),
            AttemptStarted(1, 1, "m"),
            PartStarted(1, 1, "text"),
            PartGrew(1, 1, "x"),
            AttemptReplaced(1, 1, LOST),
        )


def test_a_replaced_attempt_is_in_the_log_and_in_no_fold_but_was_paid() -> None:
    turn = folded(
        CallStarted(1, "reply", "m"),
        AttemptStarted(1, 1, "m"),
        PartStarted(1, 1, "reasoning"),
        PartGrew(1, 1, "wrong"),
        UsageReported(1, 5, 1),
        AttemptReplaced(1, 1, LOST),
        AttemptStarted(1, 2, "m"),
        *text(2, "right"),
        UsageReported(1, 5, 2),
        ReplyEnded(1, "stop"),
    )
    assert turn.answer_text() == "right"
    assert turn.reasoning_text() == ""
    assert turn.usage() == Usage(5, 2)
    assert turn.spent() == Usage(10, 3)


def test_text_around_a_tool_call_stays_in_order() -> None:
    turn = folded(*a_reply(*text(1, "A"), *tool(2, "f", "{}"), *text(3, "B"), reason="tool_calls"))
    assert turn.answer_text() == "AB"
    said = turn.messages()[1]
    assert isinstance(said, AssistantMessage)
    assert [(p.kind, p.text) for p in said.parts] == [("text", "A"), ("tool_call", "{}"), ("text", "B")]


def test_a_reply_after_a_tool_is_a_paragraph_and_one_after_a_cut_is_not() -> None:
    calls: list[Event] = [*a_reply(*text(1, "Looking."), *tool(2, "f", "{}"), reason="tool_calls")]
    done: list[Event] = [ToolStarted(1, 2, "f", "{}"), ToolFinished(1, 2, "ok", "42")]
    second: list[Event] = [
        CallStarted(2, "reply", "m"),
        AttemptStarted(2, 1, "m"),
        *text(1, "It is fo", call=2),
    ]
    cut: list[Event] = [ReplyCut(2, LOST)]
    third = a_reply(*text(1, "rty-two.", call=3), call=3)
    assert folded(*calls, *done, *second, *cut, *third).answer_text() == "Looking.\n\nIt is forty-two."


def test_usage_that_nobody_reported_is_unknown_and_not_zero() -> None:
    turn = folded(*a_reply(*text(1, "x")), *a_reply(UsageReported(2, 7, None), call=2))
    assert turn.usage() == Usage(input_tokens=7, output_tokens=None, unreported=1)


def test_an_attempt_that_broke_without_a_word_of_its_tokens_leaves_what_was_spent_unknown() -> None:
    thought: list[Event] = [PartStarted(1, 1, "reasoning"), PartGrew(1, 1, "Hm.")]
    turn = folded(
        CallStarted(1, "reply", "m"),
        AttemptStarted(1, 1, "m"),
        AttemptReplaced(1, 1, LOST),  # it was refused, and so cost nothing
        AttemptStarted(1, 2, "m"),
        *thought,
        AttemptReplaced(1, 2, LOST),
        AttemptStarted(1, 3, "m"),
        *text(2, "right"),
        UsageReported(1, 5, 2),
        ReplyEnded(1, "stop"),
    )
    assert turn.spent() == Usage(5, 2, unreported=1)
    assert turn.usage() == Usage(5, 2)


def test_every_attempt_is_paid_at_the_price_of_the_model_it_asked() -> None:
    prices = {"dear": Prices(input=1e6, output=1e6), "cheap": Prices(input=0, output=1e3, cache_read=0)}
    turn = folded(
        CallStarted(1, "reply", "dear"),
        AttemptStarted(1, 1, "dear"),
        UsageReported(1, 5, 1),
        AttemptReplaced(1, 1, LOST),
        AttemptStarted(1, 2, "cheap"),
        *text(1, "right"),
        UsageReported(1, 5, 2),
        ReplyEnded(1, "stop"),
        *a_reply(UsageReported(2, 7, 7), call=2),  # a model without a price
    )
    assert costs.of_reply(turn.replies[1], prices) == pytest.approx(6.002)
    assert costs.of_reply(turn.replies[2], prices) is None
    assert costs.of_turn(turn, prices) == pytest.approx(6.002)
    assert costs.of_turn(turn, {}) is None


def test_tool_results_follow_in_call_order_and_a_missing_one_is_said() -> None:
    turn = folded(
        *a_reply(*tool(1, "f", "{}"), *tool(2, "g", "{}"), reason="tool_calls"),
        ToolStarted(1, 2, "g", "{}"),
        ToolFinished(1, 2, "ok", "second"),
        TurnClosed("cancelled", STOPPED),
    )
    results = [m for m in turn.messages() if isinstance(m, ToolMessage)]
    assert [(r.tool_id, r.content[0].text) for r in results] == [("id1", NOT_RUN), ("id2", "second")]  # type: ignore[union-attr]


def test_a_cut_tool_call_never_reaches_the_next_call_but_its_name_does() -> None:
    turn = folded(
        CallStarted(1, "reply", "m"),
        AttemptStarted(1, 1, "m"),
        *text(1, "I will write."),
        PartStarted(1, 2, "tool_call", "id", "write_file"),
        PartGrew(1, 2, '{"path": "a'),
        ReplyCut(1, LOST, ("write_file",)),
    )
    assert turn.tool_calls() == []
    said, note = turn.messages()[1:]
    assert isinstance(said, AssistantMessage)
    assert [p.text for p in said.parts] == ["I will write."]
    assert "write_file" in str(note)


def test_a_tool_that_ran_when_the_process_died_is_unknown() -> None:
    log = written(*a_reply(*tool(1, "f", "{}"), reason="tool_calls"), ToolStarted(1, 1, "f", "{}"))
    log.extend(closing(log.machine, fold(log.since(0)), Cause("crashed", "")), at=0)
    finished = [r.event for r in log.since(0) if isinstance(r.event, ToolFinished)]
    assert [f.status for f in finished] == ["unknown"]


def test_a_batch_with_an_illegal_event_keeps_what_came_before_it() -> None:
    log = written()
    with pytest.raises(IllegalTransition):
        log.extend([CallStarted(1, "reply", "m"), CallStarted(1, "reply", "m")], at=0)
    assert len(log) == 2


def test_of_every_event_it_is_said_what_it_touches() -> None:
    assert set(TOUCHED) == set(EVENTS)


def test_an_end_is_told_once_and_before_those_who_watch() -> None:
    log = written()
    order: list[str] = []
    log.watch(lambda: order.append("grown"))
    log.await_end(lambda: order.append(f"ended, {log.closed is not None}"))
    log.extend(a_reply(*text(1, "x")), at=0)
    log.append(TurnClosed("stop", Cause("answered", "")), at=0)
    assert order == ["grown", "ended, True", "grown"]


def test_a_follower_is_woken_once_per_batch_and_sees_all_of_it() -> None:
    log = written()
    lengths: list[int] = []
    unwatch = log.watch(lambda: lengths.append(len(log)))
    log.extend(a_reply(*text(1, "x")), at=0)
    unwatch()
    log.append(TurnClosed("stop", Cause("answered", "")), at=0)
    assert lengths == [7]


def test_a_journal_comes_before_the_followers_and_its_failure_shows_nothing() -> None:
    order: list[str] = []

    def journal(batch: object) -> None:
        order.append("journal")
        if len(order) > 2:
            raise OSError(28, "No space left on device")

    log = Log("t", journal)
    log.watch(lambda: order.append("wake"))
    log.append(OPENED, at=0)
    with pytest.raises(OSError, match="No space"):
        log.append(CallStarted(1, "reply", "m"), at=0)
    assert order == ["journal", "wake", "journal"]
    assert len(log) == 1


def test_a_log_without_its_journal_goes_on_from_what_was_written() -> None:
    batches: list[list[Event]] = [[OPENED], a_reply(*text(1, "x"))]

    def journal(batch: object) -> None:
        if not batches:
            raise OSError(28, "No space left on device")

    log = Log("t", journal)
    log.extend(batches.pop(0), at=0)
    lost = batches.pop(0)
    with pytest.raises(OSError, match="No space"):
        log.extend(lost, at=0)
    log.forsake_journal()
    log.extend(closing(log.machine, fold(log.since(0)), Cause("store_failed", "")), at=0)
    assert [type(r.event) for r in log.since(0)] == [TurnOpened, TurnClosed]


def test_a_full_log_refuses_growth_and_can_still_be_closed() -> None:
    log = Log("t", max_events=4)
    log.extend(
        [OPENED, CallStarted(1, "reply", "m"), AttemptStarted(1, 1, "m"), PartStarted(1, 1, "text")], at=0
    )
    with pytest.raises(TurnTooLong):
        log.append(PartGrew(1, 1, "x"), at=0)
    log.extend(closing(log.machine, fold(log.since(0)), TurnTooLong.cause), at=0)
    assert log.closed is not None
    assert log.closed.outcome == "limit"


def test_restoring_refuses_a_log_with_a_gap() -> None:
    entries = written(*a_reply(*text(1, "x"))).since(0)
    with pytest.raises(IllegalTransition, match="entry 2 is t1 3"):
        Log.restored([entries[0], *entries[2:]])


def test_an_open_part_keeps_a_reply_from_ending() -> None:
    with pytest.raises(IllegalTransition, match="open parts"):
        written(*a_reply(PartStarted(1, 1, "text")))


def test_a_part_closes_once() -> None:
    with pytest.raises(IllegalTransition):
        written(*a_reply(*text(1, "x"), PartClosed(1, 1)))
