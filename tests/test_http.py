"""What can go wrong between a request and its answer, below the protocols: the right cause, no secret, no leak."""

import asyncio
import email.utils
import gzip
import json
import shutil
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CallError, Cause, CauseCode
from headrace.events import AttemptReplaced, CallFailed, Event, PartGrew, ReplyCut, ReplyEnded, user_message
from headrace.ports import AttemptIds, Deadline, ProtocolName, Request
from headrace.providers.http import Endpoint, HttpClient, HttpProvider, _retry_after_s
from headrace.providers.proxy import proxy_of
from headrace.runtime.clock import SystemClock
from headrace.runtime.question import Candidate
from headrace.testing.modelserver import RecordedRequest, Reply, Say, Script, Stall, Status, scenario
from tests.rawserver import RawServer, Sent, endless, http, raw_server
from tests.turns import PROTOCOLS, RELAY, bench, closed, events, shown

KEY = "sk-proj-Zm9vYmFyYmF6cXV4"
CHAT: ProtocolName = "chat_completions"


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
STREAM = chunk({"content": "Hello."}) + chunk({}, "stop") + DONE
WHOLE = json.dumps(
    {"choices": [{"index": 0, "message": {"content": "Hello."}, "finish_reason": "stop"}]}
).encode()


@pytest.fixture(autouse=True)
async def _nothing_is_left() -> AsyncIterator[None]:
    """After every test: no task runs on. Connections and sessions that are left warn, and warnings are errors."""
    yield
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


class HastyClock(SystemClock):
    """Bounds on waiting pass a hundred times as fast."""

    def timeout(self, delay_s: float | None) -> Deadline:
        return super().timeout(None if delay_s is None else delay_s / 100)


class Heard:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def connected(self) -> None:
        pass

    def received(self, events: list[Event]) -> None:
        self.events += events

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, PartGrew))

    @property
    def ended(self) -> bool:
        return any(isinstance(e, ReplyEnded) for e in self.events)


def provider(
    client: HttpClient,
    url: str,
    *,
    keys: Sequence[str] = (KEY,),
    protocol: ProtocolName = "chat_completions",
    headers: dict[str, str] | None = None,
) -> HttpProvider:
    endpoint = Endpoint(name="lab", protocol=protocol, base_url=url, headers=headers or {})
    return HttpProvider(endpoint, client, keys=lambda: tuple(keys))


QUESTION = Request(model="m", messages=(user_message("Hello?"),))


@asynccontextmanager
async def clients(clock: SystemClock | None = None) -> AsyncIterator[HttpClient]:
    client = HttpClient(clock or SystemClock())
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def answering(
    *answers: Sent | bytes, clock: SystemClock | None = None, **settings: Any
) -> AsyncIterator[tuple[RawServer, HttpProvider]]:
    async with raw_server(answers) as server, clients(clock) as client:
        yield server, provider(client, f"http://127.0.0.1:{server.port}/v1", **settings)


async def failure(asked: HttpProvider, request: Request = QUESTION) -> Cause:
    with pytest.raises(CallError) as caught:
        await asked.attempt(request, AttemptIds(1), Heard())
    return caught.value.cause


async def heard(asked: HttpProvider, request: Request = QUESTION) -> Heard:
    sink = Heard()
    await asked.attempt(request, AttemptIds(1), sink)
    return sink


# --- no connection


async def test_a_host_that_nobody_knows() -> None:
    async with clients() as client:
        cause = await failure(provider(client, "http://no-such-host.invalid/v1"))
    assert cause.code == "connect_failed"
    assert "base_url" in cause.message


async def test_a_port_where_nobody_listens() -> None:
    async with raw_server([b""]) as server:
        port = server.port
    async with clients() as client:
        cause = await failure(provider(client, f"http://127.0.0.1:{port}/v1"))
    assert cause.code == "connect_failed"
    assert "refused" in cause.message.lower()


@pytest.mark.parametrize(
    "url", ["", "nonsense", "http://", "http://host:99999999/v1", "ftp://example.org/v1", "http://[::1/v1"]
)
async def test_an_address_that_is_none(url: str) -> None:
    async with clients() as client:
        cause = await failure(provider(client, url))
    assert cause.code == "config_invalid"


