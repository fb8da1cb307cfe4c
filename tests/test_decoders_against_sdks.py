"""The official SDKs, fed the same bytes, agree on texts and tool arguments: an independent reading of the fixtures."""

import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from headrace.events import PartKind, PartStarted
from tests.pure.wire_helpers import Fixture, fixtures, texts


def transport(data: bytes, media_type: str) -> httpx2.MockTransport:
    headers = {"content-type": media_type}
    return httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=data))


def well_formed(protocol: str, *odd: str) -> list[Fixture]:
    """Streams with a good end; `odd` ones are beyond what the SDK reads."""
    return [f for f in fixtures(protocol) if f.streamed and f.expected.done and f.name not in odd]


def ours(fixture: Fixture, kind: PartKind) -> list[str]:
    events = fixture.expected.events
    parts = [e.part for e in events if isinstance(e, PartStarted) and e.kind == kind]
    grown = texts(events)
    return [grown.get(part, "") for part in sorted(parts)]


def read_openai(data: bytes) -> Any:
    with httpx2.Client(transport=transport(data, "text/event-stream")) as http:
        client = openai.OpenAI(api_key="k", base_url="http://model", http_client=http, max_retries=0)
        with client.responses.stream(model="m", input="?") as stream:
            for _ in stream:
                pass
            return stream.get_final_response()


def read_anthropic(data: bytes) -> Any:
    with httpx2.Client(transport=transport(data, "text/event-stream")) as http:
        client = anthropic.Anthropic(api_key="k", base_url="http://model", http_client=http, max_retries=0)
        messages: list[Any] = [{"role": "user", "content": "?"}]
        with client.messages.stream(model="m", max_tokens=9, messages=messages) as stream:
            return stream.get_final_message()


# What the SDK refuses, and (the first four) where it has nothing, since the terminal response repeats no items.
ODD_RESPONSES = (
    "arguments_respaced_in_item",
    "completed_output_empty",
    "no_event_line_done_marker",
    "text_done_differs",
    "call_ids_repeated",
    "call_never_done",
    "call_without_announcement",
    "completed_response_missing",
    "delta_without_announcement",
    "ids_changing",
    "incomplete_content_filter",
    "incomplete_max_output_tokens",
    "indexes_all_zero",
    "indexes_missing",
    "item_done_longer_than_deltas",
    "item_never_done",
    "surrogate_halves_in_deltas",
    "surrogate_lone_in_item",
    "think_tags_in_text",
    "unknown_events_and_items",
)
ODD_MESSAGES = ("no_event_line", "surrogates", "think_tags_in_text", "tool_use_cut_by_max_tokens")


@pytest.mark.parametrize("fixture", well_formed("responses", *ODD_RESPONSES), ids=str)
def test_the_openai_sdk_reads_the_same(fixture: Fixture) -> None:
    output = read_openai(fixture.data).output
    said = [
        content.text
        for item in output
        if item.type == "message"
        for content in item.content
        if content.type == "output_text"
    ]
    called = [item.arguments for item in output if item.type == "function_call"]
    called += [item.input for item in output if item.type == "custom_tool_call"]
    assert ours(fixture, "text") == said
    assert ours(fixture, "tool_call") == called


@pytest.mark.parametrize("fixture", well_formed("messages", *ODD_MESSAGES), ids=str)
def test_the_anthropic_sdk_reads_the_same(fixture: Fixture) -> None:
    content = read_anthropic(fixture.data).content
    assert ours(fixture, "text") == [block.text for block in content if block.type == "text"]
    assert [t for t in ours(fixture, "reasoning") if t] == [
        block.thinking for block in content if block.type == "thinking" and block.thinking
    ]
    called = [block.input for block in content if block.type == "tool_use"]
    assert [json.loads(text) for text in ours(fixture, "tool_call")] == called
