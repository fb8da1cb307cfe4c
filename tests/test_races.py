"""Calls and turns in virtual time: budgets, clocks, and Stop in the worst moment."""

import asyncio
import contextlib
import errno
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.agent.decide import AGENT, RELAY, Plan
from headrace.errors import CAUSES, CallError, Cause, CauseCode, StoreError
from headrace.events import (
    CallFailed,
    Event,
    NoticeShown,
    PartClosed,
    PartGrew,
    PartStarted,
    Recorded,
    ReplyCut,
    ReplyEnded,
    ToolStarted,
    TurnClosed,
    user_message,
)
from headrace.limits import REFUSED_PARAMETERS_MOST
from headrace.ports import AttemptIds, Request, Sink, ToolResult, ToolRun, ToolSpec, Touch
from headrace.providers.http import HttpProvider
from headrace.runtime.call import Surroundings
from headrace.runtime.clock import SystemClock
from headrace.runtime.learnt import Learnt
from headrace.runtime.question import CallPolicy, Candidate, Options
from headrace.runtime.stalls import Patience, StallWatch
from headrace.runtime.tools import Toolbox
from headrace.runtime.turn import Turn
from headrace.testing.modelserver import Raw, Script
from headrace.turn.log import Log
from tests.turns import bench, closed, events, shown
from tests.virtual import virtually

STOP = Cause("stopped", "You stopped the turn.")
Does = Callable[[AttemptIds, Sink], Any]


def says(text: str, *, ends: bool = True) -> Does:
    def do(ids: AttemptIds, sink: Sink) -> None:
        part = ids.first_part
        grown: list[Event] = [PartStarted(ids.call, part, "text"), PartGrew(ids.call, part, text)]
        sink.received(grown if text else [])
        if ends:
            closing: list[Event] = [PartClosed(ids.call, part)] if text else []
            sink.received(
                [*closing, ReplyEnded(ids.call, "stop")] if text else [ReplyEnded(ids.call, "stop")]
            )

    return do


def fails(code: CauseCode, after: str = "", **details: Any) -> Does:
    def do(ids: AttemptIds, sink: Sink) -> None:
        if after:
            says(after, ends=False)(ids, sink)
        raise CallError(Cause(code, f"It is {code}.", **details))

    return do


class Told:
    """A provider that does as it is told, attempt by attempt, and then the last thing again and again."""

    def __init__(self, *does: Does, name: str = "lab", key_count: int = 1) -> None:
        self.name = name
        self.key_count = key_count
        self.requests: list[Request] = []
        self._does = list(does)

    async def attempt(self, request: Request, ids: AttemptIds, sink: Sink) -> None:
        self.requests.append(request)
        sink.connected()
        await asyncio.sleep(0)
        done = (self._does.pop(0) if len(self._does) > 1 else self._does[0])(ids, sink)
        if asyncio.iscoroutine(done):
            await done

    async def close(self) -> None:
        pass


def make(
    *providers: Told,
    retries: int = 2,
    plan: Plan = RELAY,
    patience: Patience | None = None,
    toolbox: Toolbox | None = None,
    log: Log | None = None,
) -> Turn:
    clock = SystemClock()
    policy = CallPolicy(retries=retries, patience=patience or Patience())
    around = Surroundings(clock, Learnt(clock), policy, random.Random(1))
    candidates = [Candidate(model_id=f"{p.name}:m", provider=p, model="m") for p in providers]
    return Turn(Log("turn-1") if log is None else log, candidates, around, Options(), plan, toolbox=toolbox)


async def run(*providers: Told, **settings: Any) -> Turn:
    turn = make(*providers, **settings)
    turn.start([user_message("Hello?")])
    await turn.wait()
    return turn


# --- budgets and fallbacks

FAILURES: tuple[CauseCode, ...] = (
    "connection_lost", "no_terminal", "server_error", "rate_limited", "stalled_gap", "bad_request", "key_rejected",
    "payment_required", "quota_exhausted", "empty_reply",
)  # fmt: skip
BROKEN = {"connection_lost", "no_terminal", "server_error"}
Told_ = str  # what an attempt comes to: "ok", "cut", or the code of a failure


