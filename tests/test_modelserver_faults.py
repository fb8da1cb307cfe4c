"""The model server's faults, as the bytes and the SDKs show them."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import msgspec
import openai
import pytest

from headrace.testing.modelserver import (
    SCENARIOS,
    AnswerWhole,
    Close,
    ErrorShape,
    Malformed,
    ModelServer,
    Omit,
    Raw,
    RefuseParameter,
    RefuseStreaming,
    Reply,
    Say,
    Script,
    SendError,
    Stall,
    Status,
    scenario,
)
from tests.modelclient import PROTOCOLS, REPLY, USER, anthropic_sdk, ask, is_delta, openai_sdk, see

CUT_PLACES = [
    "after_headers",
    "before_first_token",
    "mid_reasoning",
    "mid_text",
    "mid_arguments",
    "after_finish",
]


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


# --- breaking off ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("how", ["fin", "rst", "eof"])
@pytest.mark.parametrize("at", CUT_PLACES)
async def test_a_stream_breaks_off_where_it_is_told_to(
    server: ModelServer, protocol: str, how: Any, at: Any
) -> None:
    whole = await ask(server, Script(REPLY), protocol, stream=True)
    seen = await ask(
        server, Script(REPLY, Close(at, deltas=2 if "mid" in at else 1, how=how)), protocol, stream=True
    )
    assert seen.reset == (how == "rst")
    assert seen.terminated == (how == "eof")
    assert whole.data.startswith(seen.data)
    terminal = {
        "chat_completions": b'"finish_reason":"tool_calls"',
        "responses": b"event: response.completed",
    }
    finished = terminal.get(protocol, b'"stop_reason":"tool_use"') in seen.data
    assert finished == (at == "after_finish")
    assert b"[DONE]" not in seen.data
    if at in DELTAS_BEFORE:
        assert [is_delta(event) for event in seen.events].count(True) == DELTAS_BEFORE[at]
        assert (bool(seen.events) and is_delta(seen.events[-1])) == ("mid" in at)


# REPLY thinks in 4 deltas and says in 4; each place above comes after the second of its kind.
DELTAS_BEFORE = {
    "after_headers": 0,
    "before_first_token": 0,
    "mid_reasoning": 2,
    "mid_text": 4 + 2,
    "mid_arguments": 4 + 4 + 2,
}


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("stream", [False, True])
async def test_closing_before_headers(server: ModelServer, how: Any, *, stream: bool) -> None:
    seen = await ask(server, Script(fault=Close("before_headers", how=how)), "messages", stream=stream)
    assert (seen.head, seen.body, seen.reset) == ("", b"", how == "rst")
    ending = await server.requests[0].wait_ended()
    assert ending.by == "server"
    assert server.requests[0].client_left_at is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_whole_answer_breaks_off(server: ModelServer, protocol: str) -> None:
    whole = await ask(server, Script(REPLY), protocol)
    none = await ask(server, Script(REPLY, Close("after_headers")), protocol)
    half = await ask(server, Script(REPLY, Close("mid_text", how="rst")), protocol)
    most = await ask(server, Script(REPLY, Close("after_finish")), protocol)
    clean = await ask(server, Script(REPLY, Close("mid_text", how="eof")), protocol)
    length = len(whole.body)
    assert all(f"content-length: {length}" in seen.head.lower() for seen in (whole, none, half, most))
    assert (none.body, half.body, most.body) == (b"", whole.body[: length // 2], whole.body[:-1])
    assert half.reset
    assert clean.body == half.body
    assert f"content-length: {len(clean.body)}" in clean.head.lower()


def test_a_place_that_the_reply_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="0 arguments deltas"):
        Script(Reply((Say("Hello"),)), Close("mid_arguments"))
    with pytest.raises(ValueError, match="2 text deltas"):
        Script(Reply((Say("Hello"),)), Stall("mid_text", deltas=3))
    with pytest.raises(ValueError, match="raw"):
        Script(Raw((b"x",)), Close())
    with pytest.raises(ValueError, match="times"):
        Script(times=2)


# --- errors ------------------------------------------------------------------------------------------------


async def test_an_error_within_a_stream_reaches_the_sdks(server: ModelServer) -> None:
    server.default = Script(REPLY, SendError("mid_text"))
    async with openai_sdk(server) as client:
        chat: Any = await client.chat.completions.create(model="g", messages=USER, stream=True)
        with pytest.raises(openai.APIError, match="upstream connection failed"):
            [chunk async for chunk in chat]
        stream: Any = await client.responses.create(model="g", input="Hi", stream=True)
        *_, last = [event async for event in stream]
        assert (last.type, last.response.error.code) == ("response.failed", "server_error")
    async with anthropic_sdk(server) as claude:
        messages: Any = await claude.messages.create(model="c", max_tokens=9, messages=USER, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            [event async for event in messages]


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        ("code", {"error": {"message": "M", "type": "server_error", "param": None, "code": "server_error"}}),
        ("int_code", {"error": {"message": "M", "type": "server_error", "param": None, "code": 502}}),
        ("event", {"error": {"message": "M", "type": "server_error", "param": None, "code": "server_error"}}),
        ("bare", {"error": {"message": "Network connection lost."}}),
        ("overloaded", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        (
            "flat",
            {"type": "error", "code": "server_error", "message": "M", "param": None, "sequence_number": 3},
        ),
    ],
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_shapes_of_errors(server: ModelServer, protocol: str, shape: Any, error: Any) -> None:
    filled = json.loads(json.dumps(error).replace('"M"', '"The upstream connection failed."'))
    fault = SendError("before_first_token", shape=shape, then_done=True)
    seen = await ask(server, Script(REPLY, fault), protocol, stream=True)
    if shape == "flat":
        filled["sequence_number"] = len(seen.events) - 2
    assert seen.events[-2:] == [filled, "[DONE]"]
    assert seen.terminated
    assert (b"\nevent: error\n" in seen.data) == (shape in {"event", "overloaded", "flat"})
    whole = await ask(server, Script(REPLY, fault), protocol)
    assert whole.status == 200
    assert ("error" in whole.json) or whole.json["type"] == "error"


async def test_responses_errors_keep_the_numbering(server: ModelServer) -> None:
    shapes: list[ErrorShape] = ["nested", "failed", "flat"]
    for shape in shapes:
        fault = SendError("mid_text", shape=shape)
        seen = await ask(server, Script(REPLY, fault), "responses", stream=True)
        assert [event["sequence_number"] for event in seen.events] == list(range(len(seen.events)))
    whole = await ask(server, Script(REPLY, SendError()), "responses")
    assert (whole.json["status"], whole.json["error"]["code"]) == ("failed", "server_error")


STATUS_ERRORS: dict[int, tuple[type[Exception], type[Exception]]] = {
    400: (openai.BadRequestError, anthropic.BadRequestError),
    401: (openai.AuthenticationError, anthropic.AuthenticationError),
    403: (openai.PermissionDeniedError, anthropic.PermissionDeniedError),
    404: (openai.NotFoundError, anthropic.NotFoundError),
    408: (openai.APIStatusError, anthropic.APIStatusError),
    409: (openai.ConflictError, anthropic.ConflictError),
    413: (openai.APIStatusError, anthropic.APIStatusError),
    422: (openai.UnprocessableEntityError, anthropic.UnprocessableEntityError),
    429: (openai.RateLimitError, anthropic.RateLimitError),
    500: (openai.InternalServerError, anthropic.InternalServerError),
    502: (openai.InternalServerError, anthropic.InternalServerError),
    503: (openai.InternalServerError, anthropic.InternalServerError),
    529: (openai.InternalServerError, anthropic.InternalServerError),
}


@pytest.mark.parametrize("status", STATUS_ERRORS)
async def test_http_errors_reach_the_sdks(server: ModelServer, status: int) -> None:
    server.default = Script(fault=Status(status, retry_after="7"))
    of_openai, of_anthropic = STATUS_ERRORS[status]
    async with openai_sdk(server) as client:
        with pytest.raises(of_openai) as raised:
            await client.chat.completions.create(model="g", messages=USER, stream=True)
    error: Any = raised.value
    assert (error.status_code, error.response.headers["retry-after"]) == (status, "7")
    assert isinstance(error.body, dict) == (status != 502)
    async with anthropic_sdk(server) as claude:
        with pytest.raises(of_anthropic) as refused:
            await claude.messages.create(model="c", max_tokens=9, messages=USER)
    body: Any = refused.value.body  # type: ignore[attr-defined]
    assert isinstance(body, dict) == (status != 502)
    if status != 502:
        assert (body["type"], "request_id" in body) == ("error", True)


async def test_quota_is_told_from_rate(server: ModelServer) -> None:
    seen = await ask(server, SCENARIOS["no-quota"], "chat_completions")
    assert (seen.status, seen.json["error"]["code"]) == (429, "insufficient_quota")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_streaming_can_be_refused(server: ModelServer, protocol: str) -> None:
    server.default = Script(fault=RefuseStreaming())
    refused = await see(server, protocol, stream=True)
    assert refused.status == 400
    assert refused.json["error"]["message"] == "Streaming is not supported for this model."
    assert (await see(server, protocol)).status == 200


async def test_a_parameter_can_be_refused(server: ModelServer) -> None:
    server.default = Script(fault=RefuseParameter("temperature"))
    refused = await see(server, temperature=0.5)
    assert refused.status == 400
    error = refused.json["error"]
    assert (error["param"], error["code"]) == ("temperature", "unsupported_parameter")
    assert (await see(server)).status == 200


# --- endings that are none ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "finish", "done"), [("finish", False, True), ("done", True, False), ("terminal", False, False)]
)
async def test_what_an_ending_lacks(server: ModelServer, what: Any, *, finish: bool, done: bool) -> None:
    marks = {
        "chat_completions": (b'"finish_reason":"tool_calls"', b"[DONE]"),
        "messages": (b"message_delta", b"message_stop"),
    }
    for protocol, (finish_mark, done_mark) in marks.items():
        seen = await ask(server, Script(REPLY, Omit(what)), protocol, stream=True)
        assert (finish_mark in seen.data, done_mark in seen.data) == (finish, done)
        assert seen.terminated
    seen = await ask(server, Script(REPLY, Omit(what)), "responses", stream=True)
    assert (b"event: response.completed" in seen.data) == finish
    whole = await ask(server, Script(REPLY, Omit(what)), "chat_completions")
    assert whole.json["choices"][0]["finish_reason"] == ("tool_calls" if finish else None)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_malformed_event_is_one_among_good_ones(server: ModelServer, protocol: str) -> None:
    whole = await ask(server, Script(REPLY), protocol, stream=True)
    seen = await ask(server, Script(REPLY, Malformed("mid_text")), protocol, stream=True)
    good, bad = whole.data.split(b"\n\n"), seen.data.split(b"\n\n")
    assert len(good) == len(bad)
    [(before, after)] = [(a, b) for a, b in zip(good, bad, strict=True) if a != b]
    assert before.startswith(after)
    with pytest.raises(msgspec.DecodeError):
        _ = seen.events
    broken = await ask(server, Script(REPLY, Malformed("mid_text")), protocol)
    with pytest.raises(msgspec.DecodeError):
        _ = broken.json


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_empty_stream_and_a_reply_of_nothing(server: ModelServer, protocol: str) -> None:
    empty = await ask(server, scenario("empty-stream"), protocol, stream=True)
    assert (empty.status, empty.body) == (200, b"0\r\n\r\n")
    nothing = await ask(server, scenario("zero-content"), protocol, stream=True)
    assert nothing.events
    assert not any(is_delta(event) for event in nothing.events if event != "[DONE]")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_whole_answer_to_a_request_for_a_stream(server: ModelServer, protocol: str) -> None:
    asked_for = await ask(server, Script(REPLY), protocol)
    seen = await ask(server, Script(REPLY, AnswerWhole()), protocol, stream=True)
    assert "application/json" in seen.head
    assert seen.json == asked_for.json
