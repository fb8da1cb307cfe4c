"""The API door over real sockets: an App, its server, the model server behind it, and a client before it."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from headrace.app import App
from headrace.doors.api.server import Server
from headrace.limits import API_KEEPALIVE_S
from headrace.testing.modelserver import ModelServer
from tests.commands import environment

KEY = "a-key-for-the-tests"

CONFIG = """
model: lab:agent
providers:
  lab: {{base_url: '{url}/v1', auth: none, protocol: {protocol}}}
streaming: {{retries: {retries}, stall: {{first_event_s: 30, gap_s: 30}}}}
{more}
"""


@dataclass
class Api:
    app: App
    server: Server
    models: ModelServer
    client: aiohttp.ClientSession
    home: Path

    def url(self, path: str) -> str:
        return f"{self.server.url}{path}"

    async def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        async with self.client.post(self.url(path), json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.client.get(self.url(path)) as answer:
            return answer.status, await answer.json()

    async def delete(self, path: str) -> tuple[int, Any]:
        async with self.client.delete(self.url(path)) as answer:
            return answer.status, await answer.json()

    async def streamed(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Every event of an answer that ended as a stream of ours does; of a GET where there is no body."""
        method = "GET" if body is None else "POST"
        async with self.client.request(method, self.url(path), json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            assert answer.headers["X-Accel-Buffering"] == "no"
            return values(await answer.text())

    async def events(self, turn: str, after: int = 0) -> list[dict[str, Any]]:
        return await self.streamed(f"/v1/turns/{turn}/events?after={after}")


def values(text: str) -> list[dict[str, Any]]:
    """The data of every event but `[DONE]`."""
    data = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


def ask(content: str = "Hello?", model: str = "lab:m", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": content}], **more}


def content(chunks: list[dict[str, Any]], field: str = "content") -> str:
    return "".join(c["choices"][0]["delta"].get(field) or "" for c in chunks if c.get("choices"))


@asynccontextmanager
async def api(
    home: Path,
    *,
    more: str = "",
    protocol: str = "chat_completions",
    retries: int = 0,
    keepalive_s: float = API_KEEPALIVE_S,
) -> AsyncIterator[Api]:
    home.mkdir(parents=True, exist_ok=True)
    (home / "work").mkdir(exist_ok=True)
    async with ModelServer() as models:
        written = CONFIG.format(url=models.url, protocol=protocol, retries=retries, more=more)
        (home / "config.yaml").write_text(written)
        env = environment(home, {"HEADRACE_API_KEY": KEY})
        app = App.from_env(env)
        server = Server(app, env, home / "work", "127.0.0.1", 0, keepalive_s=keepalive_s)
        headers = {"Authorization": f"Bearer {KEY}"}
        try:
            await server.start()
            async with aiohttp.ClientSession(headers=headers) as client:
                yield Api(app, server, models, client, home)
        finally:
            await server.stop(0)
            await app.close()