class Expected:
    """The rules, written down once more: what a call comes to, and whether each attempt streams."""

    def __init__(self, scripts: Sequence[Sequence[Told_]], retries: int) -> None:
        self.end = "failed"
        self.streams: list[list[bool]] = []
        for script in scripts:
            if self._candidate(script, retries):
                return

    def _candidate(self, script: Sequence[Told_], retries: int) -> bool:
        """Whether the call ends here."""
        streams: list[bool] = []
        self.streams.append(streams)
        broken = False
        for number, what in enumerate(script):
            last_resort = broken and number == retries > 0
            streams.append(not last_resort)
            if what in ("ok", "cut"):
                self.end = what
                return True
            broken |= what in BROKEN
            if what in ("payment_required", "quota_exhausted"):
                return False
            if not CAUSES[what].transient:  # type: ignore[index]
                return not (last_resort and what == "bad_request")
            if number == retries:
                return False
        raise AssertionError("the script is too short")


def does(what: Told_) -> Does:
    match what:
        case "ok":
            return says("Hello.")
        case "cut":
            return fails("connection_lost", after="Hel")
        case "empty_reply":
            return says("")
        case _:
            return fails(what)  # type: ignore[arg-type]


SCRIPT = st.lists(st.sampled_from([*FAILURES, "ok", "cut"]), min_size=4, max_size=4)


@given(st.lists(SCRIPT, min_size=1, max_size=3), st.integers(0, 3))
@example([["server_error", "server_error", "bad_request", "ok"], ["ok"] * 4], 2)
@example([["empty_reply"] * 4, ["ok"] * 4], 1)
@example([["rate_limited", "rate_limited", "bad_request", "ok"], ["ok"] * 4], 2)
def test_a_call_keeps_to_its_budget_and_its_order(scripts: list[list[Told_]], retries: int) -> None:
    expected = Expected(scripts, retries)
    providers = [Told(*map(does, script), name=f"p{n}") for n, script in enumerate(scripts)]
    turn = virtually(run(*providers, retries=retries))
    assert [[r.stream for r in p.requests] for p in providers if p.requests] == expected.streams
    ends = {"ok": ReplyEnded, "cut": ReplyCut, "failed": CallFailed}
    assert [type(e) for e in events(turn) if isinstance(e, ReplyEnded | ReplyCut | CallFailed)] == [
        ends[expected.end]
    ]
    assert shown(turn) == {"ok": "Hello.", "cut": "Hel", "failed": ""}[expected.end]
    notices = [e for e in events(turn) if isinstance(e, NoticeShown) and e.code == "fallback"]
    assert len(notices) == len(expected.streams) - 1


def test_a_wait_that_is_asked_for_is_kept_and_counted() -> None:
    async def timed() -> tuple[float, Turn]:
        turn = await run(Told(fails("rate_limited", retry_after_s=42.0), says("Hello.")), retries=1)
        return asyncio.get_running_loop().time(), turn

    took_s, turn = virtually(timed())
    assert closed(turn).outcome == "stop"
    assert took_s == pytest.approx(42.0)


def test_a_provider_that_refuses_ever_new_parameters_is_left() -> None:
    """It names them itself, and each change of shape is free."""
    numbers = iter(range(10_000))

    def refuse(_: AttemptIds, __: Sink) -> None:
        raise CallError(Cause("parameter_rejected", "No.", parameter=f"p{next(numbers)}"))

    provider = Told(refuse)
    turn = virtually(run(provider))
    assert closed(turn).cause.code == "parameter_rejected"
    assert len(provider.requests) == REFUSED_PARAMETERS_MOST + 1


def test_shape_and_key_changes_are_no_retries() -> None:
    provider = Told(
        fails("streaming_unsupported"),
        fails("key_rejected"),
        fails("parameter_rejected", parameter="temperature"),
        says("Hello."),
        key_count=2,
    )
    turn = virtually(run(provider, retries=0))
    assert closed(turn).outcome == "stop"
    assert [(r.stream, r.key, r.dropped) for r in provider.requests] == [
        (True, 0, frozenset()),
        (False, 0, frozenset()),
        (False, 1, frozenset()),
        (False, 1, frozenset({"temperature"})),
    ]


