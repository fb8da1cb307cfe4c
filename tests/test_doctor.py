"""`headrace doctor` against the model server: the real adapters, the real configuration, over real sockets."""

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.app import App
from headrace.config import load
from headrace.doors.terminal.doctor import doctor
from headrace.limits import DOCTOR_MAX_TOKENS, DOCTOR_MOST_REQUESTS
from headrace.ports import ProtocolName
from headrace.runtime.clock import SystemClock
from headrace.runtime.doctor import PATIENCE, diagnose
from headrace.runtime.stalls import Patience
from headrace.testing.modelserver import (
    CallTool,
    ModelServer,
    Raw,
    RecordedRequest,
    RefuseParameter,
    Reply,
    Say,
    Script,
    Status,
    Think,
    scenario,
)
from headrace.views.doctor import Subject
from tests.turns import IMPATIENT, PATIENT, PROTOCOLS, bench

KEY = "canary-key-0123456789"
COUNT = "one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve"


def healthy(request: RecordedRequest) -> Script:
    """A good model behind a good server: it streams, counts, and calls the tool as often as it is asked to."""
    if not request.body.get("tools"):
        return Script(Reply((Say(COUNT),)), pace_s=0.01) if request.body.get("stream") else Script()
    cities = ("Oslo", "Lima") if "Lima" in str(request.body) else ("Kinlochleven",)
    return Script(Reply(tuple(CallTool("weather", {"city": city}) for city in cities)))


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@dataclass
class Clinic:
    server: ModelServer
    home: Path

    async def examine(
        self,
        protocol: ProtocolName = "chat_completions",
        *,
        settings: str = "{}",
        base_url: str = "",
        key: str = KEY,
        patience: Patience = PATIENCE,
        as_json: bool = True,
        out: io.StringIO | None = None,
    ) -> tuple[int, str]:
        """The exit status, and what was printed."""
        (self.home / "config.yaml").write_text(
            f"""
model: lab:model-1
models: {{"lab:model-1": {settings}}}
providers:
  lab: {{protocol: {protocol}, base_url: "{base_url or self.server.url + "/v1"}", api_key_env: LAB_KEY}}
"""
        )
        env = {"LAB_KEY": key} if key else {}
        app = App(load(self.home, env), self.home, env)
        out = out or io.StringIO()
        try:
            return await doctor(app, None, out, as_json=as_json, patience=patience), out.getvalue()
        finally:
            await app.close()


@pytest.fixture
async def clinic(tmp_path: Path) -> AsyncIterator[Clinic]:
    async with ModelServer() as server:
        yield Clinic(server, tmp_path)


def rows(printed: str) -> dict[str, dict[str, str]]:
    """Findings by name; of several quirks the first."""
    out: dict[str, dict[str, str]] = {}
    for finding in json.loads(printed)["findings"]:
        out.setdefault(finding["name"], finding)
    return out


def problems(printed: str) -> list[str]:
    return [name for name, finding in rows(printed).items() if finding["verdict"] == "problem"]


# --- an endpoint that is well


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_healthy_endpoint_has_nothing_but_good_rows(clinic: Clinic, protocol: ProtocolName) -> None:
    clinic.server.respond = healthy
    status, printed = await clinic.examine(protocol)
    found = rows(printed)
    assert status == json.loads(printed)["exit_status"] == 0
    assert {finding["verdict"] for finding in found.values()} == {"ok"}
    assert list(found) == [
        "reachable", "key", "answers", "streams", "first_token", "speed", "usage", "tool_calls", "parallel_calls",
        "reasoning", "ending", "whole_answer",
    ]  # fmt: skip
    assert "LAB_KEY" in found["key"]["seen"]
    assert found["parallel_calls"]["seen"] == "2 at once"
    numbers = json.loads(printed)["numbers"]
    assert numbers["requests"] == len(clinic.server.requests) == 4
    assert numbers["tokens_per_s"] > 0


