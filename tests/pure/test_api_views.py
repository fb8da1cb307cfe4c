"""What API clients are sent: laws over generated turns, and examples that were once wrong."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import OUTCOMES, Cause, Outcome
from headrace.events import (
    LOG_VERSION,
    ApprovalAsked,
    AttemptReplaced,
    AttemptStarted,
    CallStarted,
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
    TurnOpened,
    UsageReported,
    user_message,
)
from headrace.turn.closing import closing
from headrace.turn.folds import fold
from headrace.turn.machine import Machine
from headrace.views.chat_completions import ChatView, whole, whole_failure
from headrace.views.failing import FAILURES
from headrace.views.responses import Request, ResponsesView, response_id, turn_of
from tests.pure.turns import TURN, a_reply, text, tool

ANSWERED = Cause("answered", "")
LOST = Cause("connection_lost", "The connection was lost.")


def recorded(events: Sequence[Event], request: Request | None = None) -> list[Recorded]:
    """As a log holds them, closed; `request` is how it was asked for."""
    machine = Machine()
    for event in events:
        machine.apply(event)
    entries = [Recorded("turn_1a2b3c", n, 1.5, event) for n, event in enumerate(events, 1)]
    for event in closing(machine, fold(entries), LOST):
        entries.append(Recorded("turn_1a2b3c", len(entries) + 1, 2.5, event))
    opened = entries[0].event
    assert isinstance(opened, TurnOpened)
    asked = TurnOpened(LOG_VERSION, opened.input, model="p:m", request=request.text() if request else "")
    return [Recorded("turn_1a2b3c", 1, 1.5, asked), *entries[1:]]


def opened(*events: Event) -> list[Event]:
    return [TurnOpened(LOG_VERSION, (user_message("?"),)), *events]


def ended(*events: Event, outcome: Outcome = "stop", cause: Cause = ANSWERED) -> list[Event]:
    return [*opened(*events), TurnClosed(outcome, cause)]


def chunks(frames: Sequence[bytes]) -> list[dict[str, Any]]:
    values = [frame.decode().removeprefix("data: ") for frame in frames]
    assert all(value.endswith("\n\n") for value in values)
    assert values[-1] == "[DONE]\n\n"
    return [json.loads(value) for value in values[:-1]]


def numbered(frames: Sequence[bytes]) -> list[dict[str, Any]]:
    out = []
    assert frames[-1] == b"data: [DONE]\n\n"
    for frame in frames[:-1]:
        name, data = frame.decode().rstrip("\n").split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        out.append(value)
    return out


def deltas(told: Sequence[dict[str, Any]], field: str) -> str:
    return "".join(c["choices"][0]["delta"].get(field) or "" for c in told if c.get("choices"))


def calls(told: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """As every client joins them."""
    joined: dict[int, dict[str, Any]] = {}
    for chunk in told:
        for call in chunk["choices"][0]["delta"].get("tool_calls", ()) if chunk.get("choices") else ():
            known = joined.setdefault(
                call["index"], {"id": call.get("id"), "name": call["function"]["name"], "arguments": ""}
            )
            known["arguments"] += call.get("function", {}).get("arguments", "")
    return list(joined.values())


ACTS = st.booleans()
PROGRESS = st.sampled_from(["reasoning", "chunks", "off"])
CUTS = st.lists(st.integers(0, 130), max_size=5)


def pieces(entries: list[Recorded], places: list[int]) -> list[list[Recorded]]:
    edges = [0, *sorted(min(place, len(entries)) for place in places), len(entries)]
    return [entries[start:end] for start, end in itertools.pairwise(edges)]


@given(TURN, ACTS, PROGRESS, CUTS)
def test_chunks_do_not_depend_on_how_the_log_was_fed(
    turn: list[Event], acts: bool, progress: Any, places: list[int]
) -> None:
    entries = recorded(turn)

    def frames(parts: list[list[Recorded]]) -> list[bytes]:
        view = ChatView("m", acts=acts, progress=progress, include_usage=True)
        return [frame for part in parts for frame in view.feed(part)]

    assert frames(pieces(entries, places)) == frames([entries])


@given(TURN, ACTS, PROGRESS)
def test_joined_chunks_are_the_whole_answer(turn: list[Event], acts: bool, progress: Any) -> None:
    entries = recorded(turn)
    told = chunks(ChatView("m", acts=acts, progress=progress).feed(entries))
    folded = fold(entries)
    assert folded.closed is not None
    last = [chunk["choices"][0]["finish_reason"] for chunk in told if chunk.get("choices")]
    assert last[:-1] == [None] * (len(last) - 1)
    if folded.closed.outcome in FAILURES:
        assert last[-1] == "error"
        assert told[-2].keys() == {"error"}
        assert told[-2]["error"] == told[-1]["error"] == whole_failure(folded)["error"]
        return
    answer = whole("turn_1", 0, "m", folded, acts=acts)["choices"][0]
    assert last[-1] == answer["finish_reason"] != "error"
    assert not any("error" in chunk for chunk in told)
    # Attempts that were replaced may have thought aloud; nothing else of them was ever told.
    assert deltas(told, "content") == (answer["message"]["content"] or "")
    assert deltas(told, "refusal") == (answer["message"]["refusal"] or "")
    if acts:
        assert not calls(told)


@given(TURN, st.builds(Request, model=st.just("m"), acts=ACTS, progress=PROGRESS), CUTS)
def test_events_are_numbered_and_do_not_depend_on_how_the_log_was_fed(
    turn: list[Event], request: Request, places: list[int]
) -> None:
    entries = recorded(turn, request)
    at_once, bit_by_bit = ResponsesView(), ResponsesView()
    frames = at_once.feed(entries)
    assert [f for part in pieces(entries, places) for f in bit_by_bit.feed(part)] == frames
    assert bit_by_bit.response() == at_once.response()
    told = numbered(frames)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))


@given(TURN, st.builds(Request, model=st.just("m"), acts=ACTS, progress=PROGRESS))
def test_events_add_up_to_the_response(turn: list[Event], request: Request) -> None:
    entries = recorded(turn, request)
    told = numbered(ResponsesView().feed(entries))
    folded = fold(entries)
    response = told[-1]["response"]
    assert told[0]["type"] == "response.created"
    assert told[1]["type"] == "response.in_progress"
    failed = folded.closed is not None and folded.closed.outcome in FAILURES
    assert (told[-1]["type"] == "response.failed") == failed == (response["error"] is not None)
    done = {e["output_index"]: e["item"] for e in told if e["type"] == "response.output_item.done"}
    assert [done[index] for index in sorted(done)] == response["output"]
    added = [e["output_index"] for e in told if e["type"] == "response.output_item.added"]
    assert added == list(range(len(response["output"])))
    for index, item in enumerate(response["output"]):
        grown = "".join(
            e["delta"] for e in told if e["type"].endswith(".delta") and e["output_index"] == index
        )
        match item["type"]:
            case "message":
                (content,) = item["content"]
                assert grown == content.get("text", content.get("refusal"))
            case "function_call":
                assert grown == item["arguments"]
                assert not request.acts
            case "reasoning":
                assert grown == "".join(part["text"] for part in item["summary"])
    said = "".join(
        content.get("text", "")
        for item in response["output"]
        if item["type"] == "message"
        for content in item["content"]
    )
    assert said == folded.answer_text()


@given(TURN, st.integers(0, 60))
def test_a_resumed_client_gets_frame_for_frame_what_it_would_have_seen(turn: list[Event], seen: int) -> None:
    entries = recorded(turn, Request(model="m", acts=False))
    frames = ResponsesView().feed(entries)
    # Whoever saw the first frames of a running turn and comes back when it is closed gets the rest.
    early = ResponsesView()
    before = early.feed(entries[: len(entries) // 2])
    assert frames[: len(before)] == before
    rest = frames[min(seen, len(before)) :]
    assert before[:seen] + rest == frames


# --- examples


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_finish_reason_is_the_outcome_and_nothing_else(outcome: Outcome) -> None:
    entries = recorded(ended(*a_reply(*text(1, "Hi")), outcome=outcome, cause=LOST))
    reason = chunks(ChatView("m").feed(entries))[-1]["choices"][0]["finish_reason"]
    expected = {"limit": "length", "refused": "content_filter"}
    assert reason == ("error" if outcome in FAILURES else expected.get(outcome, outcome))
    status = ResponsesView()
    status.feed(entries)
    assert status.response()["status"] == {
        "stop": "completed",
        "tool_calls": "completed",
        "cut": "failed",
        "error": "failed",
        "cancelled": "cancelled",
    }.get(outcome, "incomplete")


def test_the_happy_path_has_nothing_of_failures_or_of_ours() -> None:
    entries = recorded(ended(*a_reply(*text(1, "Hi"), UsageReported(1, 3, 4))))
    for chunk in chunks(ChatView("m", include_usage=True).feed(entries)):
        assert not chunk.keys() & {"error", "headrace"}
        assert "usage" not in chunk or chunk["choices"] == []
    assert not any("usage" in chunk for chunk in chunks(ChatView("m").feed(entries)))


def test_an_answer_that_reached_its_bound_says_so_beside_it() -> None:
    entries = recorded(ended(*a_reply(*text(1, "Hi"), reason="length"), outcome="length", cause=ANSWERED))
    last = chunks(ChatView("m").feed(entries))[-1]
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["headrace"] == {"error_code": "output_truncated"}


def test_a_failure_is_the_bare_error_and_then_a_chunk_that_is_no_success() -> None:
    entries = recorded(opened(*a_reply(*text(1, "Half an ans"))[:-1]))
    told = chunks(ChatView("m").feed(entries))
    assert told[-2] == {"error": told[-1]["error"]}
    assert told[-1]["error"] == {
        "message": "The connection was lost.",
        "type": "server_error",
        "param": None,
        "code": "connection_lost",
    }
    assert told[-1]["headrace"] == {
        "failed": True,
        "partial": True,
        "completed": False,
        "error_code": "connection_lost",
    }


def test_a_failed_response_has_its_error_flat_and_nested() -> None:
    entries = recorded(opened(*a_reply(*text(1, "Half"))[:-2]), Request(model="m", acts=False))
    last = numbered(ResponsesView().feed(entries))[-1]
    assert last["type"] == "response.failed"
    assert last["code"] == last["error"]["code"] == last["response"]["error"]["code"] == "connection_lost"
    assert last["response"]["output"][0]["status"] == "incomplete"


AGENT = [
    *a_reply(*text(1, "Let me look."), *tool(2, "read_file", '{"path":"a"}'), reason="tool_calls"),
    ToolStarted(1, 2, "read_file", '{"path":"a"}'),
]


def test_tools_that_run_here_are_progress_and_never_calls() -> None:
    entries = recorded(opened(*AGENT))
    told = chunks(ChatView("headrace", acts=True, progress="reasoning").feed(entries))
    assert not calls(told)
    assert "read_file" in deltas(told, "reasoning_content")
    told = chunks(ChatView("headrace", acts=True, progress="chunks").feed(entries))
    lines = [c for c in told if c.get("headrace", {}).get("progress")]
    assert [line["headrace"]["progress"].split()[0] for line in lines] == ["read_file", "cancelled:"]
    assert all(line["choices"] == [] and line["object"] == "chat.completion.chunk" for line in lines)
    assert "read_file" not in str(chunks(ChatView("headrace", acts=True).feed(entries)))
    view = ResponsesView()
    view.feed(recorded(opened(*AGENT), Request(model="headrace", progress="reasoning")))
    assert [item["type"] for item in view.response()["output"]] == ["message", "reasoning"]


def test_a_question_says_where_it_can_be_answered() -> None:
    asked = [*AGENT[:-1], ApprovalAsked("approval_1", 1, 2, "read_file a")]
    told = chunks(ChatView("headrace", acts=True, progress="reasoning").feed(recorded(opened(*asked))))
    assert "headrace follow" in deltas(told, "reasoning_content")


def test_the_notice_of_a_dropped_call_is_never_off() -> None:
    dropped = NoticeShown("tool_call_dropped", "Stream stalled mid tool-call (write_file)", 1)
    entries = recorded(opened(dropped))
    assert "write_file" in deltas(chunks(ChatView("headrace", acts=True).feed(entries)), "reasoning_content")
    view = ResponsesView()
    view.feed(recorded(opened(dropped), Request(model="headrace")))
    assert "write_file" in str(view.response()["output"])


def test_an_answer_that_goes_on_where_it_was_cut_is_one_sentence() -> None:
    first = [*a_reply(*text(1, "Half a sen"))[:-1], ReplyCut(1, LOST)]
    told = chunks(ChatView("m").feed(recorded(ended(*first, *a_reply(*text(1, "tence.", call=2), call=2)))))
    assert deltas(told, "content") == "Half a sentence."


def test_what_a_provider_wants_back_is_passed_on() -> None:
    call = [
        PartStarted(1, 1, "tool_call", "id1", "weather"),
        PartGrew(1, 1, "{}"),
        PartClosed(1, 1, '{"extra_content":{"google":{"thought_signature":"x"}}}'),
    ]
    told = chunks(
        ChatView("m").feed(recorded(ended(*a_reply(*call, reason="tool_calls"), outcome="tool_calls")))
    )
    assert '"thought_signature": "x"' in json.dumps(told)
    thought = [
        CallStarted(1, "reply", "p:m"),
        AttemptStarted(1, 1, "p:m"),
        PartStarted(1, 1, "reasoning"),
        PartClosed(1, 1, '{"type":"reasoning","encrypted_content":"gAAAA"}'),
        *text(2, "Hi"),
        ReplyEnded(1, "stop"),
    ]
    view = ResponsesView()
    view.feed(recorded(ended(*thought), Request(model="p:m", acts=False)))
    first, _ = view.response()["output"]
    assert (first["type"], first["encrypted_content"], first["summary"]) == ("reasoning", "gAAAA", [])


def test_usage_of_an_attempt_that_was_replaced_is_not_the_answers() -> None:
    events = [
        CallStarted(1, "reply", "p:m"),
        AttemptStarted(1, 1, "p:m"),
        UsageReported(1, 100, 100),
        AttemptReplaced(1, 1, LOST),
        AttemptStarted(1, 2, "p:m"),
        *text(1, "Hi"),
        UsageReported(1, 3, 4),
        ReplyEnded(1, "stop"),
    ]
    entries = recorded(ended(*events))
    usage = chunks(ChatView("m", include_usage=True).feed(entries))[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 4)


def test_a_response_and_its_turn_name_each_other() -> None:
    assert turn_of(response_id("turn_1a2b")) == "turn_1a2b"
