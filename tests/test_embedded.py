"""The embedded model: its process with a stand-in for the model, and the model itself where its weights are.

The real model's tests want the tiny weights in the folder that HEADRACE_TEST_MODELS names.
"""

import asyncio
import importlib.util
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from headrace.errors import CallError
from headrace.events import (
    AssistantMessage,
    Event,
    ImageContent,
    PartGrew,
    ReplyEnded,
    ReplyPart,
    SystemMessage,
    TextContent,
    ToolMessage,
    UserMessage,
    user_message,
)
from headrace.ports import AttemptIds, Request, ToolSpec
from headrace.providers.embedded import bounds, forms, machine
from headrace.providers.embedded.process import CHILD, ModelProcess, Surroundings
from headrace.providers.embedded.provider import EmbeddedProvider
from headrace.runtime.clock import SystemClock

STAND_IN = Path(__file__).parent / "embedded_child.py"
TINY = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53.gguf"
WEIGHTS = Path(os.environ.get("HEADRACE_TEST_MODELS", "/nowhere")) / TINY

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
real = [
    pytest.mark.skipif(
        not WEIGHTS.is_file(), reason=f"no {TINY[:8]}... in the folder HEADRACE_TEST_MODELS names"
    ),
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed"),
]

TOOLS = (
    ToolSpec(
        "read_file",
        "Read a file. It may be long.",
        {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    ),
    ToolSpec("clock", "The time", {"type": "object", "properties": {}}),
)


class Listener:
    """A sink that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.connections = 0
        self.reads = 0
        self.grown = asyncio.Event()

    def connected(self) -> None:
        self.connections += 1

    def received(self, events: list[Event]) -> None:
        self.reads += 1
        self.events += events
        if any(isinstance(event, PartGrew) for event in events):
            self.grown.set()

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, PartGrew))

    @property
    def end(self) -> ReplyEnded:
        end = self.events[-1]
        assert isinstance(end, ReplyEnded)
        return end


class Bench:
    def __init__(self, folder: Path, mode: str, weights: Path | None = None) -> None:
        self.folder = folder
        self.weights = weights or folder / "model.gguf"
        if weights is None:
            self.weights.write_bytes(b"GGUF")
        command = (sys.executable, str(STAND_IN), mode, str(folder)) if mode != "real" else CHILD
        self.around = Surroundings(home=folder, clock=SystemClock(), command=command)
        self.fetches = 0
        self.provider = EmbeddedProvider(self.ensure, self.around)

    async def ensure(self, model: str) -> Path:
        self.fetches += 1
        return self.weights

    async def ask(self, text: str = "Hello?", model: str = "", **settings: object) -> Listener:
        sink = Listener()
        request = Request(model=model, messages=(user_message(text),), **settings)  # type: ignore[arg-type]
        await asyncio.wait_for(self.provider.attempt(request, AttemptIds(1), sink), 60)
        return sink

    @property
    def starts(self) -> list[int]:
        path = self.folder / "starts"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    @property
    def process(self) -> ModelProcess:
        (used,) = self.provider._processes.values()
        return used.process

    async def killed(self, pid: int) -> None:
        """Kill the child, and wait until its parent has heard of it."""
        os.kill(pid, signal.SIGKILL)
        await until(lambda: self.process.death() is not None)

    async def started(self, count: int = 1) -> int:
        await until(lambda: len(self.starts) >= count)
        return self.starts[-1]


@asynccontextmanager
async def bench(folder: Path, mode: str = "serve", weights: Path | None = None) -> AsyncIterator[Bench]:
    made = Bench(folder, mode, weights)
    try:
        yield made
    finally:
        await made.provider.close()
        assert not any(alive(pid) for pid in made.starts)


def alive(pid: int) -> bool:
    """Whether the process runs; one that is dead and not yet buried does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def until(condition: Callable[[], bool], patience_s: float = 10.0) -> None:
    async with asyncio.timeout(patience_s):
        while not condition():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.005)


async def cause_of(made: Bench, text: str = "Hello?") -> str:
    with pytest.raises(CallError) as caught:
        await made.ask(text)
    return f"{caught.value.cause.code}: {caught.value.cause.message}"


# --- the process ----------------------------------------------------------------------------------------


@linux
async def test_many_first_questions_share_one_start(tmp_path: Path) -> None:
    async with bench(tmp_path, "slow") as made:
        answers = await asyncio.gather(*(made.ask() for _ in range(5)))
        assert {answer.text for answer in answers} == {answers[0].text}
        await made.ask()
        assert len(made.starts) == 1


