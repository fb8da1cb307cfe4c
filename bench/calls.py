"""One model call from socket to log, against a bare aiohttp client that decodes nothing, in the same process."""

import asyncio
import contextlib
import gc
import random
import socket
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator

import aiohttp

from bench.measure import table
from bench.upstream import model_server
from headrace.agent.decide import RELAY
from headrace.errors import Cause
from headrace.events import AttemptReplaced, AttemptStarted, PartGrew, PartStarted, user_message
from headrace.providers.http import Endpoint, HttpClient, HttpProvider
from headrace.runtime.call import Surroundings
from headrace.runtime.clock import SystemClock
from headrace.runtime.learnt import Learnt
from headrace.runtime.question import CallPolicy, Candidate
from headrace.runtime.turn import Turn
from headrace.testing.modelserver import ModelServer, scenario
from headrace.turn.log import Log

TOKENS = 50_000
TURNS = 300


class _Ours:
    def __init__(self, url: str, policy: CallPolicy | None = None) -> None:
        self._clock = SystemClock()
        self.client = HttpClient(self._clock)
        policy = policy or CallPolicy(retries=0)
        self._around = Surroundings(self._clock, Learnt(self._clock), policy, random.Random(1))
        endpoint = Endpoint(name="bench", protocol="chat_completions", base_url=f"{url}/v1")
        self._provider = HttpProvider(endpoint, self.client, lambda: ("key",))

    def start(self, model: str) -> Turn:
        candidate = Candidate(model_id=f"bench:{model}", provider=self._provider, model=model)
        turn = Turn(Log("turn"), [candidate], self._around, plan=RELAY)
        turn.start([user_message("?")])
        return turn

    async def whole(self, model: str) -> None:
        assert (await self.start(model).wait()).outcome == "stop"

    async def first_token(self, model: str) -> float:
        begun = time.perf_counter()
        turn = self.start(model)
        took = 0.0
        async for batch in turn.follow():
            if not took and any(type(r.event) is PartGrew for r in batch):
                took = time.perf_counter() - begun
        return took


class _Bare:
    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/chat/completions"
        self.session = aiohttp.ClientSession(read_bufsize=256 * 1024)

    def _body(self, model: str) -> dict[str, object]:
        return {"model": model, "stream": True, "messages": [{"role": "user", "content": "?"}]}

    async def whole(self, model: str) -> None:
        async with self.session.post(self._url, json=self._body(model)) as response:
            async for _ in response.content.iter_any():
                pass

    async def first_token(self, model: str) -> float:
        begun = time.perf_counter()
        took = 0.0
        async with self.session.post(self._url, json=self._body(model)) as response:
            async for data in response.content.iter_any():
                if not took and b'"content":"0' in data.replace(b'": "', b'":"'):
                    took = time.perf_counter() - begun
        return took


async def _cpu(work: Callable[[], Awaitable[None]], units: int, repeats: int = 5) -> float:
    best = float("inf")
    for _ in range(repeats):
        gc.collect()
        begun = time.process_time()
        await work()
        best = min(best, time.process_time() - begun)
    return best / units * 1e6


async def _run() -> None:
    async with model_server() as url:
        ours, bare = _Ours(url), _Bare(url)
        long = f"script:long:{TOKENS}"
        us, them = await _cpu(lambda: ours.whole(long), TOKENS), await _cpu(lambda: bare.whole(long), TOKENS)
        paced = "script:paced:200:2"
        paced_us = await _cpu(lambda: ours.whole(paced), 200, repeats=3)
        paced_them = await _cpu(lambda: bare.whole(paced), 200, repeats=3)
        table("One call, CPU us per token", ("upstream", "headrace", "bare aiohttp", "ratio"), [
            ("in bulk", us, them, us / them),
            ("a token every 2 ms", paced_us, paced_them, paced_us / paced_them),
        ])  # fmt: skip
        mine, theirs = [], []
        for _ in range(TURNS):
            mine.append(await ours.first_token("script:hello"))
            theirs.append(await bare.first_token("script:long:1"))
        a, b = statistics.median(mine) * 1e3, statistics.median(theirs) * 1e3
        table("Time to first token, ms at the median", ("", "headrace", "bare aiohttp", "difference"),
              [(f"{TURNS} short answers", a, b, a - b)])  # fmt: skip
        await _before_first_byte(ours)
        await ours.client.close()
        await bare.session.close()


