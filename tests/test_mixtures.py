"""Mixtures of models: who is waited for and how long, in virtual time; and the whole of it over real sockets."""

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.agent.decide import RELAY, Plan
from headrace.agent.mixture import Mixture
from headrace.errors import Cause
from headrace.events import (
    CallStarted,
    Event,
    NoticeShown,
    PartStarted,
    ReplyEnded,
    ToolStarted,
    user_message,
)
from headrace.ports import AttemptIds, Sink
from headrace.runtime.call import Surroundings
from headrace.runtime.clock import SystemClock
from headrace.runtime.learnt import Learnt
from headrace.runtime.question import Acting, CallPolicy, Candidate, Options
from headrace.runtime.turn import Turn
from headrace.testing.modelserver import CallTool, ModelServer, RecordedRequest, Reply, Say, Script, scenario
from headrace.turn.log import Log
from tests.commands import COMMAND, environment
from tests.commands import run as command
from tests.test_app import app, contents, ended
from tests.test_races import Does, Told, fails, says
from tests.turns import closed, events
from tests.virtual import virtually

STOP = Cause("stopped", "You stopped the turn.")

# --- in virtual time


def after(delay_s: float, then: Does) -> Does:
    async def do(ids: AttemptIds, sink: Sink) -> None:
        await asyncio.sleep(delay_s)
        then(ids, sink)

    return do


def mixed(aggregator: Told, references: Sequence[Told], retries: int = 0, **settings: Any) -> Turn:
    clock = SystemClock()
    around = Surroundings(clock, Learnt(clock), CallPolicy(retries=retries), random.Random(1))
    answers, *advise = [
        Candidate(model_id=f"{p.name}:m", provider=p, model="m") for p in (aggregator, *references)
    ]
    mixture = Mixture(name="moa:x", references=tuple(c.model_id for c in advise), **settings)
    return Turn(Log("t"), [answers], around, Options(), Plan(mixture=mixture), references=advise)


def begun(turn: Turn, call: int) -> bool:
    return any(isinstance(e, CallStarted) and e.call == call for e in events(turn))


DELAYS = st.integers(1, 50)
FATES = st.sampled_from(["good", "bad"])


@given(
    st.lists(st.tuples(DELAYS, FATES), min_size=1, max_size=4),
    st.integers(1, 20),
    st.integers(1, 4),
)
@example([(4, "good"), (8, "good"), (50, "good")], 10, 1)
@example([(5, "bad"), (15, "good")], 10, 1)
@example([(5, "bad")], 10, 1)
def test_a_round_is_over_exactly_when_it_should_be(
    fates: list[tuple[int, str]], deadline: int, quorum: int
) -> None:
    quorum = min(quorum, len(fates))

    async def once() -> tuple[Turn, float, Told]:
        began: list[float] = []

        def answer(ids: AttemptIds, sink: Sink) -> None:
            began.append(asyncio.get_running_loop().time())
            says("The answer.")(ids, sink)

        aggregator = Told(answer)
        references = [
            Told(
                after(delay + 0.5, says(f"Advice {n}.") if fate == "good" else fails("bad_request")),
                name=f"r{n}",
            )
            for n, (delay, fate) in enumerate(fates)
        ]
        turn = mixed(aggregator, references, deadline_s=float(deadline), quorum=quorum)
        turn.start([user_message("?")])
        await turn.wait()
        return turn, began[0], aggregator

    turn, began, aggregator = virtually(once())
    times = sorted(delay + 0.5 for delay, fate in fates if fate == "good")
    met = times[quorum - 1] if len(times) >= quorum else float("inf")
    over = min(max(delay + 0.5 for delay, _ in fates), max(deadline, met), 2 * deadline)
    assert began == pytest.approx(over)
    assert closed(turn).outcome == "stop"
    assert turn.folded().answer_text() == "The answer."
    told = str(aggregator.requests[0].messages)
    for n, (delay, fate) in enumerate(fates):
        advised = fate == "good" and delay + 0.5 <= over
        assert (f"Advice {n}." in told) == advised
        named = [e.text for e in events(turn) if isinstance(e, NoticeShown) and e.text.startswith(f"r{n}:m")]
        assert len(named) == (not advised)
    assert "bad_request" not in told
    alone = any(isinstance(e, NoticeShown) and e.code == "no_advice" for e in events(turn))
    assert alone == (not any(f"Advice {n}." in told for n in range(len(fates))))
    assert len(aggregator.requests) == 1


