"""How a driver is spoken to: a request is one JSON line on stdin, the answer one JSON line on stdout.

A driver lives through many requests, because importing some clients takes seconds. What a client raises is an answer
too. Each client's own retries are off where it has a setting, so that one request is one request.
"""

import gc
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Asked:
    base_url: str
    key: str
    model: str
    mode: str
    starting_after: int | None = None


@dataclass
class Answer:
    """What a client showed its user. `ok` is false if it reported a failure, by whatever means it has."""

    ok: bool = True
    text: str = ""
    reasoning: str = ""
    finish: str | None = None
    tool_calls: list[dict[str, str]] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    error: str | None = None
    error_type: str | None = None

    def failed(self, kind: str, message: str) -> None:
        self.ok, self.error_type, self.error = False, kind, message


Mode = Callable[[Asked, Answer], None]

PROMPT = "What is the weather in Kinlochleven?"
TOOL = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}


def speak(modes: Mapping[str, Mode]) -> None:
    """Answer until stdin ends. What clients print goes to stderr: stdout is the harness's."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    print(json.dumps(sorted(modes)), file=out, flush=True)
    gc.freeze()
    for line in sys.stdin:
        asked = Asked(**json.loads(line))
        answer = Answer()
        try:
            modes[asked.mode](asked, answer)
        except Exception as error:  # noqa: BLE001 - how a client fails is what is asked
            answer.failed(type(error).__name__, str(error)[:2000])
        # A client that fails may leave its stream open. The collector would close it wherever it comes by next, and in
        # httpcore's pool that is under a lock which closing waits for.
        gc.collect()
        print(json.dumps(asdict(answer)), file=out, flush=True)
