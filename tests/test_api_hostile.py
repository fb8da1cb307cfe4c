"""The API door against clients that mean harm, mistake it, or leave at the worst moment: over real sockets."""

import asyncio
import io
import json
import random
import resource
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.events import InputAdded, PartGrew, user_message
from headrace.limits import API_BURST
from headrace.testing.modelserver import (
    CallTool,
    ModelServer,
    RecordedRequest,
    Reply,
    Say,
    Script,
    Think,
    scenario,
)
from tests.apiserver import KEY, Api, api, ask, values
from tests.test_api_lifetime import client, closed, first, server

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"


async def posted(served: Api, path: str, data: bytes | str | io.BytesIO, **headers: str) -> tuple[int, Any]:
    """What is answered to a body that no JSON library would write."""
    async with served.client.post(served.url(path), data=data, headers=headers) as answer:
        return answer.status, await answer.json()


# --- who has no key


async def test_asking_whether_it_is_up_takes_no_room_from_those_who_have_the_key(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        ping = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        for _ in range(10):
            count = API_BURST // 8
            writer.write(ping * count)
            for _ in range(count):
                await reader.readuntil(b'{"status":"ok"}')
        writer.close()
        assert (await served.get("/v1/models"))[0] == 200


async def test_a_page_that_may_ask_may_send_the_headers_its_library_adds(tmp_path: Path) -> None:
    async with api(tmp_path, more="api: {origins: ['https://chat.example.org']}") as served:
        asked = {"Origin": "https://chat.example.org", "Access-Control-Request-Headers": "x-stainless-os"}
        async with served.client.options(served.url(CHAT), headers=asked) as answer:
            assert answer.headers["Access-Control-Allow-Headers"] == "Authorization, *"
            assert "Access-Control-Allow-Credentials" not in answer.headers


# --- who takes nothing


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_does_not_take_the_end_of_its_answer_loses_its_connection(
    tmp_path: Path, *, stream: bool
) -> None:
    async with api(tmp_path, more="api: {write_stall_s: 1}") as served:
        served.models.default = Script(Reply((Say(("word " * 800,) * 2000),)))
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", served.server.port))
            raw.sendall(written(CHAT, ask(stream=stream)))
            await served.models.wait_requests(1)
            (connection,) = open_connections(served)
            await until(served, connection.is_closing)
            await until(served, lambda: served.server._desk.open_streams == 0)


async def test_a_client_that_reads_slowly_gets_what_is_long_at_once(tmp_path: Path) -> None:
    long = "word " * 2_000_000
    async with api(tmp_path) as served:
        served.models.default = Script(Reply((Say(("Now: ", long, "that was it.")),)), pace_s=0.4)
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", served.server.port))
            raw.sendall(written(CHAT, ask(stream=True)))
            raw.setblocking(False)
            got = bytearray()
            async with asyncio.timeout(20):
                while not got.endswith(b"0\r\n\r\n"):
                    piece = await asyncio.get_running_loop().sock_recv(raw, 65536)
                    assert piece, "the connection was cut"
                    got += piece
        assert got.count(b"word ") == 2_000_000
        assert got.index(b"that was it.") < got.index(b'"stop"')


def written(path: str, body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nx-api-key: {KEY}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def open_connections(served: Api) -> list[asyncio.Transport]:
    return served.server._connections()


async def until(served: Api, done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not done():
            await served.get("/health")


async def test_as_many_streams_as_are_allowed_may_be_open_whatever_the_shell_says(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with ModelServer() as models, client() as http, AsyncExitStack() as open_ones:
        models.default = scenario("hang")
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        try:
            process, url = await open_ones.enter_async_context(server(tmp_path, models))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        asking = (http.post(f"{url}{CHAT}", json=ask(stream=True)) for _ in range(80))
        answers = await asyncio.gather(*map(open_ones.enter_async_context, asking))
        assert {answer.status for answer in answers} == {200}
        await asyncio.wait_for(models.wait_requests(80), 20)
        process.kill()


# --- bodies


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_that_is_not_what_its_header_says_is_the_callers_fault(
    tmp_path: Path, encoding: str
) -> None:
    async with api(tmp_path) as served:
        status, answer = await posted(served, CHAT, b"no archive", **{"Content-Encoding": encoding})
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


def saying(**message: Any) -> dict[str, Any]:
    return {"model": "lab:m", "messages": [{"role": "user", "content": "?"}, message]}


@pytest.mark.parametrize(
    ("path", "body", "where", "why"),
    [
        (CHAT, ask(temperature=3), "temperature", "must be smaller than or equal to 2"),
        (CHAT, ask(stop=7), "stop", "cannot be validated by any definition"),
        (CHAT, ask(tool_choice={"type": "function"}), "tool_choice", "must contain ['function'] properties"),
        (CHAT, ask(tool_choice="perhaps"), "tool_choice", "must be one of ['auto', 'none', 'required']"),
        (CHAT, saying(role="tool", content="x"), "messages.1", "must contain ['tool_call_id'] properties"),
        (CHAT, saying(role="user", content=[{"type": "text"}]), "messages.1.content.0", "['text']"),
        (CHAT, saying(role="user", content=None), "messages.1.content", "cannot be validated"),
        (CHAT, saying(role="nobody", content="?"), "messages.1", "cannot be validated"),
        (CHAT, saying(role=["user"], content="?"), "messages.1", "cannot be validated"),
        (RESPONSES, {"model": "lab:m", "input": [{"type": "function_call_output"}]}, "input.0", "'call_id'"),
        (RESPONSES, {"model": "lab:m", "input": 5}, "input", "cannot be validated"),
        ("/v1/turns", {"input": "?", "session": "../x"}, "session", "must match pattern"),
        (CHAT, [], "", "must be object"),
    ],
)
async def test_what_does_not_fit_is_named_where_it_is(
    tmp_path: Path, path: str, body: Any, where: str, why: str
) -> None:
    async with api(tmp_path) as served:
        status, answer = await served.post(path, body)
        assert (status, answer["error"]["param"] or "") == (400, where)
        assert ".".join(filter(None, ["the body", where])) in answer["error"]["message"]
        assert why in answer["error"]["message"]


@pytest.mark.parametrize("depth", [100, 850, 900, 940, 960, 970, 975, 980, 985, 1000, 100_000])
async def test_what_is_nested_too_deeply_is_refused_before_it_is_begun(tmp_path: Path, depth: int) -> None:
    nested = '{"a":' * depth + "1" + "}" * depth
    bodies = {
        CHAT: f'"messages":[{{"role":"user","content":"?"}}],"tools":[{{"type":"function","function":'
        f'{{"name":"t","parameters":{nested}}}}}]',
        RESPONSES: f'"input":"?","tools":[{{"type":"function","name":"t","parameters":{nested}}}]',
    }
    async with api(tmp_path) as served:
        for path, body in bodies.items():
            status, answer = await posted(served, path, f'{{"model":"lab:m",{body}}}')
            assert status in (200, 400), answer
            assert status == 400 or served.models.requests
            if path == RESPONSES and status == 200:
                assert (await served.get(f"{RESPONSES}/{answer['id']}"))[0] == 200


async def test_others_are_served_while_a_large_body_is_looked_at(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        messages = [{"role": "tool", "tool_call_id": "1", "content": "x"}] * 20_000
        body = io.BytesIO(json.dumps({"model": "lab:m", "messages": messages, "n": 2}).encode())
        asking = asyncio.create_task(posted(served, CHAT, body))
        answered = 0
        while not asking.done():
            assert (await served.get("/health"))[0] == 200
            answered += 1
        assert (await asking)[0] == 400
        assert answered > 5


@pytest.mark.parametrize(
    "model",
    [
        "local:~",
        "local:~root",
        "local:mine.gguf",
        "local:MINE.GGUF",
        "local:../x",
        "local:..\\x.gguf",
        "local:a b",
    ],
)
async def test_no_caller_names_a_file_of_the_server_as_a_model(tmp_path: Path, model: str) -> None:
    async with api(tmp_path) as served:
        (tmp_path / "work" / "mine.gguf").write_bytes(b"GGUF")
        status, answer = await served.post(CHAT, ask(model=model))
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        assert "configuration only" in answer["error"]["message"]


async def test_a_file_that_the_configuration_names_is_a_model(tmp_path: Path) -> None:
    model = f"local:{tmp_path}/none.gguf"
    async with api(tmp_path, more=f"fallback_models: ['{model}']") as served:
        _, listed = await served.get("/v1/models")
        assert model in [each["id"] for each in listed["data"]]
        _, answer = await served.post(CHAT, ask(model=model))
        assert "there is no such file" in answer["error"]["message"]


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "FILE:///etc/passwd", "/etc/passwd", "", "\nhttps://a"]
)
async def test_no_caller_has_a_model_look_at_a_file_as_a_picture(tmp_path: Path, url: str) -> None:
    chat = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "video_url", "video_url": {"url": url}},
    ]
    responses = [{"type": "input_image", "image_url": url}, {"type": "input_file", "file_url": url}]
    async with api(tmp_path) as served:
        for path, field, parts in ((CHAT, "messages", chat), (RESPONSES, "input", responses)):
            for part in parts:
                body = {"model": "lab:m", field: [{"role": "user", "content": [part]}]}
                assert (await served.post(path, body))[0] == 400
        assert not served.models.requests


# --- turns that are started and left


async def test_a_turn_that_is_not_stored_goes_on_when_its_follower_leaves_and_can_be_read_after_its_end(
    tmp_path: Path,
) -> None:
    async with api(tmp_path) as served:
        served.models.default = replace(scenario("long:20"), pace_s=0.01)
        body = {"input": "canary", "model": "lab:m", "store": False}
        _, turn = await served.post("/v1/turns", body)
        async with served.client.get(served.url(f"/v1/turns/{turn['id']}/events")) as answer:
            await answer.content.readline()
        assert (await closed(served, turn["id"]))["outcome"] == "stop"
        assert (await served.get(f"/v1/turns/{turn['id']}"))[1]["outcome"] == "stop"
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and b"canary" in p.read_bytes()]