@pytest.mark.parametrize("fanout", ["turn", "step"])
@pytest.mark.parametrize("trouble", ["cut", "cut within a call", "retried", "paused"])
def test_advice_is_sought_once_however_often_the_aggregator_is_asked(trouble: str, fanout: Any) -> None:
    def pauses(ids: AttemptIds, sink: Sink) -> None:
        says("Half", ends=False)(ids, sink)
        sink.received([*says_end(ids, "pause")])

    def calls(ids: AttemptIds, sink: Sink) -> None:
        sink.received([PartStarted(ids.call, ids.first_part, "tool_call", "c", "weather")])
        fails("connection_lost")(ids, sink)

    first = {
        "cut": fails("connection_lost", after="Half"),
        "cut within a call": calls,
        "retried": fails("server_error"),
        "paused": pauses,
    }

    async def once() -> tuple[Turn, Told, Told]:
        aggregator, reference = Told(first[trouble], says(" and half.")), Told(says("Advice."), name="r")
        clock = SystemClock()
        around = Surroundings(clock, Learnt(clock), CallPolicy(retries=1), random.Random(1))
        one, two = (Candidate(model_id=f"{p.name}:m", provider=p, model="m") for p in (aggregator, reference))
        mixture = Mixture(name="moa:x", references=("r:m",), fanout=fanout)
        plan = Plan(continuations=1, repeats=1, mixture=mixture)
        turn = Turn(Log("t"), [one], around, Options(), plan, references=[two])
        turn.start([user_message("?")])
        await turn.wait()
        return turn, aggregator, reference

    turn, aggregator, reference = virtually(once())
    assert closed(turn).outcome == "stop"
    assert len(aggregator.requests) == 2
    assert len(reference.requests) == 1
    assert all("Advice." in str(request.messages) for request in aggregator.requests)


def says_end(ids: AttemptIds, reason: Any) -> list[Event]:
    from headrace.events import PartClosed

    return [PartClosed(ids.call, ids.first_part), ReplyEnded(ids.call, reason)]


@pytest.mark.parametrize("when_s", [0.5, 5.0, 25.0])
def test_stopping_ends_references_and_aggregator_at_once(when_s: float) -> None:
    async def once() -> tuple[Turn, Told, float]:
        loop = asyncio.get_running_loop()
        aggregator = Told(after(100, says("Late.")))
        references = [Told(after(delay, says("Advice.")), name=f"r{delay}") for delay in (2, 20, 80)]
        turn = mixed(aggregator, references, deadline_s=10.0)
        turn.start([user_message("?")])
        await asyncio.sleep(when_s)
        turn.stop(STOP)
        await turn.wait()
        return turn, aggregator, loop.time() - when_s

    turn, aggregator, took_s = virtually(once())
    assert took_s == 0
    assert closed(turn).outcome == "cancelled"
    assert bool(aggregator.requests) == (when_s > 10)
    assert turn.folded().answer_text() == ""


# --- over real sockets

PRESET = """
moa:
  default_preset: review
  traces: true
  presets:
    review:
      reference_models: [{provider: lab, model: wise}, {provider: lab, model: wild}, {provider: lab, model: slow}]
      aggregator: {provider: lab, model: chief}
      %s
"""


def lab(server: ModelServer, settings: str = "deadline_s: 5", retries: int = 0, more: str = "") -> str:
    return (
        f"providers: {{lab: {{base_url: '{server.url}/v1', auth: none}}}}\n"
        f"streaming: {{retries: {retries}, stall: {{first_event_s: 60}}}}\n{PRESET % settings}{more}"
    )


def by_model(**scripts: Script) -> Any:
    def respond(request: RecordedRequest) -> Script:
        return scripts.get(request.body["model"], Script(Reply((Say(f"{request.body['model']} says so."),))))

    return respond


def asked(server: ModelServer, model: str) -> list[RecordedRequest]:
    return [request for request in server.requests if request.body["model"] == model]


async def test_each_fate_is_shown_and_the_answer_comes(tmp_path: Path) -> None:
    retries = 1
    async with ModelServer() as server:
        server.respond = by_model(wild=scenario("status:500"), slow=scenario("hang"))
        config = lab(server, "deadline_s: 1", retries=retries)
        async with app(tmp_path / "home", config) as made:
            turn = await ended(made.start([user_message("?")], "moa:review", plan=RELAY))
            text = turn.folded().answer_text()
    assert (closed(turn).outcome, text) == ("stop", "chief says so.")
    notices = {e.text.split(" ")[0]: e.text for e in events(turn) if isinstance(e, NoticeShown)}
    assert notices.keys() == {"lab:wild", "lab:slow"}
    assert "late" in notices["lab:slow"]
    assert len(asked(server, "wild")) == 1 + retries
    assert asked(server, "slow")[0].client_left_at is not None
    (chief,) = asked(server, "chief")
    told = str(contents(chief))
    assert "wise says so." in told
    assert "500" not in told
    assert "wild" not in told
    for reference in ("wise", "wild", "slow"):
        assert all("tools" not in request.body for request in asked(server, reference))
    usage = turn.folded()
    assert usage.usage("advice").output_tokens == 34
    assert usage.usage().output_tokens == 68
    assert usage.usage("advice").unreported == 2