@linux
async def test_a_child_that_died_is_started_anew_by_the_next_question(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        await made.ask()
        await made.killed(made.starts[0])
        answer = await made.ask()
        assert answer.end.reason == "stop"
        assert len(made.starts) == 2


@linux
async def test_a_death_within_an_answer_is_a_broken_connection_in_plain_words(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        asking = asyncio.create_task(made.ask(model="script:paced:1000:20"))
        pid = await made.started()
        await asyncio.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(CallError) as caught:
            await asking
        assert caught.value.cause.code == "connection_lost"
        assert caught.value.cause.transient


@linux
async def test_stopping_the_first_question_leaves_the_start_to_the_second(tmp_path: Path) -> None:
    async with bench(tmp_path, "slow") as made:
        first = asyncio.create_task(made.ask())
        second = asyncio.create_task(made.ask())
        await made.started()
        first.cancel()
        assert (await second).end.reason == "stop"
        with pytest.raises(asyncio.CancelledError):
            await first
        assert len(made.starts) == 1


@linux
async def test_a_start_that_nobody_waits_for_goes_on(tmp_path: Path) -> None:
    async with bench(tmp_path, "slow") as made:
        first = asyncio.create_task(made.ask())
        await made.started()
        first.cancel()
        await asyncio.wait({first})
        await made.ask()
        assert len(made.starts) == 1


@linux
@pytest.mark.parametrize("delay_s", [0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6])
async def test_closing_at_any_moment_of_the_start_leaves_nothing(tmp_path: Path, delay_s: float) -> None:
    made = Bench(tmp_path, "slow")
    asking = asyncio.create_task(made.ask())
    await asyncio.sleep(delay_s)
    await made.provider.close()
    with pytest.raises(CallError) as caught:
        await asking
    assert caught.value.cause.code in ("shutdown", "connection_lost", "connect_failed")
    await asyncio.sleep(0.05)
    assert not any(alive(pid) for pid in made.starts)
    with pytest.raises(CallError):
        await made.ask()


@linux
async def test_a_child_that_does_not_leave_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STOP_S", 0.1)
    process = ModelProcess(tmp_path / "none.gguf", Bench(tmp_path, "stubborn").around)
    await process.starting()
    pid = process.pid
    assert pid is not None
    started = time.monotonic()
    await process.close()
    assert time.monotonic() - started < 1
    assert not alive(pid)


async def test_life_is_shown_while_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LIFE_S", 0.05)
    async with bench(tmp_path, "slow") as made:
        answer = await made.ask()
        assert answer.connections
        assert answer.reads > 8


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("crash", "connection_lost: The local model's process ended unexpectedly (status 1)"),
        ("out-of-memory", "resources_short: There is too little memory"),
        ("killed", "resources_short: The system ended"),
        ("illegal", "dependency_missing: This processor cannot run"),
        ("refuse", "dependency_missing: Something is missing."),
        ("unheard-of", "dependency_missing: Something is odd."),
        ("chatter", "connection_lost: The local model's process said what it should not"),
    ],
)
async def test_what_a_failed_start_means(
    tmp_path: Path, mode: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "STOP_S", 0.1)
    async with bench(tmp_path, mode) as made:
        assert (await cause_of(made)).startswith(said)
        assert (await cause_of(made)).startswith(said)
        assert len(made.starts) == 2


@linux
async def test_a_start_takes_no_longer_than_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "START_S", 0.3)
    async with bench(tmp_path, "silent") as made:
        assert (await cause_of(made)).startswith(
            "resources_short: The local model was not loaded within 0.3 s."
        )


@linux
async def test_an_earlier_childs_words_are_not_this_ones(tmp_path: Path) -> None:
    async with bench(tmp_path, "crash") as made:
        made.around.log.parent.mkdir()
        made.around.log.write_text("failed to allocate\n")
        assert (await cause_of(made)).startswith("connection_lost")
        assert made.around.log.read_text().endswith("it crashed\n")


async def test_the_log_is_bounded(tmp_path: Path) -> None:
    async with bench(tmp_path, "crash") as made:
        made.around.log.parent.mkdir()
        made.around.log.write_bytes(b"x" * bounds.LOG_MAX_BYTES)
        await cause_of(made)
        assert made.around.log.stat().st_size < 1000


