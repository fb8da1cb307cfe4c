"""The embedded model itself: the real library, with the tiny weights where they are, and with none."""

import asyncio
import importlib.util
import os
import time
from pathlib import Path

import pytest

from headrace.errors import CallError
from headrace.events import PartStarted, UsageReported
from headrace.ports import ToolSpec
from headrace.providers.embedded.process import CHILD
from tests.pure.wire_helpers import check_legal
from tests.test_embedded import TOOLS, WEIGHTS, Bench, alive, bench, cause_of, linux, real, until

library = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed"
)
weights = [*real, linux]


def _with(made: Bench) -> int:
    assert made.process.pid is not None
    return made.process.pid


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _busy_for_s(pid: int) -> float:
    """How long from now on the process keeps a processor busy."""
    start = last = time.monotonic()
    used = _cpu_s(pid)
    while (now := time.monotonic()) - last < 0.3 and now - start < 5:
        await asyncio.sleep(0.01)
        if (now_used := _cpu_s(pid)) > used:
            used, last = now_used, time.monotonic()
    return last - start


# --- without weights


@library
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "config_invalid: {} is not a GGUF file."),
        (b"<html>", "config_invalid: {} is not a GGUF file."),
        (b"GGUF" + bytes(range(256)) * 40, "config_invalid: {} could not be loaded"),
    ],
)
async def test_a_file_that_is_no_model(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    async with bench(tmp_path, "real", path) as made:
        assert (await cause_of(made)).startswith(said.format(path))


@library
async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    async with bench(tmp_path, "real", tmp_path / "gone.gguf") as made:
        assert "cannot be read" in await cause_of(made)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("ImportError('libgomp.so.1: cannot open shared object file')", "apt-get install libgomp1"),
        ("ModuleNotFoundError('xllamacpp')", "pip install xllamacpp"),
        ("ImportError('DLL load failed')", "cannot be loaded (DLL load failed)"),
    ],
)
async def test_a_library_that_cannot_be_imported(
    tmp_path: Path, failure: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "xllamacpp.py").write_text(f"raise {failure}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    async with bench(tmp_path, "real", tmp_path / "any.gguf") as made:
        cause = await cause_of(made)
        assert cause.startswith("dependency_missing: ")
        assert said in cause


@linux
async def test_a_child_whose_parent_is_gone_loads_nothing(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *CHILD, str(tmp_path / "any.gguf"), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert said == b""
    assert process.returncode == 0


# --- with weights


class TestModel:
    pytestmark = weights

    @pytest.mark.parametrize("stream", [True, False])
    async def test_it_answers(self, tmp_path: Path, stream: bool) -> None:
        async with bench(tmp_path, "real", WEIGHTS) as made:
            answer = await made.ask("Say hello.", max_tokens=40, stream=stream)
            assert answer.text
            assert answer.end.reason in ("stop", "length")
            assert any(isinstance(e, UsageReported) and e.output_tokens for e in answer.events)
            check_legal(answer.events)

    @pytest.mark.parametrize("stream", [True, False])
    async def test_a_step_is_a_reply_or_a_call(self, tmp_path: Path, stream: bool) -> None:
        async with bench(tmp_path, "real", WEIGHTS) as made:
            for choice, kind, reason in (("required", "tool_call", "tool_calls"), ("auto", "text", "stop")):
                answer = await made.ask(
                    "Hello!", tools=TOOLS, stream=stream, max_tokens=300, extra={"tool_choice": choice}
                )
                start = next(e for e in answer.events if isinstance(e, PartStarted))
                if choice == "required" or start.kind == "text":
                    assert start.kind == kind
                    assert answer.end.reason in (reason, "length")
                check_legal(answer.events)

    async def test_a_bound_within_a_step_is_a_length(self, tmp_path: Path) -> None:
        odd = {
            "type": "object",
            "properties": {"text": {"enum": ["once more " * 40]}},
            "required": ["text"],
        }
        tools = (ToolSpec("say", "Say a long text", odd),)
        async with bench(tmp_path, "real", WEIGHTS) as made:
            answer = await made.ask("Go!", tools=tools, max_tokens=30, extra={"tool_choice": "required"})
            assert answer.end.reason == "length"
            check_legal(answer.events)

    async def test_a_prompt_that_is_too_long_says_so(self, tmp_path: Path) -> None:
        async with bench(tmp_path, "real", WEIGHTS) as made:
            with pytest.raises(CallError) as caught:
                await made.ask("word " * 20_000)
            assert caught.value.cause.code == "request_too_large"
            assert "more than the 8,192 tokens" in caught.value.cause.message

    async def test_stop_ends_the_generating(self, tmp_path: Path) -> None:
        async with bench(tmp_path, "real", WEIGHTS) as made:
            await made.ask("Hi", max_tokens=1)
            pid = _with(made)
            asking = asyncio.create_task(made.ask("Count.", extra={"ignore_eos": True}))
            await until(lambda: _cpu_s(pid) > 0.1)
            await asyncio.sleep(0.5)
            assert not asking.done()
            asking.cancel()
            await asyncio.wait({asking})
            assert await _busy_for_s(pid) < 0.5

    async def test_stop_ends_the_reading_of_a_prompt(self, tmp_path: Path) -> None:
        async with bench(tmp_path, "real", WEIGHTS) as made:
            await made.ask("Hi", max_tokens=1)
            prompt = " ".join(f"item{n * 7919 % 10007}" for n in range(900))
            asking = asyncio.create_task(made.ask(prompt))
            await asyncio.sleep(0.5)
            assert not asking.done()
            asking.cancel()
            await asyncio.wait({asking})
            assert await _busy_for_s(_with(made)) < 1.0

    async def test_it_is_started_anew_after_a_death(self, tmp_path: Path) -> None:
        async with bench(tmp_path, "real", WEIGHTS) as made:
            await made.ask("Hi", max_tokens=2)
            first = _with(made)
            await made.killed(first)
            await made.ask("Hi", max_tokens=2)
            assert _with(made) != first

    async def test_closing_while_it_loads(self, tmp_path: Path) -> None:
        for delay_s in (0.05, 0.2, 0.4):
            made = Bench(tmp_path, "real", WEIGHTS)
            asking = asyncio.create_task(made.ask("Hi"))
            await asyncio.sleep(delay_s)
            pid = _with(made)
            started = time.monotonic()
            await made.provider.close()
            assert time.monotonic() - started < 2
            assert not alive(pid)
            await asyncio.wait({asking})
            asking.exception()
