"""Who may ask the API, and how much."""

import asyncio
import io
import json
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import fastjsonschema
import pytest

from headrace.app import App
from headrace.doors.api.openapi import description
from headrace.doors.api.server import Server
from headrace.errors import ConfigError, UserError
from headrace.limits import API_BODY_MAX_BYTES, API_WRONG_KEYS
from headrace.testing.modelserver import scenario
from tests.apiserver import KEY, Api, api, ask
from tests.commands import environment, run, write_config

CHAT = "/v1/chat/completions"


async def get(served: Api, path: str = "/v1/models", **headers: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as bare, bare.get(served.url(path), headers=headers) as answer:
        return answer.status, dict(answer.headers)


async def test_every_request_needs_the_key_but_whether_it_is_up(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        for path in ("/v1/models", "/v1/turns", "/v1/sessions", "/metrics", "/openapi.json", "/nothing"):
            assert (await get(served, path))[0] == 401
            assert (await get(served, path, Authorization="Bearer wrong"))[0] == 401
        assert (await get(served, "/health"))[0] == 200
        assert (await get(served, Authorization=f"Bearer {KEY}"))[0] == 200
        assert (await get(served, **{"x-api-key": KEY}))[0] == 200
        assert (await get(served, Authorization="Bearer schlüssel"))[0] == 401


async def test_who_guesses_has_to_wait_and_who_knows_does_not(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        answers = [await get(served, Authorization=f"Bearer {n}") for n in range(API_WRONG_KEYS + 2)]
        assert answers[-1][0] == 429
        assert int(answers[-1][1]["Retry-After"]) >= 1
        assert (await get(served, Authorization=f"Bearer {KEY}"))[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:1", 200), ("[::1]", 200), ("evil.example", 403), ("", 403)],
)
async def test_a_name_that_is_not_ours_is_refused(tmp_path: Path, host: str, status: int) -> None:
    async with api(tmp_path) as served:
        assert (await get(served, Host=host, Authorization=f"Bearer {KEY}"))[0] == status


async def test_a_configured_name_is_ours(tmp_path: Path) -> None:
    async with api(tmp_path, more="api: {hosts: [box.lan]}") as served:
        assert (await get(served, Host="BOX.lan:8700", Authorization=f"Bearer {KEY}"))[0] == 200


async def test_pages_of_others_may_not_ask_unless_allowed(tmp_path: Path) -> None:
    async with api(tmp_path, more="api: {origins: ['https://chat.example.org']}") as served:
        key = {"Authorization": f"Bearer {KEY}"}
        status, headers = await get(served, Origin="https://evil.example", **key)
        assert status == 403
        assert "Access-Control-Allow-Origin" not in headers
        status, headers = await get(served, Origin="https://chat.example.org", **key)
        assert (status, headers["Access-Control-Allow-Origin"]) == (200, "https://chat.example.org")
        assert (await get(served, Origin=served.server.url, **key))[0] == 200
        asked = {"Origin": "https://chat.example.org", "Access-Control-Request-Method": "POST"}
        async with aiohttp.ClientSession() as bare:
            async with bare.options(served.url(CHAT), headers=asked) as answer:
                assert answer.status == 204
                assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
            async with bare.options(
                served.url(CHAT), headers={**asked, "Origin": "https://evil.example"}
            ) as no:
                assert no.status == 403
            headers = {"Origin": "https://chat.example.org", **key}
            async with bare.post(served.url(CHAT), json=ask(stream=True), headers=headers) as streamed:
                assert streamed.headers["Access-Control-Allow-Origin"] == "https://chat.example.org"


async def test_a_body_that_is_too_large_is_refused_in_the_envelope(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        body = io.BytesIO(json.dumps(ask("x" * API_BODY_MAX_BYTES)).encode())
        async with served.client.post(served.url(CHAT), data=body) as answer:
            assert answer.status == 413
            assert (await answer.json())["error"]["type"] == "invalid_request_error"


async def test_more_turns_than_there_is_room_for_are_refused(tmp_path: Path) -> None:
    async with api(tmp_path, more="api: {max_concurrent: 2}") as served:
        served.models.default = scenario("hang")
        asking = [asyncio.create_task(served.post(CHAT, ask())) for _ in range(2)]
        await served.models.wait_requests(2)
        async with served.client.post(served.url(CHAT), json=ask()) as answer:
            assert answer.status == 429
            assert answer.headers["Retry-After"] == "1"
            assert (await answer.json())["error"]["code"] == "too_many_turns"
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        served.models.default = scenario("hello")
        await served.models.wait_idle()
        assert (await served.post(CHAT, ask()))[0] == 200


async def test_unknown_paths_and_methods_are_told_in_the_envelope(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        status, answer = await served.get("/v1/nothing")
        assert (status, answer["error"]["code"]) == (404, "not_found")
        async with served.client.put(served.url(CHAT)) as wrong:
            assert wrong.status == 405
            assert wrong.headers["Allow"] == "POST"
            assert "Python" not in wrong.headers["Server"]


async def test_nothing_of_a_key_is_in_any_answer_or_file(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        for model in ("hello", "status:401", "close-mid-text"):
            served.models.default = scenario(model)
            _, whole = await served.post(CHAT, ask(), {"X-Headrace-Session": "trip"})
            assert KEY not in str(whole)
        async with served.client.get(served.url("/metrics")) as metrics:
            text = await metrics.text()
        assert KEY not in text
        assert 'headrace_turns_total{outcome="stop"} 1' in text
        assert "headrace_first_token_seconds_count 2" in text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


# --- the key, and where the server may listen


@asynccontextmanager
async def made(home: Path, config: str = "", host: str | None = None, **extra: str) -> AsyncIterator[Server]:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(f"model: scripted\n{config}" if "model:" in config else config)
    env = environment(home, extra)
    app = App.from_env(env)
    try:
        yield Server(app, env, home, host, 0)
    finally:
        await app.close()


async def test_a_key_is_made_once_and_is_the_persons_alone(tmp_path: Path) -> None:
    async with made(tmp_path / "home") as first:
        path = tmp_path / "home" / "api_key"
        assert first.key.made == path
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert len(first.key.secret) >= 32
        async with made(tmp_path / "home") as second:
            assert (second.key.secret, second.key.made) == (first.key.secret, None)
    async with made(tmp_path / "home", HEADRACE_API_KEY="mine") as third:
        assert third.key.secret == "mine"
    path.write_text("")
    async with made(tmp_path / "home") as fourth:
        assert fourth.key.made == path


@pytest.mark.parametrize(
    ("config", "host", "key", "why"),
    [
        ("", "0.0.0.0", "", "HEADRACE_API_KEY"),
        ("", "0.0.0.0", "short", "16"),
        ("", "192.168.1.5", "", "other machines"),
        ("", "box.lan", "", "other machines"),
        ("api: {auth: none}", "0.0.0.0", "a-key-of-16-chars", "none"),
        ("api: {host: '::'}", None, "", "other machines"),
    ],
)
async def test_another_address_needs_a_key_of_ones_own(
    tmp_path: Path, config: str, host: str | None, key: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        async with made(tmp_path / "home", config, host, HEADRACE_API_KEY=key):
            pass


async def test_no_key_is_asked_for_where_the_person_says_so(tmp_path: Path) -> None:
    async with api(tmp_path, more="api: {auth: none}") as served:
        assert (await get(served))[0] == 200
        assert (await get(served, Host="evil.example"))[0] == 403


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with made(tmp_path / "home", host="127.0.0.1") as server:
            server.port = port
            with pytest.raises(UserError, match=f"Port {port} .* is taken"):
                await server.start()
        write_config(tmp_path / "home", "http://127.0.0.1:1")
        done = await run(tmp_path / "home", "serve", "--port", str(port))
        assert done.status == 2
        assert "is taken" in done.err


# --- the description


def test_the_description_is_one() -> None:
    value = description()
    assert value["openapi"] == "3.1.0"
    for path, methods in value["paths"].items():
        for operation in methods.values():
            named = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
            assert all(f"{{{name}}}" in path for name in named)
            assert path.count("{") == len(named)
            if "requestBody" in operation:
                fastjsonschema.compile(operation["requestBody"]["content"]["application/json"]["schema"])


async def test_what_is_described_is_served_and_what_is_served_is_described(tmp_path: Path) -> None:
    async with api(tmp_path) as served:
        _, told = await served.get("/openapi.json")
        described = {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}
        assert served.server._runner is not None
        router = served.server._runner.app.router
        routes = {
            (r.method, r.resource.canonical) for r in router.routes() if r.resource and r.method != "HEAD"
        }
        assert routes == described


async def test_the_configured_models_are_listed(tmp_path: Path) -> None:
    more = (
        "models: {lab:big: {max_tokens: 5}}\nfallback_models: [local]\n"
        "moa: {presets: {review: {reference_models: [{provider: lab, model: a}], aggregator: {provider: lab, model: b}}}}"
    )
    async with api(tmp_path, more=more) as served:
        _, models = await served.get("/v1/models")
        assert [m["id"] for m in models["data"]] == [
            "headrace", "lab:agent", "local", "lab:big", "moa:review",
        ]  # fmt: skip
        status, answer = await served.post(CHAT, ask(model="moa:review"))
        assert status == 200
        assert answer["choices"][0]["message"]["content"] == "Hello from the scripted model."
        assert len(served.models.requests) == 2
