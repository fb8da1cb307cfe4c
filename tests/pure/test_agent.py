"""What an agent decides, from generated turns; how a continuation is joined; what of the past a call is given."""

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headrace.agent.decide import (
    AGENT,
    GO_ON,
    RELAY,
    Action,
    Ask,
    Close,
    Compact,
    Plan,
    RunTools,
    decide,
)
from headrace.agent.history import Context, Past, PastTurn, Room, fitted, told
from headrace.agent.seam import Seam
from headrace.errors import CAUSES, Cause, CauseCode
from headrace.events import (
    LOG_VERSION,
    AssistantMessage,
    AttemptStarted,
    CallFailed,
    CallStarted,
    EndReason,
    Event,
    HistoryCompacted,
    Message,
    PartClosed,
    PartGrew,
    PartStarted,
    ReplyCut,
    ReplyEnded,
    ReplyPart,
    SystemMessage,
    TextContent,
    ToolFinished,
    ToolMessage,
    TurnOpened,
    UsageReported,
    user_message,
)
from headrace.limits import PAUSES, SEAM_CHARS, SEAM_LEAST_CHARS
from headrace.providers.phrases import refine
from headrace.turn.costs import Prices
from headrace.turn.folds import Folded
from headrace.turn.machine import Machine
from headrace.turn.sizes import size
from tests.pure.turns import TEXT, TURN, text, tool

LOST = Cause("connection_lost", "lost")
REJECTED = Cause("key_rejected", "no")
OPENED = TurnOpened(LOG_VERSION, (user_message("?"),))


def turn(*replies: list[Event]) -> Folded:
    """A folded turn of these replies, each legal."""
    machine, folded = Machine(), Folded()
    for event in (OPENED, *(event for reply in replies for event in reply)):
        machine.apply(event)
        folded.apply(event)
    return folded


def reply(call: int, *parts: list[Event], end: Event) -> list[Event]:
    opening: list[Event] = [CallStarted(call, "reply", "p:m"), AttemptStarted(call, 1, "p:m")]
    return [*opening, *(event for part in parts for event in part), end]


def ended(call: int, reason: EndReason, said: str = "Said.") -> list[Event]:
    return reply(call, text(1, said, call), end=ReplyEnded(call, reason))


def cut(call: int, *dropped: str, said: str = "Half a", cause: Cause = LOST) -> list[Event]:
    return reply(call, text(1, said, call), end=ReplyCut(call, cause, dropped))


def failed(call: int, cause: Cause = LOST) -> list[Event]:
    return reply(call, end=CallFailed(call, cause))


def called(call: int, *names: str, tokens: int = 0) -> list[Event]:
    tools = [tool(part, name, "{}", call) for part, name in enumerate(names, 1)]
    usage: list[Event] = [UsageReported(call, input_tokens=tokens, output_tokens=1)]
    return reply(call, *tools, usage, end=ReplyEnded(call, "tool_calls"))


def result(call: int, part: int) -> list[Event]:
    return [ToolFinished(call, part, "ok", "done")]


# --- decide


def test_a_turn_begins_by_asking() -> None:
    assert decide(turn(), RELAY) == Ask((user_message("?"),))


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("stop", "stop"),
        ("tool_calls", "tool_calls"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("refused", "refused"),
    ],
)
@pytest.mark.parametrize("plan", [RELAY, AGENT])
def test_a_reply_that_ended_closes_the_turn(plan: Plan, reason: EndReason, outcome: str) -> None:
    action = decide(turn(ended(1, reason)), plan)
    assert isinstance(action, Close)
    assert action.outcome == outcome
    assert action.cause.outcome(visible=True) == outcome


def test_a_pause_is_asked_on_within_its_bound() -> None:
    paused = [ended(call, "pause") for call in range(1, PAUSES + 2)]
    action = decide(turn(*paused[:PAUSES]), RELAY)
    assert isinstance(action, Ask)
    assert isinstance(action.messages[-1], AssistantMessage)
    last = decide(turn(*paused), RELAY)
    assert isinstance(last, Close)
    assert (last.outcome, last.cause.code) == ("limit", "step_limit")


def test_a_relayed_reply_that_is_cut_ends_cut() -> None:
    assert decide(turn(cut(1)), RELAY) == Close("cut", LOST)


