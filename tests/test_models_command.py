"""`headrace models`: what is configured and known, and what a provider says it serves."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from headrace.config.known import READY_MADE
from headrace.doors.terminal.models import list_known, list_served
from headrace.errors import CallError, ConfigError
from headrace.providers import model_list
from headrace.providers.http import Endpoint, HttpClient
from headrace.providers.model_list import ModelList
from headrace.runtime.clock import SystemClock
from headrace.testing.modelserver import ModelServer
from headrace.views.models import EmbeddedModel, Known, ModelRow, ProviderRow, known_lines, served_lines

CANARY = "Kanarienvogel7Xq2Zt9Lm4"
EMBEDDED = [
    EmbeddedModel("default", 491_400_064, True, "Qwen2.5-Coder-0.5B"),
    EmbeddedModel("larger", 1_117_320_768, False, "Qwen2.5-Coder-1.5B"),
]
CONFIG = f"""
model: openai:gpt-5.5
fallback_models: [local, house:x, local]
providers:
  house: {{base_url: "http://h:1/{CANARY}", headers: {{X-Key: "{CANARY}"}}, api_key_env: HOUSE_KEY}}
models:
  house:x: {{streams: false, max_tokens: 9, think: auto}}
  ollama:q: {{think: off}}
"""


def known(home: Path, text: str = "", *, as_json: bool = False, **env: str) -> str:
    (home / "config.yaml").write_text(text, encoding="utf-8")
    out = io.StringIO()
    assert list_known(home, env, EMBEDDED, out, as_json=as_json) == 0
    assert CANARY not in out.getvalue()
    return out.getvalue()


# --- what is known here -------------------------------------------------------------------------------


def test_the_table_holds_what_is_configured_and_known(tmp_path):
    lines = known(tmp_path, CONFIG, OPENAI_API_KEY=CANARY).splitlines()
    assert lines[:7] == [
        "Configured",
        "* openai:gpt-5.5  model",
        "* local           fallback 1",
        "* house:x         fallback 2  max_tokens: 9, streams: false",
        "  ollama:q                    think: off",
        "",
        "Providers",
    ]
    rows = [" ".join(line.split()) for line in lines[7:]]
    assert "* openai api.openai.com responses OPENAI_API_KEY is set" in rows
    assert "ollama 127.0.0.1:11434 chat_completions no key needed" in rows
    assert "* house h:1 chat_completions HOUSE_KEY is not set" in rows
    assert lines[-3:] == [
        "Embedded",
        "  default  491 MB  installed      Qwen2.5-Coder-0.5B",
        "  larger   1.1 GB  not installed  Qwen2.5-Coder-1.5B",
    ]


def test_without_a_configuration_the_ready_made_providers_are_known(tmp_path):
    text = known(tmp_path)
    assert "so the embedded model answers" in text
    assert all(f"  {name} " in text for name in READY_MADE)
    assert "*" not in text


def test_the_same_for_a_program(tmp_path):
    value = json.loads(known(tmp_path, CONFIG, as_json=True, OPENAI_API_KEY=CANARY))
    assert [(row["name"], row["role"]) for row in value["models"]] == [
        ("openai:gpt-5.5", "model"),
        ("local", "fallback 1"),
        ("house:x", "fallback 2"),
        ("ollama:q", ""),
    ]
    assert value["models"][2]["settings"] == {"max_tokens": 9, "streams": False}
    providers = {row["name"]: row for row in value["providers"]}
    assert providers["house"] == {
        "name": "house",
        "ready_made": False,
        "in_use": True,
        "protocol": "chat_completions",
        "host": "h:1",
        "variables": {"HOUSE_KEY": False},
    }
    assert providers["openai"]["variables"] == {"OPENAI_API_KEY": True}
    assert value["embedded"][1] == {
        "name": "larger",
        "size_bytes": 1_117_320_768,
        "installed": False,
        "about": "Qwen2.5-Coder-1.5B",
    }


def test_a_wrong_configuration_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="unknown key"):
        known(tmp_path, "modle: local")


def test_no_text_of_others_controls_the_terminal():
    row = ProviderRow("a", ready_made=True, in_use=False, protocol="messages", host="h", variables=())
    lines = known_lines(
        Known([ModelRow("x:\x1b[2J", "model", {})], [row], [EmbeddedModel("e\n", 1, True, "\x9b")])
    )
    assert all(line.isprintable() for line in [*lines, *served_lines("p", ["a\x1b]0;b\x07\nc\td"])])


# --- what a provider serves ---------------------------------------------------------------------------


class Told(NamedTuple):
    out: str
    err: str


async def served(home: Path, base_url: str, *, as_json: bool = False, **keys: str) -> Told:
    lines = [
        f"providers:\n  lab:\n    base_url: {base_url}",
        *(f"    {key}: {value}" for key, value in keys.items()),
    ]
    (home / "config.yaml").write_text("\n".join(lines), encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    env = {"LAB_KEY": CANARY}
    assert await list_served(home, env, "lab", out, err, as_json=as_json) == 0
    return Told(out.getvalue(), err.getvalue())


async def failed(home: Path, base_url: str, **keys: str) -> CallError:
    with pytest.raises(CallError) as caught:
        await served(home, base_url, **keys)  # type: ignore[arg-type]
    assert CANARY not in str(caught.value)
    assert str(caught.value).startswith("lab: ")
    return caught.value


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[str]:
    """A server of which `handler` is all; gives its base_url."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def sending(value: Any, status: int = 200) -> Handler:
    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        if isinstance(value, str):
            return web.Response(text=value, status=status, content_type="text/html")
        return web.json_response(value, status=status)

    return handler