@pytest.mark.parametrize(
    ("protocol", "ending"),
    [
        ("chat_completions", "finish_reason stop, then [DONE]"),
        ("responses", "response.completed"),
        ("messages", "stop_reason end_turn, then message_stop"),
    ],
)
async def test_the_ending_is_named_in_the_protocols_own_words(
    clinic: Clinic, protocol: ProtocolName, ending: str
) -> None:
    clinic.server.respond = healthy
    _, printed = await clinic.examine(protocol)
    assert rows(printed)["ending"]["seen"] == ending


async def test_every_request_is_small(clinic: Clinic) -> None:
    clinic.server.respond = healthy
    await clinic.examine(settings="{max_tokens: 100000}")
    assert [r.body["max_tokens"] for r in clinic.server.requests] == [DOCTOR_MAX_TOKENS] * 4


async def test_the_table_says_what_the_json_says(clinic: Clinic) -> None:
    clinic.server.respond = healthy
    status, printed = await clinic.examine(as_json=False)
    assert status == 0
    assert printed.startswith(f"lab:model-1 (chat_completions at {clinic.server.url}/v1)\n")
    assert "  ok       parallel calls  2 at once\n" in printed
    assert printed.endswith("4 requests, 184 tokens. No problem was found.\n")


async def test_a_terminal_shows_what_is_being_done_and_then_the_table_alone(clinic: Clinic) -> None:
    clinic.server.respond = healthy
    _, printed = await clinic.examine(as_json=False, out=Screen())
    assert [part.strip() for part in printed.split("\r\x1b[K")[1:5]] == [
        "asking for a stream ...",
        "asking for an answer in one piece ...",
        "asking for a tool call ...",
        "asking for two tool calls at once ...",
    ]
    assert "..." not in printed.split("\r\x1b[K")[5]


async def test_the_scripted_model_can_be_examined_too(tmp_path: Path) -> None:
    app = App(load(tmp_path, {}), tmp_path, {})
    out = io.StringIO()
    status = await doctor(app, "scripted", out, as_json=True)
    await app.close()
    assert status == 3
    assert problems(out.getvalue()) == ["tool_calls"]
    assert "quirk" not in rows(out.getvalue())


# --- endpoints that do not answer


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("fault", "row", "advice"),
    [
        ("status:401", "key", "export LAB_KEY=..."),
        ("status:403", "key", "Allow this model for the key in LAB_KEY"),
        ("status:402", "answers", "Add credit"),
        ("status:404", "answers", "Check the model's name (model-1)"),
        ("status:429", "answers", "Wait a little"),
        ("no-quota", "answers", "quota"),
    ],
)
async def test_a_refusal_ends_the_examination(
    clinic: Clinic, protocol: ProtocolName, fault: str, row: str, advice: str
) -> None:
    clinic.server.default = scenario(fault)
    status, printed = await clinic.examine(protocol)
    assert (status, problems(printed)) == (1, [row])
    assert advice in rows(printed)[row]["advice"]
    assert "others were not asked" in json.loads(printed)["stopped"]
    assert len(clinic.server.requests) == 1


async def test_a_server_that_hangs_is_left(clinic: Clinic) -> None:
    clinic.server.default = scenario("hang")
    status, printed = await clinic.examine(patience=IMPATIENT)
    assert (status, problems(printed)) == (1, ["answers"])
    assert rows(printed)["reachable"]["verdict"] == "ok"
    assert len(clinic.server.requests) == 1
    await clinic.server.wait_disconnected(1)


async def test_a_closed_port_is_not_reachable(clinic: Clinic) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        status, printed = await clinic.examine(base_url=f"http://127.0.0.1:{port}/v1")
    assert (status, list(rows(printed))) == (1, ["reachable"])
    assert f":{port}/v1" in rows(printed)["reachable"]["advice"]


async def test_a_wrong_path_leads_to_the_address(clinic: Clinic) -> None:
    status, printed = await clinic.examine(base_url=f"{clinic.server.url}/wrong")
    assert (status, problems(printed)) == (1, ["answers"])
    assert "/wrong" in rows(printed)["answers"]["advice"]


async def test_a_web_page_leads_to_the_address(clinic: Clinic) -> None:
    clinic.server.default = Script(Raw((b"<html><body>Welcome!</body></html>",), "text/html"))
    status, printed = await clinic.examine()
    assert (status, problems(printed)) == (1, ["answers"])
    assert "web page" in rows(printed)["answers"]["seen"]
    assert "is the address of an API" in rows(printed)["answers"]["advice"]