# --- sessions


async def test_a_turn_of_a_session_is_told_the_news_alone_however_the_session_is_named(
    tmp_path: Path,
) -> None:
    header = {"X-Headrace-Session": "trip"}
    said = [
        {"role": "user", "content": "First, as the client remembers it."},
        {"role": "assistant", "content": "What the client shows."},
        {"role": "user", "content": "Second."},
    ]
    async with api(tmp_path) as served:
        await served.post(CHAT, ask("First."), header)
        _, turn = await served.post("/v1/turns", {"input": said, "model": "lab:m"}, header)
        assert turn["session"] == "trip"
        await closed(served, turn["id"])
        sent = [message["content"] for message in served.models.requests[1].body["messages"]]
        assert sent == ["First.", "Hello from the scripted model.", "Second."]


@pytest.mark.parametrize("named", ["header", "body"])
async def test_what_is_not_to_be_kept_cannot_be_put_into_a_session(tmp_path: Path, named: str) -> None:
    header = {"X-Headrace-Session": "trip"} if named == "header" else {}
    async with api(tmp_path) as served:
        turn = {"input": "canary", "model": "lab:m", "store": False}
        bodies = {"/v1/turns": turn if header else {**turn, "session": "trip"}}
        if header:
            bodies |= {RESPONSES: turn, CHAT: ask("canary", store=False)}
        for path, body in bodies.items():
            status, answer = await served.post(path, body, header)
            assert (status, answer["error"]["param"]) == (409, "store")
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and b"canary" in p.read_bytes()]


