"""`python -m bench.embedded_tools [GGUF]`: does the embedded model choose the right tool, and how fast is it?

Twenty questions, twelve of which need one of five tools. A choice is right if the tool that is needed is called, or
none where none is; its arguments are right if they hold what the question named. Nothing a model says is run.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import table
from headrace.errors import CallError
from headrace.events import (
    AssistantMessage,
    Event,
    Message,
    PartGrew,
    PartStarted,
    ReplyEnded,
    ReplyPart,
    SystemMessage,
    TextContent,
    ToolMessage,
    UsageReported,
    user_message,
)
from headrace.ports import AttemptIds, Request, ToolSpec
from headrace.providers.embedded.process import Surroundings
from headrace.providers.embedded.provider import EmbeddedProvider
from headrace.runtime.clock import SystemClock

DEFAULT = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32.gguf"
SYSTEM = "You are an agent on the user's computer. Be brief and truthful."


def _tool(name: str, description: str, needed: dict[str, str], **optional: str) -> ToolSpec:
    properties: dict[str, Any] = {
        key: {"type": "string", "description": text} for key, text in needed.items()
    }
    properties |= {key: {"type": "integer", "description": text} for key, text in optional.items()}
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": list(needed)})


TOOLS = (
    _tool(
        "terminal",
        "Run a shell command on the user's computer and return its output. Prefer the other tools for files.",
        {"command": "The shell command"},
        timeout_s="How long it may take",
    ),
    _tool(
        "read_file", "Read a text file. Lines are numbered.", {"path": "Path of the file"}, limit="Most lines"
    ),
    _tool(
        "write_file",
        "Write a text file, replacing what is there.",
        {"path": "Path of the file", "content": "The whole new content"},
    ),
    _tool(
        "search_files", "Search files for text.", {"pattern": "The text to look for"}, limit="Most matches"
    ),
    _tool("web_fetch", "Fetch a web page and return its text.", {"url": "Address of the page"}),
)


class Case(NamedTuple):
    question: str
    tool: str = ""
    named: str = ""
    """What has to be in the arguments."""


CASES = (
    Case("List the files in /var/log.", "terminal", "/var/log"),
    Case("How much free disk space is there? Run df -h.", "terminal", "df"),
    Case("Run the tests with pytest.", "terminal", "pytest"),
    Case("Show me what is in notes.txt.", "read_file", "notes.txt"),
    Case("Read the file src/main.py.", "read_file", "src/main.py"),
    Case("Open /etc/hosts and tell me what it says.", "read_file", "/etc/hosts"),
    Case("Create a file called hello.txt that contains the word hi.", "write_file", "hello.txt"),
    Case("Write 'buy milk' to todo.md.", "write_file", "todo.md"),
    Case("Search the files for TODO.", "search_files", "TODO"),
    Case("Find where the text parse_config occurs in my files.", "search_files", "parse_config"),
    Case("Fetch https://example.com and summarise it.", "web_fetch", "https://example.com"),
    Case("What does the page at http://news.example.org say?", "web_fetch", "http://news.example.org"),
    Case("Hello there!"),
    Case("What is the capital of Japan?"),
    Case("How are you today?"),
    Case("Explain in two sentences what a hash table is."),
    Case("Translate 'good morning' to French."),
    Case("What is 17 plus 25?"),
    Case("Write a short poem about rain."),
    Case("Thank you, that was helpful."),
)
FURTHER = (
    Case("What is in the folder /etc?", "terminal", "/etc"),
    Case("Run git status.", "terminal", "git status"),
    Case("Which processes are running?", "terminal", "ps"),
    Case("cat README.md", "read_file", "README.md"),
    Case("Save the text 'meeting at 10' in plan.txt", "write_file", "plan.txt"),
    Case("Where in this project is the word deadline used?", "search_files", "deadline"),
    Case("Look at https://python.org and tell me the title.", "web_fetch", "python.org"),
    Case("Delete the file old.log.", "terminal", "old.log"),
    Case("Hi, what can you do?"),
    Case("Who wrote Hamlet?"),
    Case("Tell me a joke."),
    Case("Name three colours."),
    Case("What does the abbreviation HTTP stand for?"),
    Case("Write a Python function that adds two numbers."),
)
"""Harder ones; what the prompt says was not chosen by these alone."""
AFTER = (
    (CASES[0], {"command": "ls /var/log"}, "syslog\nauth.log\ndpkg.log", "auth.log"),
    (CASES[3], {"path": "notes.txt"}, "1 Meeting with Ada on Thursday at nine", "Ada"),
    (CASES[6], {"path": "hello.txt", "content": "hi"}, "Written: 2 bytes", "hello.txt"),
    (CASES[8], {"pattern": "TODO"}, "app.py:14: # TODO: retry", "app.py"),
    (
        CASES[10],
        {"url": "https://example.com"},
        "Example Domain. For use in illustrative examples.",
        "xample",
    ),
)


class _Answer:
    """The sink of one question."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.first_s = self.total_s = 0.0
        self.tool = self.text = ""
        self.tokens = 0
        self.end = ""

    def connected(self) -> None:
        pass

    def received(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case PartStarted(kind="tool_call"):
                    self.tool = event.name
                case PartGrew(text=text):
                    self.first_s = self.first_s or time.monotonic() - self.started
                    self.text += text
                case UsageReported():
                    self.tokens = event.output_tokens or 0
                case ReplyEnded():
                    self.end = event.reason
                    self.total_s = time.monotonic() - self.started

    @property
    def tokens_per_s(self) -> float:
        return (self.tokens - 1) / max(1e-6, self.total_s - self.first_s)


async def ask(
    provider: EmbeddedProvider, messages: list[Message], tools: tuple[ToolSpec, ...] = TOOLS
) -> _Answer:
    answer = _Answer()
    request = Request(model="", messages=(SystemMessage(SYSTEM), *messages), tools=tools)
    try:
        await provider.attempt(request, AttemptIds(1), answer)
    except CallError as failure:
        answer.end = failure.cause.code
    return answer


async def _choices(provider: EmbeddedProvider, title: str, cases: tuple[Case, ...]) -> None:
    rows, right, apt, broken = [], 0, 0, 0
    for case in cases:
        got = await ask(provider, [user_message(case.question)])
        right += got.tool == case.tool
        apt += got.tool == case.tool and case.named in got.text
        broken += got.end not in ("stop", "tool_calls")
        mark = "" if got.tool == case.tool else f"wanted {case.tool or 'a reply'}"
        rows.append((case.question[:46], got.tool or "reply", mark, got.first_s, got.text[:50]))
    said = f"{title}: {right} of {len(cases)} right, {apt} with the right arguments, {broken} without a whole object"
    table(said, ("question", "chose", "", "first s", "said"), rows)


async def _replies(provider: EmbeddedProvider) -> None:
    rows, right = [], 0
    for case, arguments, result, expected in AFTER:
        call = ReplyPart("tool_call", _json(arguments), "call_1", case.tool)
        got = await ask(
            provider,
            [
                user_message(case.question),
                AssistantMessage((call,)),
                ToolMessage("call_1", (TextContent(result),), case.tool),
            ],
        )
        right += not got.tool and expected in got.text
        rows.append((case.question[:46], got.tool or "reply", got.end, got.text[:60].replace("\n", " ")))
    table(f"After a result: {right} of {len(AFTER)} tell it", ("question", "chose", "end", "said"), rows)


async def _speed(provider: EmbeddedProvider, around: Surroundings, start_s: float) -> None:
    got = await ask(provider, [user_message("Tell me about the sea in two hundred words.")], ())
    await provider.close()
    again = EmbeddedProvider(_weights, around)
    start = time.monotonic()
    short = await ask(again, [user_message("Hi!")], ())
    second_s = time.monotonic() - start
    await again.close()
    rows = [
        ("start and first answer of one word", start_s),
        ("the same, second run", second_s),
        ("of that, until the first token", short.first_s),
        ("tokens a second", got.tokens_per_s),
        ("memory of the process, GB", _rss_gb),
    ]
    table("Speed", ("", "value"), rows)


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


_rss_gb = 0.0


def _measure_memory() -> None:
    """The largest child of ours is the model."""
    global _rss_gb  # noqa: PLW0603 - one figure of one run
    if sys.platform != "linux":
        return
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for pid in children:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                _rss_gb = max(_rss_gb, int(line.split()[1]) * 1024 / 1e9)


async def _weights(_: str) -> Path:
    folder = Path(os.environ.get("HEADRACE_TEST_MODELS", Path.home() / ".headrace" / "models"))
    return Path(sys.argv[1]) if len(sys.argv) > 1 else folder / DEFAULT


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        around = Surroundings(home=Path(home), clock=SystemClock())
        provider = EmbeddedProvider(_weights, around)
        start = time.monotonic()
        await ask(provider, [user_message("Say yes.")], ())
        start_s = time.monotonic() - start
        try:
            await _choices(provider, "Choices", CASES)
            await _choices(provider, "Further choices", FURTHER)
            await _replies(provider)
            _measure_memory()
            await _speed(provider, around, start_s)
        finally:
            await provider.close()


if __name__ == "__main__":
    asyncio.run(main())
