"""An agent on a disk that fills: the turn says so, what was kept can be read, and all is well once there is room."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.modelserver import CallTool, ModelServer, RecordedRequest, Reply, Say, Script
from tests.commands import run, write_config


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def model(request: RecordedRequest) -> Script:
    last = request.body["messages"][-1]
    if last["role"] == "tool":
        return Script(Reply((Say("That was it."),)))
    if "print" in last["content"]:
        calls = [CallTool("terminal", {"command": "yes 0123456789 | head -c 190000"}) for _ in range(30)]
        return Script(Reply((Say("I go. "), *calls)))
    return Script(Reply((Say("Here I am."),)))


async def test_a_turn_that_fills_the_disk_says_so_and_the_rest_is_there(
    tmp_path: Path, small_disk: Path
) -> None:
    async with ModelServer() as server:
        server.respond = model
        write_config(small_disk, server.url)
        chat = ("chat", "--yes", "--session", "s")
        assert (await run(small_disk, *chat, "first", folder=tmp_path)).out == "Here I am.\n"
        full = await run(small_disk, *chat, "print very much", folder=tmp_path)
        assert full.status == 1
        assert full.out.startswith("I go.")
        assert "cannot be written: No space left on device" in full.err
        shown = await run(small_disk, "sessions", "show", "s")
        assert "Here I am." in shown.out
        ballast = small_disk / "sessions" / "s.jsonl"
        assert ballast.stat().st_size > 500_000
        subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
        assert (await run(small_disk, *chat, "again", folder=tmp_path)).out == "Here I am.\n"
        told = [m["content"] for m in server.requests[-1].body["messages"] if m["role"] == "user"]
        assert "first" in told
        exported = await run(small_disk, "sessions", "export", "s")
        assert exported.out.count('"turn_closed"') == 3
