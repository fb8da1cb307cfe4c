"""One model call against every fault of the model server: the right end and cause, and nothing shown twice."""

import asyncio
import itertools
import json
from typing import NamedTuple

import msgspec
import pytest

from headrace.errors import CauseCode, Outcome
from headrace.events import (
    AttemptReplaced,
    AttemptStarted,
    CallFailed,
    NoticeShown,
    ReplyCut,
    ReplyEnded,
    ToolStarted,
    UsageReported,
)
from headrace.ports import ProtocolName
from headrace.runtime.learnt import Learnt
from headrace.runtime.question import Options
from headrace.runtime.stalls import Patience
from headrace.runtime.turn import Turn
from headrace.testing.modelserver import (
    SCENARIOS,
    Close,
    ErrorShape,
    Raw,
    RefuseParameter,
    Reply,
    Say,
    Script,
    SendError,
    Stall,
    Status,
    Think,
    scenario,
)
from tests.turns import IMPATIENT, PATIENT, PROTOCOLS, RELAY, TOOLS, bench, closed, events, shown

TEXT = "Let me look."


class Expected(NamedTuple):
    outcome: Outcome
    code: CauseCode
    requests: int
    text: str = ""


LOST: CauseCode = "connection_lost"

HELLO = "Hello from the scripted model."
PLACES = ("mid-reasoning", "mid-text", "mid-arguments", "after-finish")