def test_a_provider_that_must_stream_does_not_hide_the_next_model() -> None:
    """Asking for the whole answer was our last resort; that it is refused says nothing about the question."""
    first = Told(fails("server_error"), fails("server_error"), fails("bad_request"), name="first")
    second = Told(says("Hello."), name="second")
    assert closed(virtually(run(first, second))).outcome == "stop"
    assert [r.stream for r in first.requests] == [True, True, False]


# --- continuations


def test_a_continuation_that_only_repeats_the_end_says_that_there_is_no_more() -> None:
    provider = Told(fails("connection_lost", after="That is the whole of it."), says("the whole of it."))
    turn = virtually(run(provider, plan=AGENT))
    assert (closed(turn).outcome, shown(turn)) == ("stop", "That is the whole of it.")
    assert len(provider.requests) == 2


def test_a_continuation_that_is_empty_is_tried_again_and_leaves_the_answer_cut() -> None:
    provider = Told(fails("connection_lost", after="That is"), says(""))
    turn = virtually(run(provider, plan=AGENT, retries=1))
    assert (closed(turn).outcome, shown(turn)) == ("cut", "That is")
    assert len(provider.requests) == 3


def test_what_a_continuation_had_said_when_it_broke_is_shown() -> None:
    provider = Told(
        fails("connection_lost", after="one two three, one"),
        fails("connection_lost", after="one two"),  # could still be a repetition of the beginning
    )
    turn = virtually(run(provider, plan=AGENT))
    assert (closed(turn).outcome, shown(turn)) == ("cut", "one two three, oneone two")


# --- Stop


async def test_stopping_while_an_empty_answer_is_ending_is_not_lost() -> None:
    """The finish reason has come and `[DONE]` has not: the end that is told on the way out must not be raised."""
    async with bench() as lab:
        chunk = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
        lab.server.default = Script(Raw((chunk,), end="stall"))
        candidate, read = lab.candidate(), asyncio.Event()
        assert isinstance(candidate.provider, HttpProvider)
        candidate.provider.tap = lambda _: read.set()
        turn = lab.start(candidate, plan=RELAY)
        await read.wait()
        turn.stop(STOP)
        assert (await asyncio.wait_for(turn.wait(), 10)).cause == STOP
        assert len(lab.server.requests) == 1


def test_a_sink_never_raises_for_an_empty_answer() -> None:
    provider = Told(says(""), says("Hello."))
    assert closed(virtually(run(provider))).outcome == "stop"
    turn = virtually(run(Told(says("")), retries=1))
    assert closed(turn).cause == Cause("empty_reply", "lab: The model's answer was empty.")


@pytest.mark.parametrize("stopped", [True, False])
def test_a_turn_that_ends_before_its_first_step_has_its_end_in_the_log(*, stopped: bool) -> None:
    async def ended() -> Turn:
        turn = make(Told(says("Hello.")))
        turn.start([user_message("Hello?")])
        if stopped:
            turn.stop(STOP)
        else:  # as a loop does that shuts down
            assert turn._task is not None
            turn._task.cancel()
        await turn.wait()
        return turn

    turn = virtually(ended())
    assert closed(turn).outcome == "cancelled"
    assert closed(turn).cause.code == ("stopped" if stopped else "shutdown")
    assert [type(e) for e in events(turn)].count(TurnClosed) == 1


def test_whoever_waits_is_not_cancelled_with_the_turn() -> None:
    async def ended() -> TurnClosed:
        turn = make(Told(lambda ids, sink: asyncio.sleep(100)))
        turn.start([user_message("Hello?")])
        waiting = asyncio.create_task(turn.wait())
        await asyncio.sleep(1)
        assert turn._task is not None
        turn._task.cancel()
        return await waiting

    assert virtually(ended()).cause.code == "shutdown"


