"""Who follows a turn, who leaves it, and what becomes of it: over real sockets, and across a killed server."""

import asyncio
import gc
import json
import signal
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from aiohttp import web

from headrace.doors.api.stream import Stream
from headrace.doors.api.turns import GONE
from headrace.events import AttemptStarted, CallStarted, Event, PartGrew, PartStarted, ToolPrinted, TurnOpened
from headrace.limits import API_BATCH_EVENTS
from headrace.runtime.clock import SystemClock
from headrace.runtime.turn import Turn
from headrace.testing.modelserver import CallTool, ModelServer, RecordedRequest, Reply, Say, Script, scenario
from headrace.turn.log import Log
from headrace.views.chat_completions import ChatView
from tests.apiserver import KEY, Api, api, ask, content, values
from tests.commands import COMMAND, environment

CHAT = "/v1/chat/completions"
SSE = "text/event-stream"


async def turn_of(served: Api, status: str | None = None) -> dict[str, Any]:
    """The one turn that is held."""
    _, turns = await served.get("/v1/turns")
    (turn,) = turns["data"]
    assert turn["outcome"] == status
    return dict(turn)


E = TypeVar("E", bound=Event)


async def first(turn: Turn, kind: type[E]) -> E:
    """The turn's first event of a kind."""
    async for batch in turn.follow():
        for entry in batch:
            if isinstance(entry.event, kind):
                return entry.event
    raise AssertionError(f"the turn had no {kind.__name__}")


async def closed(served: Api, turn: str) -> dict[str, Any]:
    """The turn's last event."""
    return dict((await served.events(turn))[-1]["event"])


# --- an anonymous turn ends with its client


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("state", ["hang", "stall-after-headers", "stall-mid-text", "paced:2000:2"])
async def test_a_client_that_leaves_ends_its_turn_from_any_state(
    tmp_path: Path, state: str, *, stream: bool
) -> None:
    async with api(tmp_path) as served:
        served.models.default = scenario(state)
        asking = asyncio.create_task(served.post(CHAT, ask(stream=stream)))
        await served.models.wait_requests(1)
        held = served.server._turns.all_held()[0]
        asking.cancel()
        ending = await asyncio.wait_for(served.models.requests[0].wait_ended(), 5)
        assert ending.by == "client"
        end = await held.turn.wait()
        assert (end.outcome, end.cause.code) in {
            ("cancelled", "client_disconnected"),
            ("cut", "client_disconnected"),
        }
        assert ("SSE client disconnected" in end.cause.message) == stream
        assert served.server._turns.all_held() == []


async def test_a_client_that_leaves_ends_the_tools_of_its_turn(tmp_path: Path) -> None:
    async with api(tmp_path, more="tools: {modes: {terminal: allow}}") as served:
        command = "echo $$; exec sleep 600"
        served.models.enqueue(Script(Reply((CallTool("terminal", {"command": command}),))))
        asking = asyncio.create_task(served.post(CHAT, ask(model="headrace", stream=True)))
        await served.models.wait_requests(1)
        held = served.server._turns.all_held()[0]
        pid = await first(held.turn, ToolPrinted)
        asking.cancel()
        await held.turn.wait()
        assert not Path(f"/proc/{pid.text.strip()}").exists()


