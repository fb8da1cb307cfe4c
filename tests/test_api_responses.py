"""/v1/responses over real sockets: streamed and whole, gone on with, come back to, cancelled, deleted."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.modelserver import CallTool, Reply, Say, Script, Think, scenario
from tests.apiserver import Api, api

PATH = "/v1/responses"


def asked(text: Any = "Hello?", model: str = "lab:m", **more: Any) -> dict[str, Any]:
    return {"model": model, "input": text, **more}


def said(response: dict[str, Any]) -> str:
    return "".join(
        part.get("text", "")
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


async def test_streamed_and_whole_are_the_same_answer(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        events = await served.streamed(PATH, asked(stream=True))
        assert [e["sequence_number"] for e in events] == list(range(len(events)))
        assert events[-1]["type"] == "response.completed"
        status, whole = await served.post(PATH, asked())
        assert status == 200
        assert said(whole) == said(events[-1]["response"]) == "Hello from the scripted model."
        assert whole["usage"] == events[-1]["response"]["usage"]
        assert whole["id"] != events[-1]["response"]["id"]


@pytest.mark.parametrize("protocol", ["chat_completions", "responses", "messages"])
async def test_tools_are_forwarded_and_their_calls_and_results_make_the_round(
    tmp_path: Path, protocol: str
) -> None:
    async with api(tmp_path, protocol=protocol) as served:
        served.models.enqueue(Script(Reply((Think("Hm."), CallTool("weather", {"city": "Oban"})))))
        tool = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}
        _, first = await served.post(PATH, asked(tools=[tool], store=False, instructions="Be short."))
        call = first["output"][-1]
        assert (call["type"], call["name"], call["arguments"]) == (
            "function_call",
            "weather",
            '{"city": "Oban"}',
        )
        assert first["tools"] == [{"description": None, **tool}]
        assert "Be short." in str(served.models.requests[0].body)
        history = [
            {"role": "user", "content": "Hello?"},
            *first["output"],
            {"type": "function_call_output", "call_id": call["call_id"], "output": "Rain."},
        ]
        _, second = await served.post(PATH, asked(history, tools=[tool], store=False))
        assert said(second) == "Hello from the scripted model."
        sent = str(served.models.requests[1].body)
        assert "Rain." in sent
        assert "Oban" in sent
        # What the provider wants back, it gets back, if it is spoken to in the protocol its caller speaks.
        assert ("c2NyaXB0ZWQgc2lnbmF0dXJl" in sent) == (protocol == "responses")


async def test_a_response_is_gone_on_with(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        _, first = await served.post(PATH, asked("First."))
        _, second = await served.post(PATH, asked("Second.", previous_response_id=first["id"]))
        assert second["previous_response_id"] == first["id"]
        texts = [m["content"] for m in served.models.requests[1].body["messages"]]
        assert texts == ["First.", "Hello from the scripted model.", "Second."]
        # A second one that follows the first begins a branch, and each knows its own past alone.
        _, branch = await served.post(PATH, asked("Otherwise.", previous_response_id=first["id"]))
        texts = [m["content"] for m in served.models.requests[2].body["messages"]]
        assert texts == ["First.", "Hello from the scripted model.", "Otherwise."]
        await served.post(PATH, asked("And then?", previous_response_id=branch["id"]))
        texts = [m["content"] for m in served.models.requests[3].body["messages"]]
        assert texts[::2] == ["First.", "Otherwise.", "And then?"]
        _, kept = await served.get("/v1/sessions")
        assert len(kept["data"]) == 2


async def test_what_is_not_stored_leaves_nothing_and_cannot_be_followed(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        _, first = await served.post(PATH, asked("canary", store=False))
        assert (await served.get(f"{PATH}/{first['id']}"))[0] == 404
        status, answer = await served.post(PATH, asked("More.", previous_response_id=first["id"]))
        assert (status, answer["error"]["code"]) == (404, "previous_response_not_found")
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and b"canary" in p.read_bytes()]


async def test_a_stored_response_is_read_again_in_every_form(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        events = await served.streamed(PATH, asked(stream=True, metadata={"a": "b"}))
        last = events[-1]["response"]
        for again in range(2):
            assert (await served.get(f"{PATH}/{last['id']}"))[1] == last
            for seen in (None, 0, 3, len(events) - 1, 10**9):
                query = "" if seen is None else f"&starting_after={seen}"
                rest = await served.streamed(f"{PATH}/{last['id']}?stream=true{query}")
                assert rest == events[0 if seen is None else seen + 1 :]
            served.app.forget((again and "nothing") or next(iter(served.app._sessions)))


async def test_a_client_that_comes_back_while_it_runs_misses_nothing(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        served.models.default = replace(scenario("long:40"), pace_s=0.01)
        _, begun = await served.post(PATH, asked(background=True))
        assert begun["status"] == "in_progress"
        path = f"{PATH}/{begun['id']}?stream=true"
        both = await asyncio.gather(served.streamed(path), served.streamed(f"{path}&starting_after=1"))
        assert both[0][2:] == both[1]
        assert both[0][-1]["type"] == "response.completed"
        _, done = await served.get(f"{PATH}/{begun['id']}")
        assert done == both[0][-1]["response"]
        assert done["background"]


async def test_a_background_response_is_cancelled(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        served.models.default = scenario("stall-mid-text")
        _, begun = await served.post(PATH, asked(background=True))
        await served.models.wait_requests(1)
        assert (await served.delete(f"{PATH}/{begun['id']}"))[0] == 409
        status, cancelled = await served.post(f"{PATH}/{begun['id']}/cancel", None)
        assert (status, cancelled["status"], cancelled["error"]["code"]) == (200, "cancelled", "stopped")
        await served.models.wait_idle()
        _, again = await served.post(f"{PATH}/{begun['id']}/cancel", None)
        assert again == cancelled


async def test_a_deleted_response_is_gone_and_not_remembered(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        header = {"X-Headrace-Session": "trip"}
        _, first = await served.post(PATH, asked("canary"), header)
        await served.post(PATH, asked("Second."), header)
        assert (await served.delete(f"{PATH}/{first['id']}"))[0] == 200
        assert (await served.delete(f"{PATH}/{first['id']}"))[0] == 404
        assert (await served.get(f"{PATH}/{first['id']}"))[0] == 404
        await served.post(PATH, asked("Third."), header)
        assert "canary" not in str(served.models.requests[-1].body)
        assert "Second." in str(served.models.requests[-1].body)
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and b"canary" in p.read_bytes()]


@pytest.mark.parametrize("fault", ["close-mid-text", "error-mid-text", "no-terminal", "close-mid-arguments"])
async def test_a_failure_in_the_middle_is_a_failed_response(tmp_path: Path, fault: str) -> None:
    async with api(tmp_path) as served:
        served.models.default = scenario(fault)
        last = (await served.streamed(PATH, asked(stream=True)))[-1]
        assert last["type"] == "response.failed"
        assert last["response"]["status"] == "failed"
        assert last["error"]["code"] == last["code"] == last["response"]["error"]["code"]
        status, whole = await served.get(f"{PATH}/{last['response']['id']}")
        assert (status, whole["status"]) == (200, "failed")


async def test_a_failure_before_the_first_byte_is_a_status(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        served.models.default = scenario("status:400")
        for stream in (True, False):
            status, answer = await served.post(PATH, asked(stream=stream))
            assert (status, answer["error"]["code"]) == (400, "bad_request")


BAD: list[tuple[Any, str]] = [
    ({"input": "x"}, "model"),
    (asked([]), "input"),
    (asked(tools=[{"type": "web_search"}]), "tools"),
    (asked(model="headrace", tools=[{"type": "function", "name": "a"}]), "tools"),
    (asked(conversation="x"), "conversation"),
    (asked(prompt={"id": "x"}), "prompt"),
    (asked(truncation="auto"), "truncation"),
    (asked(include=["message.output_text.logprobs"]), "include"),
    (asked(background=True, store=False), "store"),
    (asked(previous_response_id="nothing"), "previous_response_id"),
    (asked(max_tool_calls=3), "max_tool_calls"),
]


@pytest.mark.parametrize(("body", "parameter"), BAD)
async def test_what_cannot_be_honoured_is_refused_by_name(tmp_path: Path, body: Any, parameter: str) -> None:
    async with api(tmp_path) as served:
        status, answer = await served.post(PATH, body)
        assert status == 400
        assert parameter in f"{answer['error']['param']} {answer['error']['message']}"


async def test_an_agents_response_has_its_progress_as_reasoning(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        (tmp_path / "work" / "a.txt").write_text("42")
        served.models.enqueue(
            Script(Reply((Say("I look."), CallTool("read_file", {"path": "a.txt"})))),
            Script(Reply((Say("It says 42."),))),
        )
        events = await served.streamed(PATH, asked(model="headrace", stream=True))
        output = events[-1]["response"]["output"]
        assert [item["type"] for item in output] == ["message", "reasoning", "message"]
        assert said(events[-1]["response"]) == "I look.\n\nIt says 42."


async def test_unknown_ids_are_not_found(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        assert await statuses(served, "resp_00000000ffff") == [404, 404, 404]
        _, answer = await served.get(f"{PATH}/resp_00000000ffff")
        assert answer["error"]["message"] == "There is no response resp_00000000ffff."
        assert await statuses(served, "..%2f..%2fetc") == [404, 404, 404]


async def statuses(served: Api, key: str) -> list[int]:
    read, _ = await served.get(f"{PATH}/{key}")
    gone, _ = await served.delete(f"{PATH}/{key}")
    stopped, _ = await served.post(f"{PATH}/{key}/cancel", None)
    return [read, gone, stopped]
