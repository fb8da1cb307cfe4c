"""The clients under test, each a process that lives through all of its requests."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NODE = HERE / "node"

PYTHON_DRIVERS = {
    "openai": "openai_py",
    "langchain": "langchain",
    "litellm": "litellm",
    "llm": "llm_tool",
    "pydantic-ai": "pydantic_agent",
}
NODE_DRIVERS = {"openai-node": "openai", "ai-sdk": "ai"}
NAMES = (*PYTHON_DRIVERS, *NODE_DRIVERS)

STARTED_WITHIN_S = 60  # imports of some clients take seconds, on a busy machine many
ANSWERED_WITHIN_S = (
    30  # above the timeout each driver gives its client, so that hanging is the client's answer
)


def read_line(pipe: IO[bytes], within_s: float) -> bytes:
    """A line of an unbuffered pipe, or what there was of it: nothing, if the time was up or the process gone."""
    ready, _, _ = select.select([pipe], [], [], within_s)
    return pipe.readline() if ready else b""


class Hung(Exception):
    """A driver did not answer in time."""


def missing(name: str) -> str | None:
    """Why a client cannot be run here."""
    if name in PYTHON_DRIVERS:
        return None
    if shutil.which("node") is None:
        return "node is not installed"
    return None if (NODE / "node_modules").is_dir() else f"{NODE}/node_modules is not there: make clients"


@dataclass
class Client:
    name: str
    modes: frozenset[str] = frozenset()
    _process: subprocess.Popen[bytes] | None = None
    _noise: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    def start(self) -> None:
        if self.name in PYTHON_DRIVERS:
            command = [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                f"tests.clients.drivers.{PYTHON_DRIVERS[self.name]}",
            ]
        else:
            command = ["node", "--no-warnings", str(NODE / "driver.mjs"), NODE_DRIVERS[self.name]]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            env=_environment(),
        )
        self.modes = frozenset(self._read(STARTED_WITHIN_S))

    def ask(self, **asked: Any) -> dict[str, Any]:
        if self._process is None:
            self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = self._read(ANSWERED_WITHIN_S)
        return answer

    def _read(self, within_s: float) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        line = read_line(self._process.stdout, within_s)
        if not line.endswith(b"\n"):
            self._noise.seek(0)
            noise = self._noise.read()[-3000:].decode()
            self.stop()
            raise Hung(f"{self.name} said nothing within {within_s} s: {noise}")
        return json.loads(line)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
            self._process = None
        self._noise.close()


def _environment() -> dict[str, str]:
    """No proxy, no key and no telemetry of the machine's."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "NO_PROXY": "*", "LANGSMITH_TRACING": "false", "PYTHONUTF8": "1"}
