"""What each client makes of the bytes a failed stream could end with: see docs/decisions/0010-failed-streams.md."""

from typing import Any

import pytest

from tests.clients.canned import CHAT_STREAMS, ERROR, RESPONSES_STREAMS, STATUSES, TEXT
from tests.clients.clients import Client
from tests.clients.servers import CHOSEN_CHAT, CHOSEN_RESPONSES, Server

WHOLE = "".join(TEXT)
REFUSED = tuple(f"status-{status}" for status in STATUSES)
FINE = ("stop", "stop-done", "keepalive", "reasoning", "progress")
UNTRUE = "null-error"  # an answer that is whole, with an `error` that is null: one client loses it

# Who takes these for an answer that is whole. A door sends none of them.
SILENT = {
    ("chat", "finish-error"): {"openai", "langchain", "llm", "pydantic-ai", "openai-node", "ai-sdk"},
    ("chat", "eof"): {"openai", "langchain", "litellm", "llm", "pydantic-ai", "openai-node"},
    ("chat", "eof-done"): {"openai", "langchain", "litellm", "llm", "pydantic-ai", "openai-node"},
    ("responses", "failed"): {"llm"},
    ("responses", "failed-flat"): {"llm"},
    ("responses", "error-flat"): {"llm"},
    ("responses", "eof"): {"openai", "langchain", "llm", "pydantic-ai", "openai-node", "ai-sdk"},
}


def ask(client: Client, server: Server, recipe: str, mode: str) -> dict[str, Any]:
    """One answer, to one request: no client asks again by itself."""
    server.requests.clear()
    answer = client.ask(base_url=server.base_url, key=server.key, model=recipe, mode=mode)
    assert server.requests[recipe] == 1, (recipe, mode, server.requests)
    return answer


def mode_for(recipe: str, api: str) -> str:
    return f"{api}-tools-stream" if recipe == "tool-calls" or "mid-call" in recipe else f"{api}-stream"


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_answer_that_is_whole_is_one_whatever_stands_around_it(
    client: Client, canned: Server, api: str
) -> None:
    recipes = CHAT_STREAMS if api == "chat" else RESPONSES_STREAMS
    for recipe in FINE:
        if recipe in recipes:
            answer = ask(client, canned, recipe, mode_for(recipe, api))
            assert answer["ok"], (recipe, answer)
            assert answer["text"] == WHOLE, (recipe, answer)


def test_an_error_that_is_null_is_one_to_some(client: Client, canned: Server) -> None:
    assert ask(client, canned, UNTRUE, "chat-stream")["ok"] == (client.name != "ai-sdk")


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_who_takes_which_ending_for_success(client: Client, canned: Server, api: str) -> None:
    recipes = CHAT_STREAMS if api == "chat" else RESPONSES_STREAMS
    failures = [
        *(r for r in recipes if r not in (*FINE, UNTRUE, "length", "content-filter", "tool-calls")),
        *REFUSED,
    ]
    taken = {recipe: ask(client, canned, recipe, mode_for(recipe, api))["ok"] for recipe in failures}
    silent = {recipe for recipe, ok in taken.items() if ok}
    assert silent == {recipe for (kind, recipe), who in SILENT.items() if kind == api and client.name in who}


@pytest.mark.parametrize(("api", "chosen"), [("chat", CHOSEN_CHAT), ("responses", CHOSEN_RESPONSES)])
@pytest.mark.parametrize("when", ["", "-early", "-mid-call"])
def test_the_chosen_ending_is_a_failure_with_its_words(
    client: Client, canned: Server, api: str, chosen: str, when: str
) -> None:
    recipe = chosen + when
    answer = ask(client, canned, recipe, mode_for(recipe, api))
    assert not answer["ok"]
    assert str(ERROR["message"]) in answer["error"]
    if not when:
        assert answer["text"] == WHOLE, "what was said before stays"


@pytest.mark.parametrize("client", ["openai", "openai-node"], indirect=True)
def test_a_helper_that_builds_the_answer_fails_as_well(client: Client, canned: Server) -> None:
    for mode in sorted(client.modes & {"chat-helper", "responses-helper"}):
        api = mode.partition("-")[0]
        assert ask(client, canned, "stop", mode)["text"] == WHOLE
        answer = ask(client, canned, CHOSEN_CHAT if api == "chat" else CHOSEN_RESPONSES, mode)
        assert not answer["ok"]
        assert str(ERROR["message"]) in answer["error"]
