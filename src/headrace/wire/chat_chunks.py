"""Chat completions the other way: chunks for those who read our stream.

Theory of operation. All chunks of one answer begin and end alike, so the fixed bytes are made once and a delta costs
encoding its text. What goes into which chunk is a view's business; this module only knows how a chunk is written.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headrace.wire import sse

_json = msgspec.json.Encoder().encode

DONE: Final = sse.encode(b"[DONE]")


class Chunks:
    """Writes the chunks of one answer, each as the bytes of one server-sent event."""

    def __init__(self, answer_id: str, created: int, model: str) -> None:
        head = {"id": answer_id, "object": "chat.completion.chunk", "created": created, "model": model}
        self._head = b"data: " + _json(head)[:-1] + b',"choices":['
        self._delta = self._head + b'{"index":0,"delta":{'
        self._content = self._delta + b'"content":'
        self._reasoning = self._delta + b'"reasoning_content":'

    def role(self) -> bytes:
        return self._delta + b'"role":"assistant","content":""' + _OPEN

    def content(self, text: str) -> bytes:
        return self._content + _json(text) + _OPEN

    def reasoning(self, text: str) -> bytes:
        return self._reasoning + _json(text) + _OPEN

    def refusal(self, text: str) -> bytes:
        return self._delta + b'"refusal":' + _json(text) + _OPEN

    def call_started(self, index: int, tool_id: str, name: str) -> bytes:
        function = {"name": name, "arguments": ""}
        return self._calls([{"index": index, "id": tool_id, "type": "function", "function": function}])

    def call_grew(self, index: int, arguments: str) -> bytes:
        return self._calls([{"index": index, "function": {"arguments": arguments}}])

    def call_kept(self, index: int, fields: Mapping[str, Any]) -> bytes:
        """What the provider put beside a call and wants back with it."""
        return self._calls([{"index": index, **fields}])

    def finish(self, reason: str, extra: Mapping[str, Any] | None = None) -> bytes:
        """The terminal chunk; `extra` are top-level fields beside `choices`."""
        choice = b'{"index":0,"delta":{},"finish_reason":' + _json(reason) + b"}]"
        return self._head + choice + _tail(extra)

    def bare(self, extra: Mapping[str, Any]) -> bytes:
        """A chunk without choices: usage, progress, an error."""
        return self._head + b"]" + _tail(extra)

    def _calls(self, calls: list[dict[str, Any]]) -> bytes:
        return self._delta + b'"tool_calls":' + _json(calls) + _OPEN


_OPEN: Final = b'},"finish_reason":null}]}\n\n'


def _tail(extra: Mapping[str, Any] | None) -> bytes:
    return (b"," + _json(extra)[1:] if extra else b"}") + b"\n\n"
