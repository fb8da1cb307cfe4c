"""Every fault upstream, by every API and in both ways: a client reports failure as failure and success as success."""

import pytest

from tests.clients.clients import Client
from tests.clients.servers import FAULTS, Fault, Server

MODES = ("chat", "chat-stream", "responses", "responses-stream")

# How the clients spell what an answer ended with.
FINISHES = {
    "stop": {"stop", "completed"},
    "length": {"length", "incomplete", "incomplete: max_output_tokens"},
    "content_filter": {"content_filter", "content-filter", "incomplete", "incomplete: content_filter"},
    "tool_calls": {"tool_calls", "tool-calls", "tool_call", "stop", "completed"},
}


def keeps_no_end(client: Client, fault: Fault, mode: str) -> bool:
    """`llm` keeps the text of a response that was streamed and is incomplete, and nothing else of it."""
    return (
        client.name == "llm" and mode == "responses-stream" and fault.outcome in ("length", "content_filter")
    )


def needs_counts(client: Client, fault: Fault, mode: str) -> bool:
    """`llm` cannot read an answer in one piece that does not know its token counts; unknown is not told as zero."""
    return client.name == "llm" and mode == "chat" and fault.scenario == "no-done"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.scenario)
def test_a_client_reports_what_happened(client: Client, server: Server, fault: Fault, mode: str) -> None:
    if needs_counts(client, fault, mode):
        pytest.skip("llm fails where the counts are unknown")
    if fault.tools:
        mode = mode.replace("chat", "chat-tools").replace("responses", "responses-tools")
    answer = client.ask(base_url=server.base_url, key=server.key, model=server.model(fault, mode), mode=mode)
    if fault.outcome == "failure":
        assert not answer["ok"], answer
        assert answer["error"], "a failure without a word"
        assert answer["finish"] in (None, "error", "failed"), "it failed, and ended well"
        if fault.when == "mid-text" and mode.endswith("stream"):
            assert answer["text"], "what was said before is gone"
        return
    assert answer["ok"], answer
    if fault.tools:
        assert answer["tool_calls"][0]["name"] == "weather"
        assert "Kinlochleven" in answer["tool_calls"][0]["arguments"]
    else:
        assert answer["text"]
    if not keeps_no_end(client, fault, mode):
        assert answer["finish"] in FINISHES[fault.outcome], answer
        assert answer["usage"] or fault.scenario == "no-done", "usage was asked for"
