"""Decoding: CPU per chunk of each decoder, against the official SDKs and httpx-sse in the same run.

The references read the same bytes from memory through their own client stacks, so no socket is in the figures; both
sides start from reads of 64 KiB.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import httpx_sse
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from bench import streams
from bench.measure import cpu_us, table
from headrace.wire import chat_chunks, chat_completions, messages, responses, sse

TOKENS = 20_000
QUESTION = [{"role": "user", "content": "?"}]


class _Memory(httpx2.AsyncByteStream):
    def __init__(self, stream: bytes) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for read in streams.reads(self._stream):
            yield read


def _transport(stream: bytes) -> httpx2.AsyncClient:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=_Memory(stream))

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


async def _openai_chat(stream: bytes) -> int:
    client = AsyncOpenAI(api_key="none", base_url="http://memory/v1", http_client=_transport(stream))
    answer: Any = await client.chat.completions.create(model="m", messages=QUESTION, stream=True)  # type: ignore[arg-type]
    return len([None async for _ in answer])


async def _openai_responses(stream: bytes) -> int:
    client = AsyncOpenAI(api_key="none", base_url="http://memory/v1", http_client=_transport(stream))
    answer = await client.responses.create(model="m", input="?", stream=True)
    return len([None async for _ in answer])


async def _anthropic(stream: bytes) -> int:
    client = AsyncAnthropic(api_key="none", base_url="http://memory", http_client=_transport(stream))
    answer: Any = await client.messages.create(model="m", max_tokens=9, messages=QUESTION, stream=True)  # type: ignore[arg-type]
    return len([None async for _ in answer])


def _httpx_sse(stream: bytes) -> int:
    decoder = httpx_sse._decoders.SSEDecoder()  # noqa: SLF001
    count = 0
    for line in stream.decode().splitlines():
        count += decoder.decode(line) is not None
    return count


def _ours(decoder: Callable[[], object], stream: bytes) -> Callable[[], None]:
    pieces = streams.reads(stream)

    def work() -> None:
        reader = decoder()
        for piece in pieces:
            reader.feed(piece)  # type: ignore[attr-defined]
        reader.close()  # type: ignore[attr-defined]
        assert reader.done  # type: ignore[attr-defined]

    return work


def _sse_only(stream: bytes) -> Callable[[], None]:
    pieces = streams.reads(stream)

    def work() -> None:
        decoder = sse.Decoder()
        for piece in pieces:
            decoder.feed(piece, [])

    return work


def run() -> None:
    chat, mess, resp = (f(TOKENS) for f in (streams.chat_completions, streams.messages, streams.responses))
    rows: list[tuple[str, float, str, float, str]] = []

    def compare(name: str, ours: Callable[[], object], reference: str, theirs: Callable[[], object]) -> None:
        us, them = cpu_us(ours, TOKENS), cpu_us(theirs, TOKENS, repeats=2)
        rows.append((name, us, reference, them, f"1/{them / us:.0f}"))

    compare("chat_completions", _ours(chat_completions.Decoder, chat), "openai SDK",
            lambda: asyncio.run(_openai_chat(chat)))  # fmt: skip
    compare(
        "responses",
        _ours(responses.Decoder, resp),
        "openai SDK",
        lambda: asyncio.run(_openai_responses(resp)),
    )
    compare("messages", _ours(messages.Decoder, mess), "anthropic SDK", lambda: asyncio.run(_anthropic(mess)))
    compare("sse alone", _sse_only(chat), "httpx-sse", lambda: _httpx_sse(chat))
    table("Decoding, CPU us per chunk", ("decoder", "headrace", "reference", "reference's", "ratio"), rows)

    chunks = chat_chunks.Chunks("chatcmpl-1", 1763500000, "headrace")
    texts = streams.words(TOKENS)
    encode = cpu_us(lambda: [chunks.content(text) for text in texts], TOKENS)
    table("Encoding, CPU us per chunk", ("encoder", "headrace"), [("chat chunk as an event", encode)])


def curve() -> None:
    """Cost against the length of the answer: it has to be flat."""
    rows = []
    base: dict[str, float] = {}
    for tokens in (1_000, 3_000, 10_000, 30_000, 100_000):
        row: list[object] = [f"{tokens:,} tokens"]
        for module in (chat_completions, responses, messages):
            name = module.__name__.rsplit(".", 1)[1]
            stream = getattr(streams, name)(tokens)
            cost = cpu_us(_ours(module.Decoder, stream), tokens, repeats=max(5, 100_000 // tokens // 4))
            row += [cost, cost / base.setdefault(name, cost)]
        rows.append(row)
    table("Decoding against length, CPU us per token and its ratio to 1,000 tokens",
          ("answer", "chat", "x", "responses", "x", "messages", "x"), rows)  # fmt: skip
