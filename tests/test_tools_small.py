"""Memory, questions, and tools that other packages bring: their files, their answers, and the guide that describes them."""

import asyncio
import contextlib
import importlib.metadata
import json
import multiprocessing
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.app import App
from headrace.config.schema import Tools
from headrace.limits import MEMORY_FACT_MAX_CHARS, MEMORY_MAX_BYTES
from headrace.ports import ToolResult
from headrace.testing.modelserver import CallTool, ModelServer, RecordedRequest, Reply, Say, Script
from headrace.tools import builtin, third_party
from headrace.tools.clarify import Clarify
from headrace.tools.memory import Memory
from tests.commands import environment, run, write_config
from tests.tooling import bare

GUIDE = (Path(__file__).parent.parent / "docs" / "tools.md").read_text(encoding="utf-8")
MEMORY, CLARIFY = Memory(), Clarify()


# --- memory


async def remember(home: Path, action: str, text: str = "") -> ToolResult:
    arguments = {"action": action} | ({"text": text} if text else {})
    return await MEMORY.run(arguments, bare(home, MEMORY, arguments, home=home))


async def test_facts_are_added_listed_and_removed(tmp_path: Path) -> None:
    home = tmp_path / "new"
    assert (await remember(home, "list")).text == "Nothing is remembered yet."
    await remember(home, "add", "The person likes tea.")
    await remember(home, "add", "  They live\nin Oslo. ")
    assert (await remember(home, "add", "The person likes tea.")).text == "That is known already."
    assert (await remember(home, "list")).text == "- The person likes tea.\n- They live in Oslo."
    assert (await remember(home, "remove", "tea")).detail == "- The person likes tea."
    assert (home / "memory.md").read_text() == "# What headrace remembers\n\n- They live in Oslo.\n"
    assert (home / "memory.md").stat().st_mode & 0o777 == 0o600


async def test_what_the_person_wrote_stays(tmp_path: Path) -> None:
    file = tmp_path / "memory.md"
    file.write_text("# Me\n\nSome prose.\n\n* one fact\n  that goes on\n- another\n\n## Later\nthe end")
    assert (await remember(tmp_path, "list")).text == "- one fact that goes on\n- another"
    await remember(tmp_path, "remove", "one fact that goes on")
    await remember(tmp_path, "add", "new")
    assert file.read_text() == "# Me\n\nSome prose.\n\n- another\n\n## Later\nthe end\n- new\n"


@pytest.mark.parametrize(
    ("action", "text", "said"),
    [
        ("add", "", "Say in `text`"),
        ("remove", " \n ", "Say in `text`"),
        ("add", "x" * (MEMORY_FACT_MAX_CHARS + 1), "at most 500 characters"),
        ("remove", "nowhere", "No fact says that"),
        ("remove", "o", "2 facts say that; give all of the one you mean:\n- one\n- two"),
    ],
)
async def test_what_is_refused_changes_nothing(tmp_path: Path, action: str, text: str, said: str) -> None:
    (tmp_path / "memory.md").write_text("- one\n- two\n")
    result = await remember(tmp_path, action, text)
    assert not result.ok
    assert said in result.text
    assert (tmp_path / "memory.md").read_text() == "- one\n- two\n"


async def test_a_full_memory_says_what_to_do(tmp_path: Path) -> None:
    full = "- " + "x" * (MEMORY_MAX_BYTES - 10) + "\n"
    (tmp_path / "memory.md").write_text(full)
    result = await remember(tmp_path, "add", "one more fact")
    assert "The memory is full (64 KiB). Remove what no longer matters first." in result.text
    assert (tmp_path / "memory.md").read_text() == full


async def test_a_link_to_a_memory_that_is_kept_elsewhere_stays_one(tmp_path: Path) -> None:
    (tmp_path / "dotfiles.md").write_text("- one\n")
    (tmp_path / "memory.md").symlink_to("dotfiles.md")
    await remember(tmp_path, "add", "two")
    assert (tmp_path / "memory.md").is_symlink()
    assert (tmp_path / "dotfiles.md").read_text() == "- one\n- two\n"


def _add_many(home: Path, who: int) -> None:
    async def work() -> None:
        await asyncio.gather(*(remember(home, "add", f"fact {who}-{n}") for n in range(20)))

    asyncio.run(work())


def test_processes_that_remember_at_once_lose_nothing(tmp_path: Path) -> None:
    workers = [
        multiprocessing.get_context("spawn").Process(target=_add_many, args=(tmp_path, n)) for n in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    facts = [line for line in (tmp_path / "memory.md").read_text().splitlines() if line.startswith("- ")]
    assert sorted(facts) == sorted(f"- fact {who}-{n}" for who in range(3) for n in range(20))


def test_listing_touches_nothing_and_remembering_is_asked_about() -> None:
    assert MEMORY.touches({"action": "list"}).kind == "nothing"
    assert MEMORY.touches({"action": "add", "text": "x"}).kind == "remember"
    assert MEMORY.touches({"action": "remove", "text": "x"}).kind == "remember"


# --- clarify


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("Lisbon", "Lisbon"),
        ("", "(an empty answer)"),
        (None, "Nobody answered. Use your best judgement, go on, and say what you assumed."),
    ],
)
async def test_a_question_and_its_answer(tmp_path: Path, answer: str | None, told: str) -> None:
    arguments = {"question": "Where to?", "choices": ["Lisbon", "Oslo"]}
    asked = bare(tmp_path, CLARIFY, arguments, answer=answer)
    result = await CLARIFY.run(arguments, asked)
    assert (result.ok, result.text) == (True, told)
    assert asked.asked == [("Where to?", ("Lisbon", "Oslo"))]