# What a relayed call comes to when it streams, with two retries.
STREAMED: dict[str, Expected] = {
    "close-before-headers": Expected("error", LOST, 3),
    "reset-before-headers": Expected("error", LOST, 3),
    "hang": Expected("error", "stalled_first_event", 3),
    "stall-before-headers": Expected("error", "stalled_first_event", 3),
    "close-after-headers": Expected("error", LOST, 3),
    "reset-after-headers": Expected("error", LOST, 3),
    "stall-after-headers": Expected("error", "stalled_first_event", 3),
    "eof-after-headers": Expected("error", "no_terminal", 3),
    "close-before-first-token": Expected("error", LOST, 3),
    "reset-before-first-token": Expected("error", LOST, 3),
    "eof-before-first-token": Expected("error", "no_terminal", 3),
    "stall-before-first-token": Expected("error", "stalled_gap", 3),
    "malformed-after-headers": Expected("error", "malformed_stream", 3),
    "malformed-before-first-token": Expected("error", "malformed_stream", 3),
    "error-after-headers": Expected("error", "server_error", 3),
    "error-before-first-token": Expected("error", "server_error", 3),
    "close-mid-reasoning": Expected("error", LOST, 3),
    "reset-mid-reasoning": Expected("error", LOST, 3),
    "eof-mid-reasoning": Expected("error", "no_terminal", 3),
    "stall-mid-reasoning": Expected("error", "stalled_gap", 3),
    "malformed-mid-reasoning": Expected("error", "malformed_stream", 3),
    "error-mid-reasoning": Expected("error", "server_error", 3),
    "close-mid-text": Expected("cut", LOST, 1, TEXT[:4]),
    "reset-mid-text": Expected("cut", LOST, 1, TEXT[:4]),
    "eof-mid-text": Expected("cut", "no_terminal", 1, TEXT[:4]),
    "stall-mid-text": Expected("cut", "stalled_gap", 1, TEXT[:4]),
    "malformed-mid-text": Expected("cut", "malformed_stream", 1, TEXT[:4]),
    "error-mid-text": Expected("error", "server_error", 1, TEXT[:4]),
    "error-then-done": Expected("error", "server_error", 1, "Hell"),
    "error-shape-native": Expected("error", "server_error", 1, TEXT[:4]),
    "error-shape-code": Expected("error", "server_error", 1, TEXT[:4]),
    "error-shape-int-code": Expected("error", "server_error", 1, TEXT[:4]),
    "error-shape-event": Expected("error", "server_error", 1, TEXT[:4]),
    "error-shape-flat": Expected("error", "server_error", 1, TEXT[:4]),
    "error-shape-nested": Expected("error", "server_error", 1, TEXT[:4]),
    "error-shape-failed": Expected("error", "server_error", 1, TEXT[:4]),
    "error-shape-overloaded": Expected("error", "overloaded", 1, TEXT[:4]),
    "error-shape-bare": Expected("cut", LOST, 1, TEXT[:4]),
    "close-mid-arguments": Expected("error", "tool_call_cut", 1, TEXT),
    "reset-mid-arguments": Expected("error", "tool_call_cut", 1, TEXT),
    "eof-mid-arguments": Expected("error", "tool_call_cut", 1, TEXT),
    "stall-mid-arguments": Expected("error", "tool_call_cut", 1, TEXT),
    "malformed-mid-arguments": Expected("error", "tool_call_cut", 1, TEXT),
    "error-mid-arguments": Expected("error", "tool_call_cut", 1, TEXT),
    "close-after-finish": Expected("tool_calls", "calls_returned", 1, TEXT),
    "reset-after-finish": Expected("tool_calls", "calls_returned", 1, TEXT),
    "eof-after-finish": Expected("tool_calls", "calls_returned", 1, TEXT),
    "stall-after-finish": Expected("tool_calls", "calls_returned", 1, TEXT),
    "malformed-after-finish": Expected("tool_calls", "calls_returned", 1, TEXT),
    "error-after-finish": Expected("error", "tool_call_cut", 1, TEXT),
    "empty-stream": Expected("error", "no_terminal", 3),
    "zero-content": Expected("error", "empty_reply", 3),
    "no-terminal": Expected("cut", "no_terminal", 1, HELLO),
    "no-finish": Expected("cut", "no_terminal", 1, HELLO),
    "no-done": Expected("stop", "answered", 1, HELLO),
    "drip": Expected("stop", "answered", 1, HELLO),
    "hello": Expected("stop", "answered", 1, HELLO),
    "tools": Expected("tool_calls", "calls_returned", 1, TEXT),
    "reasoning": Expected("stop", "answered", 1, "Hello after some thought."),
    "everything": Expected("tool_calls", "calls_returned", 1, TEXT),
    "refusal": Expected("refused", "declined", 1, "I would rather not."),
    "length": Expected("length", "output_truncated", 1, "This goes on and"),
    "content-filter": Expected("content_filter", "filtered", 1, "This was"),
    "answer-whole": Expected("stop", "answered", 1, HELLO),
    "refuse-streaming": Expected("stop", "answered", 2, HELLO),
    "refuse-stream-options": Expected("stop", "answered", 2, HELLO),
    "refuse-temperature": Expected("stop", "answered", 2, HELLO),
    "refuse-max-tokens": Expected("stop", "answered", 2, HELLO),
    "rate-limited": Expected("error", "rate_limited", 3),
    "no-quota": Expected("error", "quota_exhausted", 1),
    "status:400": Expected("error", "bad_request", 1),
    "status:401": Expected("error", "key_rejected", 1),
    "status:402": Expected("error", "payment_required", 1),
    "status:403": Expected("error", "forbidden", 1),
    "status:404": Expected("error", "model_not_found", 1),
    "status:408": Expected("error", "request_timeout", 3),
    "status:409": Expected("error", "conflict", 3),
    "status:413": Expected("error", "request_too_large", 1),
    "status:422": Expected("error", "bad_request", 1),
    "status:429": Expected("error", "rate_limited", 3),
    "status:500": Expected("error", "server_error", 3),
    "status:502": Expected("error", "server_error", 3),
    "status:503": Expected("error", "overloaded", 3),
    "status:529": Expected("error", "overloaded", 3),
}