@pytest.mark.parametrize("protocol", ["chat_completions", "responses", "messages"])
async def test_a_provider_lists_what_it_serves(tmp_path, protocol):
    async with ModelServer() as server:
        told = await served(tmp_path, f"{server.url}/v1", protocol=protocol)
    lines = told.out.splitlines()
    assert lines == sorted(lines)
    assert "lab:scripted" in lines
    assert len(lines) == len(server.scenarios) + 1
    assert told.err == ""


async def test_the_list_for_a_program(tmp_path):
    async with ModelServer() as server:
        told = await served(tmp_path, f"{server.url}/v1", as_json=True)
    value = json.loads(told.out)
    assert (value["provider"], value["more"]) == ("lab", False)
    assert "scripted" in value["models"]


@pytest.mark.parametrize(
    ("protocol", "header", "sent", "query"),
    [
        ("chat_completions", "Authorization", f"Bearer {CANARY}", ""),
        ("messages", "x-api-key", CANARY, "limit=1000"),
    ],
)
async def test_the_key_is_sent_as_in_a_question(tmp_path, protocol, header, sent, query):
    seen = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append((request.method, request.path, request.query_string, request.headers.get(header)))
        return web.json_response({"data": [{"id": "m"}]})

    async with answering(handler) as url:
        told = await served(tmp_path, url, protocol=protocol, api_key_env="LAB_KEY", headers="{X-Team: blue}")
    assert seen == [("GET", "/v1/models", query, sent)]
    assert told == Told("lab:m\n", "")


@pytest.mark.parametrize(
    ("value", "out", "err"),
    [
        ([{"id": "b"}, {"id": "a"}, {"id": "b"}], "lab:a\nlab:b\n", ""),
        ({"data": [{"id": "a", "x": 1}, {}, "b", {"id": 7}, {"id": ""}, None]}, "lab:a\n", ""),
        ({"data": [{"id": "a"}], "has_more": True}, "lab:a\n", "lab has more models than these.\n"),
        ({"data": []}, "", "lab lists no models.\n"),
        ({"data": [{"id": "a\x1b[2J\nb"}]}, "lab:a [2J b\n", ""),
    ],
)
async def test_lists_come_in_several_forms(tmp_path, value, out, err):
    async with answering(sending(value)) as url:
        assert await served(tmp_path, url) == Told(out, err)


async def test_a_list_without_end_is_cut(tmp_path):
    value = {"data": [{"id": f"m{number}"} for number in range(model_list.MODEL_LIST_MAX + 1)]}
    async with answering(sending(value)) as url:
        told = await served(tmp_path, url)
    assert len(told.out.splitlines()) == model_list.MODEL_LIST_MAX
    assert "more models" in told.err


@pytest.mark.parametrize(
    ("handler", "code", "words"),
    [
        (sending({"error": {"message": f"bad key {CANARY}"}}, 401), "key_rejected", "bad key [secret]"),
        (sending({"error": {"message": "no such page"}}, 404), "provider_error", "can be used all the same"),
        (sending({"error": {"message": "busy"}}, 503), "overloaded", "busy"),
        (sending("<html>hello</html>"), "malformed_stream", "Check its base_url"),
        (sending({"models": []}), "malformed_stream", "Check its base_url"),
        (
            sending({"data": [{"id": "x" * (model_list.MODEL_LIST_MAX_BYTES + 1)}]}),
            "malformed_stream",
            "larger than 8 MiB",
        ),
    ],
)
async def test_failures_are_told_in_plain_words(tmp_path, handler, code, words):
    async with answering(handler) as url:
        failure = await failed(tmp_path, url, api_key_env="LAB_KEY")
    assert failure.cause.code == code
    assert words in failure.cause.message
    assert "stream" not in failure.cause.message


async def test_a_redirect_is_told_and_not_followed(tmp_path):
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=301, headers={"Location": "https://elsewhere.example"})

    async with answering(handler) as url:
        failure = await failed(tmp_path, url, api_key_env="LAB_KEY")
    assert failure.cause.code == "config_invalid"
    assert "https://elsewhere.example" in failure.cause.message


async def test_a_provider_that_is_not_there_is_told(tmp_path, unused_tcp_port):
    failure = await failed(tmp_path, f"http://127.0.0.1:{unused_tcp_port}/v1")
    assert failure.cause.code == "connect_failed"


async def test_a_provider_that_says_nothing_more_is_not_waited_for_long():
    let_go = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"data": [')
        await let_go.wait()
        return response

    client = HttpClient(SystemClock())
    async with answering(handler) as url:
        asked = ModelList(Endpoint(name="lab", protocol="responses", base_url=url), client)
        with pytest.raises(CallError, match="lab: It did not answer within 0.1 s") as caught:
            await asked.served(patience_s=0.1)
        let_go.set()
    await client.close()
    assert caught.value.cause.code == "stalled_total"


async def test_a_provider_without_its_key_is_not_asked(tmp_path):
    (tmp_path / "config.yaml").write_text("model: openai:x")
    with pytest.raises(ConfigError, match="export OPENAI_API_KEY="):
        await list_served(tmp_path, {}, "openai", io.StringIO(), io.StringIO())


@pytest.mark.parametrize(("name", "words"), [("opneai", "openai"), ("local", "no provider with an address")])
async def test_a_provider_that_is_not_known_is_refused(tmp_path, name, words):
    with pytest.raises(ConfigError, match=words):
        await list_served(tmp_path, {}, name, io.StringIO(), io.StringIO())