def test_an_agent_goes_on_with_a_cut_text_once() -> None:
    action = decide(turn(cut(1, said="x" * SEAM_CHARS + "The end")), AGENT)
    assert isinstance(action, Ask)
    assert action.messages[-1] == GO_ON
    assert len(action.seam) == SEAM_CHARS
    assert action.seam.endswith("The end")
    assert decide(turn(cut(1), cut(2)), AGENT) == Close("cut", LOST)


def test_what_is_not_transient_is_not_gone_on_with() -> None:
    assert decide(turn(cut(1, cause=REJECTED)), AGENT) == Close("error", REJECTED)
    action = decide(turn(cut(1, "weather", cause=REJECTED)), AGENT)
    assert isinstance(action, Close)
    assert action.cause.code == "tool_call_cut"


def test_a_cut_refusal_is_not_gone_on_with() -> None:
    """It is not in the history, so there is nothing a model could go on with."""
    refusal: list[Event] = [PartStarted(1, 1, "refusal"), PartGrew(1, 1, "I would rather")]
    assert decide(turn(reply(1, refusal, end=ReplyCut(1, LOST))), AGENT) == Close("cut", LOST)


def test_a_cut_tool_call_is_asked_for_again_within_its_bound() -> None:
    for count in (1, 2):
        action = decide(turn(*(cut(call, "weather") for call in range(1, count + 1))), AGENT)
        assert isinstance(action, Ask)
        assert not action.seam
    last = decide(turn(*(cut(call, "weather") for call in (1, 2, 3))), AGENT)
    assert isinstance(last, Close)
    assert (last.outcome, last.cause.code) == ("error", "tool_call_cut")
    assert "weather" in last.cause.message


@pytest.mark.parametrize("visible", [True, False])
def test_a_failed_call_closes_the_turn_with_what_went_wrong_first(*, visible: bool) -> None:
    if visible:
        assert decide(turn(cut(1), failed(2, REJECTED)), AGENT) == Close("cut", LOST)
    else:
        assert decide(turn(failed(1, REJECTED)), AGENT) == Close("error", REJECTED)


def test_a_call_that_fails_to_mend_a_cut_tool_call_leaves_it_lost() -> None:
    action = decide(turn(cut(1, "weather"), failed(2)), AGENT)
    assert isinstance(action, Close)
    assert (action.outcome, action.cause.code) == ("error", "tool_call_cut")


TOOLS = Plan(runs_tools=True, max_steps=3, max_tokens=1000)


def test_tools_run_until_every_call_has_its_result() -> None:
    two = called(1, "weather", "clock")
    assert decide(turn(two), TOOLS) == RunTools(1, (1, 2))
    assert decide(turn(two, result(1, 1)), TOOLS) == RunTools(1, (2,))
    action = decide(turn(two, result(1, 1), result(1, 2)), TOOLS)
    assert isinstance(action, Ask)
    assert [type(m) for m in action.messages[-2:]] == [ToolMessage, ToolMessage]


@pytest.mark.parametrize(("steps", "tokens", "code"), [(3, 1, "step_limit"), (1, 1000, "token_limit")])
def test_an_agent_stops_at_its_limits(steps: int, tokens: int, code: CauseCode) -> None:
    replies = [called(n, "clock", tokens=tokens) + result(n, 1) for n in range(1, steps + 1)]
    action = decide(turn(*replies), TOOLS)
    assert isinstance(action, Close)
    assert (action.outcome, action.cause.code) == ("limit", code)


@given(TURN, st.sampled_from([RELAY, AGENT, TOOLS]))
def test_every_turn_leads_to_one_action_that_may_follow(events: list[Event], plan: Plan) -> None:
    folded, machine = Folded(), Machine()
    for event in events:
        machine.apply(event)
        folded.apply(event)
    assume(folded.closed is None)
    action = decide(folded, plan)
    assert action == decide(folded, plan)
    assert isinstance(action, get_args(Action))
    if isinstance(action, Close):
        assert action.cause.code in CAUSES
        ends = [r.end for r in folded.replies.values() if r.purpose == "reply"]
        honest = isinstance(ends[-1], ReplyEnded) and ends[-1].reason == "stop"
        assert (action.outcome == "stop") == honest
    if isinstance(action, RunTools):
        machine.apply(ToolFinished(action.call, action.parts[0], "ok", ""))


