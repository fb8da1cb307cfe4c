"""POST /v1/chat/completions over real sockets."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.modelserver import (
    CallTool,
    RecordedRequest,
    Reply,
    Say,
    Script,
    Think,
    scenario,
)
from tests.apiserver import Api, api, ask, content

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


async def test_a_direct_call_streams_what_its_model_says(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        chunks = await served.streamed("/v1/chat/completions", ask(stream=True))
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert content(chunks) == "Hello from the scripted model."
        assert [c["choices"][0]["finish_reason"] for c in chunks[1:]] == [None] * (len(chunks) - 2) + ["stop"]
        assert {c["model"] for c in chunks} == {"lab:m"}
        status, answer = await served.post("/v1/chat/completions", ask())
        assert status == 200
        assert answer["choices"][0]["message"]["content"] == content(chunks)
        assert answer["usage"]["total_tokens"] == 46


async def test_parameters_and_tools_of_a_direct_call_are_forwarded_and_its_calls_returned(
    tmp_path: Path,
) -> None:
    async with api(tmp_path) as served:
        served.models.enqueue(Script(Reply((Think("Hm."), CallTool("weather", {"city": "Oban"})))))
        asked = ask(
            stream=True,
            tools=[WEATHER],
            tool_choice="required",
            temperature=0.5,
            max_tokens=7,
            top_p=0.5,
            stop=["x"],
            seed=3,
            stream_options={"include_usage": True},
            service_tier="flex",
        )
        chunks = await served.streamed("/v1/chat/completions", asked)
        sent = served.models.requests[0].body
        for name in ("tool_choice", "temperature", "max_tokens", "top_p", "stop", "seed", "service_tier"):
            assert sent[name] == asked[name]
        assert sent["tools"][0]["function"]["name"] == "weather"
        assert sent["messages"] == asked["messages"]
        assert chunks[-1]["usage"]["completion_tokens"] == 34
        assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
        assert content(chunks, "reasoning_content") == "Hm."
        served.models.enqueue(scenario("hello"))
        call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        conversation = [
            {"role": "system", "content": "Be short."},
            *asked["messages"],
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "Rain."},
        ]
        status, _ = await served.post(
            "/v1/chat/completions", {"model": "lab:m", "messages": conversation, "tools": [WEATHER]}
        )
        assert status == 200
        assert served.models.requests[1].body["messages"] == conversation


FAULTS = ["close-mid-text", "reset-mid-text", "eof-mid-text", "error-mid-text", "malformed-mid-text"]


@pytest.mark.parametrize("fault", [*FAULTS, "close-mid-arguments", "no-terminal"])
@pytest.mark.parametrize("protocol", ["chat_completions", "responses", "messages"])
async def test_a_failure_in_the_middle_is_never_a_success(tmp_path: Path, fault: str, protocol: str) -> None:
    async with api(tmp_path, protocol=protocol) as served:
        served.models.default = scenario(fault)
        chunks = await served.streamed("/v1/chat/completions", ask(stream=True))
        assert chunks[-1]["choices"][0]["finish_reason"] == "error"
        assert chunks[-2]["error"] == chunks[-1]["error"]
        assert chunks[-1]["headrace"]["failed"]
        assert chunks[-1]["headrace"]["partial"]
        status, answer = await served.post("/v1/chat/completions", ask())
        # A stream may break where a whole answer does not; where that breaks too it is told.
        assert status in (200, 502)
        assert ("error" in answer) == (status == 502)


async def test_what_was_said_before_it_broke_and_its_cost_are_in_the_error_of_a_whole_answer(
    tmp_path: Path,
) -> None:
    async with api(tmp_path) as served:
        served.models.default = scenario("close-mid-text")
        async with served.client.post(served.url("/v1/chat/completions"), json=ask()) as answer:
            assert answer.status == 502
            assert answer.headers["x-should-retry"] == "false"
            body = await answer.json()
        assert body["headrace"]["partial_text"] == "Let "
        assert body["error"]["code"] == "connection_lost"
        assert body.keys() == {"error", "headrace", "usage"}


@pytest.mark.parametrize(
    ("upstream", "status"),
    [(400, 400), (401, 502), (402, 402), (404, 404), (413, 413), (429, 429), (503, 503)],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_refusal_before_the_first_byte_is_a_status(
    tmp_path: Path, upstream: int, status: int, *, stream: bool
) -> None:
    async with api(tmp_path) as served:
        served.models.default = scenario(f"status:{upstream}")
        answered, body = await served.post("/v1/chat/completions", ask(stream=stream))
        assert answered == status
        assert body["error"].keys() == {"message", "type", "param", "code"}


async def test_length_and_filter_are_answers(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        for name, reason in (("length", "length"), ("content-filter", "content_filter")):
            served.models.default = scenario(name)
            status, answer = await served.post("/v1/chat/completions", ask())
            assert (status, answer["choices"][0]["finish_reason"]) == (200, reason)
            chunks = await served.streamed("/v1/chat/completions", ask(stream=True))
            assert chunks[-1]["choices"][0]["finish_reason"] == reason
            assert "error" not in chunks[-1]


BAD: list[tuple[Any, str]] = [
    ({"messages": []}, "model"),
    (ask(messages=[]), "messages"),
    (ask(messages=[{"role": "nobody", "content": "x"}]), "messages"),
    (ask(messages=[{"role": "tool", "content": "x"}]), "messages"),
    (ask(n=2), "n"),
    (ask(temperature=3), "temperature"),
    (ask(max_tokens=0), "max_tokens"),
    (ask(logprobs=True), "logprobs"),
    (ask(audio={}), "audio"),
    (ask(modalities=["audio"]), "modalities"),
    (ask(store=True), "store"),
    (ask(tools=[{"type": "web_search"}]), "tools"),
    (ask(model="headrace", tools=[WEATHER]), "tools"),
    (ask(model="headrace", service_tear="x"), "service_tear"),
    ([], ""),
]


@pytest.mark.parametrize(("body", "parameter"), BAD)
async def test_what_cannot_be_honoured_is_refused_by_name(tmp_path: Path, body: Any, parameter: str) -> None:
    async with api(tmp_path) as served:
        status, answer = await served.post("/v1/chat/completions", body)
        assert status == 400
        assert parameter in f"{answer['error']['param']} {answer['error']['message']}"
        assert not served.models.requests


@pytest.mark.parametrize("raw", [b"{", b"\xff", b'{"model":NaN}', b"[" * 100_000, b'"\\ud800"', b""])
async def test_what_is_no_json_is_refused(tmp_path: Path, raw: bytes) -> None:
    async with (
        api(tmp_path) as served,
        served.client.post(served.url("/v1/chat/completions"), data=raw) as answer,
    ):
        assert answer.status == 400
        assert (await answer.json())["error"]["type"] == "invalid_request_error"


async def test_a_model_nobody_knows_is_not_found(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        for model in ("nobody:m", "gpt-4", "moa:none", "local:/etc/passwd", "moa:"):
            status, answer = await served.post("/v1/chat/completions", ask(model=model))
            assert (status, answer["error"]["code"]) == (404, "model_not_found"), model
            assert f"There is no model '{model}' here: " in answer["error"]["message"]
            assert answer["error"]["message"].endswith(". GET /v1/models lists what is configured.")


async def test_requests_that_name_no_session_share_nothing_and_leave_nothing(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        await served.post("/v1/chat/completions", ask("canary-one"))
        await served.streamed("/v1/chat/completions", ask("canary-two", stream=True))
        await served.post("/v1/chat/completions", ask("Hello?", model="headrace"))
        assert all("canary" not in str(r.body) for r in served.models.requests[2:])
        _, turns = await served.get("/v1/turns")
        assert turns["data"] == []
        _, kept = await served.get("/v1/sessions")
        assert kept["data"] == []
    written = [path for path in tmp_path.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]
    assert written == []


async def test_a_session_is_told_the_news_alone_and_knows_the_rest(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        header = {"X-Headrace-Session": "trip"}
        await served.post("/v1/chat/completions", ask("First."), header)
        served.models.enqueue(Script(Reply((CallTool("weather", {}),))))
        said = [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "First, as the client remembers it."},
            {"role": "assistant", "content": "What the client shows."},
            {"role": "user", "content": "Second."},
        ]
        await served.post(
            "/v1/chat/completions", {"model": "lab:m", "messages": said, "tools": [WEATHER]}, header
        )
        sent = served.models.requests[1].body["messages"]
        assert [m["content"] for m in sent] == [
            "Be short.",
            "First.",
            "Hello from the scripted model.",
            "Second.",
        ]
        result = [
            *said,
            {
                "role": "assistant",
                "tool_calls": [{"id": "call_1", "function": {"name": "weather", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "Rain."},
        ]
        await served.post("/v1/chat/completions", {"model": "lab:m", "messages": result}, header)
        sent = served.models.requests[2].body["messages"]
        assert [m["role"] for m in sent] == ["system", "user", "assistant", "user", "assistant", "tool"]
        status, session = await served.get("/v1/sessions/trip")
        assert status == 200
        assert [turn["question"] for turn in session["turns"]] == ["First.", "Second.", ""]


async def test_a_caller_that_gave_no_result_leaves_no_call_dangling(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        header = {"X-Headrace-Session": "trip"}
        served.models.enqueue(Script(Reply((CallTool("weather", {}),))))
        await served.post("/v1/chat/completions", ask("First.", tools=[WEATHER]), header)
        await served.post("/v1/chat/completions", ask("Never mind."), header)
        sent = served.models.requests[1].body["messages"]
        assert [m["role"] for m in sent] == ["user", "assistant", "tool", "user"]
        assert "not run" in sent[2]["content"]


def reads_a_file(request: RecordedRequest) -> Script:
    if any(m["role"] == "tool" for m in request.body["messages"]):
        return Script(Reply((Say("It says 42."),)))
    return Script(Reply((Say("Let me look."), CallTool("read_file", {"path": "answer.txt"}))))


async def test_the_agent_runs_its_tools_here_and_returns_none(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        (tmp_path / "work" / "answer.txt").write_text("42")
        served.models.respond = reads_a_file
        chunks = await served.streamed("/v1/chat/completions", ask(model="headrace", stream=True))
        assert content(chunks) == "Let me look.\n\nIt says 42."
        assert "read_file" in content(chunks, "reasoning_content")
        assert not any("tool_calls" in c["choices"][0]["delta"] for c in chunks if c["choices"])
        status, answer = await served.post("/v1/chat/completions", ask(model="headrace"))
        assert (status, answer["choices"][0]["finish_reason"]) == (200, "stop")
        assert answer["choices"][0]["message"]["content"] == content(chunks)
        assert "tool_calls" not in answer["choices"][0]["message"]
        tools = {tool["function"]["name"] for tool in served.models.requests[0].body["tools"]}
        assert {"read_file", "terminal"} <= tools


@pytest.mark.parametrize(("progress", "told"), [("chunks", True), ("off", False)])
async def test_progress_is_told_as_configured(tmp_path: Path, progress: str, *, told: bool) -> None:
    async with api(tmp_path, more=f"api: {{progress: {progress}}}") as served:
        (tmp_path / "work" / "answer.txt").write_text("42")
        served.models.respond = reads_a_file
        chunks = await served.streamed("/v1/chat/completions", ask(model="headrace", stream=True))
        assert content(chunks, "reasoning_content") == ""
        lines = [c["headrace"]["progress"] for c in chunks if "headrace" in c]
        assert any("read_file" in line for line in lines) == told


async def test_an_approval_is_given_through_the_native_endpoints(tmp_path: Path) -> None:
    async with api(tmp_path) as served:

        def writes(request: RecordedRequest) -> Script:
            if any(m["role"] == "tool" for m in request.body["messages"]):
                return Script(Reply((Say("Done."),)))
            return Script(Reply((CallTool("write_file", {"path": "new.txt", "content": "hi"}),)))

        served.models.respond = writes
        asking = asyncio.create_task(
            served.streamed("/v1/chat/completions", ask(model="headrace", stream=True))
        )
        turn, approval = await asked_by_some_turn(served)
        status, _ = await served.post(f"/v1/turns/{turn}/approvals/{approval}", {"allow": True})
        assert status == 200
        status, _ = await served.post(f"/v1/turns/{turn}/approvals/{approval}", {"allow": False})
        assert status == 409
        chunks = await asking
        assert content(chunks) == "Done."
        assert "headrace follow" in content(chunks, "reasoning_content")
        assert (tmp_path / "work" / "new.txt").read_text() == "hi"


async def asked_by_some_turn(served: Api) -> tuple[str, str]:
    """The turn that runs, and the approval it asks for."""
    await served.models.wait_requests(1)
    _, turns = await served.get("/v1/turns")
    turn = turns["data"][0]["id"]
    async with served.client.get(served.url(f"/v1/turns/{turn}/events")) as answer:
        async for line in answer.content:
            if line.startswith(b"data: "):
                event = json.loads(line[6:])["event"]
                if event["type"] == "approval_asked":
                    return turn, event["approval"]
    raise AssertionError("nothing was asked")
