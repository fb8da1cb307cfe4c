"""The agent at work in a terminal: a real task with real tools, approvals asked, given, refused, and nobody there."""

import json
from pathlib import Path

import pytest

from headrace.testing.modelserver import CallTool, ModelServer, RecordedRequest, Reply, Say, Script
from tests.commands import Terminal, environment, run, write_config

TASK = "Find the TODOs in this folder and write them to todo.md."


def worker(request: RecordedRequest) -> Script:
    """A model that does the task: search, write what was found, say so."""
    results = [m for m in request.body["messages"] if m["role"] == "tool"]
    match len(results):
        case 0:
            return Script(Reply((Say("Let me look."), CallTool("search_files", {"pattern": "TODO"}))))
        case 1:
            lines = [line for line in results[0]["content"].splitlines() if "TODO" in line]
            content = "\n".join(lines) + "\n"
            return Script(Reply((CallTool("write_file", {"path": "todo.md", "content": content}),)))
        case _:
            denied = "Denied" in results[1]["content"]
            return Script(Reply((Say("I was not allowed to write." if denied else "They are in todo.md."),)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.py").write_text("x = 1  # TODO: rename\n")
    (work / "b.md").write_text("Notes\nTODO write docs\n")
    return work


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_task_with_an_approval(tmp_path: Path, folder: Path, allowed: bool) -> None:
    async with ModelServer() as server:
        server.respond = worker
        write_config(tmp_path, server.url)
        async with Terminal(tmp_path, "chat", TASK, folder=folder) as terminal:
            await terminal.until("Allow it? [y/N]")
            assert not (folder / "todo.md").exists()
            terminal.type("y\n" if allowed else "n\n")
            assert await terminal.left() == 0
            assert ("They are in todo.md." if allowed else "I was not allowed to write.") in terminal.seen
    assert (folder / "todo.md").exists() == allowed
    if allowed:
        text = (folder / "todo.md").read_text()
        assert "TODO: rename" in text
        assert "TODO write docs" in text


async def test_the_task_with_yes_needs_nobody(tmp_path: Path, folder: Path) -> None:
    async with ModelServer() as server:
        server.respond = worker
        write_config(tmp_path, server.url)
        ran = await run(tmp_path, "chat", "--yes", TASK, folder=folder)
    assert (ran.status, ran.out) == (0, "Let me look.\n\nThey are in todo.md.\n")
    assert (folder / "todo.md").exists()


async def test_the_task_with_nobody_there_is_denied_and_says_so(tmp_path: Path, folder: Path) -> None:
    async with ModelServer() as server:
        server.respond = worker
        write_config(tmp_path, server.url)
        ran = await run(tmp_path, "chat", TASK, folder=folder)
    assert "I was not allowed to write." in ran.out
    assert "Denied: nobody is there to be asked." in ran.err
    assert not (folder / "todo.md").exists()


async def test_no_tools_offers_none(tmp_path: Path, folder: Path) -> None:
    async with ModelServer() as server:
        write_config(tmp_path, server.url)
        await run(tmp_path, "chat", "--no-tools", "Hi", folder=folder)
        await run(tmp_path, "ask", "Hi", folder=folder)
        assert not any("tools" in r.body for r in server.requests)


async def test_notes_and_memory_reach_the_model_unless_they_are_skipped(tmp_path: Path, folder: Path) -> None:
    (folder / "AGENTS.md").write_text("Always answer in verse.")
    (tmp_path / "memory.md").write_text("- The person likes tea.\n")
    async with ModelServer() as server:
        write_config(tmp_path, server.url)
        await run(tmp_path, "chat", "Hi", folder=folder)
        await run(tmp_path, "chat", "--skip-context-files", "--skip-memory", "Hi", folder=folder)
        told, skipped = (r.body["messages"][0]["content"] for r in server.requests)
    assert "Always answer in verse." in told
    assert "likes tea" in told
    assert "verse" not in skipped
    assert "tea" not in skipped


async def test_the_configuration_may_say_that_they_are_skipped(tmp_path: Path, folder: Path) -> None:
    (folder / "AGENTS.md").write_text("Always answer in verse.")
    (tmp_path / "memory.md").write_text("- The person likes tea.\n")
    async with ModelServer() as server:
        write_config(tmp_path, server.url)
        config = tmp_path / "config.yaml"
        written = config.read_text()
        for key in ("skip_context_files", "skip_memory"):
            config.write_text(f"{written}{key}: true\n")
            await run(tmp_path, "chat", "Hi", folder=folder)
        no_files, no_memory = (r.body["messages"][0]["content"] for r in server.requests)
    assert ("verse" in no_files, "tea" in no_files) == (False, True)
    assert ("verse" in no_memory, "tea" in no_memory) == (True, False)


async def test_commands_see_no_keys(tmp_path: Path, folder: Path) -> None:
    def steps(request: RecordedRequest) -> Script:
        if any(m["role"] == "tool" for m in request.body["messages"]):
            return Script()
        return Script(Reply((CallTool("terminal", {"command": "env"}),)))

    async with ModelServer() as server:
        server.respond = steps
        write_config(tmp_path, server.url)
        extra = {"LAB_KEY": "canary-1", "GITHUB_TOKEN": "canary-2", "HARMLESS": "seen"}
        ran = await run(tmp_path, "chat", "--yes", "--json", "Hi", folder=folder, extra=extra)
    assert "canary" not in ran.out
    assert "HARMLESS=seen" in ran.out
    assert any(json.loads(line)["event"]["type"] == "tool_finished" for line in ran.out.splitlines())
    assert environment(tmp_path)


@pytest.mark.parametrize("path", ["../outside.md", "/etc/headrace-test", "link/outside.md"])
async def test_outside_the_folder_is_denied_and_not_even_asked(
    tmp_path: Path, folder: Path, path: str
) -> None:
    (folder / "link").symlink_to(tmp_path)

    def steps(request: RecordedRequest) -> Script:
        if any(m["role"] == "tool" for m in request.body["messages"]):
            return Script(Reply((Say("So be it."),)))
        return Script(Reply((CallTool("write_file", {"path": path, "content": "x"}),)))

    async with ModelServer() as server:
        server.respond = steps
        write_config(tmp_path, server.url)
        ran = await run(tmp_path, "chat", "--yes", "Hi", folder=folder)
    assert "outside the working folder" in ran.err
    assert not (tmp_path / "outside.md").exists()
