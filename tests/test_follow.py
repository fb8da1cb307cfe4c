"""`headrace follow` beside real servers: a turn that was started elsewhere, shown, answered and stopped from here."""

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
import pytest

from headrace import events
from headrace.doors.terminal.remote import Key, Lost, RemoteTurn, Row, Server
from headrace.errors import Cause
from headrace.events import (
    ApprovalAsked,
    ApprovalGiven,
    Event,
    NoticeShown,
    QuestionAnswered,
    Recorded,
    TurnClosed,
    TurnOpened,
    user_message,
)
from headrace.limits import FOLLOW_STEADY_S
from headrace.ports import Clock
from headrace.runtime.clock import SystemClock
from headrace.stores.sqlite import SessionStore
from headrace.testing.modelserver import CallTool, ModelServer, Reply, Say, Script, scenario
from headrace.turn.log import Log
from headrace.views.asides import Aside
from headrace.views.native import NativeView
from headrace.views.terminal import TerminalView
from tests.commands import COMMAND, Ran, Terminal, environment, run, write_config
from tests.rawserver import RawServer, Sent, endless, http, raw_server
from tests.test_embedded import until

WORDS = "One two three four five six seven eight nine ten. " * 4
SLOW = Script(Reply((Say(WORDS),)), pace_s=0.02)
DONE = Script(Reply((Say("All done."),)))
WRITE = Script(Reply((Say("I write. "), CallTool("write_file", {"path": "notes.md", "content": "hi"}))))
ASK = Script(Reply((CallTool("clarify", {"question": "Which colour?", "choices": ["red", "blue"]}),)))
ASKED = "Allow it? [y/N]"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Served:
    """`headrace serve` as a process of its own, and a client of its API."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        self._arguments = arguments

    async def __aenter__(self) -> Self:
        self.process = await asyncio.create_subprocess_exec(
            *COMMAND, "serve", *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment(self.home),
            cwd=self.home,
        )  # fmt: skip
        assert self.process.stdout is not None
        ready = await asyncio.wait_for(self.process.stdout.readline(), 20)
        self.url = ready.decode().removeprefix("ready ").strip()
        key = (self.home / "api_key").read_text().strip()
        self._client = aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        await self.kill()

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def get(self, path: str) -> Any:
        async with self._client.get(f"{self.url}/v1/{path}") as response:
            return await response.json()

    async def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        async with self._client.post(f"{self.url}/v1/{path}", json=body or {}) as response:
            return await response.json()

    @contextlib.asynccontextmanager
    async def chat(self, question: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """A client of chat completions, while it stays."""
        body = {"model": "headrace", "stream": True, "messages": [{"role": "user", "content": question}]}
        async with self._client.post(f"{self.url}/v1/chat/completions", json=body) as response:
            yield response

    async def begin(self, question: str = "Do it.", **body: Any) -> str:
        turn: str = (await self.post("turns", {"input": question, **body}))["id"]
        return turn

    async def log(self, turn: str) -> AsyncGenerator[Event]:
        """Live, until it is closed."""
        async with self._client.get(f"{self.url}/v1/turns/{turn}/events") as response:
            async for line in response.content:
                if line.startswith(b"data: "):
                    yield events.decode(line[6:]).event

    async def until(self, turn: str, kind: type[Event]) -> Any:
        async with asyncio.timeout(20), contextlib.aclosing(self.log(turn)) as log:
            async for event in log:
                if isinstance(event, kind):
                    return event
        raise AssertionError(kind)

    def follow(self, *arguments: str) -> Terminal:
        return Terminal(self.home, "follow", "--url", self.url, *arguments)

    async def followed(self, *arguments: str) -> Ran:
        return await run(self.home, "follow", "--url", self.url, *arguments)


@contextlib.asynccontextmanager
async def serving(home: Path, *scripts: Script, default: Script = DONE) -> AsyncIterator[Served]:
    async with ModelServer(default=default) as models:
        models.enqueue(*scripts)
        write_config(home, models.url)
        async with Served(home, "--port", "0") as served:
            yield served


@contextlib.asynccontextmanager
async def serving_where_configured(home: Path, script: Script) -> AsyncIterator[Served]:
    """A server that others of its home find without being told where."""
    async with ModelServer(default=script) as models:
        write_config(home, models.url)
        with (home / "config.yaml").open("a") as config:
            config.write(f"api: {{port: {free_port()}}}\n")
        async with Served(home) as served:
            yield served


def kept(home: Path, session: str) -> list[Recorded]:
    with contextlib.closing(SessionStore(home)) as store:
        return [recorded for turn in store.turns(session) for recorded in turn]


# --- watching


async def test_a_running_turn_is_replayed_and_then_live(tmp_path: Path) -> None:
    async with serving(tmp_path, default=SLOW) as served:
        turn = await served.begin("Count,\nplease.")
        async with served.follow() as terminal:
            assert await terminal.left() == 0
        assert terminal.seen.count("> Count,\r\n> please.\r\n") == 1
        assert terminal.seen.count(WORDS.strip()) == 1
        again = await served.followed(turn)
    assert (again.status, again.out, again.err) == (0, f"{WORDS}\n", "> Count,\n> please.\n")


async def test_json_is_the_log_from_a_cursor_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        turn = await served.begin(session="s")
        whole = await served.followed("s", "--json")
        rest = await served.followed(turn, "--json", "--after", "3")
        none = await served.followed(turn, "--json", "--after", "999")
    lines = whole.out.splitlines()
    log = Log.restored([events.decode(line) for line in lines])
    assert log.closed is not None
    assert log.turn == turn
    assert rest.out.splitlines() == lines[3:]
    assert (none.status, none.out) == (0, "")


async def test_what_was_seen_is_not_shown_again(tmp_path: Path) -> None:
    reply = Reply((Say(("One ", "two ", "three.")),))
    async with serving(tmp_path, default=Script(reply)) as served:
        turn = await served.begin(session="s")
        log = [events.decode(line) for line in (await served.followed(turn, "--json")).out.splitlines()]
        grew = [recorded.seq for recorded in log if type(recorded.event).__name__ == "PartGrew"]
        ran = await served.followed(turn, "--after", str(grew[0]))
    assert (ran.status, ran.out, ran.err) == (0, "two three.\n", "")


async def test_the_exit_status_says_how_the_turn_ended(tmp_path: Path) -> None:
    async with serving(tmp_path, default=scenario("close-mid-text")) as served:
        ran = await served.followed(await served.begin())
    assert ran.status == 3
    assert "cut: " in ran.err


async def test_a_session_is_gone_on_with(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.begin("First?", session="trip")
        async with served.follow("trip", "--keep") as terminal:
            await terminal.until("Waiting for the next turn of trip.")
            await served.begin("Second?", session="trip")
            await terminal.until("> Second?")
            await terminal.until("Waiting for the next turn of trip.", 2)
            assert terminal.seen.count("> First?") == terminal.seen.count("> Second?") == 1
            assert terminal.seen.count("All done.") == 2
            terminal.type("\x03")
            assert await terminal.left() == 0


def test_that_whoever_asked_has_left_is_told_to_those_who_watch() -> None:
    left = TurnClosed("cancelled", Cause("client_disconnected", "The client left."))
    assert TerminalView(elsewhere=True).feed([left]) == [Aside("cancelled: The client left.")]
    assert TerminalView().feed([left]) == []


# --- answering


@pytest.mark.parametrize(("typed", "verdict"), [("y", "allowed"), ("n", "denied")])
async def test_an_approval_that_a_client_of_the_api_needs_is_given_here(
    tmp_path: Path, typed: str, verdict: str
) -> None:
    async with serving(tmp_path, WRITE) as served, served.chat("Do it.") as response:
        turn = response.headers["X-Headrace-Turn"]
        watching = asyncio.create_task(served.until(turn, ApprovalGiven))
        await served.until(turn, ApprovalAsked)
        async with served.follow() as terminal:
            await terminal.until(ASKED)
            terminal.type(f"{typed}\n")
            assert await terminal.left() == 0
        assert (await response.text()).endswith("data: [DONE]\n\n")
        given = await watching
    assert (given.verdict, given.by) == (verdict, "terminal")
    assert (tmp_path / "notes.md").exists() == (verdict == "allowed")
    assert ("not run: denied" in terminal.seen) == (verdict == "denied")
    assert "by terminal" not in terminal.seen
    assert "All done." in terminal.seen


async def test_a_question_is_answered_here(tmp_path: Path) -> None:
    async with serving(tmp_path, ASK) as served:
        turn = await served.begin()
        async with served.follow(turn) as terminal:
            await terminal.until("2. blue")
            terminal.type("2\n")
            assert await terminal.left() == 0
        answered = await served.until(turn, QuestionAnswered)
    assert (answered.text, answered.by) == ("blue", "terminal")


async def test_what_is_answered_elsewhere_is_asked_no_more(tmp_path: Path) -> None:
    async with serving(tmp_path, WRITE, ASK) as served:
        turn = await served.begin()
        approval = (await served.until(turn, ApprovalAsked)).approval
        async with served.follow() as terminal:
            await terminal.until(ASKED)
            await served.post(f"turns/{turn}/approvals/{approval}", {"allow": True, "by": "web"})
            await terminal.until("allowed by web")
            await terminal.until("2. blue")
            terminal.type("1\n")
            assert await terminal.left() == 0
        assert terminal.seen.count(ASKED) == 1
        again = Terminal(tmp_path, "follow", "--url", served.url, turn)
        async with again:
            assert await again.left() == 0
    assert ASKED not in again.seen
    assert "allowed by web" in again.seen
    assert "answered by terminal: red" in again.seen
    assert "Which colour?" in again.seen


async def test_who_answers_second_is_told_nothing_wrong(tmp_path: Path) -> None:
    async with serving(tmp_path, WRITE, default=SLOW) as served:
        turn = await served.begin()
        await served.until(turn, ApprovalAsked)
        async with served.follow() as one, served.follow() as other:
            await one.until(ASKED)
            await other.until(ASKED)
            one.type("y\n")
            other.type("y\n")
            assert [await one.left(), await other.left()] == [0, 0]
    for terminal in (one, other):
        assert terminal.seen.count("ten.") == 4
        assert "headrace:" not in terminal.seen
        assert "Your answer" not in terminal.seen


async def test_nobody_is_asked_who_cannot_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, WRITE) as served:
        turn = await served.begin()
        approval = (await served.until(turn, ApprovalAsked)).approval
        following = asyncio.create_task(served.followed(turn))
        log = asyncio.create_task(served.until(turn, TurnClosed))
        await served.post(f"turns/{turn}/approvals/{approval}", {"allow": False})
        assert (await log).outcome == "stop"
        ran = await following
    assert ran.status == 0
    assert ASKED not in ran.err


# --- leaving and stopping


async def test_ctrl_c_leaves_the_turn_running(tmp_path: Path) -> None:
    async with serving(tmp_path, default=scenario("hang")) as served:
        turn = await served.begin(session="s")
        async with served.follow() as terminal:
            await terminal.until("> Do it.")
            terminal.type("\x03")
            await terminal.until(f"--stop {turn}` stops it")
            assert await terminal.left() == 0
        assert "Traceback" not in terminal.seen
        assert (await served.get(f"turns/{turn}"))["runs_here"]


async def test_leaving_ends_no_turn_that_is_kept_nowhere(tmp_path: Path) -> None:
    async with serving(tmp_path, default=SLOW) as served:
        turn = await served.begin(store=False)
        async with served.follow() as terminal:
            await terminal.until("One two")
            terminal.type("\x03")
            assert await terminal.left() == 0
        again = await served.followed(turn)
    assert (again.status, again.out) == (0, f"{WORDS}\n")


async def test_whoever_closes_the_pipe_leaves_the_turn_running(tmp_path: Path) -> None:
    async with serving(tmp_path, default=scenario("hang")) as served:
        turn = await served.begin()
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "follow", "--url", served.url, "--json",
            stdout=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.DEVNULL,
            env=environment(tmp_path),
        )  # fmt: skip
        assert process.stdout is not None
        await process.stdout.readline()
        process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        assert await asyncio.wait_for(process.wait(), 20) == 1
        assert (await served.get(f"turns/{turn}"))["runs_here"]


async def test_a_second_ctrl_c_stops_the_turn(tmp_path: Path) -> None:
    async with serving(tmp_path, default=scenario("hang")) as served:
        turn = await served.begin()
        async with served.follow(turn) as terminal:
            await terminal.until("> Do it.")
            terminal.type("\x03")
            await terminal.until("another Ctrl-C")
            terminal.type("\x03")
            assert await terminal.left() == 130
        assert "cancelled: The turn was stopped by a caller of the API." in terminal.seen
        assert (await served.get(f"turns/{turn}"))["outcome"] == "cancelled"


async def test_stop_stops_it(tmp_path: Path) -> None:
    async with serving(tmp_path, default=scenario("hang")) as served:
        turn = await served.begin(session="s")
        stopped = await served.followed("--stop")
        again = await served.followed("--stop", "s")
    assert (stopped.status, stopped.out, stopped.err) == (0, "", f"{turn} was stopped.\n")
    assert (again.status, again.err) == (0, f"{turn} had ended already: cancelled.\n")


# --- what breaks


async def test_a_server_that_was_killed_is_come_back_to(tmp_path: Path) -> None:
    reply = Reply((Say(("Half ", "an ", "answer ", *(["more "] * 200))),))
    async with serving_where_configured(tmp_path, Script(reply, pace_s=0.05)) as served:
        turn = await served.begin(session="s")
        async with Terminal(tmp_path, "follow", "s") as terminal:
            await terminal.until("Half an answer more")
            await served.kill()
            await terminal.until("The connection to the server was lost")
            async with Served(tmp_path):
                assert await terminal.left() == 1
    said = [r.event.text for r in kept(tmp_path, "s") if type(r.event).__name__ == "PartGrew"]
    assert "error: The process ended while this turn was running." in terminal.seen
    assert terminal.seen.count("Half an answer") == 1
    assert terminal.seen.count("more ") == said.count("more ")
    assert turn in {r.turn for r in kept(tmp_path, "s")}


async def test_a_turn_of_another_process_is_followed(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, default=SLOW) as served,
        Terminal(tmp_path, "chat", "--session", "trip", "Count.") as chat,
    ):
        await chat.until("One two")
        async with served.follow("trip") as terminal:
            await terminal.until("> Count.")
            await terminal.until("One two")
            assert await terminal.left() == 0
        assert await chat.left() == 0
    assert terminal.seen.count(WORDS.strip()) == 1


async def test_a_turn_whose_process_was_killed_gets_its_end_and_the_session_can_be_used_again(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, scenario("hang")) as served:
        async with Terminal(tmp_path, "chat", "--session", "trip", "Count.") as chat:
            await chat.until("⠙")
            async with served.follow("trip") as terminal:
                await terminal.until("> Count.")
                chat.process.kill()
                assert await terminal.left() == 1
        assert "error: The process ended while this turn was running." in terminal.seen
        again = await run(tmp_path, "chat", "--session", "trip", "And now?")
    assert (again.status, again.out) == (0, "All done.\n")


async def test_what_another_process_asks_is_told_and_not_asked(tmp_path: Path) -> None:
    async with serving(tmp_path, WRITE) as served:
        async with Terminal(tmp_path, "chat", "--session", "trip", "Do it.") as chat:
            await chat.until(ASKED)
            async with served.follow("trip") as terminal:
                await terminal.until("It waits for an answer, which cannot be given here.")
                stopped = await served.followed("--stop", "trip")
                chat.type("y\n")
                assert await terminal.left() == 0
        assert ASKED not in terminal.seen
        assert "allowed by terminal" in terminal.seen
        assert stopped.status == 2
        assert "runs in another process and can only be stopped there" in stopped.err


# --- a connection that breaks


class HastyClock(SystemClock):
    """Pauses take no time and are counted."""

    def __init__(self) -> None:
        self._passed_s = 0.0

    def monotonic(self) -> float:
        return self._passed_s

    async def sleep(self, delay_s: float) -> None:
        self._passed_s += delay_s
        await asyncio.sleep(0)


class LeapingClock(HastyClock):
    """Whatever lies between two looks takes long."""

    def monotonic(self) -> float:
        self._passed_s += 2 * FOLLOW_STEADY_S
        return self._passed_s


LOG = [
    Recorded("turn_1", seq, 0.0, event)
    for seq, event in enumerate(
        (
            TurnOpened(1, (user_message("Hi"),)),
            NoticeShown("one", "One."),
            NoticeShown("two", "Two."),
            NoticeShown("three", "Three."),
            TurnClosed("stop", Cause("answered", "It is answered.")),
        ),
        start=1,
    )
]
RUNS = json.dumps({"id": "turn_1", "opened_at": 0.0, "events": 2, "runs_here": True}).encode()


def frames(after: int = 0) -> bytes:
    return b"".join(NativeView().feed(LOG[after:]))


@contextlib.asynccontextmanager
async def remote(
    *answers: Sent | bytes, clock: Clock | None = None
) -> AsyncIterator[tuple[RemoteTurn, RawServer, list[str]]]:
    said: list[str] = []
    row = msgspec.json.decode(RUNS, type=Row)
    async with (
        raw_server(answers) as raw,
        Server(f"http://127.0.0.1:{raw.port}", Key("k" * 20, "here"), clock or HastyClock()) as server,
    ):
        turn = RemoteTurn(server, row, said.append)
        try:
            yield turn, raw, said
        finally:
            await turn.close()


@pytest.mark.parametrize("honest", [True, False])
async def test_wherever_the_stream_is_cut_nothing_is_missing_and_nothing_comes_twice(honest: bool) -> None:
    whole = frames()
    for size in range(0, len(whole) - 1, 11):
        cut = endless(whole[:size]) if honest else http(whole[:size], length=len(whole))
        known = whole[:size].count(b"\n\n")
        known = known if known >= 2 else 0  # what came before is one batch
        async with remote(http(RUNS), Sent((cut,), "close"), http(RUNS), http(frames(known))) as (
            turn,
            raw,
            said,
        ):
            got = [recorded async for batch in turn.follow() for recorded in batch]
        assert got == LOG
        assert turn.outcome == "stop"
        assert f"/events?after={known} ".encode() in raw.requests[-1]
        assert len(said) == 1


async def test_what_stays_away_is_given_up_with_the_way_to_go_on() -> None:
    broken = Sent((endless(frames()[: len(frames()) - 20]),), "close")
    nothing = [answer for _ in range(100) for answer in (http(RUNS), Sent((endless(b""),), "close"))]
    async with remote(http(RUNS), broken, *nothing) as (turn, raw, said):
        got: list[Recorded] = []
        with pytest.raises(Lost, match="`headrace follow turn_1 --after 4` goes on"):
            async for batch in turn.follow():
                got += batch
    assert got == LOG[:4]
    assert len(said) == 1
    assert 20 < len(raw.requests) < 120


async def test_a_turn_that_is_silent_for_long_is_come_back_to_however_often_it_is_lost() -> None:
    begun = Sent((endless(frames()[: len(frames()) - 20]),), "close")
    silence = [answer for _ in range(30) for answer in (http(RUNS), Sent((endless(b""),), "close"))]
    answers = [http(RUNS), begun, *silence, http(RUNS), http(frames(4))]
    async with remote(*answers, clock=LeapingClock()) as (turn, _, _):
        assert [recorded async for batch in turn.follow() for recorded in batch] == LOG


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("409 Conflict", ["It had been answered already."]),
        ("404 Not Found", []),
        ("500 Internal Server Error", ["Your answer has not arrived."]),
        ("400 Bad Request", ["Your answer was not taken."]),
    ],
)
async def test_what_becomes_of_an_answer_is_told_where_it_matters(status: str, told: list[str]) -> None:
    refused = http(b'{"error": {"message": "No."}}', "application/json", status)
    async with remote(refused) as (turn, _, said):
        turn.answer("1", "blue", "terminal")
        await asyncio.gather(*turn._sending)
    assert all(each.startswith(start) for each, start in zip(said, told, strict=True))


async def test_an_answer_is_sent_until_it_arrives() -> None:
    refused = http(b'{"error": {"message": "Later."}}', "application/json", "503 Service Unavailable")
    async with remote(Sent((b"",), "close"), refused, http(b"{}", "application/json")) as (turn, raw, said):
        assert turn.approve("1", allowed=True, by="terminal")
        await until(lambda: len(raw.requests) == 3)
    assert said == []
    assert all(head.startswith(b"POST /v1/turns/turn_1/approvals/1 ") for head in raw.requests)


# --- errors


async def test_no_server_is_said(tmp_path: Path) -> None:
    write_config(tmp_path, "http://127.0.0.1:9")
    ran = await run(tmp_path, "follow", "--url", f"127.0.0.1:{free_port()}")
    assert ran.status == 1
    assert "No server answers at http://127.0.0.1:" in ran.err
    assert "Start one with `headrace serve`" in ran.err


async def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    async with serving(tmp_path, default=scenario("hang")) as served:
        nothing = await served.followed()
        unknown = await served.followed("nowhere")
        wrong = await run(tmp_path, "follow", "--url", served.url, extra={"HEADRACE_API_KEY": "x" * 20})
        turns = [await served.begin(f"Question {number}", session=f"s{number}") for number in range(2)]
        several = await served.followed()
    assert [ran.status for ran in (nothing, unknown, wrong, several)] == [2, 2, 2, 2]
    assert "No turn is running" in nothing.err
    assert "no session and no turn 'nowhere'" in unknown.err
    assert "does not take the key in the variable HEADRACE_API_KEY" in wrong.err
    for number, turn in enumerate(turns):
        assert f"  {turn}  s{number}  Question {number}\n" in several.err


async def test_a_missing_key_is_said_and_so_is_a_wrong_address(tmp_path: Path) -> None:
    async with serving(tmp_path / "served") as served:
        missing = await run(tmp_path, "follow", "--url", served.url)
    odd = await run(tmp_path, "follow", "--url", "ftp://there")
    async with raw_server([http(b"<html>Hello.</html>", status="404 Not Found")]) as other:
        strange = await run(tmp_path, "follow", "--url", f"http://127.0.0.1:{other.port}/v1/")
    assert "asks for a key, and there is none in the variable HEADRACE_API_KEY" in missing.err
    assert "is no address of a server" in odd.err
    assert "does not seem to be a headrace server" in strange.err
    assert [ran.status for ran in (missing, odd, strange)] == [2, 2, 2]


async def test_a_turn_that_was_kept_nowhere_is_said_to_be_lost(tmp_path: Path) -> None:
    async with serving_where_configured(tmp_path, SLOW) as served:
        turn = await served.begin(store=False)
        async with served.follow(turn) as terminal:
            await terminal.until("One two")
            await served.kill()
            await terminal.until("The connection to the server was lost")
            async with Served(tmp_path):
                assert await terminal.left() == 2
    assert f"knows {turn} no longer" in terminal.seen