@given(st.lists(st.sampled_from(["pause", "cut", "lost call", "failed", "stop"]), max_size=30))
def test_no_run_of_luck_makes_a_turn_endless(luck: list[str]) -> None:
    replies: list[list[Event]] = []
    for call, what in enumerate([*luck, "stop"], 1):
        if isinstance(decide(turn(*replies), AGENT), Close):
            break
        match what:
            case "pause":
                replies.append(ended(call, "pause"))
            case "cut":
                replies.append(cut(call))
            case "lost call":
                replies.append(cut(call, "weather"))
            case "failed":
                replies.append(failed(call))
            case _:
                replies.append(ended(call, "stop"))
    assert isinstance(decide(turn(*replies), AGENT), Close)
    assert len(replies) <= PAUSES + 1 + AGENT.repeats + AGENT.continuations + 1


# --- seam


def pieces_of(whole: str, cuts: list[int]) -> list[str]:
    at = sorted({0, len(whole), *(c % (len(whole) + 1) for c in cuts)})
    return [whole[a:b] for a, b in pairwise(at)]


def joined(before: str, pieces: list[str], *, breaks: bool = False) -> str:
    """`before` and what the seam lets through of a reply made of these pieces."""
    seam = Seam(before)
    end: list[Event] = [] if breaks else [PartClosed(1, 1), ReplyEnded(1, "stop")]
    out = seam.feed([PartStarted(1, 1, "text")])
    for piece in pieces:
        out += seam.feed([PartGrew(1, 1, piece)])
    out += seam.feed(end)
    out += seam.flush()
    return before + "".join(e.text for e in out if isinstance(e, PartGrew))


WORDS = st.text(st.sampled_from("abc dé\n😀"), max_size=60)
CUTS = st.lists(st.integers(0, 200), max_size=6)


def repetition(before: str, continuation: str) -> int:
    """How much of the continuation's start stands at the end of the old text: the definition, letter by letter."""
    longest = min(len(before), len(continuation))
    sizes = [n for n in range(SEAM_LEAST_CHARS, longest + 1) if before.endswith(continuation[:n])]
    return max(sizes, default=0)


@given(WORDS, WORDS, CUTS, st.booleans())
@example("ha ha ha ha", "ha ha!", [3], False)
@example("one two one", "one two", [], True)
def test_only_a_repetition_of_the_end_is_taken_off(
    before: str, continuation: str, cuts: list[int], breaks: bool
) -> None:
    expected = before + continuation[repetition(before, continuation) :]
    assert joined(before, pieces_of(continuation, cuts), breaks=breaks) == expected


@given(WORDS, st.integers(0, 100), st.integers(0, 100), CUTS)
def test_a_whole_text_is_whole_again(whole: str, at: int, overlap: int, cuts: list[int]) -> None:
    at = at % (len(whole) + 1)
    start = max(0, at - overlap)
    before, continuation = whole[:at], whole[start:]
    # Where a text repeats itself nobody can tell which of the repetitions was meant, and two letters may be chance.
    assume(repetition(before, continuation) == at - start)
    assert joined(before, pieces_of(continuation, cuts)) == whole


@given(WORDS, st.text("XYZ", min_size=1, max_size=40), CUTS)
def test_nothing_is_lost_without_an_overlap(before: str, continuation: str, cuts: list[int]) -> None:
    assert joined(before, pieces_of(continuation, cuts)) == before + continuation


@given(WORDS, st.lists(st.tuples(st.integers(1, 2), TEXT), max_size=8))
def test_texts_that_grow_side_by_side_keep_their_words(before: str, growth: list[tuple[int, str]]) -> None:
    seam = Seam(before)
    events: list[Event] = [PartStarted(1, 1, "text"), PartStarted(1, 2, "text")]
    events += [PartGrew(1, part, piece) for part, piece in growth]
    out = [e for event in [*events, ReplyEnded(1, "stop")] for e in seam.feed([event])]
    first = growth[0][0] if growth else 1
    other = "".join(piece for part, piece in growth if part != first)
    assert "".join(e.text for e in out if isinstance(e, PartGrew) and e.part != first) == other


@given(TURN, WORDS)
def test_everything_but_growth_passes_a_seam_in_order(events: list[Event], before: str) -> None:
    seam = Seam(before)
    out = [e for event in events for e in seam.feed([event])] + seam.flush()
    assert [e for e in out if not isinstance(e, PartGrew)] == [
        e for e in events if not isinstance(e, PartGrew)
    ]


