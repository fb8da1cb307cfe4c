"""The embedded model as a person meets it: how soon it is ready, how soon and how fast it answers, what it holds."""

import asyncio
import os
import time
from pathlib import Path

import headrace
from bench.measure import table
from headrace.events import PartGrew, UsageReported

QUESTION = "Explain in about one hundred words why the sky is blue."


def _children_rss_mb() -> float:
    """Resident memory of the processes this one has started."""
    total = 0
    page = os.sysconf("SC_PAGE_SIZE")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == os.getpid():
                total += int((stat.parent / "statm").read_text().split()[1]) * page
        except FileNotFoundError:
            continue  # it has just ended
    return total / 1e6


async def _asked(agent: headrace.Agent) -> tuple[float, float]:
    """Seconds to the first token, and tokens a second from there."""
    begun, first, last, tokens = time.perf_counter(), 0.0, 0.0, 0
    turn = agent.start(QUESTION)
    async for recorded in agent.follow(turn):
        if isinstance(recorded.event, PartGrew):
            last = time.perf_counter()
            first = first or last
        elif isinstance(recorded.event, UsageReported):
            tokens = recorded.event.output_tokens or 0
    return first - begun, (tokens - 1) / (last - first)


async def _run() -> None:
    rows = []
    for model in os.environ.get("HEADRACE_BENCH_MODELS", "local").split(","):
        async with headrace.open(model) as agent:
            cold, speed = await _asked(agent)
            warm, _ = await _asked(agent)
            rows.append((model, cold, warm, speed, _children_rss_mb()))
    head = ("model", "first token from a cold start, s", "warm, s", "tokens/s", "memory, MB")
    table("The embedded model", head, rows)


def run() -> None:
    asyncio.run(_run())
