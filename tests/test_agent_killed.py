"""kill -9 while an agent works: no tool runs twice, nothing that was shown is lost, and the next turn can be had.

Run as a program, this module is a nursery like that of `test_sqlite_killed`: each life it forks is an agent with real
tools and a real store, which asks a model server in the test's own process.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.app import App
from headrace.events import PartGrew, Recorded, ToolFinished, ToolStarted, TurnClosed, user_message
from headrace.runtime.question import Acting
from headrace.stores.sqlite import SessionStore
from headrace.testing.modelserver import CallTool, ModelServer, RecordedRequest, Reply, Say, Script
from tests.commands import environment

CONFIG = """
model: lab:m
providers: {{lab: {{base_url: "{url}/v1", auth: none}}}}
tools: {{modes: {{terminal: allow}}}}
"""


class Model:
    """Asks for a command that leaves a mark of its own, then answers."""

    def __init__(self) -> None:
        self._marks = itertools.count(1)

    def __call__(self, request: RecordedRequest) -> Script:
        if request.body["messages"][-1]["role"] == "tool":
            return Script(Reply((Say(("It ", "is ", "done.")),)), pace_s=0.002)
        command = f"echo mark-{next(self._marks)} >> marks; sleep 0.01"
        return Script(Reply((Say("I go. "), CallTool("terminal", {"command": command}))), pace_s=0.001)


async def live(home: Path, shown: int) -> None:
    """Take turn after turn in one session until killed."""
    app = App.from_env(environment(home))
    for number in itertools.count():
        acting = Acting(folder=home)
        turn = app.start([user_message(f"Question {number}")], session=app.session("s"), acting=acting)
        async for batch in turn.follow():
            for recorded in batch:
                os.write(shown, f"{turn.id} {recorded.seq} {type(recorded.event).__name__}\n".encode())


def lived(home: Path, life: int) -> list[list[object]]:
    """Begin a life, end it at a random moment, and tell what it showed."""
    chance = random.Random(life * 104_729)
    mine, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(mine)
        asyncio.run(live(home, theirs))
    os.close(theirs)
    data = b""
    enough = chance.randint(1, 60)
    while data.count(b"\n") < enough:
        data += os.read(mine, 256)
    time.sleep(chance.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    while more := os.read(mine, 65536):
        data += more
    os.close(mine)
    os.waitpid(child, 0)
    lines = [line.split() for line in data.decode().split("\n")[:-1]]
    return [[turn, int(seq), kind] for turn, seq, kind in lines]


def nursery(home: Path) -> None:
    for line in sys.stdin:
        sys.stdout.write(json.dumps(lived(home, int(line))) + "\n")
        sys.stdout.flush()


@contextlib.contextmanager
def running_nursery(home: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.test_agent_killed", str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


async def killed(home: Path, lives: int, first: int = 1) -> None:
    home.mkdir(parents=True, exist_ok=True)
    shown: list[list] = []
    async with ModelServer() as server:
        server.respond = Model()
        (home / "config.yaml").write_text(CONFIG.format(url=server.url))
        with running_nursery(home) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for life in range(first, first + lives):
                process.stdin.write(f"{life}\n")
                process.stdin.flush()
                shown += json.loads(await asyncio.to_thread(process.stdout.readline))
        # The last one is not killed: whatever was left behind, a turn can be had.
        app = App.from_env(environment(home))
        turn = app.start([user_message("And now?")], session=app.session("s"), acting=Acting(folder=home))
        assert (await asyncio.wait_for(turn.wait(), 20)).outcome == "stop"
        await app.close()
    with contextlib.closing(SessionStore(home)) as store:
        logs = {entries[0].turn: entries for entries in store.turns("s")}
    check(logs, shown, (home / "marks").read_text().split())


def check(logs: dict[str, list[Recorded]], shown: list[list], marks: list[str]) -> None:
    for name, seq, kind in shown:
        assert type(logs[name][seq - 1].event).__name__ == kind
    runs = Counter(marks)
    assert set(runs.values()) == {1}
    asked: Counter[str] = Counter()
    for entries in logs.values():
        assert [r.seq for r in entries] == list(range(1, len(entries) + 1))
        closed = entries[-1].event
        assert isinstance(closed, TurnClosed)
        assert closed.cause.code in ("answered", "crashed")
        started = {(e.call, e.part): e for r in entries if isinstance(e := r.event, ToolStarted)}
        finished = {(e.call, e.part): e for r in entries if isinstance(e := r.event, ToolFinished)}
        assert started.keys() <= finished.keys()
        for key, end in finished.items():
            if key in started:
                mark = json.loads(started[key].arguments)["command"].split()[1]
                asked[mark] += 1
                assert end.status == "unknown" or mark in runs
                assert (end.status == "unknown") <= (closed.cause.code == "crashed")
        assert closed.outcome == "stop" or any(isinstance(r.event, PartGrew) for r in entries) or not started
    assert set(asked.values()) <= {1}
    assert set(runs) <= set(asked)


async def test_no_tool_runs_twice_and_nothing_shown_is_lost(tmp_path: Path) -> None:
    await killed(tmp_path / "home", 25)


@pytest.mark.slow
async def test_the_same_two_hundred_times(tmp_path: Path) -> None:
    for first in range(1, 201, 50):
        await killed(tmp_path / str(first), 50, first)


if __name__ == "__main__":
    nursery(Path(sys.argv[1]))