@pytest.mark.parametrize("when", ["TurnOpened", "CallStarted", "PartGrew", "ReplyEnded", "TurnClosed"])
def test_a_watcher_may_stop_the_turn_within_any_event(when: str) -> None:
    async def ended() -> Turn:
        log = Log("turn-1")
        turn = make(Told(says("Hello.")), log=log)

        def look() -> None:
            if type(log.since(len(log) - 1)[0].event).__name__ == when:
                turn.stop(STOP)

        log.watch(look)
        turn.start([user_message("Hello?")])
        await turn.wait()
        return turn

    turn = virtually(ended())
    assert [type(e) for e in events(turn)].count(TurnClosed) == 1
    assert closed(turn).outcome == ("stop" if when == "TurnClosed" else "cancelled")


class Stubborn:
    """A tool that does not let its cancellation pass."""

    spec = ToolSpec("stubborn", "Keeps on", {"type": "object", "properties": {}})
    only_reads = False

    def touches(self, arguments: Mapping[str, Any]) -> Touch:
        return Touch("nothing")

    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1000)
        return ToolResult("Kept on.")

    async def close(self) -> None:
        pass


def test_a_tool_that_swallows_its_cancellation_does_not_keep_the_turn_going(tmp_path: Any) -> None:
    def calls(ids: AttemptIds, sink: Sink) -> None:
        sink.received([PartStarted(ids.call, 1, "tool_call", "c1", "stubborn"), PartGrew(ids.call, 1, "{}")])
        sink.received([PartClosed(ids.call, 1), ReplyEnded(ids.call, "tool_calls")])

    async def ended() -> tuple[Turn, Told]:
        provider = Told(calls)
        box = Toolbox(
            tools={"stubborn": Stubborn()}, folder=tmp_path, home=tmp_path, env={}, clock=SystemClock()
        )
        turn = make(provider, plan=Plan(runs_tools=True), toolbox=box)
        turn.start([user_message("Hello?")])
        await asyncio.sleep(5)
        turn.stop(STOP)
        await turn.wait()
        return turn, provider

    turn, provider = virtually(ended())
    assert closed(turn).cause == STOP
    assert len(provider.requests) == 1


class Reads(Stubborn):
    spec = ToolSpec("reads", "Reads", {"type": "object", "properties": {}})
    only_reads = True

    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        return ToolResult("Read.")


def test_a_full_disk_is_told_as_such_while_tools_run_side_by_side(tmp_path: Any) -> None:
    def calls(ids: AttemptIds, sink: Sink) -> None:
        for part in (1, 2):
            started = PartStarted(ids.call, part, "tool_call", f"c{part}", "reads")
            sink.received([started, PartGrew(ids.call, part, "{}"), PartClosed(ids.call, part)])
        sink.received([ReplyEnded(ids.call, "tool_calls")])

    def journal(batch: Sequence[Recorded]) -> None:
        if any(isinstance(recorded.event, ToolStarted) for recorded in batch):
            raise StoreError("The journal", OSError(errno.ENOSPC, "No space left on device"))

    box = Toolbox(tools={"reads": Reads()}, folder=tmp_path, home=tmp_path, env={}, clock=SystemClock())
    turn = virtually(run(Told(calls), plan=Plan(runs_tools=True), toolbox=box, log=Log("turn-1", journal)))
    assert closed(turn).cause.code == "store_failed"


@given(st.integers(0, 40), st.sampled_from(["gap", "answer", "failure"]))
def test_a_stop_in_the_very_moment_of_something_else_is_one_end(steps: int, what: str) -> None:
    async def breaks(ids: AttemptIds, sink: Sink) -> None:
        says("Hel", ends=False)(ids, sink)
        await asyncio.sleep(10)
        match what:
            case "answer":
                sink.received([PartClosed(ids.call, ids.first_part), ReplyEnded(ids.call, "stop")])
            case "failure":
                raise CallError(Cause("connection_lost", "Lost."))
            case _:
                await asyncio.sleep(1000)

    async def ended() -> Turn:
        turn = make(Told(breaks), patience=Patience(gap_s=10.0 if what == "gap" else 20.0))
        turn.start([user_message("Hello?")])
        await asyncio.sleep(10)
        for _ in range(steps):
            await asyncio.sleep(0)
        turn.stop(STOP)
        await turn.wait()
        return turn

    turn = virtually(ended())
    assert [type(e) for e in events(turn)].count(TurnClosed) == 1
    happened = {"gap": "stalled_gap", "answer": "answered", "failure": "connection_lost"}[what]
    assert closed(turn).cause.code in ("stopped", happened)
    assert shown(turn) == "Hel"


