"""Clients for the model server: one on a bare socket that sees every byte, and the providers' own SDKs."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import anthropic
import msgspec
import openai

from headrace.testing.modelserver import (
    CallTool,
    ModelServer,
    Reply,
    Say,
    Script,
    Think,
    Usage,
)

PATHS = {
    "chat_completions": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
PROTOCOLS = list(PATHS)
REPLY = Reply(
    (
        Think("First I think.", signature="sig=="),
        Say("It is 21 °C, 晴れ."),
        CallTool("weather", {"city": "Kinlochleven"}),
        CallTool("clock", {"zone": "UTC"}, id="call_of_mine"),
    ),
    usage=Usage(input_tokens=100, output_tokens=50, reasoning_tokens=7, cache_read_tokens=30),
)
TEXT = "It is 21 °C, 晴れ."


class Seen(NamedTuple):
    head: str
    body: bytes
    """Still chunked, if it was."""
    reset: bool

    @property
    def status(self) -> int:
        return int(self.head.split(" ", 2)[1])

    @property
    def terminated(self) -> bool:
        return self.body.endswith(b"0\r\n\r\n")

    @property
    def data(self) -> bytes:
        """The body without its chunks."""
        if "chunked" not in self.head.lower():
            return self.body
        whole, rest = b"", self.body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            whole += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
        return whole

    @property
    def events(self) -> list[Any]:
        lines = [line[6:] for line in self.data.split(b"\n") if line.startswith(b"data: ")]
        return [line.decode() if line == b"[DONE]" else msgspec.json.decode(line) for line in lines]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.data)


async def dial(
    server: ModelServer, protocol: str = "chat_completions", headers: str = "", **body: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    payload = json.dumps({"model": "m", "messages": [], **body}).encode()
    head = f"POST {PATHS[protocol]} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}"
    writer.write(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
    return reader, writer


async def see(
    server: ModelServer, protocol: str = "chat_completions", headers: str = "", **body: Any
) -> Seen:
    """Everything until the server closes the connection, and how it did."""
    reader, writer = await dial(server, protocol, headers, **body)
    got, reset = b"", False
    try:
        while data := await reader.read(1 << 16):
            got += data
    except ConnectionResetError:
        reset = True
    writer.close()
    with contextlib.suppress(ConnectionResetError):
        await writer.wait_closed()
    head, _, rest = got.partition(b"\r\n\r\n")
    return Seen(head.decode(), rest, reset)


async def ask(server: ModelServer, script: Script, protocol: str, **body: Any) -> Seen:
    server.enqueue(script)
    return await see(server, protocol, **body)


@contextlib.asynccontextmanager
async def openai_sdk(server: ModelServer, retries: int = 0) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="k", max_retries=retries) as client:
        yield client


@contextlib.asynccontextmanager
async def anthropic_sdk(server: ModelServer) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0) as client:
        yield client


USER: Any = [{"role": "user", "content": "How is the weather?"}]


def is_delta(event: Any) -> bool:
    if "choices" in event:
        delta = event["choices"][0]["delta"]
        tools = delta.get("tool_calls") or [{}]
        arguments = tools[0].get("function", {}).get("arguments")
        return bool(delta.get("content") or delta.get("reasoning_content") or arguments)
    if event.get("type") == "content_block_delta":
        return bool({"text", "thinking"} & set(event["delta"]) or event["delta"].get("partial_json"))
    return str(event.get("type")).endswith("delta") and event["type"] != "message_delta"