# Where a whole answer ends otherwise than a stream does: nothing of it is seen before all of it is.
WHOLE: dict[str, Expected] = {
    **STREAMED,
    "hang": Expected("error", "stalled_total", 3),
    "stall-before-headers": Expected("error", "stalled_total", 3),
    "stall-after-headers": Expected("error", "stalled_total", 3),
    "stall-before-first-token": Expected("error", "stalled_total", 3),
    "reset-mid-reasoning": Expected("error", LOST, 3),
    "eof-mid-reasoning": Expected("error", "no_terminal", 3),
    "stall-mid-reasoning": Expected("error", "stalled_total", 3),
    "stall-mid-text": Expected("error", "stalled_total", 3),
    "stall-mid-arguments": Expected("error", "stalled_total", 3),
    "stall-after-finish": Expected("error", "stalled_total", 3),
    "refuse-streaming": Expected("stop", "answered", 1, HELLO),
    "refuse-stream-options": Expected("stop", "answered", 1, HELLO),
    "error-shape-bare": Expected("error", LOST, 3),
    "error-shape-overloaded": Expected("error", "overloaded", 3),
}
for _name in (
    *(
        f"{how}-{place}"
        for how in ("close", "reset")
        for place in ("mid-text", "mid-arguments", "after-finish")
    ),
):
    WHOLE[_name] = Expected("error", LOST, 3)
for _name in (*(f"eof-{place}" for place in (*PLACES, "after-headers", "before-first-token")), "empty-stream",
              *(f"malformed-{place}" for place in PLACES)):  # fmt: skip
    WHOLE[_name] = Expected("error", "malformed_stream", 3)
for _name in STREAMED:
    if _name.startswith("error-") and _name not in ("error-shape-bare", "error-shape-overloaded"):
        WHOLE[_name] = Expected("error", "server_error", 3)

# Where one protocol has another way.
ALSO: dict[tuple[str, ProtocolName, bool], Expected] = {
    # This protocol has one word for both.
    ("content-filter", "messages", True): Expected("refused", "declined", 1, "This was"),
    ("content-filter", "messages", False): Expected("refused", "declined", 1, "This was"),
    # Without a status nothing in it counts.
    ("no-terminal", "responses", False): Expected("error", "no_terminal", 3),
    ("no-finish", "responses", False): Expected("error", "no_terminal", 3),
    # An end marker alone is evidence here.
    ("no-finish", "chat_completions", True): Expected("stop", "answered", 1, HELLO),
    # Its terminal event is its last: nothing can follow, and rubbish is that event.
    ("error-after-finish", "responses", True): Expected("tool_calls", "calls_returned", 1, TEXT),
    ("malformed-after-finish", "responses", True): Expected("error", "tool_call_cut", 1, TEXT),
    # It is asked for by another name, or not at all.
    ("refuse-stream-options", "responses", True): Expected("stop", "answered", 1, HELLO),
    ("refuse-stream-options", "messages", True): Expected("stop", "answered", 1, HELLO),
    ("refuse-max-tokens", "responses", True): Expected("stop", "answered", 1, HELLO),
    ("refuse-max-tokens", "responses", False): Expected("stop", "answered", 1, HELLO),
    # It cannot be asked without one.
    ("refuse-max-tokens", "messages", True): Expected("error", "parameter_rejected", 2),
    ("refuse-max-tokens", "messages", False): Expected("error", "parameter_rejected", 2),
    # `response.failed` is an event of one protocol; to the others it is one that nobody knows.
    ("error-shape-failed", "chat_completions", True): Expected("cut", "no_terminal", 1, TEXT[:4]),
    ("error-shape-failed", "messages", True): Expected("cut", "no_terminal", 1, TEXT[:4]),
    ("error-shape-failed", "chat_completions", False): Expected("error", "malformed_stream", 3),
    ("error-shape-failed", "messages", False): Expected("error", "malformed_stream", 3),
}  # fmt: skip
OVERLOADED = ("error-after-headers", "error-before-first-token", "error-mid-reasoning", "error-mid-text",
              "error-shape-native")  # fmt: skip


def test_every_scenario_is_expected_to_end_somehow() -> None:
    """But for one that takes a while and differs in nothing but that."""
    assert set(SCENARIOS) - {"slow-drip"} == set(STREAMED)
    assert set(WHOLE) == set(STREAMED)


def expected_of(fault: str, protocol: ProtocolName, *, streamed: bool) -> Expected:
    expected = (STREAMED if streamed else WHOLE)[fault]
    own_word = fault in OVERLOADED or (fault.startswith("error-") and "shape" not in fault and not streamed)
    if protocol == "messages" and own_word and fault != "error-then-done":
        expected = expected._replace(code="overloaded")
    return ALSO.get((fault, protocol, streamed), expected)