async def test_a_key_that_cannot_be_in_a_header_is_not_tried_again() -> None:
    async with answering(http(STREAM), keys=["sk-proj-with\nnewline"]) as (server, asked):
        cause = await failure(asked)
        assert not server.requests
    assert (cause.code, cause.transient) == ("config_invalid", False)
    assert "sk-proj" not in cause.message


async def test_credentials_within_the_address_do_not_go_with_a_key() -> None:
    async with answering(http(STREAM)) as (server, asked):
        async with clients() as client:
            both = provider(client, f"http://user:password@127.0.0.1:{server.port}/v1")
            assert (await failure(both)).code == "config_invalid"
        assert (await heard(asked)).ended


# --- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder: Path = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-keyout", str(key), "-out", str(cert), "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


async def test_a_certificate_that_nobody_vouches_for(certificate: ssl.SSLContext) -> None:
    async with raw_server([http(STREAM)], certificate) as server, clients() as client:
        cause = await failure(provider(client, f"https://127.0.0.1:{server.port}/v1"))
        assert not server.requests
    assert (cause.code, cause.transient) == ("tls_failed", False)
    assert "certificate" in cause.message.lower()


async def test_tls_to_a_port_that_speaks_none() -> None:
    async with raw_server([http(STREAM)]) as server, clients() as client:
        connecting = asyncio.create_task(failure(provider(client, f"https://127.0.0.1:{server.port}/v1")))
        await server.until_open(1)
        server.writers[0].write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        assert (await connecting).code == "tls_failed"


async def test_no_tls_to_a_port_that_speaks_it(certificate: ssl.SSLContext) -> None:
    async with raw_server([http(STREAM)], certificate) as server, clients() as client:
        cause = await failure(provider(client, f"http://127.0.0.1:{server.port}/v1"))
    assert cause.code in ("connection_lost", "malformed_stream")


# --- redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_told_and_never_followed(status: int) -> None:
    async with raw_server([http(STREAM)]) as other:
        location = f"Location: http://127.0.0.1:{other.port}/v2"
        async with answering(http(b"", "text/html", f"{status} Moved", location)) as (server, asked):
            cause = await failure(asked)
            assert len(server.requests) == 1
        assert other.connections == 0
    assert (cause.code, cause.status) == ("config_invalid", status)
    assert f":{other.port}/v2" in cause.message


async def test_a_key_within_a_redirect_is_not_told() -> None:
    moved = http(b"", "text/html", "307 Moved", f"Location: https://elsewhere.example/?key={KEY}")
    async with answering(moved) as (_, asked):
        assert KEY not in (await failure(asked)).message


# --- answers that are not what they are called

HTML = b"<!doctype html><html><body>Log in to the hotel</body></html>"


@pytest.mark.parametrize("kind", ["text/html", "text/html; charset=utf-8", "text/plain", "text/event-stream"])
async def test_a_web_page_is_no_answer(kind: str) -> None:
    async with answering(http(HTML, kind)) as (_, asked):
        cause = await failure(asked)
    assert cause.code == "malformed_stream"
    assert "web page" in cause.message
    assert "hotel" not in cause.message


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "text/plain", "binary/x"])
@pytest.mark.parametrize(
    "body", [STREAM, b": hello\n\n" + STREAM, WHOLE, b"\n \n" + WHOLE, b"\xef\xbb\xbf" + WHOLE]
)
async def test_what_came_decides_and_not_what_it_is_called(*, stream: bool, kind: str, body: bytes) -> None:
    async with answering(http(body, kind)) as (_, asked):
        sink = await heard(asked, Request(model="m", messages=(), stream=stream))
    assert sink.text == "Hello."
    assert sink.ended


async def test_an_error_that_is_called_a_stream() -> None:
    body = b'{"error":{"message":"You exceeded your current quota.","code":"insufficient_quota"}}'
    async with answering(http(body)) as (_, asked):
        assert (await failure(asked)).code == "quota_exhausted"


async def test_a_stream_that_comes_byte_by_byte_after_empty_lines() -> None:
    pieces = [endless(b"\n\n", "application/json"), *(bytes([b]) for b in WHOLE)]
    async with answering(Sent(tuple(pieces), "close")) as (_, asked):
        assert (await heard(asked)).text == "Hello."


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (http(b"", status="204 No Content"), "provider_error"),
        (http(b""), "no_terminal"),
        (http(b"", "application/json"), "malformed_stream"),
        (http(b"[]", "application/json"), "malformed_stream"),
        (http(b"{}", "application/json"), "malformed_stream"),
        (http(b"nonsense"), "no_terminal"),
    ],
)
async def test_an_answer_of_nothing(answer: bytes, code: CauseCode) -> None:
    async with answering(answer) as (_, asked):
        assert (await failure(asked)).code == code


