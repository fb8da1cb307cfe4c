"""What a person meets first: how fast the command starts, what it costs before it asks, how soon a token is seen."""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.commands import COMMAND, Terminal, environment, write_config

from bench.measure import table
from headrace.testing.modelserver import ModelServer, RecordedRequest, Script

TIMES = 10


def _version() -> float:
    """Wall time of `headrace --version`, as installed."""
    command = Path(sys.executable).parent / "headrace"
    took = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        subprocess.run([command, "--version"], check=True, capture_output=True)
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e3


async def _before_the_request() -> float:
    """CPU a one-shot question has cost when its request arrives."""
    spent: list[float] = []
    ticks = os.sysconf("SC_CLK_TCK")
    with tempfile.TemporaryDirectory() as home:
        async with ModelServer() as server:
            write_config(Path(home), server.url)
            processes: list[asyncio.subprocess.Process] = []

            def arrived(_: RecordedRequest) -> Script:
                fields = Path(f"/proc/{processes[-1].pid}/stat").read_text().rsplit(")", 1)[1].split()
                spent.append((int(fields[11]) + int(fields[12])) / ticks)
                return Script()

            server.respond = arrived
            for _ in range(TIMES):
                processes.append(
                    await asyncio.create_subprocess_exec(
                        *COMMAND, "chat", "?", stdin=-3, stdout=-3, env=environment(Path(home))
                    )
                )
                await processes[-1].wait()
    return statistics.median(spent) * 1e3


async def _seen_after() -> list[float]:
    """From the moment a token is written to the socket until it stands in the pseudo-terminal."""
    delays: list[float] = []
    for _ in range(TIMES):
        written = asyncio.get_running_loop().create_future()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.3)  # the person waits, and the spinner turns
            delta = {"choices": [{"index": 0, "delta": {"content": "Token"}}]}
            writer.write(b"data: " + json.dumps(delta).encode() + b"\n\n")
            if not written.done():  # noqa: B023 - awaited in this round
                written.set_result(time.perf_counter())  # noqa: B023
            await writer.drain()
            await asyncio.sleep(0.2)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        with tempfile.TemporaryDirectory() as home:
            write_config(Path(home), f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            async with Terminal(Path(home), "chat", "?") as terminal:
                await terminal.until("Token")
                delays.append((time.perf_counter() - written.result()) * 1e3)
                await terminal.left()
        server.close()
    return sorted(delays)


def run() -> None:
    delays = asyncio.run(_seen_after())
    table("First use, ms", ("", "median", "most"), [
        ("headrace --version, wall", _version(), ""),
        ("CPU before a one-shot question's request", asyncio.run(_before_the_request()), ""),
        ("a token from socket to terminal", statistics.median(delays), delays[-1]),
    ])  # fmt: skip