# --- clocks

SIGNS = st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=8)
LENGTH = st.integers(1, 12).map(lambda n: n + 0.125)  # never the moment of a sign, which are whole seconds


def due(
    patience: Patience, connects_at: int, signs: list[tuple[int, bool]], *, streamed: bool
) -> tuple[float, str]:
    """When a watch ends this attempt, and why: the clocks as they are described."""
    if connects_at > patience.connect_s:
        return patience.connect_s, "stalled_connect"
    now = life = progress = float(connects_at)
    limit, code = life + patience.first_event_s, "stalled_first_event"
    for number, (pause, decoded) in enumerate([*signs, (10_000, True)]):
        now += pause
        if not streamed:
            limit, code = max(patience.no_progress_s, connects_at), "stalled_total"
        elif number:
            limit, code = min(
                (life + patience.gap_s, "stalled_gap"),
                (progress + patience.no_progress_s, "stalled_progress"),
            )
        if now > limit:
            return limit, code
        life = now
        progress = now if decoded or number == 0 else progress
    raise AssertionError("the last sign comes too late for every clock")


@given(LENGTH, LENGTH, LENGTH, LENGTH, st.integers(0, 9), SIGNS, st.booleans())
def test_the_first_clock_that_is_due_ends_an_attempt(
    connect_s: float,
    first_event_s: float,
    gap_s: float,
    no_progress_s: float,
    connects_at: int,
    signs: list[tuple[int, bool]],
    streamed: bool,
) -> None:
    patience = Patience(
        connect_s=connect_s, first_event_s=first_event_s, gap_s=gap_s, no_progress_s=no_progress_s
    )
    expected = due(patience, connects_at, signs, streamed=streamed)

    async def attempt() -> tuple[float, str]:
        watch = StallWatch(SystemClock(), patience, streamed=streamed, who="lab")
        with pytest.raises(CallError) as caught:
            async with watch:
                await asyncio.sleep(connects_at)
                watch.connected()
                for pause, decoded in signs:
                    await asyncio.sleep(pause)
                    watch.received(asyncio.get_running_loop().time(), progress=decoded)
                await asyncio.sleep(10_000)
        return asyncio.get_running_loop().time(), caught.value.cause.code

    assert virtually(attempt()) == expected


def test_every_batch_is_the_turns_last_activity_and_nothing_else_is() -> None:
    async def once() -> None:
        loop = asyncio.get_running_loop()
        seen: list[tuple[float, float]] = []

        async def work(ids: AttemptIds, sink: Sink) -> None:
            for batch in ([], [PartStarted(ids.call, 1, "text")], [], [PartGrew(ids.call, 1, "x")], []):
                await asyncio.sleep(7)
                sink.received(list(batch))
                at = loop.time()
                await asyncio.sleep(7)
                seen.append((turn.last_activity, at))
            sink.received([PartClosed(ids.call, 1), ReplyEnded(ids.call, "stop")])

        turn = make(Told(work))
        turn.start([user_message("Hello?")])
        await turn.wait()
        assert seen
        assert all(noted == came for noted, came in seen)
        assert turn.last_activity == loop.time()

    virtually(once())


def test_what_was_learnt_is_believed_for_its_time() -> None:
    async def learn() -> None:
        learnt = Learnt(SystemClock(), ttl_s=100.0)
        learnt.no_streaming("a:m")
        learnt.next_key("a", 0)
        await asyncio.sleep(60)
        learnt.refuses("a:m", "temperature")
        learnt.next_key("a", 0)  # of a call that began before
        assert learnt.key("a") == 1
        assert learnt.key("b") == 0
        assert learnt.shape("b:m").streams
        await asyncio.sleep(39)
        assert learnt.key("a") == 1
        assert not learnt.shape("a:m").streams
        await asyncio.sleep(2)
        assert learnt.key("a") == 0
        await asyncio.sleep(60)
        assert learnt.shape("a:m").streams
        assert not learnt.shape("a:m").dropped

    virtually(learn())