def same(got: CauseCode, wanted: CauseCode) -> bool:
    """A clean end of a body that is cut is either no JSON or no end, as the place has it."""
    return got == wanted or {got, wanted} <= {"malformed_stream", "no_terminal"}


def script_of(fault: str) -> Script:
    """A wait that is asked for is a short one here."""
    return Script(fault=Status(429, retry_after="0.05")) if fault == "rate-limited" else scenario(fault)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", sorted(STREAMED))
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
async def test_every_fault_has_its_one_end(protocol: ProtocolName, fault: str, *, streamed: bool) -> None:
    expected = expected_of(fault, protocol, streamed=streamed)
    stalls = fault == "hang" or fault.startswith("stall")
    async with bench(patience=IMPATIENT if stalls else PATIENT) as lab:
        lab.server.default = script_of(fault)
        candidate = lab.candidate(protocol, streams=streamed, max_tokens=100, temperature=0.5)
        turn = await lab.run(candidate, plan=RELAY)
        end = closed(turn)
        last = _last_cause(turn) if expected.requests > 1 and end.outcome == "error" else end.cause.code
        assert (end.outcome, len(lab.server.requests)) == (expected.outcome, expected.requests)
        assert same(end.cause.code, expected.code) or same(last, expected.code)
        assert shown(turn) == expected.text
        assert not any(isinstance(e, ToolStarted) for e in events(turn))
        await lab.server.until(lambda: lab.server.open_requests == 0)


def _last_cause(turn: Turn) -> CauseCode:
    failed = [e for e in events(turn) if isinstance(e, CallFailed)]
    return failed[-1].lasts[-1][1].code if failed else "answered"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_fault_that_passes_is_not_seen(protocol: ProtocolName) -> None:
    async with bench() as lab:
        lab.server.default = scenario("close-before-first-token*2")
        turn = await lab.run(lab.candidate(protocol), plan=RELAY)
        assert closed(turn).outcome == "tool_calls"
        assert shown(turn) == TEXT
        assert sum(isinstance(e, AttemptReplaced) for e in events(turn)) == 2


async def test_the_last_attempt_after_broken_streams_asks_for_the_answer_in_one_piece() -> None:
    async with bench() as lab:
        lab.server.default = Script(Reply((Say("Whole."),)), Close("before_first_token"), times=2)
        turn = await lab.run(plan=RELAY)
        streamed = [e.streamed for e in events(turn) if isinstance(e, AttemptStarted)]
        assert streamed == [True, True, False]
        assert "stream" not in lab.server.requests[2].body
        assert "stream_options" not in lab.server.requests[2].body
        assert shown(turn) == "Whole."


async def test_a_slow_provider_is_not_asked_for_a_whole_answer() -> None:
    """A stall says nothing against streaming."""
    async with bench(patience=IMPATIENT) as lab:
        lab.server.default = scenario("hang")
        turn = await lab.run(plan=RELAY)
        assert all(e.streamed for e in events(turn) if isinstance(e, AttemptStarted))


async def test_attempts_of_one_call_never_overlap() -> None:
    async with bench(patience=IMPATIENT) as lab:
        lab.server.default = scenario("stall-before-first-token")
        await lab.run(plan=RELAY)
        requests = lab.server.requests
        for earlier, later in itertools.pairwise(requests):
            assert earlier.client_left_at is not None
            assert earlier.client_left_at <= later.arrived_at + 0.005


# --- shape and key changes


@pytest.mark.parametrize("parameter", ["stream_options", "temperature", "max_tokens"])
async def test_a_refused_parameter_is_left_out_once_and_remembered(parameter: str) -> None:
    async with bench(retries=0) as lab:
        lab.server.default = Script(fault=RefuseParameter(parameter))
        candidate = lab.candidate(max_tokens=100, temperature=0.5)
        assert closed(await lab.run(candidate, plan=RELAY)).outcome == "stop"
        assert closed(await lab.run(candidate, plan=RELAY)).outcome == "stop"
        assert [parameter in r.body for r in lab.server.requests] == [True, False, False]


