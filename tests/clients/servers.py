"""The servers that the clients are tried against: what is behind a fault's name is each server's business."""

import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.clients.canned import BEHAVES, CHAT_STREAMS, RESPONSES_STREAMS, canned
from tests.clients.clients import ROOT, read_line

PYTHON = ROOT / ".venv/bin/python"
HEADRACE = ROOT / ".venv/bin/headrace"
KEY = "a-key-for-the-clients-0123456789"
READY_WITHIN_S = 30

Outcome = Literal["stop", "length", "content_filter", "tool_calls", "failure"]


@dataclass(frozen=True)
class Fault:
    """What happens upstream, by the name of the model server's scenario, and what a client has to make of it."""

    scenario: str
    outcome: Outcome
    when: Literal["early", "mid-text", "mid-call", "refused", ""] = ""

    @property
    def tools(self) -> bool:
        return self.outcome == "tool_calls" or self.when == "mid-call"


FAULTS = (
    Fault("hello", "stop"),
    Fault("reasoning", "stop"),
    Fault("no-done", "stop"),  # the model server leaves the usage out as well, which follows the finish
    Fault("length", "length"),
    Fault("content-filter", "content_filter"),
    Fault("everything", "tool_calls"),
    Fault("close-mid-text", "failure", "mid-text"),
    Fault("reset-mid-text", "failure", "mid-text"),
    Fault("eof-mid-text", "failure", "mid-text"),
    Fault("error-mid-text", "failure", "mid-text"),
    Fault("malformed-mid-text", "failure", "mid-text"),
    Fault("stall-mid-text", "failure", "mid-text"),
    Fault("close-mid-arguments", "failure", "mid-call"),
    Fault("eof-mid-arguments", "failure", "mid-call"),
    Fault("close-before-headers", "failure", "early"),
    Fault("empty-stream", "failure", "early"),
    Fault("error-before-first-token", "failure", "early"),
    Fault("status:400", "failure", "refused"),
    Fault("status:401", "failure", "refused"),
    Fault("status:429", "failure", "refused"),
    Fault("status:503", "failure", "refused"),
)


@dataclass
class Server:
    name: str
    base_url: str
    key: str
    _canned: bool = False
    requests: Counter[str] = field(default_factory=Counter)

    def model(self, fault: Fault, mode: str) -> str:
        """The model whose answers have this fault."""
        return _recipe(fault, mode) if self._canned else f"up:script:{fault.scenario}"

    @property
    def behaves(self) -> str:
        """A model that calls a tool when told to, counts its tokens and never fails."""
        return BEHAVES if self._canned else f"canned:{BEHAVES}"


CHOSEN_CHAT = "bare-terminal"
CHOSEN_RESPONSES = "failed-both"


def _recipe(fault: Fault, mode: str) -> str:
    """What a door would make of the fault."""
    recipes = CHAT_STREAMS if mode.startswith("chat") else RESPONSES_STREAMS
    chosen = CHOSEN_CHAT if mode.startswith("chat") else CHOSEN_RESPONSES
    match fault.outcome, fault.when:
        case "failure", "refused":
            return fault.scenario.replace("status:", "status-")
        case "failure", "early" | "mid-call" as when:
            return f"{chosen}-{when}"
        case "failure", _:
            return chosen
        case outcome, _:
            recipe = fault.scenario if fault.scenario in recipes else outcome
            return recipe.replace("_", "-")


@contextmanager
def canned_server() -> Iterator[Server]:
    with canned() as (base_url, requests):
        yield Server("canned", base_url, KEY, True, requests)


CONFIG = """\
model: up:script:hello
providers:
  up: {{base_url: "{upstream}/v1"}}
  canned: {{base_url: "{canned}"}}
streaming:
  retries: 0
  stall: {{connect_s: 5, first_event_s: 5, gap_s: 1, no_progress_s: 5}}
"""


@contextmanager
def headrace_server() -> Iterator[Server]:
    """`headrace serve` before the model server and the canned one, processes as people run them."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        canned_url, _ = stack.enter_context(canned())
        upstream = stack.enter_context(_running([str(PYTHON), "-m", "headrace.testing.modelserver"], home))
        (home / "config.yaml").write_text(
            CONFIG.format(upstream=upstream, canned=canned_url), encoding="utf-8"
        )
        url = stack.enter_context(_running([str(HEADRACE), "serve", "--port", "0"], home))
        yield Server("headrace", f"{url}/v1", KEY)


def headrace_missing() -> str | None:
    """Why there is no API to try here."""
    if not HEADRACE.exists():
        return f"{HEADRACE} is not there: make clients"
    asked = subprocess.run([str(HEADRACE), "serve", "--help"], capture_output=True, timeout=60, check=False)
    return None if asked.returncode == 0 else "headrace has no `serve`"


@contextmanager
def _running(command: list[str], home: Path) -> Iterator[str]:
    """A process that says `ready URL` when it listens; other lines it prints are passed over."""
    environment = {**os.environ, "HEADRACE_HOME": str(home), "HEADRACE_API_KEY": KEY, "NO_PROXY": "*"}
    with tempfile.TemporaryFile() as noise:
        process = subprocess.Popen(command, bufsize=0, stdout=subprocess.PIPE, stderr=noise, env=environment)
        assert process.stdout is not None
        try:
            word = url = ""
            while word != "ready":
                line = read_line(process.stdout, READY_WITHIN_S).decode()
                if not line:
                    noise.seek(0)
                    raise RuntimeError(f"{command} did not become ready: {noise.read()[-3000:].decode()}")
                word, _, url = line.strip().partition(" ")
            yield url
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)
            process.stdout.close()