async def test_compressed_answers_are_read_and_broken_ones_are_lost() -> None:
    packed = gzip.compress(STREAM)
    kind, encoding = "text/event-stream", "Content-Encoding: gzip"
    broken = http(b"this is not gzip", kind, "200 OK", encoding)
    async with answering(http(packed, kind, "200 OK", encoding), broken) as (server, asked):
        assert b"accept-encoding: identity" in (await first_head(server, asked)).lower()
        assert (await failure(asked)).transient


async def first_head(server: RawServer, asked: HttpProvider) -> bytes:
    assert (await heard(asked)).text == "Hello."
    return server.requests[0]


async def test_something_that_is_not_http() -> None:
    async with answering(Sent((b"SSH-2.0-OpenSSH_9.2\r\n\r\n",), "hold")) as (_, asked):
        cause = await failure(asked)
    assert cause.code == "malformed_stream"
    assert "HTTP" in cause.message


# --- bodies of errors


def error(message: str, code: str | None = None, status: str = "400 Bad Request", *headers: str) -> bytes:
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return http(body, "application/json", status, *headers)


async def test_an_error_that_comes_in_pieces_is_read_whole() -> None:
    whole = error("You exceeded your current quota.", "insufficient_quota", "429 Too Many Requests")
    pieces = (whole[:-30], whole[-30:-10], whole[-10:])
    async with answering(Sent(pieces, pause_s=0.01)) as (_, asked):
        cause = await failure(asked)
    assert (cause.code, cause.provider_code) == ("quota_exhausted", "insufficient_quota")
    assert cause.message == "lab: You exceeded your current quota."


@pytest.mark.parametrize("then", ["hold", "close"])
async def test_an_error_that_never_comes_whole_is_told_by_its_status(then: Any) -> None:
    cut = http(b'{"error": {"mess', "application/json", "401 Unauthorized", length=500)
    async with answering(Sent((cut,), then), clock=HastyClock()) as (_, asked):
        cause = await failure(asked)
    assert (cause.code, cause.status) == ("key_rejected", 401)


async def test_an_endless_error_is_read_up_to_a_bound() -> None:
    start = b"HTTP/1.1 500 Oops\r\nContent-Type: text/plain\r\n\r\n" + b"x" * 1000
    async with answering(Sent((start, b"y" * 65536), "again"), clock=HastyClock()) as (_, asked):
        cause = await failure(asked)
    assert cause.code == "server_error"
    assert len(cause.message) < 600


async def test_an_error_in_latin_1_keeps_its_code() -> None:
    body = '{"error":{"message":"Guthaben aufgebraucht für heute","code":"insufficient_quota"}}'.encode(
        "latin-1"
    )
    async with answering(http(body, "application/json", "429 Zu viele")) as (_, asked):
        cause = await failure(asked)
    assert cause.code == "quota_exhausted"
    assert cause.message.endswith("Guthaben aufgebraucht für heute")


async def test_a_page_of_html_is_not_quoted() -> None:
    async with answering(http(HTML, "text/html", "502 Bad Gateway")) as (_, asked):
        assert (await failure(asked)).message == "lab: HTTP 502 Bad Gateway, without a reason."


# --- waiting


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        (["Retry-After: 3"], 3.0),
        (["Retry-After: 0.5"], 0.5),
        (["retry-after-ms: 1500", "Retry-After: 2"], 1.5),
        (["retry-after-ms: soon", "Retry-After: 2"], 2.0),
        (["Retry-After: -5"], 0.0),
        (["Retry-After: later"], None),
        (["Retry-After: nan"], None),
        (["Retry-After: inf"], None),
        (["Retry-After: 1e999"], None),
        (["Retry-After: "], None),
        (["Retry-After: Thu, 01 Jan 1970 00:00:00 GMT"], 0.0),
        ([], None),
    ],
)
async def test_how_long_a_provider_asks_to_wait(headers: list[str], wait_s: float | None) -> None:
    async with answering(error("Slow down.", None, "429 Too Many Requests", *headers)) as (_, asked):
        assert (await failure(asked)).retry_after_s == wait_s