async def test_max_tokens_goes_by_its_newer_name_where_the_older_is_refused() -> None:
    async with bench(retries=0) as lab:
        lab.server.default = Script(fault=RefuseParameter("max_tokens"))
        await lab.run(lab.candidate(max_tokens=100), plan=RELAY)
        assert lab.server.requests[1].body["max_completion_tokens"] == 100


async def test_what_was_learnt_is_forgotten_in_time() -> None:
    async with bench(retries=0) as lab:
        lab.around = msgspec.structs.replace(lab.around, learnt=Learnt(lab.around.clock, ttl_s=-1))
        lab.server.default = scenario("refuse-streaming")
        turn = await lab.run(plan=RELAY)
        # The change is believed for no time at all, so it cannot help this call either; and it is tried but once.
        assert closed(turn).cause.code == "streaming_unsupported"
        assert len(lab.server.requests) == 2


@pytest.mark.parametrize("status", [401, 429])
async def test_the_next_key_is_tried_once_and_kept(status: int) -> None:
    async with bench(retries=0) as lab:
        lab.server.respond = lambda r: Script(
            fault=Status(status) if r.headers["authorization"].endswith("first-key") else None
        )
        candidate = lab.candidate(keys=["the-first-key", "the-second-key"])
        for _ in range(2):
            assert closed(await lab.run(candidate, plan=RELAY)).outcome == "stop"
        used = [r.headers["authorization"].removeprefix("Bearer ") for r in lab.server.requests]
        assert used == ["the-first-key", "the-second-key", "the-second-key"]


async def test_a_second_refused_key_is_the_end() -> None:
    async with bench() as lab:
        lab.server.default = scenario("status:401")
        turn = await lab.run(
            lab.candidate(keys=["the-first-key", "the-second-key", "a-third-key"]), plan=RELAY
        )
        assert closed(turn).cause.code == "key_rejected"
        assert len(lab.server.requests) == 2


# --- fallbacks


@pytest.mark.parametrize("fault", ["status:500", "status:402", "no-quota", "hang", "close-before-headers"])
async def test_the_next_model_answers_when_one_is_exhausted(fault: str) -> None:
    async with bench(retries=1, patience=IMPATIENT if fault == "hang" else PATIENT) as lab:
        lab.server.respond = lambda r: scenario("hello" if r.body["model"] == "second" else fault)
        turn = await lab.run(lab.candidate(model="first"), lab.candidate(model="second"), plan=RELAY)
        assert closed(turn).outcome == "stop"
        notices = [e for e in events(turn) if isinstance(e, NoticeShown)]
        assert [n.code for n in notices] == ["fallback"]
        assert "lab:second" in notices[0].text
        assert turn.folded().replies[1].model == "lab:second"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_other_refusals_do_not_reach_the_next_model(status: int) -> None:
    async with bench() as lab:
        lab.server.default = scenario(f"status:{status}")
        turn = await lab.run(lab.candidate(model="first"), lab.candidate(model="second"), plan=RELAY)
        assert closed(turn).outcome == "error"
        assert len(lab.server.requests) == 1


async def test_a_failure_names_the_first_cause_and_each_models_last() -> None:
    async with bench(retries=1) as lab:
        lab.server.enqueue(*(scenario(f"status:{code}") for code in (500, 429, 503, 529)))
        turn = await lab.run(lab.candidate(model="first"), lab.candidate(model="second"), plan=RELAY)
        failed = next(e for e in events(turn) if isinstance(e, CallFailed))
        assert failed.cause.code == "server_error"
        assert [(m, c.code) for m, c in failed.lasts] == [
            ("lab:first", "rate_limited"),
            ("lab:second", "overloaded"),
        ]


# --- waiting


async def test_retry_after_is_honoured() -> None:
    async with bench(retries=1) as lab:
        lab.server.enqueue(Script(fault=Status(429, retry_after="0.3")))
        assert closed(await lab.run(plan=RELAY)).outcome == "stop"
        first, second = lab.server.requests
        assert second.arrived_at - first.arrived_at >= 0.3