async def test_an_answer_leaves_nothing_behind_not_even_for_the_collector(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        await served.streamed(CHAT, ask(stream=True))  # what is made once is made
        gc.collect()
        gc.disable()
        try:
            served.models.default = replace(scenario("long:20"), pace_s=0.005)
            asking = asyncio.create_task(served.streamed(CHAT, ask(stream=True)))
            await served.models.wait_requests(2)
            (held,) = served.server._turns.all_held()
            log = weakref.ref(held.turn.log)
            del held
            await asking
            await served.get("/health")  # the server's own tasks have had their step
            assert log() is None
        finally:
            gc.enable()


async def test_leaving_after_the_end_changes_nothing(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        served.models.default = replace(scenario("long:20"), pace_s=0.005)
        async with served.client.post(served.url(CHAT), json=ask(stream=True)) as answer:
            held = served.server._turns.all_held()[0]
            await held.turn.wait()
            answer.close()
        assert held.turn.log.closed is not None
        assert held.turn.log.closed.outcome == "stop"


async def test_a_turn_goes_on_without_its_client_where_that_is_configured(tmp_path: Path) -> None:
    async with api(tmp_path, more="api: {on_disconnect: detach}") as served:
        served.models.default = replace(scenario("long:20"), pace_s=0.01)
        asking = asyncio.create_task(served.post(CHAT, ask(stream=True)))
        await served.models.wait_requests(1)
        held = served.server._turns.all_held()[0]
        asking.cancel()
        assert (await held.turn.wait()).outcome == "stop"


async def test_a_stored_turn_goes_on_without_its_client(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        served.models.default = replace(scenario("long:20"), pace_s=0.01)
        asking = asyncio.create_task(served.post(CHAT, ask(stream=True), {"X-Headrace-Session": "trip"}))
        await served.models.wait_requests(1)
        turn = (await turn_of(served))["id"]
        asking.cancel()
        assert (await closed(served, turn))["outcome"] == "stop"


# --- followers


async def test_any_number_follows_from_anywhere(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        served.models.default = replace(scenario("long:40"), pace_s=0.005)
        status, turn = await served.post("/v1/turns", {"input": "Hello?", "model": "lab:m"})
        assert (status, turn["outcome"]) == (202, None)
        logs = await asyncio.gather(*(served.events(turn["id"], after) for after in (0, 0, 3, 10)))
        assert logs[0] == logs[1]
        assert [entry["seq"] for entry in logs[0]] == list(range(1, len(logs[0]) + 1))
        assert logs[2] == logs[0][3:]
        assert logs[3] == logs[0][10:]
        assert await served.events(turn["id"], len(logs[0])) == []
        _, again = await served.get(f"/v1/turns/{turn['id']}")
        assert again["outcome"] == "stop"
        assert again["answer"].startswith("000 001 002")


async def test_a_client_that_does_not_read_loses_its_stream(tmp_path: Path) -> None:
    async with api(tmp_path, more="api: {write_stall_s: 1}") as served:
        served.models.default = Script(Reply((Say(("word " * 800,) * 20_000),)), pace_s=0.001)
        body = json.dumps(ask(stream=True)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nx-api-key: {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", served.server.port))
            raw.sendall(head.encode() + body)
            await served.models.wait_requests(1)
            (held,) = served.server._turns.all_held()
            end = await asyncio.wait_for(held.turn.wait(), 20)
        assert end.cause.code == "client_disconnected"


async def test_a_silent_stream_is_kept_alive_by_comments(tmp_path: Path) -> None:
    async with api(tmp_path, keepalive_s=0.5) as served:
        served.models.default = scenario("hang")
        async with served.client.post(served.url(CHAT), json=ask(stream=True)) as answer:
            assert answer.headers["Content-Type"].startswith(SSE)
            async with asyncio.timeout(10):
                lines = [await answer.content.readline() for _ in range(3)]
            assert b'"role":"assistant"' in lines[0]
            assert lines[2] == b": keepalive\n"


async def test_what_follows_much_that_is_not_shown_is_written_with_it() -> None:
    """One batch that is longer than one look at the log."""
    log = Log("turn_1")
    log.extend(
        [TurnOpened(1, (), "", "m", ""), CallStarted(1, "reply", "m"), AttemptStarted(1, 1, "m", True)], 1.0
    )
    stream = Stream(log, ChatView("m", acts=True), SystemClock(), 60.0)

    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream.flow(request, {})

    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    async with aiohttp.ClientSession() as client, client.get(url) as answer:
        assert b"role" in await answer.content.readline()
        await answer.content.readline()
        hidden = [
            PartStarted(1, 1, "tool_call", "id", "run"),
            *[PartGrew(1, 1, "a")] * (API_BATCH_EVENTS + 50),
        ]
        log.extend([*hidden, PartStarted(1, 2, "text"), PartGrew(1, 2, "Visible.")], 2.0)
        assert b"Visible." in await asyncio.wait_for(answer.content.readline(), 10)
    await runner.cleanup()


async def test_a_client_without_chunks_is_sent_the_frames_alone_until_the_end(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        served.models.default = replace(scenario("long:20"), pace_s=0.005)
        body = json.dumps(ask(stream=True)).encode()
        head = f"POST {CHAT} HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\nx-api-key: {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        writer.write(head.encode() + body)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        head, _, text = answer.decode().partition("\r\n\r\n")
        assert "Transfer-Encoding" not in head
        assert text.startswith("data: ")
        assert text.endswith("data: [DONE]\n\n")
        assert content(values(text)) == content(await served.streamed(CHAT, ask(stream=True)))


async def test_a_client_that_comes_back_and_has_missed_nothing_sees_at_once_that_it_is_followed(
    tmp_path: Path,
) -> None:
    async with api(tmp_path) as served:
        served.models.default = scenario("stall-mid-text")
        _, started = await served.post("/v1/turns", {"model": "lab:m", "input": "Hello?"})
        events = served.url(f"/v1/turns/{started['id']}/events")
        async with served.client.get(events) as first:
            lines = []
            while not lines[-1:] or b"part_grew" not in lines[-1]:
                lines.append(await asyncio.wait_for(first.content.readline(), 10))
        seen = max(int(line.split()[1]) for line in lines if line.startswith(b"id: "))
        async with served.client.get(f"{events}?after={seen}") as again:
            assert again.status == 200
            assert await asyncio.wait_for(again.content.readline(), 10)


# --- idempotency


async def test_the_same_key_attaches_to_one_turn(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        served.models.default = replace(scenario("long:20"), pace_s=0.005)
        header = {"Idempotency-Key": "k1"}
        several = await asyncio.gather(*(served.streamed(CHAT, ask(stream=True), header) for _ in range(3)))
        assert several[0] == several[1] == several[2]
        assert await served.streamed(CHAT, ask(stream=True), header) == several[0]
        assert len(served.models.requests) == 1
        status, answer = await served.post(CHAT, ask("Else?", stream=True), header)
        assert (status, answer["error"]["code"]) == (422, "idempotency_key_reused")
        await served.post(CHAT, ask(), {"Idempotency-Key": "k2"})
        assert len(served.models.requests) == 2


async def test_a_turn_with_a_key_waits_for_the_retry(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        served.models.default = replace(scenario("long:30"), pace_s=0.01)
        header = {"Idempotency-Key": "k1"}
        asking = asyncio.create_task(served.post(CHAT, ask(stream=True), header))
        await served.models.wait_requests(1)
        asking.cancel()
        chunks = await served.streamed(CHAT, ask(stream=True), header)
        assert content(chunks).startswith("000 001")
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        assert len(served.models.requests) == 1


# --- native


async def test_a_turn_is_stopped_and_what_was_shown_stays(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        served.models.default = scenario("stall-mid-text")
        _, turn = await served.post("/v1/turns", {"input": "Hello?", "model": "lab:m", "store": False})
        await first(served.server._turns.all_held()[0].turn, PartGrew)
        status, stopped = await served.post(f"/v1/turns/{turn['id']}/stop", None)
        assert (status, stopped["outcome"]) == (200, "cancelled")
        await served.models.wait_idle()
        assert (await served.post("/v1/turns/turn_none/stop", None))[0] == 404


async def test_a_message_steers_or_interrupts_the_turn_that_runs(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        served.models.default = scenario("stall-mid-text")
        body = {"input": "First.", "model": "lab:m", "session": "trip"}
        _, first = await served.post("/v1/turns", body)
        await served.models.wait_requests(1)
        _, steered = await served.post("/v1/turns", {**body, "input": "Second.", "manner": "steer"})
        assert steered["id"] == first["id"]
        served.models.default = scenario("hello")
        _, third = await served.post("/v1/turns", {**body, "input": "Third.", "manner": "interrupt"})
        assert (await closed(served, third["id"]))["outcome"] == "stop"
        assert (await closed(served, first["id"]))["cause"]["code"] == "interrupted"
        assert "Second." in str([r.body for r in served.models.requests])


async def test_a_clarifying_question_is_answered(tmp_path: Path) -> None:
    def asks(request: RecordedRequest) -> Script:
        results = [m["content"] for m in request.body["messages"] if m["role"] == "tool"]
        if results:
            return Script(Reply((Say(f"So it is {results[0]}"),)))
        return Script(Reply((CallTool("clarify", {"question": "Which?", "choices": ["a", "b"]}),)))

    async with api(tmp_path) as served:
        served.models.respond = asks
        _, turn = await served.post("/v1/turns", {"input": "Hello?"})
        path = f"/v1/turns/{turn['id']}"
        async with served.client.get(served.url(f"{path}/events")) as answer:
            async for line in answer.content:
                if line.startswith(b"data: ") and b"question_asked" in line:
                    key = json.loads(line[6:])["event"]["question"]
                    break
            assert (await served.post(f"{path}/questions/{key}", {"text": "b"}))[0] == 200
            assert (await served.post(f"{path}/questions/{key}", {"text": "b"}))[0] == 409
        await closed(served, turn["id"])
        _, done = await served.get(path)
        assert "b" in done["answer"]


async def test_sessions_are_listed_read_found_and_deleted(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        for name in ("trip", "home"):
            await served.post(CHAT, ask(f"The wheel of {name}."), {"X-Headrace-Session": name})
        _, kept = await served.get("/v1/sessions")
        assert [row["name"] for row in kept["data"]] == ["home", "trip"]
        _, found = await served.get("/v1/search?q=wheel+trip")
        assert [row["session"] for row in found["data"]] == ["trip"]
        assert (await served.delete("/v1/sessions/trip"))[0] == 200
        assert (await served.delete("/v1/sessions/trip"))[0] == 404
        assert (await served.get("/v1/sessions/trip"))[0] == 404
        await served.post(CHAT, ask("Again."), {"X-Headrace-Session": "trip"})
        assert "wheel of trip" not in str(served.models.requests[-1].body)


async def test_a_full_disk_ends_the_turn_and_says_so(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        sessions = tmp_path / "sessions"
        await served.post(CHAT, ask("First."), {"X-Headrace-Session": "trip"})
        (sessions / "new.jsonl").symlink_to("/dev/full")
        status, answer = await served.post(CHAT, ask(), {"X-Headrace-Session": "new"})
        assert (status, answer["error"]["code"]) == (507, "store_failed")
        assert (await served.get("/v1/sessions/trip"))[0] == 200


async def test_what_is_kept_no_longer_goes_while_the_server_runs(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        for name in ("old", "new"):
            body = ask("x" * 600_000)
            await served.post(CHAT, body, {"X-Headrace-Session": name})
    async with api(tmp_path, more="sessions: {max_megabytes: 1}") as served:
        left = ["new", "old"]
        async with asyncio.timeout(10):
            while len(left) > 1:
                _, kept = await served.get("/v1/sessions")
                left = [row["name"] for row in kept["data"]]
    assert left == ["new"]


# --- the server's own end


@asynccontextmanager
async def server(home: Path, models: ModelServer) -> AsyncIterator[tuple[Any, str]]:
    """`headrace serve` as a process of its own."""
    (home / "config.yaml").write_text(
        f"model: lab:m\nproviders: {{lab: {{base_url: '{models.url}/v1', auth: none}}}}\n"
    )
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "serve",
        "--port",
        "0",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(home, {"HEADRACE_API_KEY": KEY}),
        cwd=home,
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
        assert line.startswith("ready http://127.0.0.1:")
        yield process, line.split()[1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"})


async def seen_before(answer: aiohttp.ClientResponse, least: int) -> list[dict[str, Any]]:
    """What a follower gets until it has so many events, or the server is gone."""
    out: list[dict[str, Any]] = []
    async for line in answer.content:
        if line.startswith(b"data: {"):
            out.append(json.loads(line[6:]))
        if len(out) >= least:
            break
    return out


async def test_a_killed_servers_stored_turns_are_gone_on_following(tmp_path: Path) -> None:
    async with ModelServer() as models, client() as http:
        models.default = replace(scenario("long:100000"), pace_s=0.002)
        async with (
            server(tmp_path, models) as (process, url),
            http.post(f"{url}/v1/responses", json={"model": "lab:m", "input": "?", "stream": True}) as a,
        ):
            seen = await seen_before(a, 40)
            process.send_signal(signal.SIGKILL)
            await process.wait()
        response = seen[0]["response"]["id"]
        turn = response.replace("resp_", "turn_")
        async with server(tmp_path, models) as (_, url):
            async with http.get(f"{url}/v1/turns/{turn}/events") as answer:
                log = values(await answer.text())
            assert [entry["seq"] for entry in log] == list(range(1, len(log) + 1))
            assert log[-1]["event"]["cause"]["code"] == "crashed"
            last = seen[-1]["sequence_number"]
            query = f"stream=true&starting_after={last}"
            async with http.get(f"{url}/v1/responses/{response}?{query}") as answer:
                rest = values(await answer.text())
        numbers = [event["sequence_number"] for event in seen + rest]
        assert numbers == list(range(len(numbers)))
        assert rest[-1]["type"] == "response.failed"
        assert rest[-1]["code"] == "crashed"
        text = "".join(e["delta"] for e in seen + rest if e["type"] == "response.output_text.delta")
        assert text == rest[-1]["response"]["output"][0]["content"][0]["text"]


async def test_a_server_that_is_told_to_stop_lets_turns_end(tmp_path: Path) -> None:
    async with ModelServer() as models, client() as http:
        models.default = replace(scenario("long:60"), pace_s=0.01)
        async with server(tmp_path, models) as (process, url):
            async with http.post(f"{url}{CHAT}", json=ask(stream=True)) as answer:
                await answer.content.readline()
                process.send_signal(signal.SIGTERM)
                assert b"Stopping" in await asyncio.wait_for(process.stderr.readline(), 10)
                async with http.get(f"{url}/health") as health:
                    assert (await health.json())["status"] == "draining"
                async with http.post(f"{url}{CHAT}", json=ask()) as refused:
                    assert refused.status == 503
                    assert "Retry-After" in refused.headers
                chunks = values(await answer.text())
            assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
            assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_turns_that_outlast_the_stop_are_closed_and_their_followers_told(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        served.models.default = scenario("stall-mid-text")
        asking = asyncio.create_task(served.streamed(CHAT, ask(stream=True)))
        await served.models.wait_requests(1)
        (held,) = served.server._turns.all_held()
        await first(held.turn, PartGrew)
        await served.server.stop(0.05)
        chunks = await asking
        assert chunks[-1]["error"]["code"] == "shutdown"
        assert GONE.code != chunks[-1]["error"]["code"]