def test_a_seam_hears_what_it_takes_off() -> None:
    seam = Seam("the very end")
    assert not seam.heard
    seam.feed([PartStarted(1, 1, "reasoning"), PartGrew(1, 1, "hm"), PartStarted(1, 2, "text")])
    assert not seam.heard
    assert seam.feed([PartGrew(1, 2, "very end")]) == []
    assert seam.heard


# --- history

RESULT = st.builds(lambda t, n: ToolMessage("id", (TextContent(t * n),)), TEXT, st.sampled_from([1, 300]))
MESSAGE: st.SearchStrategy[Message] = st.one_of(
    TEXT.map(user_message),
    TEXT.map(SystemMessage),
    RESULT,
    st.builds(lambda t, i: AssistantMessage((ReplyPart("text", t, item=i),)), TEXT, st.just("") | TEXT),
)
MESSAGES = st.lists(MESSAGE, min_size=1, max_size=3).map(tuple)


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    turns = draw(st.lists(MESSAGES, max_size=6))
    summary = draw(st.just("") | TEXT)
    return Past(turns=tuple(PastTurn.of(f"t{n}", m) for n, m in enumerate(turns)), summary=summary)


@given(pasts(), st.integers(0, 2000))
def test_the_latest_turns_are_told_as_whole_as_there_is_room(past: Past, room: int) -> None:
    said = told(past, Room(room, 0))
    if past.summary:
        assert past.summary in said[0].content[0].text
        room -= size(said[:1])
        said = said[1:]
    assert not said or size(said) <= room
    ways = {
        tuple(m for n, turn in enumerate(past.turns[start:], start) for m in (turn.lean if n < whole else turn.messages)): (start, whole)
        for start in range(len(past.turns) + 1)
        for whole in range(start, len(past.turns) + 1)
    }  # fmt: skip
    assert said in ways
    longest = max(
        (len(past.turns) - at for at in range(len(past.turns) + 1) if sum(t.least for t in past.turns[at:]) <= room),
        default=0,
    )  # fmt: skip
    assert len(said) == sum(len(turn.messages) for turn in past.turns[len(past.turns) - longest :])


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.integers(0, 3000))
def test_only_what_tools_returned_is_ever_cut(steps: list[tuple[Message, ...]], room: int) -> None:
    messages = tuple(m for step in steps for m in step)
    left = fitted(messages, room)
    assert len(left) == len(messages)
    for before, after in zip(messages, left, strict=True):
        assert after == before or (isinstance(before, ToolMessage) and isinstance(after, ToolMessage))
    assert size(left) <= size(messages) + 100 * len(messages)
    if size(messages) <= room:
        assert left == messages


def past_of(*sizes: int) -> Past:
    return Past(turns=tuple(PastTurn.of(f"t{n}", (user_message("x" * s),)) for n, s in enumerate(sizes)))


def test_a_past_without_room_is_summarised_once_and_then_told_as_its_summary() -> None:
    context = Context(past=past_of(60, 60, 30), room=Room(100, 100))
    action = decide(turn(), AGENT, context)
    assert isinstance(action, Compact)
    assert action.through == "t1"
    assert "x" * 60 in action.messages[1].content[0].text
    summary: list[Event] = [
        CallStarted(1, "summary", "p:m"), AttemptStarted(1, 1, "p:m"), *text(1, "They met.", 1),
        ReplyEnded(1, "stop"),
    ]  # fmt: skip
    done = turn([*summary, HistoryCompacted("t1", "They met.", 1)])
    asked = decide(done, AGENT, context)
    assert isinstance(asked, Ask)
    said = str(asked.messages)
    assert "They met." in said
    assert "x" * 30 in said
    assert "x" * 60 not in said
    assert done.answer_text() == ""


def test_a_summary_that_failed_leaves_the_oldest_out_and_asks() -> None:
    context = Context(past=past_of(60, 60, 30), room=Room(100, 100))
    tried: list[Event] = [
        CallStarted(1, "summary", "p:m"), AttemptStarted(1, 1, "p:m"), CallFailed(1, LOST),
    ]  # fmt: skip
    asked = decide(turn(tried), AGENT, context)
    assert isinstance(asked, Ask)
    assert str(asked.messages).count("x" * 30) == 3  # 60 and 30


def test_a_relay_summarises_nothing() -> None:
    action = decide(turn(), RELAY, Context(past=past_of(60, 60, 30), room=Room(100, 100)))
    assert isinstance(action, Ask)