async def test_a_turn_that_is_deleted_while_another_of_its_session_runs_is_not_remembered(
    tmp_path: Path,
) -> None:
    header = {"X-Headrace-Session": "trip"}
    async with api(tmp_path) as served:
        _, said = await served.post(RESPONSES, {"model": "lab:m", "input": "canary"}, header)
        served.models.default = scenario("stall-mid-text")
        body = {"model": "lab:m", "input": "Second.", "background": True}
        _, running = await served.post(RESPONSES, body, header)
        await served.models.wait_requests(2)
        assert (await served.delete(f"{RESPONSES}/{said['id']}"))[0] == 200
        served.models.default = scenario("hello")
        await served.post(f"{RESPONSES}/{running['id']}/cancel", None)
        await served.post(RESPONSES, {"model": "lab:m", "input": "Third."}, header)
        sent = str(served.models.requests[-1].body)
        assert "Second." in sent
        assert "canary" not in sent


async def test_what_is_given_to_a_turn_that_runs_is_answered_as_its_own_request_asks_and_given_once(
    tmp_path: Path,
) -> None:
    header = {"X-Headrace-Session": "trip"}
    async with api(tmp_path, more="sessions: {when_busy: {api: steer}}") as served:
        served.models.default = scenario("stall-mid-text")
        whole = asyncio.create_task(served.post(CHAT, ask("First."), header))
        await served.models.wait_requests(1)
        (held,) = served.server._turns.all_held()
        await first(held.turn, PartGrew)
        steers = {**header, "Idempotency-Key": "k1"}
        for _ in range(2):
            async with served.client.post(
                served.url(CHAT), json=ask("Second.", stream=True), headers=steers
            ) as answer:
                assert answer.content_type == "text/event-stream"
                assert b'"role":"assistant"' in await answer.content.readline()
        added = [entry for entry in held.turn.log.since(0) if isinstance(entry.event, InputAdded)]
        assert len(added) == 1
        assert not whole.done()
        served.models.default = scenario("hello")
        await served.post(f"/v1/turns/{held.turn.id}/stop", None)
        assert (await whole)[0] == 502


