"""Which script the model server chooses, what it records, and that it knows of a client that has left."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator

import pytest

from headrace.testing.modelserver import (
    SCENARIOS,
    Drip,
    ModelServer,
    Place,
    Raw,
    RecordedRequest,
    Reply,
    Say,
    ScenarioError,
    Script,
    Stall,
    Status,
    scenario,
)
from headrace.testing.modelserver.answers import answer
from tests.modelclient import (
    REPLY,
    TEXT,
    USER,
    dial,
    is_delta,
    openai_sdk,
    see,
)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


# --- choosing scripts --------------------------------------------------------------------------------------


async def test_the_order_in_which_scripts_are_chosen(server: ModelServer) -> None:
    def said(word: str) -> Script:
        return Script(Reply((Say(word),)))

    server.scenarios["mine"] = said("by name")
    server.enqueue(said("queued"))
    server.default = said("default")
    by_header = await see(server, headers="X-Script: mine\r\n")
    by_model = await see(server, model="script:mine")
    queued = await see(server)
    default = await see(server)
    server.respond = lambda record: said(f"to {record.body['model']}")
    responded = await see(server)
    answers = [seen.json["choices"][0]["message"]["content"] for seen in (by_header, by_model, queued)]
    assert answers == ["by name", "by name", "queued"]
    assert default.json["choices"][0]["message"]["content"] == "default"
    assert responded.json["choices"][0]["message"]["content"] == "to m"


async def test_a_fault_for_the_first_requests_only(server: ModelServer) -> None:
    failing = Script(REPLY, Status(503), times=2)
    server.enqueue(failing)
    assert [(await see(server)).status for _ in range(3)] == [503, 503, 200]
    server.default = failing
    assert [(await see(server)).status for _ in range(4)] == [503, 503, 200, 200]
    name = "X-Script: status:500*1\r\n"
    assert [(await see(server, headers=name)).status for _ in range(2)] == [500, 200]


async def test_a_retrying_client_gets_through(server: ModelServer) -> None:
    server.enqueue(Script(REPLY, Status(503, retry_after="0.01"), times=1))
    async with openai_sdk(server, retries=1) as client:
        got = await client.chat.completions.create(model="g", messages=USER)
    assert got.choices[0].message.content == TEXT
    assert (server.total_requests, server.total_connections) == (2, 1)


async def test_every_scenario_can_be_made_and_asked_for(server: ModelServer) -> None:
    for name in SCENARIOS:
        if name in {"hang", "slow-drip"} or name.startswith("stall"):
            continue
        for stream in (False, True):
            await see(server, "responses", f"X-Script: {name}\r\n", stream=stream)
    assert server.open_requests == 0
    assert SCENARIOS["hang"].fault == Stall("before_headers")
    assert {record.ending is not None for record in server.requests} == {True}


async def test_scenarios_with_numbers(server: ModelServer) -> None:
    seen = await see(server, headers="X-Script: long:1000\r\n", stream=True)
    assert len([event for event in seen.events[:-1] if is_delta(event)]) == 1000
    start = time.monotonic()
    await see(server, headers="X-Script: paced:11:10\r\n", stream=True)
    assert time.monotonic() - start >= 0.1


async def test_an_unknown_scenario_is_told(server: ModelServer) -> None:
    seen = await see(server, headers="X-Script: helo\r\n")
    assert seen.status == 404
    assert "no scenario is called `helo`" in seen.json["error"]["message"]
    for name in ("hello*2", "long:0", "long:many", "hang*x"):
        with pytest.raises(ScenarioError):
            scenario(name)


# --- a client that leaves ----------------------------------------------------------------------------------


STALLS: list[Place] = ["before_headers", "after_headers", "before_first_token", "mid_text", "after_finish"]
WAITING = [
    *[Script(REPLY, Stall(at)) for at in STALLS],
    Script(REPLY, Drip(pause_s=30.0)),
    Script(Raw((b"data: ", b"x"), end="stall")),
]


@pytest.mark.parametrize(
    ("script", "stream"),
    [
        *[(script, stream) for script in WAITING for stream in (False, True)],
        (Script(REPLY, pace_s=30.0), True),
    ],
    ids=str,
)
async def test_a_client_that_leaves_is_noticed_at_once(
    server: ModelServer, script: Script, *, stream: bool
) -> None:
    server.enqueue(script)
    _, writer = await dial(server, stream=stream)
    await server.wait_requests(1)
    record = server.requests[0]
    assert (record.ending, server.open_requests, server.open_connections) == (None, 1, 1)
    left_at = asyncio.get_running_loop().time()
    writer.close()
    await server.wait_disconnected(1)
    await server.wait_idle()
    assert record.client_left_at is not None
    assert record.client_left_at >= left_at
    assert (server.open_requests, server.open_connections, server.total_connections) == (0, 0, 1)


async def test_a_client_that_leaves_while_the_server_writes_is_noticed(server: ModelServer) -> None:
    server.enqueue(scenario("long:100000"))
    reader, writer = await dial(server, stream=True)
    await reader.readexactly(1000)
    writer.transport.abort()
    assert (await server.requests[0].wait_ended()).by == "client"


async def test_closing_the_server_ends_stalls(server: ModelServer) -> None:
    async with ModelServer(default=scenario("hang")) as other:
        reader, writer = await dial(other)
        await other.wait_requests(1)
        await other.close()
        assert await reader.read() == b""
        assert (await other.requests[0].wait_ended()).by == "server"
        writer.close()
        await writer.wait_closed()
    assert server.open_requests == 0


async def test_a_waiter_that_gives_up_leaves_the_record_as_it_is(server: ModelServer) -> None:
    server.enqueue(scenario("hang"))
    _, writer = await dial(server)
    await server.wait_requests(1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(server.requests[0].wait_ended(), 0.01)
    writer.close()
    assert (await server.requests[0].wait_ended()).by == "client"


async def test_a_stall_holds_what_was_sent_and_no_more(server: ModelServer) -> None:
    server.enqueue(Script(Reply((Say(("one", "two", "three")),)), Stall("mid_text", deltas=2)))
    reader, writer = await dial(server, stream=True)
    got = await reader.readuntil(b'"two"')
    assert b'"one"' in got
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readuntil(b"three"), 0.05)
    writer.close()
    await server.wait_disconnected(1)


# --- what is recorded --------------------------------------------------------------------------------------


async def test_a_request_is_recorded_as_it_came(server: ModelServer) -> None:
    before = asyncio.get_running_loop().time()
    await see(server, "messages", "X-Api-Key: k\r\n", max_tokens=3)
    [record] = server.requests
    assert (record.protocol, record.path) == ("messages", "/v1/messages")
    assert record.headers["x-api-key"] == "k"
    assert record.body == {"model": "m", "messages": [], "max_tokens": 3}
    assert before <= record.arrived_at <= asyncio.get_running_loop().time()
    assert record.ending is not None
    assert record.ending.by == "answer"


async def test_a_script_that_raises_is_the_servers_failure_and_no_clients(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    def respond(record: RecordedRequest) -> Script:
        raise LookupError(record.path)

    server.respond = respond
    assert (await see(server)).status == 500
    assert "LookupError" in caplog.text
    assert (await server.requests[0].wait_ended()).by == "server"
    assert (server.total_disconnected, server.open_requests) == (0, 0)


async def test_requests_that_are_no_question(server: ModelServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    writer.write(b"GET /elsewhere HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b" 404 " in await reader.readline()
    writer.close()
    reader, second = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    second.write(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]")
    assert b" 400 " in await reader.readline()
    second.close()
    await server.wait_idle()
    assert server.requests == []


async def test_bulk_is_written_in_large_pieces(server: ModelServer) -> None:
    server.default = scenario("long:20000")
    seen = await see(server, stream=True)
    assert seen.body.count(b"\r\n") < 2 * (len(seen.body) // 100_000 + 2)
    # The second time nothing is encoded.
    known = answer.cache_info()
    assert (await see(server, stream=True)).body == seen.body
    assert answer.cache_info()._replace(hits=known.hits) == known
    assert answer.cache_info().hits == known.hits + 1


# --- as a process ------------------------------------------------------------------------------------------


async def run(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace.testing.modelserver", *arguments, stdout=asyncio.subprocess.PIPE
    )


async def test_it_runs_as_a_process_of_its_own() -> None:
    process = await run("--scenario", "tools")
    assert process.stdout is not None
    ready, _, url = (await process.stdout.readline()).decode().strip().partition(" ")
    assert (ready, url.startswith("http://127.0.0.1:")) == ("ready", True)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    assert b'"tool_use"' in await reader.readuntil(b"}}")
    writer.write(b"GET /server HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b'"by":"answer"' in await reader.read()
    writer.close()
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def test_its_help_has_an_example() -> None:
    process = await run("--help")
    output, _ = await process.communicate()
    assert b"curl -N" in output
    process = await run("--list")
    output, _ = await process.communicate()
    assert set(SCENARIOS) <= set(output.decode().split("\n"))
