"""A hundred agents in one process: each has its own text, folder, key and session, and sees nobody else's."""

import asyncio
import re
from pathlib import Path

from headrace import events
from headrace.app import App
from headrace.events import user_message
from headrace.runtime.question import Acting
from headrace.stores.sqlite import SessionStore
from headrace.testing.modelserver import CallTool, ModelServer, RecordedRequest, Reply, Say, Script
from tests.commands import environment

COUNT = 100
CANARY = re.compile(r"(canary|secret|folder)-(\d+)-")


def config(url: str) -> str:
    providers = [f'  p{n}: {{base_url: "{url}/v1", api_key_env: KEY_{n}}}' for n in range(COUNT)]
    return "\n".join(["providers:", *providers, "tools: {modes: {terminal: allow, write_file: allow}}", ""])


def model(request: RecordedRequest) -> Script:
    """Looks around with every tool, says what it saw, and goes on for a second turn."""
    said = [m for m in request.body["messages"] if m["role"] == "tool"]
    if request.body["messages"][-1]["role"] == "tool":
        return Script(Reply((Say(("I saw ", *(m["content"] for m in said))),)), pace_s=0.001)
    calls = (
        CallTool("terminal", {"command": "pwd; cat note.txt; env"}),
        CallTool("write_file", {"path": "seen.txt", "content": request.body["messages"][-1]["content"]}),
        CallTool("search_files", {"pattern": "canary"}),
    )
    return Script(Reply(calls), pace_s=0.001)


async def test_a_hundred_at_once_never_see_each_other(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with ModelServer() as server:
        server.respond = model
        (home / "config.yaml").write_text(config(server.url))
        keys = {f"KEY_{n}": f"secret-{n}-{'x' * 16}" for n in range(COUNT)}
        app = App.from_env(environment(home, keys))

        async def person(n: int) -> None:
            folder = tmp_path / f"folder-{n}-"
            folder.mkdir()
            (folder / "note.txt").write_text(f"canary-{n}-note\n")
            session = app.session(f"s{n}")
            for place in ("first", "second"):
                message = user_message(f"canary-{n}-{place}")
                turn = app.start([message], f"p{n}:m{n}", session, acting=Acting(folder=folder))
                assert (await turn.wait()).outcome == "stop"

        await asyncio.gather(*(person(n) for n in range(COUNT)))
        await app.close()
        requests = list(server.requests)

    assert len(requests) == COUNT * 4
    for request in requests:
        (own,) = {n for _, n in CANARY.findall(request.headers["authorization"])}
        assert request.body["model"] == f"m{own}"
        told = str(request.body["messages"])
        assert {n for _, n in CANARY.findall(told)} == {own}
        assert "secret-" not in told
    store = SessionStore(home)
    for n in range(COUNT):
        turns = list(store.turns(f"s{n}"))
        assert len(turns) == 2
        text = "".join(events.encode(r).decode() for entries in turns for r in entries)
        assert {own for _, own in CANARY.findall(text)} == {str(n)}
        assert "secret-" not in text
        assert (tmp_path / f"folder-{n}-" / "seen.txt").read_text() == f"canary-{n}-second"
    store.close()
