"""What a peer can make a decoder hold: however a hostile stream goes on, memory stays within a bound."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from headrace.limits import MIB
from headrace.wire import chat_completions, messages, responses
from headrace.wire.dialect import Dialect
from tests.pure.wire_helpers import AnyDecoder, MakeDecoder

BIG = "x" * (4 * MIB)
FED = 160 * MIB
HELD_MOST = 128 * MIB

Event = dict[str, Any]
Goes = Callable[[int], list[Event]]
"""The events of round `n`; every one of them is new."""


# --- chat completions


def delta(**fields: Any) -> list[Event]:
    return [{"choices": [{"index": 0, "delta": fields}]}]


def tool(n: int, **fields: Any) -> list[Event]:
    return delta(tool_calls=[{"index": n, **fields}])


CHAT: dict[str, Goes] = {
    "text": lambda n: delta(content=BIG),
    "white space at the start": lambda n: delta(content=" " * len(BIG)),
    "refusal": lambda n: delta(refusal=BIG),
    "unknown fields": lambda n: delta(**{f"field{n}": BIG}),
    "reasoning details": lambda n: delta(reasoning_details=[{"x": BIG}]),
    "ids of calls": lambda n: tool(n, id=f"{n}{BIG}"),
    "ids of named calls": lambda n: tool(n, id=f"{n}{BIG}", function={"name": "f", "arguments": "{}"}),
    "late ids of calls": lambda n: [*tool(n, function={"name": "f"}), *tool(n, id=f"{n}{BIG}")],
    "arguments": lambda n: tool(n, function={"name": "f", "arguments": BIG}),
    "nameless arguments": lambda n: tool(n, function={"arguments": BIG}),
    "unknown fields of a call": lambda n: tool(0, id="a", **{f"field{n}": BIG}),
    "usage": lambda n: [{"choices": [], "usage": {f"field{n}": BIG}}],
    "model": lambda n: [{**event, "model": f"{n}{BIG}"} for event in delta(content="")],
    "what is ignored": lambda n: [{"choices": [], "x": f"{n}{BIG}"}],
}


# --- messages


def block(n: int, **fields: Any) -> Event:
    return {"type": "content_block_start", "index": n, "content_block": fields}


def whole(n: int, **fields: Any) -> list[Event]:
    return [block(n, **fields), {"type": "content_block_stop", "index": n}]


def grows(kind: str, **fields: Any) -> list[Event]:
    return [{"type": "content_block_delta", "index": 0, "delta": {"type": kind, **fields}}]


def first(n: int, opening: Event, then: list[Event]) -> list[Event]:
    return [opening, *then] if n == 0 else then


TEXT_BLOCK, THINKING_BLOCK = block(0, type="text", text=""), block(0, type="thinking", thinking="")
MESSAGES: dict[str, Goes] = {
    "text": lambda n: first(n, TEXT_BLOCK, grows("text_delta", text=BIG)),
    "thinking": lambda n: first(n, THINKING_BLOCK, grows("thinking_delta", thinking=BIG)),
    "signatures": lambda n: first(n, THINKING_BLOCK, grows("signature_delta", signature=f"{n}{BIG}")),
    "citations": lambda n: first(n, TEXT_BLOCK, grows("citations_delta", citation={"text": f"{n}{BIG}"})),
    "unknown text": lambda n: first(n, block(0, type="odd"), grows("odd_delta", data=BIG)),
    "unknown fields": lambda n: first(n, block(0, type="odd"), grows("odd_delta", **{f"field{n}": BIG})),
    "input": lambda n: first(n, block(0, type="odd"), grows("input_json_delta", partial_json=BIG)),
    "open blocks": lambda n: [block(n, type="odd", x=BIG)],
    "blocks": lambda n: whole(n, type="odd", x=BIG),
    "redacted thinking": lambda n: whole(n, type="redacted_thinking", data=BIG),
    "calls": lambda n: whole(n, type="tool_use", id=f"t{n}", name="f", input={"x": BIG}),
    "ids of calls": lambda n: [block(n, type="tool_use", id=f"{n}{BIG}", name="f", input={})],
    "usage": lambda n: [{"type": "message_delta", "delta": {}, "usage": {f"field{n}": BIG}}],
    "model": lambda n: [{"type": "message_start", "message": {"model": f"{n}{BIG}"}}],
    "what is ignored": lambda n: [{"type": "ping", "x": f"{n}{BIG}"}],
}


# --- responses


def grown(what: str, n: int, **fields: Any) -> list[Event]:
    return [{"type": f"response.{what}.delta", "output_index": n, "delta": BIG, **fields}]


def item(step: str, n: int, **fields: Any) -> list[Event]:
    return [{"type": f"response.output_item.{step}", "output_index": n, "item": {"id": f"i{n}", **fields}}]


RESPONSES: dict[str, Goes] = {
    "text": lambda n: grown("output_text", 0),
    "contents": lambda n: grown("output_text", 0, content_index=n),
    "thinking": lambda n: grown("reasoning_summary_text", 0, summary_index=n),
    "input of nameless calls": lambda n: grown("custom_tool_call_input", n),
    "arguments of nameless calls": lambda n: grown("function_call_arguments", n),
    "calls": lambda n: item("done", n, type="function_call", name="f", arguments=json.dumps({"x": BIG})),
    "ids of calls": lambda n: item("added", n, type="function_call", name="f", call_id=f"{n}{BIG}"),
    "reasoning": lambda n: item("done", n, type="reasoning", summary=[], encrypted_content=BIG),
    "items": lambda n: item("done", n, type="odd", x=BIG),
    "announcements": lambda n: item("added", n, type="odd", x=BIG),
    "ids of items": lambda n: item("added", n, type="odd", id=f"{n}{BIG}"),
    "ids in one place": lambda n: item("done", 0, type="odd", id=f"{n}{BIG}"),
    "ids that change": lambda n: [
        *item("added", n, type="odd", id=f"a{n}"),
        *item("done", n, type="odd", id=f"{n}{BIG}"),
    ],
    "usage and model": lambda n: [
        {"type": "response.created", "response": {"model": f"{n}{BIG}", "usage": {f"field{n}": BIG}}}
    ],
    "what is ignored": lambda n: [{"type": "response.odd", "x": f"{n}{BIG}"}],
}

MARKUP = Dialect(think="anywhere", tool_markup="hermes")
CASES: list[Any] = [
    *(pytest.param(chat_completions.Decoder, goes, id=f"chat: {name}") for name, goes in CHAT.items()),
    *(pytest.param(messages.Decoder, goes, id=f"messages: {name}") for name, goes in MESSAGES.items()),
    *(pytest.param(responses.Decoder, goes, id=f"responses: {name}") for name, goes in RESPONSES.items()),
    pytest.param(
        partial(chat_completions.Decoder, dialect=MARKUP, tools={"f": {}}),
        lambda n: delta(content=f"<tool_call>{BIG}" if n == 0 else BIG),
        id="chat: markup that never ends",
    ),
]


def rounds(goes: Goes) -> Iterator[bytes]:
    for n in range(FED // len(BIG)):
        yield b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in goes(n))


@pytest.mark.parametrize(("make", "goes"), CASES)
def test_what_is_held_has_a_bound(make: MakeDecoder, goes: Goes) -> None:
    """The events count as held too: whoever is told them keeps them."""
    decoder: AnyDecoder = make()
    told: list[Any] = []
    tracemalloc.start()
    try:
        for data in rounds(goes):
            told += decoder.feed(data)
            if decoder.failure is not None:
                break
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < HELD_MOST
    assert decoder.failure is None or decoder.failure.cause.code == "malformed_stream"