async def test_a_missing_key_says_which(clinic: Clinic) -> None:
    status, printed = await clinic.examine(key="")
    assert (status, problems(printed)) == (1, ["key"])
    assert rows(printed)["key"]["advice"] == "export LAB_KEY=..."
    assert json.loads(printed)["numbers"]["requests"] == len(clinic.server.requests) == 0


@pytest.mark.parametrize(
    "fault", ["status:500", "status:502", "eof-mid-text", "zero-content", "empty-stream"]
)
async def test_what_answers_neither_way_is_asked_no_more(clinic: Clinic, fault: str) -> None:
    clinic.server.default = scenario(fault)
    status, printed = await clinic.examine()
    assert (status, problems(printed)) == (1, ["answers"])
    assert len(clinic.server.requests) == 2


async def test_an_answer_that_breaks_off_is_not_blamed_on_the_address(clinic: Clinic) -> None:
    clinic.server.default = scenario("malformed-mid-text")
    _, printed = await clinic.examine()
    assert "cannot be read" in rows(printed)["answers"]["advice"]
    assert "address" not in rows(printed)["answers"]["advice"]


# --- endpoints that answer, with something to say about them


async def oddly(
    clinic: Clinic,
    alter: Callable[[Script], Script],
    protocol: ProtocolName = "chat_completions",
    **more: Any,
) -> tuple[int, str]:
    """Examine an endpoint that is well but for its text answers."""

    def respond(request: RecordedRequest) -> Script:
        script = healthy(request)
        return script if request.body.get("tools") else alter(script)

    clinic.server.respond = respond
    return await clinic.examine(protocol, **more)


def faulty(name: str) -> Callable[[Script], Script]:
    fault = scenario(name).fault
    return lambda script: Script(script.reply, fault)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", ["refuse-streaming", "answer-whole"])
async def test_what_does_not_stream_is_told_how_to_say_so(
    clinic: Clinic, protocol: ProtocolName, fault: str
) -> None:
    status, printed = await oddly(clinic, faulty(fault), protocol)
    assert (status, problems(printed)) == (3, ["streams"])
    assert rows(printed)["streams"]["advice"] == "Set models.lab:model-1.streams: false."


async def test_what_is_configured_not_to_stream_is_no_problem(clinic: Clinic) -> None:
    status, printed = await oddly(clinic, faulty("refuse-streaming"), settings="{streams: false}")
    assert (status, problems(printed)) == (0, [])
    assert rows(printed)["streams"]["verdict"] == "note"


async def test_streaming_that_is_switched_off_for_nothing_is_noted(clinic: Clinic) -> None:
    clinic.server.respond = healthy
    status, printed = await clinic.examine(settings="{streams: false}")
    assert status == 0
    assert "streams: false out" in rows(printed)["streams"]["advice"]


async def test_a_stream_that_breaks_where_a_whole_answer_works(clinic: Clinic) -> None:
    def alter(script: Script) -> Script:
        return Script(script.reply, scenario("no-terminal").fault, times=1)

    broken = alter(Script(Reply((Say(COUNT),))))
    status, printed = await oddly(
        clinic, lambda script: broken if script.pace_s else script
    )  # only the stream has a pace
    assert (status, problems(printed)) == (3, ["streams", "ending"])


async def test_a_missing_done_is_a_quirk(clinic: Clinic) -> None:
    status, printed = await oddly(clinic, faulty("no-done"))
    assert status == 0
    assert rows(printed)["quirk"]["seen"] == "sends no [DONE] at the end"
    assert rows(printed)["ending"]["seen"] == "finish_reason stop"


@pytest.mark.parametrize("parameter", ["stream_options", "max_tokens", "temperature"])
async def test_a_refused_parameter_is_left_out_and_told(clinic: Clinic, parameter: str) -> None:
    clinic.server.default = Script(
        Reply((CallTool("weather", {"city": "Oslo"}),)), RefuseParameter(parameter)
    )
    status, printed = await clinic.examine(settings="{temperature: 0.5}")
    assert status == 0
    assert parameter in rows(printed)["quirk"]["seen"]
    assert [parameter in r.body for r in clinic.server.requests] == [True, False, False, False, False]