async def test_a_wait_that_is_too_long_is_the_end_of_the_budget() -> None:
    async with bench() as lab:
        lab.server.default = Script(fault=Status(429, retry_after="3600"))
        turn = await lab.run(plan=RELAY)
        assert closed(turn).cause.retry_after_s == 3600
        assert len(lab.server.requests) == 1


async def test_a_callers_read_timeout_takes_the_place_of_the_gap() -> None:
    async with bench(patience=Patience(connect_s=2, first_event_s=60, gap_s=60)) as lab:
        lab.server.default = scenario("stall-mid-text")
        turn = await lab.run(plan=RELAY, options=Options(read_timeout_s=0.1))
        assert closed(turn).cause.code == "stalled_gap"


async def test_slow_thinking_that_sends_anything_is_alive() -> None:
    patience = Patience(connect_s=2, first_event_s=2, gap_s=0.3, no_progress_s=0.4)
    async with bench(patience=patience) as lab:
        reply = Reply((Think("Hm, let me think about this for a while, slowly."), Say("Yes.")))
        lab.server.default = Script(reply, pace_s=0.05)
        turn = await lab.run(plan=RELAY)
        assert closed(turn).outcome == "stop"
        assert len(lab.server.requests) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_bytes_that_say_nothing_are_a_sign_of_life(protocol: ProtocolName) -> None:
    """Comments, and events that nobody knows or shows, keep a connection alive for longer than a gap may be."""
    quiet = (b": keep-alive\n\n", b": OPENROUTER PROCESSING\n\n", b'event: odd\ndata: {"type":"odd"}\n\n') * 4
    patience = Patience(connect_s=5, first_event_s=5, gap_s=0.4, no_progress_s=5)
    async with bench(retries=0, patience=patience) as lab:
        lab.server.default = Script(Raw(quiet, end="eof"), pace_s=0.05)  # 0.6 s in all
        turn = lab.start(lab.candidate(protocol), plan=RELAY)
        began, heard = turn.last_activity, 0
        while turn.log.closed is None:
            await asyncio.sleep(0)
            heard, began = heard + (turn.last_activity > began), turn.last_activity
        assert closed(turn).cause.code == "no_terminal"
        assert 1 < heard <= len(quiet)


# --- an agent's turn


async def test_an_agent_goes_on_where_a_text_was_cut_and_joins_the_seam() -> None:
    async with bench() as lab:
        lab.server.enqueue(
            Script(Reply((Say(("The capital of France ", "is Pa", "ris.")),)), Close("mid_text", deltas=2)),
            Script(Reply((Say(("capital of Fra", "nce is Paris, ", "on the Seine.")),))),
        )
        turn = await lab.run()
        assert closed(turn).outcome == "stop"
        assert turn.folded().answer_text() == shown(turn) == "The capital of France is Paris, on the Seine."
        kinds = [type(e) for e in events(turn) if isinstance(e, ReplyCut | ReplyEnded)]
        assert kinds == [ReplyCut, ReplyEnded]


async def test_a_text_cut_twice_ends_cut_with_all_of_it_kept() -> None:
    async with bench() as lab:
        lab.server.enqueue(
            Script(Reply((Say(("One, ", "two, ")),)), Close("mid_text", deltas=1)),
            Script(Reply((Say(("three, ", "four.")),)), Close("mid_text", deltas=1)),
        )
        turn = await lab.run()
        assert (closed(turn).outcome, closed(turn).cause.code) == ("cut", "connection_lost")
        assert turn.folded().answer_text() == "One, three, "
        assert len(lab.server.requests) == 2


async def test_a_continuation_that_fails_leaves_the_answer_cut() -> None:
    async with bench(retries=0) as lab:
        lab.server.enqueue(
            Script(Reply((Say(("One, ", "two.")),)), Close("mid_text", deltas=1)), scenario("status:400")
        )
        turn = await lab.run()
        assert (closed(turn).outcome, closed(turn).cause.code) == ("cut", "connection_lost")
        assert shown(turn) == "One, "


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_cut_tool_call_is_said_and_asked_for_again(protocol: ProtocolName) -> None:
    async with bench() as lab:
        lab.server.default = scenario("close-mid-arguments*1")
        turn = await lab.run(lab.candidate(protocol), options=Options(tools=TOOLS))
        notices = [e.text for e in events(turn) if isinstance(e, NoticeShown)]
        assert notices == ["Stream stalled mid tool-call (weather). Nothing of it was run."]
        assert closed(turn).outcome == "tool_calls"
        assert [part.name for part in turn.folded().tool_calls()] == ["weather"]
        assert "weather" in str(lab.server.requests[1].body)