async def _before_first_byte(ours: _Ours) -> None:
    """CPU from starting a turn until its request's headers have gone out, on a warm process."""
    spent: list[float] = []
    for _ in range(TURNS):
        begun = time.process_time()
        turn = ours.start("script:hello")
        async for batch in turn.follow():
            if any(isinstance(r.event, AttemptStarted) for r in batch):
                break
        await asyncio.sleep(0)  # the request is written in this step of the loop
        spent.append(time.process_time() - begun)
        await turn.wait()
    table("CPU before the first byte goes out, ms", ("", "median", "p99"),
          [("a warm turn", statistics.median(spent) * 1e3, sorted(spent)[int(TURNS * 0.99)] * 1e3)])  # fmt: skip


def run() -> None:
    asyncio.run(_run())


# --- cancelling

TIMES = 200

_Reached = Callable[[Turn, float], bool]


def _asked(turn: Turn, _: float) -> bool:
    return any(isinstance(r.event, AttemptStarted) for r in turn.log.since(0))


def _heard(turn: Turn, began: float) -> bool:
    return turn.last_activity > began


def _replaced(turn: Turn, _: float) -> bool:
    return any(isinstance(r.event, AttemptReplaced) for r in turn.log.since(0))


def _grown(times: int) -> _Reached:
    return lambda turn, _: sum(type(r.event) is PartGrew for r in turn.log.since(0)) >= times


def _calling(turn: Turn, _: float) -> bool:
    return any(isinstance(r.event, PartStarted) and r.event.kind == "tool_call" for r in turn.log.since(0))


# What holds a call in a state, and how it is seen to be there; the last one is an answer in one piece.
STATES: tuple[tuple[str, _Reached, bool], ...] = (
    ("hang", _asked, True),
    ("stall-after-headers", _asked, True),
    ("stall-before-first-token", _heard, True),
    ("stall-mid-reasoning", _grown(1), True),
    ("stall-mid-text", _grown(1), True),
    ("stall-mid-arguments", _calling, True),
    ("paced:2000:5", _grown(3), True),
    ("slow-drip", _heard, True),
    ("stall-mid-text", _heard, False),
)
# Where there is nothing a server could see: until the turn has ended.
UNSEEN: tuple[tuple[str, str, _Reached], ...] = (
    ("connecting", "", _asked),
    ("waiting to try again", "status:503", _replaced),
)


async def _stopped(ours: _Ours, reached: _Reached) -> tuple[Turn, float]:
    """A turn that was stopped once it had come so far, and when."""
    turn = ours.start("m")
    began = turn.last_activity
    while not reached(turn, began):  # noqa: ASYNC110 - a sign of life wakes nobody
        await asyncio.sleep(0)
    for _ in range(20):  # what can happen without anybody waiting has happened
        await asyncio.sleep(0)
    stopped_at = asyncio.get_running_loop().time()
    turn.stop(Cause("stopped", ""))
    return turn, stopped_at


def _row(name: str, delays: list[float]) -> tuple[str, float, float, float]:
    delays.sort()
    return name, statistics.median(delays), delays[int(len(delays) * 0.99)], delays[-1]


async def _cancelling() -> None:
    seen, unseen = [], []
    async with ModelServer() as server:
        for state, reached, streams in STATES:
            ours = _Ours(server.url, CallPolicy(retries=0, streams=streams))
            server.default = scenario(state)
            delays = []
            for _ in range(TIMES):
                turn, stopped_at = await _stopped(ours, reached)
                await turn.wait()
                delays.append(((await server.requests[-1].wait_ended()).at - stopped_at) * 1e3)
            seen.append(_row(state if streams else f"{state}, in one piece", delays))
            await ours.client.close()
        with _taking_no_connection() as silent:
            for name, script, reached in UNSEEN:
                server.default = scenario(script or "hello")
                ours = _Ours(server.url if script else silent, CallPolicy(backoff_s=60, backoff_most_s=60))
                requests, delays = server.total_requests, []
                for _ in range(TIMES):
                    turn, stopped_at = await _stopped(ours, reached)
                    await turn.wait()
                    delays.append((asyncio.get_running_loop().time() - stopped_at) * 1e3)
                assert server.total_requests - requests == (TIMES if script else 0)
                unseen.append(_row(name, delays))
                await ours.client.close()
    head = ("state", "median", "p99", "most")
    table(f"Stop until the server sees the connection close, ms, {TIMES} times each", head, seen)
    table(f"Stop until the turn has ended, ms, {TIMES} times each", head, unseen)


@contextlib.contextmanager
def _taking_no_connection() -> Iterator[str]:
    """An address with a full backlog and nobody who accepts."""
    with contextlib.ExitStack() as sockets:
        silent, *fillers = [sockets.enter_context(socket.socket()) for _ in range(5)]
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(silent.getsockname())
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


def cancelling() -> None:
    asyncio.run(_cancelling())
