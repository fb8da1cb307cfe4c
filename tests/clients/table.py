"""What every client makes of every ending: `.venv-clients/bin/python -m tests.clients.table` prints it as Markdown."""

import json
import sys
from collections.abc import Iterable
from importlib.metadata import version

from tests.clients.canned import CHAT_STREAMS, RESPONSES_STREAMS
from tests.clients.clients import NAMES, NODE, PYTHON_DRIVERS, Client, missing
from tests.clients.servers import Server, canned_server

PACKAGES = {"pydantic-ai": "pydantic-ai-slim", "langchain": "langchain-openai"}
FINE = ("stop", "stop-done", "keepalive", "reasoning", "progress", "length", "content-filter", "tool-calls")


def main() -> None:
    names = [name for name in NAMES if not missing(name)]
    clients = [Client(name) for name in names]
    try:
        with canned_server() as server:
            for api, recipes in (("chat", CHAT_STREAMS), ("responses", RESPONSES_STREAMS)):
                _row([f"{api}, streaming", *(f"{name} {_version(name)}" for name in names)])
                _row(["---"] * (1 + len(names)))
                for recipe in (recipe for recipe in recipes if recipe not in FINE):
                    _row([f"`{recipe}`", *(_cell(client, server, api, recipe) for client in clients)])
                _row([])
    finally:
        for client in clients:
            client.stop()


def _cell(client: Client, server: Server, api: str, recipe: str) -> str:
    mode = f"{api}-tools-stream" if "mid-call" in recipe else f"{api}-stream"
    answer = client.ask(base_url=server.base_url, key=server.key, model=recipe, mode=mode)
    return "fails" if not answer["ok"] else f"**well**, {answer['finish']}"


def _row(cells: Iterable[str]) -> None:
    cells = list(cells)
    sys.stdout.write(f"| {' | '.join(cells)} |\n" if cells else "\n")


def _version(name: str) -> str:
    if name in PYTHON_DRIVERS:
        return version(PACKAGES.get(name, name))
    locked = json.loads((NODE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    package = {"openai-node": "openai", "ai-sdk": "ai"}[name]
    return str(locked[f"node_modules/{package}"]["version"])


if __name__ == "__main__":
    main()
