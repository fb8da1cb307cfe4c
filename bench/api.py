"""The API door as a process of its own, against a bare aiohttp relay that decodes nothing and the litellm proxy.

CPU is the server process's own, read from the kernel before and after. The upstream and the load run beside it on the
same two cores, so figures of time are upper bounds. litellm takes part where BENCH_LITELLM names its command.
"""

import asyncio
import contextlib
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import aiohttp

from bench.measure import table
from bench.upstream import model_server
from headrace.testing.modelserver import ModelServer, scenario

KEY = "sk-a-key-for-measuring-0123456789"
CHAT = "/v1/chat/completions"
BULK_TOKENS = 20_000
FIRST_TIMES = 200
LEAVES = 200
_ROUNDS = 5
# A relay at its best: where the C library maps memory anew for every read, which it does or not as its heap happens to
# lie, a token costs the relay half as much again.
_NO_MAPPING = {"MALLOC_MMAP_THRESHOLD_": "4194304", "MALLOC_TRIM_THRESHOLD_": "4194304"}
# A thousand streams begin over so long.
_BEGIN_OVER_S = 5.0


class _Target(NamedTuple):
    name: str
    url: str
    pid: int
    model: Callable[[str], str]
    """How a scenario of the upstream is asked for."""
    headers: Callable[[], dict[str, str]] = dict

    def cpu_s(self) -> float:
        """Of all its threads, from the scheduler: the clock's ticks that other figures count by beat in step with paced
        tokens.
        """
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def rss_mb(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024


class _Seen(NamedTuple):
    first_s: float
    whole_s: float
    ok: bool


async def _ready(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().split()[1]


@contextlib.asynccontextmanager
async def _process(*command: str, **env: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, **env}
    )
    try:
        yield process, await _ready(process)
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def _headrace(upstream: str) -> AsyncIterator[_Target]:
    with tempfile.TemporaryDirectory() as home:
        config = f"model: lab:m\nproviders: {{lab: {{base_url: '{upstream}/v1', auth: none}}}}\n"
        (Path(home) / "config.yaml").write_text(config)
        command = (sys.executable, "-m", "headrace", "serve", "--port", "0")
        async with _process(*command, HEADRACE_HOME=home, HEADRACE_API_KEY=KEY) as (process, url):
            yield _Target("headrace", url, process.pid, lambda scene: f"lab:{scene}")


@contextlib.asynccontextmanager
async def _relay(upstream: str) -> AsyncIterator[_Target]:
    async with _process(sys.executable, "-m", "bench.relay", upstream, **_NO_MAPPING) as (process, url):
        yield _Target("bare relay", url, process.pid, str)


@contextlib.asynccontextmanager
async def _litellm(upstream: str, command: str) -> AsyncIterator[_Target]:
    with tempfile.TemporaryDirectory() as home:
        config = Path(home) / "config.yaml"
        config.write_text(
            "model_list:\n- model_name: '*'\n  litellm_params:\n    model: openai/*\n"
            f"    api_base: {upstream}/v1\n    api_key: none\n"
        )
        process = await asyncio.create_subprocess_exec(
            command, "--config", str(config), "--port", "8791", "--host", "127.0.0.1",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "LITELLM_MASTER_KEY": KEY},
        )  # fmt: skip
        url = "http://127.0.0.1:8791"
        try:
            await _until_up(f"{url}/health/liveliness")
            yield _Target("litellm proxy", url, process.pid, str)
        finally:
            process.terminate()
            await process.wait()


async def _until_up(url: str) -> None:
    async with asyncio.timeout(120), aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)


# --- asking


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=600),
        headers={"Authorization": f"Bearer {KEY}"},
        read_bufsize=256 * 1024,
    )


async def _stream(session: aiohttp.ClientSession, target: _Target, scene: str) -> _Seen:
    body = {"model": target.model(scene), "stream": True, "messages": [{"role": "user", "content": "?"}]}
    begun = time.perf_counter()
    first, tail = 0.0, b""
    async with session.post(f"{target.url}{CHAT}", json=body, headers=target.headers()) as answer:
        async for piece in answer.content.iter_any():
            if not first and b"000 " in piece:
                first = time.perf_counter() - begun
            tail = (tail + piece)[-4096:]
        good = answer.status == 200 and b"[DONE]" in tail and b'"error"' not in tail
    return _Seen(first, time.perf_counter() - begun, good)