def test_one_that_was_late_because_it_failed_is_told_with_its_failure() -> None:
    async def once() -> Turn:
        failing = Told(fails("rate_limited", retry_after_s=20.0), name="r")
        turn = mixed(Told(says("The answer.")), [failing], retries=1, deadline_s=5.0)
        turn.start([user_message("?")])
        await turn.wait()
        return turn

    named = [e.text for e in events(virtually(once())) if isinstance(e, NoticeShown)]
    assert named[0] == "r:m gave no advice. It was late. It is rate_limited."


async def test_the_caller_asks_the_aggregator_alone_with_its_own_settings(tmp_path: Path) -> None:
    from tests.turns import TOOLS

    options = Options(
        tools=TOOLS, temperature=0.5, stream_options={"include_usage": False}, extra={"top_p": 0.5}
    )
    async with ModelServer() as server:
        server.respond = by_model(chief=scenario("tools"))
        async with app(tmp_path / "home", lab(server)) as made:
            turn = await ended(made.start([user_message("?")], "moa:review", options=options, plan=RELAY))
    assert closed(turn).outcome == "tool_calls"
    assert [part.name for part in turn.folded().tool_calls()] == ["weather", "clock"]
    (chief,) = asked(server, "chief")
    assert (chief.body["temperature"], chief.body["top_p"]) == (0.5, 0.5)
    assert chief.body["stream_options"] == {"include_usage": False}
    assert len(chief.body["tools"]) == 2
    for request in asked(server, "wise"):
        assert "temperature" not in request.body
        assert "tools" not in request.body


async def test_the_callers_read_timeout_is_the_aggregators_alone(tmp_path: Path) -> None:
    slow = Script(Reply((Say(("Advice that takes ", "its time.")),)), pace_s=0.3)
    async with ModelServer() as server:
        server.respond = by_model(wise=slow, chief=scenario("stall-mid-text"))
        async with app(tmp_path / "home", lab(server)) as made:
            options = Options(read_timeout_s=0.15)
            turn = await ended(made.start([user_message("?")], "moa:review", options=options, plan=RELAY))
    assert (closed(turn).outcome, closed(turn).cause.code) == ("cut", "stalled_gap")
    assert not [e for e in events(turn) if isinstance(e, NoticeShown)]
    assert "Advice that takes its time." in str(contents(asked(server, "chief")[0]))


async def test_without_streaming_the_answer_is_the_same(tmp_path: Path) -> None:
    texts, streams = [], []
    for enabled in ("true", "false"):
        async with ModelServer() as server:
            server.respond = by_model()
            config = lab(server).replace("streaming: {", f"streaming: {{enabled: {enabled}, ")
            async with app(tmp_path / "home", config) as made:
                turn = await ended(made.start([user_message("?")], "moa:", plan=RELAY))
            texts.append(turn.folded().answer_text())
            streams.append({request.body.get("stream", False) for request in server.requests})
    assert texts == ["chief says so."] * 2
    assert streams == [{True}, {False}]


@pytest.mark.parametrize("fanout", ["turn", "step"])
async def test_an_agent_is_advised_once_a_turn_or_before_every_reply(tmp_path: Path, fanout: str) -> None:
    def chief(request: RecordedRequest) -> Script:
        if request.body["model"] != "chief":
            return Script(Reply((Say(f"Advice on {len(request.body['messages'])} messages."),)))
        if any(m["role"] == "tool" for m in request.body["messages"]):
            return Script(Reply((Say("Done."),)))
        return Script(Reply((CallTool("read_file", {"path": "a.txt"}),)))

    (tmp_path / "a.txt").write_text("secret of the file")
    async with ModelServer() as server:
        server.respond = chief
        async with app(tmp_path / "home", lab(server, f"fanout: {fanout}")) as made:
            acting = Acting(folder=tmp_path)
            turn = await ended(made.start([user_message("Read it.")], "moa:review", acting=acting))
    assert closed(turn).outcome == "stop"
    assert [e.name for e in events(turn) if isinstance(e, ToolStarted)] == ["read_file"]
    rounds = 1 if fanout == "turn" else 2
    seen = [r for r in asked(server, "wise") if "Read it." in str(r.body)]
    assert len(seen) == rounds
    if fanout == "step":
        assert "secret of the file" in str(seen[1].body)
        assert not any("tool_calls" in m or m["role"] == "tool" for m in seen[1].body["messages"])