@pytest.mark.parametrize("verb", ["stop", "cancel"])
async def test_what_came_too_late_for_a_turn_opens_one_that_can_be_stopped(tmp_path: Path, verb: str) -> None:
    body = {"input": "First.", "model": "lab:m", "session": "trip"}
    async with api(tmp_path) as served:
        served.models.default = scenario("hang")
        _, turn = await served.post("/v1/turns", body)
        await served.models.wait_requests(1)
        await served.post("/v1/turns", {**body, "input": "Second.", "manner": "steer"})
        await served.post(f"/v1/turns/{turn['id']}/stop", None)
        await served.models.wait_requests(2)
        _, session = await served.get("/v1/sessions/trip")
        late = session["turns"][-1]["id"]
        assert (await served.get(f"/v1/turns/{late}"))[1]["runs_here"]
        if verb == "stop":
            status, stopped = await served.post(f"/v1/turns/{late}/stop", None)
            assert (status, stopped["outcome"], stopped["question"]) == (200, "cancelled", "Second.")
        else:
            path = f"{RESPONSES}/{late.replace('turn_', 'resp_')}/cancel"
            status, cancelled = await served.post(path, None)
            assert (status, cancelled["status"]) == (200, "cancelled")
        await served.models.wait_idle()


# --- clients that leave, and come back


async def test_a_client_that_leaves_in_the_moment_of_a_write_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with api(tmp_path) as served:
        served.models.default = scenario("hang")
        _, turn = await served.post("/v1/turns", {"input": "Hello?", "model": "lab:m"})
        async with served.client.get(served.url(f"/v1/turns/{turn['id']}/events")) as answer:
            await answer.content.readline()
            (held,) = served.server._turns.all_held()
            held.turn.steer([user_message("And?")])  # wakes the stream,
            for connection in open_connections(served):  # whose client is gone before it writes
                connection.abort()
            await until(served, lambda: served.server._desk.open_streams == 0)
    assert not caplog.records


def looks_twice(request: RecordedRequest) -> Script:
    looked = sum(message["role"] == "tool" for message in request.body["messages"])
    if looked < 2:
        said = Say(("Look", "\u2028ing\r", "\n\ndata: [DONE]\n\n"))
        return Script(Reply((Think("Hm.\n"), said, CallTool("read_file", {"path": "a.txt"}))), pace_s=0.002)
    return Script(Reply((Say(("It ", "says ", "42.") * 9),)), pace_s=0.002)


async def raw_frames(served: Api, path: str) -> list[bytes]:
    async with served.client.get(served.url(path)) as answer:
        frames = (await answer.read()).split(b"\n\n")[:-1]
    return [frame for frame in frames if not frame.startswith(b":")]


@pytest.mark.parametrize("shape", ["agent", "close-mid-text", "close-mid-arguments"])
async def test_wherever_a_stream_is_cut_it_goes_on_frame_for_frame(tmp_path: Path, shape: str) -> None:
    cuts = random.Random(shape)
    async with api(tmp_path) as served:
        (tmp_path / "work" / "a.txt").write_text("42")
        if shape == "agent":
            served.models.respond = looks_twice
        else:
            served.models.default = replace(scenario(shape), pace_s=0.005)
        body = {"model": "headrace" if shape == "agent" else "lab:m", "input": "?", "stream": True}
        async with served.client.post(served.url(RESPONSES), json=body) as answer:
            turn = answer.headers["X-Headrace-Turn"]
            path = f"{RESPONSES}/{turn.replace('turn_', 'resp_')}?stream=true"
            following = [
                asyncio.create_task(raw_frames(served, f"{path}&starting_after={n}")) for n in range(0, 60, 7)
            ]
            seen: list[bytes] = []
            while len(seen) <= cuts.randrange(3, 12):
                seen.append((await answer.content.readuntil(b"\n\n")).removesuffix(b"\n\n"))
        log = await raw_frames(served, f"/v1/turns/{turn}/events")
        whole = await raw_frames(served, path)
        assert whole[-1] == b"data: [DONE]"
        assert whole.count(b"data: [DONE]") == 1
        assert whole[: len(seen)] == seen
        for number, live in zip(range(0, 60, 7), await asyncio.gather(*following), strict=True):
            assert live == whole[number + 1 :]
        for kept_in in ("memory", "the database"):
            for number in cuts.sample(range(len(whole)), 5):
                rest = await raw_frames(served, f"{path}&starting_after={number}")
                assert rest == whole[number + 1 :], kept_in
            for number in cuts.sample(range(len(log)), 3):
                assert await raw_frames(served, f"/v1/turns/{turn}/events?after={number}") == log[number:]
            served.server._turns.let_go(turn)