# --- tools of other packages


@contextlib.contextmanager
def installed(folder: Path, name: str, points: str, **modules: str) -> Iterator[None]:
    """A package beside headrace, as an installer would leave it."""
    write_package(folder, name, points, **modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for module in modules:
            sys.modules.pop(module, None)


def write_package(folder: Path, name: str, points: str, **modules: str) -> None:
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[headrace.tools]\n{points}\n")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


GOOD = """
from headrace.ports import ToolSpec
from headrace.testing.tools import ScriptedTool

def several():
    return [ScriptedTool("one"), ScriptedTool("two")]

def nameless():
    return ScriptedTool("no name")

def taken():
    return ScriptedTool("read_file")

def schemaless():
    return ScriptedTool("odd", parameters={"type": "string"})

class Half:
    spec = ToolSpec("half", "", {"type": "object"})

def leaves():
    raise SystemExit(3)
"""


def test_each_tool_that_can_be_used_is_and_each_that_cannot_is_named(tmp_path: Path) -> None:
    names = ("several", "nameless", "taken", "schemaless", "Half", "leaves", "missing")
    points = "\n".join(f"{name} = acme_tools:{name}" for name in names)
    said: list[str] = []
    with installed(tmp_path, "acme", points, acme_tools=GOOD):
        found = third_party((tool.spec.name for tool in builtin()), said.append)
    assert [tool.spec.name for tool in found] == ["one", "two"]
    reasons = {line.split()[2]: line for line in said}
    assert reasons.keys() == set(names) - {"several"}
    assert all(" of acme cannot be used: " in line for line in said)
    assert "is no name for a tool" in reasons["nameless"]
    assert "named read_file already" in reasons["taken"]
    assert "not a JSON schema" in reasons["schemaless"]
    assert "has no only_reads, touches, run, close" in reasons["Half"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


async def test_the_guide_s_own_tool_is_used_by_an_agent(tmp_path: Path) -> None:
    (project,) = map(tomllib.loads, blocks("toml"))
    (module,) = blocks("python")
    points = project["project"]["entry-points"]["headrace.tools"]
    write_package(
        tmp_path / "site",
        project["project"]["name"],
        "\n".join(f"{name} = {value}" for name, value in points.items()),
        headrace_dice=module,
    )

    def steps(request: RecordedRequest) -> Script:
        results = [m["content"] for m in request.body["messages"] if m["role"] == "tool"]
        if not results:
            return Script(Reply((CallTool("dice", {"count": 99}),)))
        if len(results) == 1:
            return Script(Reply((CallTool("dice", {"count": 3}),)))
        return Script(Reply((Say(f"They show {results[-1]}."),)))

    async with ModelServer() as server:
        server.respond = steps
        write_config(tmp_path / "home", server.url)
        extra = {"PYTHONPATH": str(tmp_path / "site")}
        ran = await run(tmp_path / "home", "chat", "Throw three.", extra=extra)
        offered = [tool["function"]["name"] for tool in server.requests[0].body["tools"]]
        corrected = server.requests[1].body["messages"][-1]["content"]
    assert re.fullmatch(r"They show [1-6] [1-6] [1-6]\.\n", ran.out), ran.err
    assert "3 dice are rolling" in ran.err
    assert "dice" in offered
    assert "do not fit" in corrected


def test_the_guide_names_every_tool_with_its_arguments() -> None:
    for tool in builtin():
        (row,) = (line for line in GUIDE.splitlines() if line.startswith(f"| `{tool.spec.name}` |"))
        arguments = row.split("|")[2]
        required = tool.spec.parameters["required"]
        for name in tool.spec.parameters["properties"]:
            assert (f"`{name}`" if name in required else f"`{name}?`") in arguments


def test_the_guide_s_rules_load_and_its_defaults_are_those_there_are(tmp_path: Path) -> None:
    (rules,) = blocks("yaml")
    (tmp_path / "config.yaml").write_text(rules)
    config = App.from_env(environment(tmp_path)).config
    assert config.tools.modes == {"web_fetch": "ask", "memory": "deny"}
    assert len(config.tools.rules) == 6
    defaults = Tools()
    assert (defaults.max_steps, defaults.max_wall_s, defaults.approval_s) == (50, 3600, 600)
    assert json.dumps(defaults.max_tokens) == "null"