async def test_advice_is_no_part_of_what_the_next_turn_is_told(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.respond = by_model()
        async with app(tmp_path / "home", lab(server)) as made:
            session = made.session("s")
            for question in ("One?", "Two?"):
                await ended(made.start([user_message(question)], "moa:review", session))
        second = asked(server, "chief")[1]
    told = [m["content"] for m in second.body["messages"] if m["role"] != "system"]
    assert told[:2] == ["One?", "chief says so."]
    assert str(told).count("wise says so.") == 1


async def test_a_hundred_mixtures_at_once(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.respond = by_model()
        async with app(tmp_path / "home", lab(server)) as made:
            turns = [made.start([user_message(f"{n}?")], "moa:review", plan=RELAY) for n in range(100)]
            await asyncio.gather(*map(ended, turns))
    assert {(closed(turn).outcome, turn.folded().answer_text()) for turn in turns} == {
        ("stop", "chief says so.")
    }
    assert len(server.requests) == 400
    assert not [e for turn in turns for e in events(turn) if isinstance(e, NoticeShown)]


async def test_a_trace_says_who_was_asked_and_what_came_of_it(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.respond = by_model(wild=scenario("status:400"))
        prices = "models: {lab:wise: {prices: {output: 1000}}, lab:chief: {prices: {output: 2000}}}\n"
        async with app(tmp_path / "home", lab(server, more=prices)) as made:
            await ended(made.start([user_message("?")], "moa:review", plan=RELAY))
    (line,) = (tmp_path / "home" / "traces" / "mixtures.jsonl").read_bytes().splitlines()
    trace = json.loads(line)
    assert (trace["mixture"], trace["outcome"]) == ("moa:review", "stop")
    ends = {call["model"]: call["end"] for call in trace["calls"]}
    assert ends == {"lab:wise": "stop", "lab:wild": "failed", "lab:slow": "stop", "lab:chief": "stop"}
    assert trace["usage"]["output_tokens"] == 3 * 34
    spent = {call["model"]: call["usage"].get("output_tokens") for call in trace["calls"]}
    assert spent == {"lab:wise": 34, "lab:wild": None, "lab:slow": 34, "lab:chief": 34}
    costs = {call["model"]: call.get("cost") for call in trace["calls"]}
    assert costs == {"lab:wise": 0.034, "lab:wild": None, "lab:slow": None, "lab:chief": 0.068}
    assert trace["cost"] == pytest.approx(0.102)


@pytest.mark.parametrize("show", ["off", "summary", "full"])
async def test_the_terminal_shows_who_advises_and_then_the_answer(tmp_path: Path, show: str) -> None:
    async with ModelServer() as server:
        server.respond = by_model(wild=scenario("status:400"))
        (tmp_path / "config.yaml").write_text(lab(server, f"show_advice: {show}"))
        ran = await command(tmp_path, "chat", "--no-tools", "--model", "moa:review", "Hi")
    assert (ran.status, ran.out) == (0, "chief says so.\n")
    assert ("lab:wise is asked for advice" in ran.err) == (show != "off")
    assert ("lab:wise has advised" in ran.err) == (show != "off")
    assert ("wise says so." in ran.err) == (show == "full")
    assert "lab:wild gave no advice" in ran.err


@pytest.mark.parametrize("kind", ["text", "json"])
async def test_whoever_leaves_while_references_run_is_not_answered(tmp_path: Path, kind: str) -> None:
    async with ModelServer() as server:
        server.respond = by_model(
            wise=scenario("hang"), wild=scenario("stall-mid-text"), slow=scenario("hang")
        )
        (tmp_path / "config.yaml").write_text(lab(server, "deadline_s: 60"))
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "ask",
            *(["--json"] if kind == "json" else []),
            "--model",
            "moa:review",
            "Hi",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment(tmp_path),
        )
        await asyncio.wait_for(server.wait_requests(3), 20)
        process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        await asyncio.wait_for(server.wait_disconnected(3), 20)
        assert await asyncio.wait_for(process.wait(), 20) == 1
        assert not asked(server, "chief")


async def test_it_is_listed_with_its_models(tmp_path: Path) -> None:
    async with ModelServer() as server:
        (tmp_path / "config.yaml").write_text("model: 'moa:'\n" + lab(server))
        listed = await command(tmp_path, "models")
        checked = await command(tmp_path, "config", "check")
    (line,) = [line for line in listed.out.splitlines() if "moa:review" in line]
    assert "* moa:review" in line
    assert "aggregator: lab:chief, references: lab:wise + lab:wild + lab:slow" in line
    assert "  lab  127.0.0.1" in checked.out


async def test_a_mixture_is_not_examined_as_if_it_were_a_model(tmp_path: Path) -> None:
    async with ModelServer() as server:
        (tmp_path / "config.yaml").write_text(lab(server))
        ran = await command(tmp_path, "doctor", "moa:review")
    assert ran.status == 2
    assert "examine one of its models: lab:chief or lab:wise" in ran.err
    assert not server.requests