async def test_a_call_that_is_lost_between_its_name_and_its_arguments_is_said_by_its_name() -> None:
    """Providers gather long arguments before they send the first of them; here is where most streams stall."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    deltas: list[dict[str, object]] = [{"content": "I look. "}, {"tool_calls": [call]}]
    chunks = (b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": d}]}).encode() for d in deltas)
    async with bench(patience=IMPATIENT) as lab:
        lab.server.enqueue(Script(Raw(tuple(chunks), end="stall")), Script(Reply((Say("It rains."),))))
        turn = await lab.run(options=Options(tools=TOOLS))
        cut = next(e for e in events(turn) if isinstance(e, ReplyCut))
        assert (cut.cause.code, cut.dropped) == ("stalled_gap", ("weather",))
        notices = [e.text for e in events(turn) if isinstance(e, NoticeShown)]
        assert notices == ["Stream stalled mid tool-call (weather). Nothing of it was run."]
        assert "weather" in str(lab.server.requests[1].body["messages"][-1])
        assert turn.folded().answer_text() == "I look. \n\nIt rains."


async def test_a_tool_call_cut_again_and_again_ends_within_its_bound() -> None:
    async with bench() as lab:
        lab.server.default = scenario("reset-mid-arguments")
        turn = await lab.run(options=Options(tools=TOOLS))
        assert (closed(turn).outcome, closed(turn).cause.code) == ("error", "tool_call_cut")
        assert len(lab.server.requests) == 3


# --- accounts and requests


async def test_usage_of_replaced_attempts_is_paid_for_and_apart() -> None:
    async with bench() as lab:
        lab.server.enqueue(Script(Reply((Think("Hm."), Say("x"))), Close("mid_reasoning")))
        turn = await lab.run(lab.candidate("messages"), plan=RELAY)
        assert [type(e) for e in events(turn)].count(UsageReported) == 2
        assert turn.folded().usage().input_tokens == 12
        assert (turn.folded().spent().input_tokens or 0) > 12


@pytest.mark.parametrize(
    ("own", "sent"), [(None, {"include_usage": True}), ({"include_usage": False}, {"include_usage": False})]
)
async def test_a_callers_stream_options_are_forwarded_as_they_are(
    own: dict[str, bool] | None, sent: object
) -> None:
    async with bench() as lab:
        await lab.run(plan=RELAY, options=Options(stream_options=own))
        assert lab.server.requests[0].body["stream_options"] == sent


@pytest.mark.parametrize("shape", ["bare", "code", "int_code", "event"])
async def test_a_lost_connection_told_within_the_stream_is_tried_again(shape: ErrorShape) -> None:
    async with bench() as lab:
        lab.server.default = Script(
            Reply((Say("Hello."),)),
            SendError("before_first_token", shape=shape),
            times=1,
        )
        turn = await lab.run(plan=RELAY)
        assert closed(turn).outcome == "stop", closed(turn).cause


async def test_an_error_without_a_code_that_nobody_knows_is_not_tried_again() -> None:
    async with bench() as lab:
        lab.server.default = Script(
            Raw((b'data: {"error":{"message":"The moon is in the wrong house."}}\n\n',))
        )
        turn = await lab.run(plan=RELAY)
        assert closed(turn).cause.code == "provider_error"
        assert len(lab.server.requests) == 1


async def test_connections_are_kept_between_turns() -> None:
    async with bench() as lab:
        for _ in range(3):
            await lab.run(plan=RELAY)
        assert {r.connection for r in lab.server.requests} == {1}


async def test_a_reset_after_the_end_is_no_failure() -> None:
    async with bench() as lab:
        lab.server.default = Script(Reply((Say("Done."),)), Stall("after_finish"))
        turn = await lab.run(plan=RELAY)
        assert closed(turn).outcome == "stop"