async def test_a_reader_that_connects_anew_by_itself_goes_on_where_it_was(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        _, turn = await served.post("/v1/turns", {"input": "Hello?", "model": "lab:m"})
        log = await served.events(turn["id"])
        path = f"/v1/turns/{turn['id']}/events?after=2"
        assert await served.streamed(path, headers={"Last-Event-ID": "4"}) == log[4:]
        assert await served.streamed(path, headers={"Last-Event-ID": "x"}) == log[2:]


@pytest.mark.parametrize("fault", ["status:500", "close-mid-text"])
@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_an_answer_names_its_turn_and_session_though_it_failed(
    tmp_path: Path, path: str, fault: str
) -> None:
    async with api(tmp_path) as served:
        served.models.default = scenario(fault)
        for stream in (False, True):
            body = ask(stream=stream) if path == CHAT else {"model": "lab:m", "input": "?", "stream": stream}
            header = {"X-Headrace-Session": "trip"}
            async with served.client.post(served.url(path), json=body, headers=header) as answer:
                assert answer.headers["X-Headrace-Session"] == "trip"
                turn = answer.headers["X-Headrace-Turn"]
            assert (await closed(served, turn))["outcome"] in ("error", "cut")


# --- other processes, and what they leave


async def test_a_turn_whose_process_was_killed_ends_for_those_who_follow_it_here(tmp_path: Path) -> None:
    async with api(tmp_path) as served, client() as http:
        served.models.default = scenario("stall-mid-text")
        async with server(tmp_path, served.models) as (process, url):
            begun = {"model": "lab:m", "input": "?", "background": True}
            async with http.post(f"{url}{RESPONSES}", json=begun) as answer:
                response = (await answer.json())["id"]
            await served.models.wait_requests(1)
            following = asyncio.create_task(served.streamed(f"{RESPONSES}/{response}?stream=true"))
            await until(served, lambda: served.server._desk.open_streams == 1)
            process.kill()
            await process.wait()
            events = await asyncio.wait_for(following, 10)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert (events[-1]["type"], events[-1]["code"]) == ("response.failed", "crashed")


async def test_a_session_that_cannot_be_read_is_told_as_that_and_with_no_path(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    opened = '{"turn":"turn_1","seq":5,"at":1,"event":{"type":"turn_opened","log_version":1,"input":[]}}'
    (tmp_path / "sessions" / "bad.jsonl").write_text(f"{opened}\n")
    async with api(tmp_path) as served:
        status, answer = await served.post(CHAT, ask(), {"X-Headrace-Session": "bad"})
        assert (status, answer["error"]["code"]) == (500, "store_failed")
        assert str(tmp_path) not in str(answer)
        assert await served.get("/v1/sessions/bad") == (status, answer)
        assert (await served.post(CHAT, ask(), {"X-Headrace-Session": "good"}))[0] == 200


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_a_disk_that_fills_while_a_turn_streams_is_told_with_no_path(tmp_path: Path, path: str) -> None:
    body = ask(stream=True) if path == CHAT else {"model": "lab:m", "input": "?", "stream": True}
    async with ModelServer() as models, client() as http:
        models.default = replace(scenario("long:200"), pace_s=0.005)
        async with server(tmp_path, models) as (process, url):
            async with http.post(f"{url}{path}", json=body, headers={"X-Headrace-Session": "trip"}) as answer:
                while b"001 " not in await answer.content.readline():
                    pass
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
                events = values(await answer.text())
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            assert events[-1]["error"]["code"] == "store_failed"
            assert str(tmp_path) not in str(events)
            models.default = scenario("hello")
            async with http.post(f"{url}{CHAT}", json=ask(), headers={"X-Headrace-Session": "new"}) as again:
                assert again.status == 200