async def _cpu_us(
    session: aiohttp.ClientSession, target: _Target, scene: str, tokens: int, streams: int = 1
) -> float:
    """CPU of the server for a token."""
    before = target.cpu_s()
    seen = await asyncio.gather(*(_stream(session, target, scene) for _ in range(streams)))
    assert all(each.ok for each in seen), target.name
    return (target.cpu_s() - before) / (tokens * streams) * 1e6


async def _bulk(targets: Sequence[_Target]) -> None:
    rows = []
    async with _session() as session:
        for target in targets:
            few = "litellm" in target.name
            tokens, times = (4_000, 1) if few else (BULK_TOKENS, 10)
            await _stream(session, target, f"long:{tokens}")
            spent = [
                await _cpu_us(session, target, f"long:{tokens}", tokens, times)
                for _ in range(1 if few else 3)
            ]
            rows.append((target.name, min(spent)))
    base = rows[0][1]
    table("CPU of the server, us per token in bulk", ("", "us", "headrace is"),
          [(name, us, f"1/{us / base:.0f}" if us > base else f"{base / us:.2f}x") for name, us in rows])  # fmt: skip


async def _later(delay_s: float, session: aiohttp.ClientSession, target: _Target, scene: str) -> _Seen:
    await asyncio.sleep(delay_s)
    return await _stream(session, target, scene)


def _begun_over(
    spread_s: float, streams: int, session: aiohttp.ClientSession, target: _Target, scene: str
) -> list[asyncio.Task[_Seen]]:
    at = random.Random(1)  # in no step with the pace of the tokens, the same for every server
    delays = [at.uniform(0, spread_s) for _ in range(streams)]
    return [asyncio.create_task(_later(delay, session, target, scene)) for delay in delays]


class _Paced(NamedTuple):
    us: float
    first: float
    first_p99: float
    wall_s: float
    failed: float


async def _paced(
    targets: Sequence[_Target], streams: int, tokens: int, pace_ms: int, spread_s: float
) -> None:
    """Every target in turn, several times: what a token costs depends on what the other core does meanwhile. The streams begin over `spread_s`: people do not ask in step, and no server is to gain by
    tokens that arrive together.
    """
    runs: dict[str, list[_Paced]] = {target.name: [] for target in targets}
    async with _session() as session:
        for _ in range(_ROUNDS):
            for target in targets:
                run = await _one_paced(session, target, streams, tokens, pace_ms, spread_s)
                runs[target.name].append(run)
    begun = f"begun over {spread_s:g} s" if spread_s else "begun at once"
    table(
        f"{streams} streams x {tokens} tokens, one every {pace_ms} ms, {begun}; medians of {_ROUNDS} rounds",
        ("", "CPU us/token", "of the relay's", "by round", "first ms, median", "p99", "wall s", "failed"),
        [_row(name, each, runs["bare relay"]) for name, each in runs.items()],
    )


def _row(name: str, runs: Sequence[_Paced], relay: Sequence[_Paced]) -> tuple[object, ...]:
    ratios = [run.us / beside.us for run, beside in zip(runs, relay, strict=True)]
    middle = _Paced(*map(statistics.median, zip(*runs, strict=True)))
    return (
        name, middle.us, statistics.median(ratios), f"{min(ratios):.2f}-{max(ratios):.2f}",
        middle.first, middle.first_p99, middle.wall_s, sum(run.failed for run in runs),
    )  # fmt: skip


async def _one_paced(
    session: aiohttp.ClientSession, target: _Target, streams: int, tokens: int, pace_ms: int, spread_s: float
) -> _Paced:
    before = target.cpu_s()
    scene = f"paced:{tokens}:{pace_ms}"
    seen = await asyncio.gather(*_begun_over(spread_s, streams, session, target, scene))
    firsts = sorted(each.first_s * 1e3 for each in seen)
    return _Paced(
        us=(target.cpu_s() - before) / (tokens * streams) * 1e6,
        first=statistics.median(firsts),
        first_p99=firsts[int(len(firsts) * 0.99)],
        wall_s=statistics.median(each.whole_s for each in seen),
        failed=sum(not each.ok for each in seen),
    )


async def _first_token(targets: Sequence[_Target]) -> None:
    took: dict[str, list[float]] = {target.name: [] for target in targets}
    async with _session() as session:
        for _ in range(FIRST_TIMES):
            for target in targets:
                took[target.name].append((await _stream(session, target, "long:1")).first_s * 1e3)
    medians = {name: statistics.median(each) for name, each in took.items()}
    direct = medians["direct"]
    table(f"Time to the first token, ms, {FIRST_TIMES} short answers", ("", "median", "added"),
          [(name, each, each - direct) for name, each in medians.items()])  # fmt: skip