def test_a_date_to_wait_for() -> None:
    now = float(int(time.time()))
    header = {"retry-after": email.utils.formatdate(now + 30, usegmt=True)}
    assert _retry_after_s(header, now) == 30.0


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), st.text(max_size=40)))
def test_no_header_breaks_the_waiting(headers: dict[str, str]) -> None:
    wait_s = _retry_after_s(headers, 1e9)
    assert wait_s is None or 0 <= wait_s < float("inf")


# --- keys and secrets


@pytest.mark.parametrize("status", [429, 401])
async def test_calls_at_the_same_time_go_on_to_the_same_key(status: int) -> None:
    """Each is refused the first key; going on once for each of them would lead past the second, and round again."""
    async with bench(retries=0) as lab:
        waiting: list[RecordedRequest] = []

        def respond(record: RecordedRequest) -> Script:
            waiting.append(record)
            first = record.headers["authorization"].endswith("first-key")
            return Script(fault=Status(status) if first else None)

        lab.server.respond = respond
        candidate = lab.candidate(keys=["the-first-key", "the-second-key"])
        turns = [lab.start(candidate, plan=RELAY) for _ in range(6)]
        assert {(await turn.wait()).outcome for turn in turns} == {"stop"}
        used = [r.headers["authorization"].removeprefix("Bearer ") for r in lab.server.requests]
        assert sorted(used) == ["the-first-key"] * 6 + ["the-second-key"] * 6


async def test_a_key_that_is_not_there_is_told_before_anything_is_sent() -> None:
    def keys() -> tuple[str, ...]:
        raise CallError(Cause("key_missing", "The provider lab needs LAB_KEY, which is not set."))

    async with raw_server([http(STREAM)]) as server, clients() as client:
        endpoint = Endpoint(name="lab", protocol=CHAT, base_url=f"http://127.0.0.1:{server.port}")
        cause = await failure(HttpProvider(endpoint, client, keys))
        assert not server.connections
    assert cause.code == "key_missing"
    assert cause.message == "lab: The provider lab needs LAB_KEY, which is not set."


async def test_no_key_is_sent_where_none_is_wanted() -> None:
    async with raw_server([http(STREAM)]) as server, clients() as client:
        endpoint = Endpoint(
            name="lab", protocol=CHAT, base_url=f"http://127.0.0.1:{server.port}", auth="none"
        )
        await heard(HttpProvider(endpoint, client, lambda: (KEY,)))
        assert KEY.encode() not in server.requests[0]


HEADERS = {
    "Authorization": "Bearer eyJhbGciOiJIUzI1NiJ9.e30",
    "X-Account": "account-20391",
    "X-Title": "Our own little programme",
}