@linux
async def test_a_home_that_cannot_be_written_costs_the_log_alone(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the folder would be")
    async with bench(tmp_path) as made:
        assert (await made.ask()).end.reason == "stop"


@linux
async def test_the_child_knows_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HEADRACE_TOKEN", "CANARY"):
        monkeypatch.setenv(name, "canary-0123456789")
    monkeypatch.setenv(
        "HTTP_PROXY", "http://canary-0123456789@127.0.0.1:9"
    )  # which nobody may be asked through
    monkeypatch.setenv("http_proxy", "http://canary-0123456789@127.0.0.1:9")
    async with bench(tmp_path) as made:
        assert (await made.ask()).end.reason == "stop"
        environment = Path(f"/proc/{made.starts[0]}/environ").read_bytes()
        assert b"canary" not in environment
        assert b"HEADRACE_CHILD_KEY=" in environment


@linux
@pytest.mark.parametrize("mode", ["serve", pytest.param("real", marks=real)])
async def test_the_child_leaves_with_a_parent_that_was_killed(tmp_path: Path, mode: str) -> None:
    program = f"""
import asyncio
from pathlib import Path
from tests.test_embedded import Bench, WEIGHTS
async def main():
    made = Bench(Path({str(tmp_path)!r}), {mode!r}, WEIGHTS if {mode!r} == "real" else None)
    await made.ask("Hi", max_tokens=1)
    print(next(iter(made.provider._processes.values())).process.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, cwd=STAND_IN.parents[1]
    )
    assert parent.stdout is not None
    child = int(await asyncio.wait_for(parent.stdout.readline(), 30))
    assert alive(child)
    parent.kill()
    await parent.wait()
    await until(lambda: not alive(child), 2)
    await parent.stdout.read()


# --- the machine ----------------------------------------------------------------------------------------


def _machine(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", ".").replace("_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_free_memory_is_the_systems_or_the_containers(tmp_path: Path) -> None:
    assert machine.free_memory_bytes(tmp_path) is None
    _machine(tmp_path, proc_meminfo="MemTotal: 8000 kB\nMemAvailable:    3000 kB\n")
    assert machine.free_memory_bytes(tmp_path) == 3000 * 1024
    group = {
        "memory__max": "2000000",
        "memory__current": "1500000",
        "memory__stat": "anon 1\ninactive_file 400000\n",
    }
    _machine(tmp_path, **{f"sys_fs_cgroup_{name}": text for name, text in group.items()})
    assert machine.free_memory_bytes(tmp_path) == 900_000
    _machine(tmp_path, sys_fs_cgroup_memory__max="max\n")
    assert machine.free_memory_bytes(tmp_path) == 3000 * 1024


def test_a_containers_share_of_the_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert machine.processors(tmp_path) is None
    _machine(tmp_path, sys_fs_cgroup_cpu__max="max 100000\n")
    assert machine.processors(tmp_path) is None
    _machine(tmp_path, sys_fs_cgroup_cpu__max="250000 100000\n")
    assert machine.processors(tmp_path) == 2
    _machine(tmp_path, sys_fs_cgroup_cpu__max="50000 100000\n")
    assert machine.processors(tmp_path) == 1


async def test_without_the_memory_it_says_how_much_and_what_else_to_choose(tmp_path: Path) -> None:
    made = Bench(tmp_path, "serve")
    with made.weights.open("wb") as file:
        file.truncate(1_117_320_768)
    root = _machine(tmp_path / "root", proc_meminfo="MemAvailable: 1000000 kB\n")
    made.provider = EmbeddedProvider(made.ensure, msgspec.structs.replace(made.around, root=root))
    said = await cause_of(made)
    assert said.startswith("resources_short: The local model needs 1.6 GB of memory and 1.0 GB is free.")
    assert "local:default" in said
    assert not made.starts
    await made.provider.close()


# --- the weights ----------------------------------------------------------------------------------------


class Slow:
    """A fetch that ends when it is told to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.go = asyncio.Event()
        self.begun = self.cancelled = 0

    async def ensure(self, model: str) -> Path:
        self.begun += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.path


async def test_a_fetch_is_shared_and_ends_with_the_last_who_waits(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        slow = Slow(made.weights)
        made.provider = EmbeddedProvider(slow.ensure, made.around)
        first, second = (asyncio.create_task(made.ask()) for _ in range(2))
        await until(lambda: slow.begun == 1)
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait({first})
        assert slow.cancelled == 0
        second.cancel()
        await asyncio.wait({second})
        assert (slow.begun, slow.cancelled) == (1, 1)
        slow.go.set()
        assert (await made.ask()).end.reason == "stop"
        assert slow.begun == 2


@linux
async def test_another_models_process_ends_when_nobody_uses_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        await made.ask()
        made.weights = tmp_path / "other.gguf"
        made.weights.write_bytes(b"GGUF")
        await made.ask()
        assert [alive(pid) for pid in made.starts] == [False, True]


# --- steps ----------------------------------------------------------------------------------------------


@linux
async def test_a_step_that_is_no_step_is_malformed(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        with pytest.raises(CallError) as caught:
            await made.ask(tools=TOOLS)
        assert caught.value.cause.code == "malformed_stream"


def _request(*messages: object, **extra: object) -> Request:
    return Request(model="", messages=messages, tools=TOOLS, extra=extra)  # type: ignore[arg-type]


_CALLED = (
    user_message("Read a.txt"),
    AssistantMessage(
        (ReplyPart("text", "Let me look."), ReplyPart("tool_call", '{"path":"a.txt"}', "c1", "read_file"))
    ),
    ToolMessage("c1", (TextContent("Hello"),)),
)


def test_the_callers_choice_of_tools_is_kept() -> None:
    assert forms.choices(_request(user_message("?")), "answer") == forms.Choices(TOOLS)
    assert forms.choices(_request(user_message("?"), tool_choice="none"), "any") == forms.Choices()
    assert forms.choices(_request(user_message("?"), tool_choice="required"), "any") == forms.Choices(
        TOOLS, reply=False
    )
    named = {"type": "function", "function": {"name": "clock"}}
    assert forms.choices(_request(user_message("?"), tool_choice=named), "any") == forms.Choices(
        TOOLS[1:], reply=False
    )
    with pytest.raises(CallError, match="not among the tools"):
        forms.choices(_request(user_message("?"), tool_choice={"function": {"name": "x"}}), "any")


def test_what_a_model_may_do_after_a_call() -> None:
    asked = _request(*_CALLED)
    assert forms.choices(asked, "answer") == forms.Choices()
    assert forms.choices(asked, "another") == forms.Choices(TOOLS[1:])
    assert forms.choices(asked, "any") == forms.Choices(TOOLS)
    assert forms.choices(_request(*_CALLED, user_message("And now?")), "answer") == forms.Choices(TOOLS)


def test_a_history_in_forms() -> None:
    asked = forms.step(_request(SystemMessage("Be kind."), *_CALLED), forms.Choices(TOOLS[1:]))
    turns = [(type(m).__name__, _text(m)) for m in asked.messages]
    assert turns[0][1].startswith("Be kind.\n\nYou are a helpful assistant.")
    assert '- The time: {"tool":"clock","arguments":{}}' in turns[0][1]
    assert "read_file" not in turns[0][1]
    assert turns[-3:] == [
        ("UserMessage", "Read a.txt"),
        (
            "AssistantMessage",
            '{"tool":"reply","text":"Let me look."}\n\n{"tool":"read_file","arguments":{"path":"a.txt"}}',
        ),
        ("UserMessage", "Result of read_file: Hello\n\nNow reply to: Read a.txt"),
    ]
    choices = asked.extra["response_format"]["json_schema"]["schema"]["anyOf"]
    assert [choice["properties"]["tool"]["const"] for choice in choices] == ["reply", "clock"]
    assert asked.tools == ()
    assert asked.temperature == 0


def test_a_history_in_plain_text() -> None:
    asked = forms.plain(_request(*_CALLED))
    assert [_text(m) for m in asked.messages] == [
        "Read a.txt",
        "Let me look.",
        'You have used read_file ({"path":"a.txt"}). Its result:\nHello\n\nNow answer me.',
    ]
    assert asked.max_tokens == bounds.OUTPUT_MAX_TOKENS


def test_the_callers_parameters_are_honoured() -> None:
    request = Request(
        model="x", messages=(user_message("?"),), max_tokens=7, temperature=0.9, extra={"seed": 3}
    )
    asked = forms.plain(request)
    assert (asked.max_tokens, asked.temperature, asked.extra["seed"]) == (7, 0.9, 3)


def test_what_cannot_be_done_is_refused() -> None:
    picture = UserMessage((ImageContent("https://example.com/x.png"),))
    with pytest.raises(CallError, match="text only"):
        forms.plain(_request(picture))
    with pytest.raises(CallError, match="response_format"):
        forms.step(_request(user_message("?"), response_format={"type": "json_object"}), forms.Choices(TOOLS))


def test_a_schema_is_cut_down_to_what_a_grammar_can_hold() -> None:
    item = {"$ref": "#/$defs/x", "description": "an item"}
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "x+"}, "b": {"type": "array", "items": item}},
        "required": ["a"],
        "$defs": {"x": {"type": "string"}},
    }
    request = msgspec.structs.replace(_request(user_message("?")), tools=(ToolSpec("t", "d", schema),))
    asked = forms.step(request, forms.Choices(request.tools, reply=False))
    (choice,) = asked.extra["response_format"]["json_schema"]["schema"]["anyOf"]
    assert choice["properties"]["arguments"] == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {}}},
        "required": ["a"],
    }


def _text(message: object) -> str:
    match message:
        case SystemMessage(text):
            return text
        case UserMessage(content):
            return "".join(c.text for c in content if isinstance(c, TextContent))
        case AssistantMessage(parts):
            return "".join(part.text for part in parts)
        case _:
            return ""
