"""An agent at work: how long tools hold up the event loop, and what opening a long session costs the whole program."""

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.measure import table
from bench.sessions import _fill, a_home
from headrace.app import App
from headrace.errors import Cause
from headrace.events import user_message
from headrace.runtime.question import Acting
from headrace.runtime.session import Session
from headrace.testing.modelserver import CallTool, ModelServer, RecordedRequest, Reply, Say, Script

MB = 1_000_000
LINE = b"The headrace brings the water to the wheel, and the tailrace takes it away again. TODO never.\n"
CONFIG = """
model: lab:m
providers: {{lab: {{base_url: "{url}/v1", auth: none}}}}
tools: {{modes: {{terminal: allow}}}}
"""
ENOUGH = Cause("stopped", "It was measured.")


def run() -> None:
    asyncio.run(_lag())
    asyncio.run(_opening())


# --- the loop


async def _lag(repeats: int = 3) -> None:
    rows = []
    with a_home() as home:
        _tree(home / "work", folders=20, files=50, size=MB)
        for name, calls in _loads().items():
            for path, way in ((os.environ["PATH"], "ripgrep"), ("/nothing", "none")):
                if way == "none" and not any(call.name == "search_files" for call in calls):
                    continue
                lags = [await _working(home, calls, path) for _ in range(repeats)]
                cells = [statistics.median(column) for column in zip(*lags, strict=True)]
                rows.append((f"{name}{', no ripgrep' * (way == 'none')}", *cells))
    table("How late the loop is while tools work: ms", ("tools", "median", "p99", "most", "took, s"), rows)


def _loads() -> dict[str, tuple[CallTool, ...]]:
    everything = CallTool("search_files", {"pattern": "never seen anywhere"})
    matches = CallTool("search_files", {"pattern": "TODO"})
    prints = CallTool("terminal", {"command": "yes 'a line of output that says nothing' | head -c 100000000"})
    deep = CallTool("read_file", {"path": "0/0.txt", "start": 10_000})
    return {
        "nothing": (),
        "searching 1 GB": (everything,),
        "printing 100 MB": (prints,),
        "all at once, and reading": (everything, matches, prints, deep),
    }


def _tree(folder: Path, folders: int, files: int, size: int) -> None:
    block = (LINE * (size // len(LINE) + 1))[:size]
    for n in range(folders):
        (folder / str(n)).mkdir(parents=True)
        for m in range(files):
            (folder / str(n) / f"{m}.txt").write_bytes(block)


async def _working(home: Path, calls: Sequence[CallTool], path: str) -> tuple[float, ...]:
    """The median, the 99th percentile and the longest delay of a loop in which each call is a turn's of its own."""
    async with _app(home, calls, path) as app:
        lags: list[float] = []
        watch = asyncio.create_task(_watch(lags))
        began = time.perf_counter()
        turns = [
            app.start([user_message(f"{n}")], session=Session(), acting=Acting(folder=home / "work"))
            for n in range(len(calls))
        ]
        for turn in turns:
            assert (await turn.wait()).outcome == "stop"
        if not turns:
            await asyncio.sleep(2)
        took_s = time.perf_counter() - began
        watch.cancel()
        await asyncio.wait([watch])
    lags.sort()
    return (lags[len(lags) // 2], lags[len(lags) * 99 // 100], lags[-1], took_s)


async def _watch(lags: list[float], step_s: float = 0.002) -> None:
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(step_s)
        lags.append((time.perf_counter() - begun - step_s) * 1e3)


@asynccontextmanager
async def _app(home: Path, calls: Sequence[CallTool], path: str) -> AsyncIterator[App]:
    def model(request: RecordedRequest) -> Script:
        messages: list[dict[str, Any]] = request.body["messages"]
        if messages[-1]["role"] == "tool":
            return Script(Reply((Say("Done."),)))
        return Script(Reply((calls[int(messages[-1]["content"])],)))

    async with ModelServer() as server:
        server.respond = model
        (home / "config.yaml").write_text(CONFIG.format(url=server.url))
        env = {"PATH": path if path != "/nothing" else _without_ripgrep(home), "HEADRACE_HOME": str(home)}
        app = App.from_env({**env, "HOME": str(home)})
        try:
            yield app
        finally:
            await app.close()


def _without_ripgrep(home: Path) -> str:
    """A PATH with what the commands here need."""
    folder = home / "bin"
    folder.mkdir(exist_ok=True)
    for name in ("bash", "yes", "head"):
        found = next(Path(p) / name for p in os.environ["PATH"].split(":") if (Path(p) / name).exists())
        if not (folder / name).exists():
            (folder / name).symlink_to(found)
    return str(folder)


# --- a long session


async def _opening() -> None:
    rows = []
    for turns, tokens in ((10, 100), (100, 100), (1_000, 100), (10_000, 100), (10_000, 20)):
        with a_home() as home:
            _fill(home, turns, tokens)
            times = [await _opened_ms(home) for _ in range(5)]
            rows.append(
                (f"{turns:,} turns of {tokens} tokens", *map(statistics.median, zip(*times, strict=True)))
            )
    table(
        "From a closed session to a turn that is written down: ms", ("session", "open", "start a turn"), rows
    )


async def _opened_ms(home: Path) -> tuple[float, float]:
    async with _app(home, (), os.environ["PATH"]) as app:
        app.store()
        begun = time.perf_counter()
        session = app.session("s")
        opened = time.perf_counter()
        turn = app.start([user_message("0")], session=session, acting=Acting(folder=home))
        started = time.perf_counter()
        turn.stop(ENOUGH)
        await turn.wait()
    return (opened - begun) * 1e3, (started - opened) * 1e3