async def test_the_number_of_requests_is_bounded(clinic: Clinic) -> None:
    """A server that finds something new to refuse each time."""
    wanted = ["temperature", "reasoning_effort", "max_tokens", "stream_options"]

    def respond(request: RecordedRequest) -> Script:
        refused = next((name for name in wanted if name in request.body), None)
        if refused is None and not request.body.get("stream"):
            return healthy(request)
        return Script(fault=RefuseParameter(refused or "stream"))

    clinic.server.respond = respond
    status, printed = await clinic.examine(settings="{temperature: 0.5, reasoning_effort: low}")
    assert len(clinic.server.requests) <= DOCTOR_MOST_REQUESTS
    assert status == 3
    assert "at most 6" in json.loads(printed)["stopped"]


@pytest.mark.parametrize(
    ("protocol", "form"),
    [("chat_completions", "reasoning_content"), ("messages", "thinking blocks"), ("responses", "summaries")],
)
async def test_reasoning_is_named_by_its_form(clinic: Clinic, protocol: ProtocolName, form: str) -> None:
    thinking = Reply((Think("Counting is easy."), Say(COUNT)))
    status, printed = await oddly(clinic, lambda _: Script(thinking), protocol)
    assert status == 0
    assert form in rows(printed)["reasoning"]["seen"]


@pytest.mark.parametrize(
    ("text", "setting"),
    [("Counting, then.</think>" + COUNT, "prefilled"), ("So: <think>hm</think> " + COUNT, "anywhere")],
)
async def test_thinking_left_in_the_text_names_the_setting(clinic: Clinic, text: str, setting: str) -> None:
    status, printed = await oddly(clinic, lambda _: Script(Reply((Say(text),))))
    assert (status, problems(printed)) == (3, ["reasoning"])
    assert rows(printed)["reasoning"]["advice"] == f"Set models.lab:model-1.think: {setting}."
    status, printed = await oddly(
        clinic, lambda _: Script(Reply((Say(text),))), settings=f"{{think: {setting}}}"
    )
    assert problems(printed) == []


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ('<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>', "hermes"),
        ("<function=weather><parameter=city>Oslo</parameter></function>", "qwen"),
        ('[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo"}}]', "mistral"),
    ],
)
async def test_calls_left_in_the_text_name_the_setting(clinic: Clinic, text: str, markup: str) -> None:
    clinic.server.default = Script(Reply((Say(text),)))
    status, printed = await clinic.examine()
    assert (status, problems(printed)) == (3, ["tool_calls"])
    assert rows(printed)["tool_calls"]["advice"] == f"Set models.lab:model-1.tool_markup: {markup}."
    status, printed = await clinic.examine(settings=f"{{tool_markup: {markup}}}")
    assert "tool_calls" not in problems(printed)


async def test_a_model_without_tools_is_told_apart_from_a_busy_one(clinic: Clinic) -> None:
    for fault, advice in (
        (Status(400, "No tools here."), "choose another model"),
        (Status(429), "Wait a little"),
    ):
        clinic.server.respond = lambda r, fault=fault: (
            Script(fault=fault) if r.body.get("tools") else healthy(r)
        )
        status, printed = await clinic.examine()
        assert (status, problems(printed)) == (3, ["tool_calls"])
        assert advice in rows(printed)["tool_calls"]["advice"]


async def test_one_call_where_two_were_asked_for_is_a_note(clinic: Clinic) -> None:
    clinic.server.default = scenario("everything")
    clinic.server.default = Script(Reply((CallTool("weather", {"city": "Oslo"}),)))
    status, printed = await clinic.examine()
    assert status == 0
    assert rows(printed)["parallel_calls"]["verdict"] == "note"


async def test_a_model_of_another_name_is_noted(clinic: Clinic) -> None:
    status, printed = await oddly(clinic, lambda _: Script(Reply((Say(COUNT),), model="model-1-2026-01-01")))
    assert status == 0
    assert rows(printed)["quirk"]["seen"] == "was asked for model-1 and calls itself model-1-2026-01-01"