@pytest.mark.parametrize("secret", [KEY, "eyJhbGciOiJIUzI1NiJ9.e30", "account-20391"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_secret_that_is_echoed_is_not_told(*, secret: str, streamed: bool) -> None:
    told = {"message": f"Incorrect key: {secret}.", "code": secret, "param": secret, "type": "x"}
    body = json.dumps({"error": told}).encode()
    answer = http(b"data: " + body + b"\n\n") if streamed else http(body, "application/json", "401 No")
    async with answering(answer, headers=HEADERS) as (_, asked):
        cause = await failure(asked)
    assert secret not in repr(cause)
    assert cause.message.endswith("Incorrect key: [secret].")
    assert (cause.provider_code, cause.parameter) == ("[secret]", "[secret]")


async def test_words_of_a_header_are_not_taken_for_secrets() -> None:
    async with answering(error("Our programme is closed."), headers=HEADERS) as (_, asked):
        assert (await failure(asked)).message == "lab: Our programme is closed."


@pytest.mark.parametrize("before", range(470, 500))
async def test_not_even_the_start_of_a_key_is_left_where_a_text_is_clipped(before: int) -> None:
    async with answering(error("x" * before + KEY + " and more of it " * 9)) as (_, asked):
        cause = await failure(asked)
    assert KEY[:8] not in cause.message


async def test_of_two_keys_the_longer_goes_first() -> None:
    keys = ["abcdefgh", "abcdefgh-and-more"]
    async with answering(error(f"Not {keys[1]}, not {keys[0]}."), keys=keys) as (_, asked):
        assert (await failure(asked)).message == "lab: Not [secret], not [secret]."


# --- the environment


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "request_method"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("no_proxies")
async def test_the_loopback_needs_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server([http(STREAM)]) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        async with answering(http(STREAM)) as (_, asked):
            assert (await heard(asked)).ended
        assert proxy.connections == 0


@pytest.mark.usefixtures("no_proxies")
async def test_the_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server([http(STREAM)]) as proxy, clients() as client:
        monkeypatch.setenv("http_proxy", f"http://user:pass%20word@127.0.0.1:{proxy.port}")
        assert (await heard(provider(client, "http://model.invalid/v1"))).text == "Hello."
        head = proxy.requests[0]
        assert head.startswith(b"POST http://model.invalid/v1/chat/completions HTTP/1.1\r\n")
        assert b"Proxy-Authorization: Basic dXNlcjpwYXNzIHdvcmQ=" in head


@pytest.mark.usefixtures("no_proxies")
async def test_a_proxy_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Sent((http(b"", "text/html", "407 Proxy Authentication Required"),), "close")
    async with raw_server([refused]) as proxy, clients() as client:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        cause = await failure(provider(client, "https://model.invalid/v1"))
        assert KEY.encode() not in proxy.requests[0]
    assert cause.code == "connect_failed"
    assert "proxy" in cause.message


@pytest.mark.usefixtures("no_proxies")
async def test_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server([b""]) as server:
        port = server.port
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
    async with clients() as client:
        assert (await failure(provider(client, "https://model.invalid/v1"))).code == "connect_failed"


@pytest.mark.usefixtures("no_proxies")
def test_which_proxy_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_of("https://model.example/v1") == {}
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    monkeypatch.setenv("no_proxy", "intern.example")
    assert str(proxy_of("https://model.example/v1")["proxy"]) == "http://proxy.example:3128"
    for url in (
        "http://model.example",
        "https://intern.example/v1",
        "https://localhost/v1",
        "https://[::1]/v1",
        "https://127.8.8.8:1/",
    ):
        assert proxy_of(url) == {}


async def test_credentials_of_other_programs_are_neither_sent_nor_in_the_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password hunter2hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with answering(http(STREAM)) as (server, asked):
        assert (await heard(asked)).ended
        assert f"Authorization: Bearer {KEY}".encode() in server.requests[0]
        assert server.requests[0].count(b"Authorization") == 1


# --- connections


async def test_a_connection_is_used_again_after_answers_and_errors() -> None:
    answers = [http(STREAM), error("No."), http(WHOLE, "application/json"), http(STREAM)]
    async with answering(*answers) as (server, asked):
        assert (await heard(asked)).ended
        await failure(asked)
        assert (await heard(asked)).ended
        assert (await heard(asked)).ended
        assert server.connections <= 2
        assert server.open == 1


async def test_a_connection_the_server_closed_while_nobody_used_it_is_no_failure() -> None:
    async with answering(http(STREAM)) as (server, asked):
        for turn in range(1, 4):
            assert (await heard(asked)).ended
            server.close_idle()
            await server.until_open(0)
            assert server.connections == turn


async def test_a_connection_that_is_closed_as_the_question_goes_out_costs_an_attempt_and_no_more() -> None:
    """The server closes the idle connection after the request was written, and has not read it."""
    async with raw_server([http(STREAM), Sent((), "close"), http(STREAM)]) as server, bench(retries=1) as lab:
        asked = provider(lab.client, f"http://127.0.0.1:{server.port}/v1")
        candidate = Candidate(model_id="lab:m", provider=asked, model="m")
        for _ in range(2):
            turn = await lab.run(candidate, plan=RELAY)
            assert (closed(turn).outcome, shown(turn)) == ("stop", "Hello.")
        assert len([e for e in events(turn) if isinstance(e, AttemptReplaced)]) == 1


async def test_what_follows_the_end_is_not_read_for_long_and_not_shown() -> None:
    more = chunk({"content": " Not this."})
    async with answering(Sent((endless(STREAM), more), "again")) as (server, asked):
        sink = await heard(asked)
        assert sink.text == "Hello."
        await server.until_open(0)


@pytest.mark.parametrize("body", [STREAM, chunk({"content": "Hello."}) + chunk({}, "stop")])
async def test_a_body_that_never_ends_is_left(body: bytes) -> None:
    async with answering(Sent((endless(body),), "hold"), clock=HastyClock()) as (server, asked):
        sink = await heard(asked)
        assert (sink.text, sink.ended) == ("Hello.", True)
        await server.until_open(0)


async def test_a_body_that_breaks_after_the_end_is_whole() -> None:
    lied = http(STREAM, length=len(STREAM) + 50)
    async with answering(Sent((lied,), "close")) as (_, asked):
        assert (await heard(asked)).ended


async def test_a_body_that_breaks_before_the_end_is_not() -> None:
    cut = http(chunk({"content": "Hello."}), length=500)
    async with answering(Sent((cut,), "close")) as (_, asked):
        assert (await failure(asked)).code == "connection_lost"


async def test_a_silence_after_the_finish_reason_that_is_longer_than_the_patience_ends_well() -> None:
    from headrace.runtime.stalls import Patience

    patience = Patience(connect_s=5, first_event_s=5, gap_s=0.05, no_progress_s=5)
    body = chunk({"content": "Hello."}) + chunk({}, "stop")
    async with raw_server([Sent((endless(body),), "hold")]) as server, bench(patience=patience) as lab:
        asked = provider(lab.client, f"http://127.0.0.1:{server.port}/v1")
        turn = await lab.run(Candidate(model_id="lab:m", provider=asked, model="m"), plan=RELAY)
        assert closed(turn).outcome == "stop"


# --- many at once, and leaks


async def test_hundreds_of_calls_share_a_client() -> None:
    async with bench() as lab:
        lab.server.default = Script(Reply((Say("Hello from the crowd."),)))
        protocols = [PROTOCOLS[n % 3] for n in range(300)]
        turns = [lab.start(lab.candidate(protocol), plan=RELAY) for protocol in protocols]
        ends = await asyncio.wait_for(asyncio.gather(*(turn.wait() for turn in turns)), 60)
        assert {end.outcome for end in ends} == {"stop"}
        assert {shown(turn) for turn in turns} == {"Hello from the crowd."}
        assert lab.server.total_disconnected == 0


@pytest.mark.parametrize(
    "name", ["hang", "stall-after-headers", "stall-mid-text", "slow-drip", "rate-limited"]
)
async def test_cancelling_many_leaves_nothing(name: str) -> None:
    async with bench() as lab:
        lab.server.default = scenario(name)
        turns = [lab.start(lab.candidate(PROTOCOLS[n % 3]), plan=RELAY) for n in range(30)]
        await lab.server.wait_requests(30)
        for turn in turns:
            turn.stop(Cause("stopped", "Enough."))
        assert {(await turn.wait()).outcome for turn in turns} == {"cancelled"}
        await lab.server.until(lambda: lab.server.open_requests == 0)
        assert open_connections(lab.client) == (0 if name != "rate-limited" else lab.server.open_connections)


def open_connections(client: HttpClient) -> int:
    connector = client.session().connector
    assert connector is not None
    pooled: Iterable[Any] = connector._conns.values()
    return len(connector._acquired) + sum(len(connections) for connections in pooled)


async def test_cancelling_after_any_number_of_steps_leaves_nothing() -> None:
    """Wherever a call is in its code when it is cancelled: one end, and no connection that is still in use."""
    async with bench() as lab:
        lab.server.default = Script(Reply((Say("One two three."),)), Stall("after_finish"))
        ends: set[type[Event]] = set()
        for steps in range(60):
            turn = lab.start(plan=RELAY)
            for _ in range(steps):
                await asyncio.sleep(0)
            turn.stop(Cause("stopped", "Enough."))
            end = await asyncio.wait_for(turn.wait(), 10)
            assert end.outcome in ("cancelled", "stop")
            ends |= {type(e) for e in events(turn) if isinstance(e, CallFailed | ReplyCut | ReplyEnded)}
            await lab.server.until(lambda: lab.server.open_requests == 0)
        assert CallFailed in ends
        connector = lab.client.session().connector
        assert connector is not None
        assert not connector._acquired


async def test_a_client_can_be_closed_at_any_time_and_more_than_once() -> None:
    async with raw_server([http(STREAM)]) as server:
        client = HttpClient(SystemClock())
        await client.close()
        await heard(provider(client, f"http://127.0.0.1:{server.port}/v1"))
        await client.close()
        await client.close()
        await server.until_open(0)