async def _many(target: _Target, streams: int, tokens: int, pace_ms: int) -> None:
    async with _session() as session:
        await _stream(session, target, "long:1")
        idle, before = target.rss_mb(), await _lag(session, target)
        asking = _begun_over(_BEGIN_OVER_S, streams, session, target, f"paced:{tokens}:{pace_ms}")
        most = idle
        while not all(task.done() for task in asking):
            await asyncio.sleep(0.25)
            most = max(most, target.rss_mb())
        seen = [task.result() for task in asking]
        lag = {bound: n - before[bound] for bound, n in (await _lag(session, target)).items()}
    rows = [
        ("failed", sum(not each.ok for each in seen)),
        ("wall s, median", statistics.median(each.whole_s for each in seen)),
        ("memory of a stream, KB", (most - idle) * 1024 / streams),
        ("beats of the loop", lag["+Inf"]),
        *((f"of them later than {ms} ms", lag["+Inf"] - lag[bound])
          for bound, ms in (("0.005", 5), ("0.01", 10), ("0.02", 20), ("0.05", 50))),
    ]  # fmt: skip
    table(
        f"{target.name}: {streams} streams, a token every {pace_ms} ms, begun over {_BEGIN_OVER_S:g} s",
        ("", ""),
        rows,
    )


async def _lag(session: aiohttp.ClientSession, target: _Target) -> dict[str, int]:
    """How often the pulse was so late at the most."""
    async with session.get(f"{target.url}/metrics") as answer:
        text = await answer.text()
    found = re.findall(r'loop_lag_seconds_bucket\{le="([^"]+)"\} (\d+)', text)
    return {bound: int(count) for bound, count in found}


def _stored(target: _Target) -> _Target:
    """The same server with every turn in a session of its own."""
    numbers = iter(range(10**9))
    mark = f"{time.time_ns():x}"
    return target._replace(
        name="headrace, stored", headers=lambda: {"X-Headrace-Session": f"b{mark}-{next(numbers)}"}
    )


async def _run() -> None:
    command = os.environ.get("BENCH_LITELLM", "")
    async with contextlib.AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(model_server())
        ours = await stack.enter_async_context(_headrace(upstream))
        idle = ours.rss_mb()
        relay = await stack.enter_async_context(_relay(upstream))
        proxies = [await stack.enter_async_context(_litellm(upstream, command))] if command else []
        direct = _Target("direct", upstream, os.getpid(), str)
        stored = _stored(ours)
        table(
            "Memory of an idle server, MB", ("", "MB"), [("headrace", idle), ("bare relay", relay.rss_mb())]
        )
        ours, stored, relay, direct, *proxies = (
            each._replace(model=_scripted(each.model)) for each in (ours, stored, relay, direct, *proxies)
        )
        await _first_token([direct, relay, ours, stored, *proxies])
        await _bulk([ours, stored, relay, *proxies])
        await _paced([direct, relay, ours, stored], 100, 200, 20, 1.0)
        await _paced([direct, relay, ours, stored], 100, 200, 20, 0.0)
        await _many(ours, 1000, 50, 100)
        await _many(stored, 1000, 50, 100)


def _scripted(model: Callable[[str], str]) -> Callable[[str], str]:
    return lambda scene: model(f"script:{scene}")


def run() -> None:
    asyncio.run(_run())


# --- leaving


async def _leaving() -> None:
    rows = []
    async with ModelServer() as models, _headrace(models.url) as ours:
        for state in ("paced:2000:5", "stall-after-headers", "stall-mid-text"):
            models.default = scenario(state)
            delays = [await _left(models, ours) for _ in range(LEAVES)]
            delays.sort()
            rows.append((state, statistics.median(delays), delays[int(LEAVES * 0.99)], delays[-1]))
    table(f"Client gone until the upstream's connection is, ms, {LEAVES} times each",
          ("state", "median", "p99", "most"), rows)  # fmt: skip


async def _left(models: ModelServer, target: _Target) -> float:
    body = {"model": "lab:m", "stream": True, "messages": [{"role": "user", "content": "?"}]}
    async with _session() as session:
        asking = asyncio.create_task(session.post(f"{target.url}{CHAT}", json=body))
        await models.wait_requests(models.total_requests + 1)
        await asyncio.sleep(0.01)  # somewhere within the answer
        gone_at = asyncio.get_running_loop().time()
        asking.cancel()
        await asyncio.wait([asking])
        if not asking.cancelled():
            asking.result().close()
        ending = await models.requests[-1].wait_ended()
        return (ending.at - gone_at) * 1e3


def leaving() -> None:
    asyncio.run(_leaving())