async def test_an_embedded_model_that_cannot_be_used_is_told_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "zip.gguf").write_bytes(b"PK")
    app = App(load(tmp_path, {}), tmp_path, {})
    for model, words in (("local:none", "no embedded model called"), (f"local:{tmp_path}/zip.gguf", "GGUF")):
        out = io.StringIO()
        assert await doctor(app, model, out, as_json=True) == 1
        [finding] = [each for each in rows(out.getvalue()).values() if each["verdict"] == "problem"]
        assert words in finding["seen"]
        assert finding["advice"] == ""
    await app.close()


async def test_a_stream_without_end_is_ended(tmp_path: Path) -> None:
    async with bench() as lab:
        lab.server.respond = lambda r: scenario("paced:100000:5") if r.body.get("stream") else healthy(r)
        subject = Subject(model_id="lab:model-1", provider="lab", model="model-1")
        diagnosis = await diagnose(lab.candidate(), subject, SystemClock(), patience=PATIENT, request_s=0.2)
        assert diagnosis.exit_status == 3
        streams = next(f for f in diagnosis.findings if f.name == "streams")
        assert "had not ended after 0.2 s" in streams.seen
        await lab.server.wait_disconnected(1)


# --- secrets, terminals, stopping


def echoing(key: str) -> list[Script]:
    """Servers that repeat the key wherever they can."""
    chunk = json.dumps(
        {"model": key, "choices": [{"index": 0, "delta": {"content": key}, "finish_reason": "stop"}]}
    )
    stream = f": {key}\n\nid: {key}\nevent: {key}\ndata: {chunk}\n\ndata: [DONE]\n\n".encode()
    return [
        Script(Raw((stream,))),
        Script(fault=Status(401, f"Incorrect API key provided: {key}.")),
        Script(fault=Status(400, f"Bad header Authorization: Bearer {key}", code=key)),
        Script(Raw((f'data: {{"error": {{"message": "{key}", "code": "{key}"}}}}\n\n'.encode(),))),
        Script(Raw((f"<html>{key}</html>".encode(),), "text/html")),
        Script(Raw((key.encode(),), "text/plain")),
        Script(Reply((CallTool(key, {key: key}),), model=key)),
        Script(Reply((Say(key),), finish=key)),
    ]


@pytest.mark.parametrize("number", range(len(echoing(KEY))))
@pytest.mark.parametrize("as_json", [True, False], ids=["json", "table"])
async def test_no_key_is_ever_printed(clinic: Clinic, number: int, *, as_json: bool) -> None:
    clinic.server.default = echoing(KEY)[number]
    _, printed = await clinic.examine(as_json=as_json, out=Screen())
    assert clinic.server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in "".join(printed.split())


async def test_nothing_a_provider_says_reaches_the_terminal(clinic: Clinic) -> None:
    evil = "\x1b[2J\x9b31m\u202eevil"
    clinic.server.default = Script(Reply((Say(COUNT),), model=evil))
    _, printed = await clinic.examine(as_json=False)
    clinic.server.default = Script(fault=Status(401, evil))
    _, refused = await clinic.examine(as_json=False)
    for text in (printed, refused):
        assert "evil" in text
        assert all(c.isprintable() or c == "\n" for c in text)


async def test_stopping_closes_the_connection_and_prints_nothing(clinic: Clinic) -> None:
    clinic.server.default = scenario("hang")
    out = io.StringIO()
    examination = asyncio.create_task(clinic.examine(out=out))
    await clinic.server.wait_requests(1)
    examination.cancel()
    with pytest.raises(asyncio.CancelledError):
        await examination
    await clinic.server.wait_disconnected(1)
    assert out.getvalue() == ""
    assert len(clinic.server.requests) == 1


async def test_a_providers_tap_is_gone_after_the_examination(clinic: Clinic) -> None:
    async with bench() as lab:
        candidate = lab.candidate()
        await diagnose(
            candidate, Subject(model_id="lab:model-1", provider="lab", model="model-1"), SystemClock()
        )
        assert candidate.provider.tap is None  # type: ignore[attr-defined]