def test_money_is_a_bound_where_a_price_is_known() -> None:
    prices = {"p:m": Prices(input=1000.0, output=1e6)}  # a token sent costs 0.001, one generated 1
    acting = Plan(runs_tools=True, max_cost=1.5, prices=prices)
    done = [called(1, "look", tokens=400), result(1, 1)]
    assert isinstance(decide(turn(*done), acting), Ask)
    more = [*done, called(2, "look", tokens=400), result(2, 1)]
    closed = decide(turn(*more), acting)
    assert isinstance(closed, Close)
    assert (closed.outcome, closed.cause.code) == ("limit", "cost_limit")
    free = Plan(runs_tools=True, max_cost=1.5)
    assert isinstance(decide(turn(*more), free), Ask)


# --- phrases


@pytest.mark.parametrize(
    ("code", "message", "refined", "parameter"),
    [
        ("provider_error", "Network connection lost.", "connection_lost", ""),
        (
            "provider_error",
            "upstream connect error or disconnect/reset before headers",
            "connection_lost",
            "",
        ),
        ("provider_error", "Error reading from upstream", "connection_lost", ""),
        ("provider_error", "The model is overloaded. Try again later.", "overloaded", ""),
        ("bad_request", "Service temporarily unavailable", "overloaded", ""),
        ("bad_request", "Streaming is not supported for this model.", "streaming_unsupported", ""),
        ("bad_request", "This endpoint does not support streaming", "streaming_unsupported", ""),
        ("bad_request", "Unsupported value: 'stream' does not support true", "streaming_unsupported", ""),
        ("bad_request", "Unknown parameter: 'stream_options'.", "parameter_rejected", "stream_options"),
        (
            "bad_request",
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            "parameter_rejected",
            "max_tokens",
        ),
        (
            "bad_request",
            "max_tokens: 57344 > 32000, which is the maximum allowed number of output tokens",
            "parameter_rejected",
            "max_tokens",
        ),
        (
            "bad_request",
            "max_tokens is too large: 16000. This model supports at most 4096 completion tokens.",
            "parameter_rejected",
            "max_tokens",
        ),
        (
            "bad_request",
            "`max_tokens` must be less than or equal to `8192`",
            "parameter_rejected",
            "max_tokens",
        ),
        (
            "bad_request",
            "Unsupported parameter: 'max_output_tokens' is not supported with this model.",
            "parameter_rejected",
            "max_output_tokens",
        ),
        ("bad_request", "`temperature` is deprecated for this model", "parameter_rejected", "temperature"),
        (
            "bad_request",
            '[{"type":"extra_forbidden","loc":["body","stream_options"]}]',
            "parameter_rejected",
            "stream_options",
        ),
        ("forbidden", "Insufficient credits", "quota_exhausted", ""),
        ("bad_request", "This model's maximum context length is 8192 tokens", "request_too_large", ""),
        ("bad_request", "prompt is too long: 210000 tokens > 200000", "request_too_large", ""),
        ("bad_request", "The moon is in the wrong house.", "bad_request", ""),
        # A code goes before a phrase.
        ("server_error", "The model is overloaded", "server_error", ""),
        ("key_rejected", "temperature is not supported", "key_rejected", ""),
    ],
)
def test_phrases(code: CauseCode, message: str, refined: str, parameter: str) -> None:
    cause = refine(Cause(code, message))
    assert (cause.code, cause.parameter) == (refined, parameter)
    assert cause.message == message


def test_the_parameter_a_provider_names_goes_before_the_one_in_its_sentence() -> None:
    message = "Unsupported parameter: use 'max_completion_tokens' instead."
    cause = refine(Cause("parameter_rejected", message, parameter="max_tokens"))
    assert (cause.code, cause.parameter) == ("parameter_rejected", "max_tokens")


def test_a_refused_stream_parameter_is_a_refusal_to_stream() -> None:
    """OpenAI, of accounts that are not verified: the words say nothing of what is supported."""
    message = "Your organization must be verified to stream this model."
    cause = refine(Cause("parameter_rejected", message, parameter="stream"))
    assert cause.code == "streaming_unsupported"


def test_a_full_rate_limit_is_told_from_an_empty_account() -> None:
    empty = refine(Cause("rate_limited", "You exceeded your current quota.", status=429))
    assert empty.code == "quota_exhausted"
    full = refine(Cause("rate_limited", "The server is overloaded: too many requests.", status=429))
    assert full.code == "rate_limited"
