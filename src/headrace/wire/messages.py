"""Anthropic's messages: content blocks that start, grow and stop, several at once if need be.

Theory of operation. One `_Reply` reads the events of a stream and the message of a whole body; a body's blocks are
blocks that start whole and stop. Deltas with text are read into typed structs, everything else as plain JSON.
`messages_blocks` knows what becomes of a block.

    message_start --> content_block_start, _delta, _stop ... --> message_delta with a stop reason --> finished
    finished --message_stop, EOF--> done        without a stop reason either of them is a failure

A stop reason is the only terminal evidence, in a body too. Usage is cumulative: of every count the highest is kept,
since some servers repeat a count as 0. Events nobody knows are ignored.
"""

from typing import Any, Final

import msgspec

from headrace.errors import CallError, MalformedStream
from headrace.events import Event, ReplyEnded, UsageReported
from headrace.limits import REPLY_MAX_PARTS
from headrace.wire import failures, finish, jsontext
from headrace.wire.dialect import PLAIN, Dialect, Tools
from headrace.wire.feeding import BodyDecoder as _BodyDecoder
from headrace.wire.feeding import StreamDecoder, no_terminal
from headrace.wire.messages_blocks import TEXT_OF, Block, Room, start
from headrace.wire.parts import Parts


class _Delta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int | None = None
    delta: _Delta | None = None


_read_event = msgspec.json.Decoder(_Event).decode

_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "thinking_tokens",
)


def _read_slowly(data: bytes, what: str) -> dict[str, Any]:
    value = jsontext.parse(data, what)
    if not isinstance(value, dict):
        raise MalformedStream(f"{what} is not a JSON object")
    return value


def _part_of(event: dict[str, Any], name: str) -> dict[str, Any]:
    value = event.get(name)
    if not isinstance(value, dict):
        raise MalformedStream(f"an event without its {name}")
    return value


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return jsontext.repair(value) if isinstance(value, str) else ""


class _Usage:
    """The counts as far as they have come."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def take(self, usage: Any) -> None:
        counts = {**_mapping(usage), **_mapping(_mapping(usage).get("output_tokens_details"))}
        for name in _COUNTS:
            count = counts.get(name)
            if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
                self._counts[name] = max(count, self._counts.get(name, 0))

    def take_start(self, usage: Any) -> None:
        """Before the answer: what was sent is counted, what is generated only begins."""
        self.take({**_mapping(usage), "output_tokens": None, "output_tokens_details": None})

    def report(self, call: int) -> list[Event]:
        if not self._counts:
            return []
        read = self._counts.get("cache_read_input_tokens")
        written = self._counts.get("cache_creation_input_tokens")
        sent = self._counts.get("input_tokens")
        return [
            UsageReported(
                call,
                input_tokens=None if sent is None else sent + (read or 0) + (written or 0),
                output_tokens=self._counts.get("output_tokens"),
                reasoning_tokens=self._counts.get("thinking_tokens"),
                cache_read_tokens=read,
                cache_write_tokens=written,
            )
        ]


class _Reply:
    """What the events of one message add up to."""

    def __init__(self, call: int, first_part: int, dialect: Dialect, tools: Tools) -> None:
        self._call = call
        self.parts = Parts(call, first_part)
        self._room = Room(self.parts, dialect, tools)
        self._blocks: dict[int, Block] = {}
        self._usage = _Usage()
        self._model = ""
        self._reason = ""
        self.done = False

    @property
    def finished(self) -> bool:
        return bool(self._reason)

    def usage(self) -> list[Event]:
        return self._usage.report(self._call)

    def event(self, data: bytes, name: bytes) -> None:
        try:
            event = _read_event(data)
        except (ValueError, RecursionError):
            event = None
        if event is None or event.type != "content_block_delta" or not self._grow(event.index, event.delta):
            self._slowly(_read_slowly(data, "an event"), name)

    def _grow(self, index: int | None, delta: _Delta | None) -> bool:
        """Take a delta the common way, if it can be taken so."""
        block = self._blocks.get(index) if index is not None else None
        if block is None or delta is None or delta.type != block.takes:
            return False
        if delta.type == "text_delta":
            text = delta.text
        elif delta.type == "input_json_delta":
            text = delta.partial_json
        else:
            text = delta.thinking
        if text is None:
            return False
        block.grow(text)
        return True

    def _slowly(self, event: dict[str, Any], name: bytes) -> None:
        match _text(event.get("type")) or name.decode("ascii", "replace"):
            case "content_block_start":
                self._start(_index(event), _part_of(event, "content_block"))
            case "content_block_delta":
                self._delta(self._open(event), _part_of(event, "delta"))
            case "content_block_stop":
                self._open(event).close()
                del self._blocks[_index(event)]
            case "message_start":
                message = _part_of(event, "message")
                self._model = _text(message.get("model"))
                self._usage.take_start(message.get("usage"))
            case "message_delta":
                self._usage.take(event.get("usage"))
                self._reason = _text(_part_of(event, "delta").get("stop_reason")) or self._reason
            case "message_stop":
                self.end_of_stream()
            case "error":
                raise failures.call_error(_error(event))
            case "":
                raise self._untyped(event)
            case _:  # a ping, or what nobody knows
                pass

    def _start(self, index: int, fields: dict[str, Any]) -> None:
        if index in self._blocks:
            raise MalformedStream("a block starts within itself")
        if len(self._blocks) >= REPLY_MAX_PARTS:
            raise MalformedStream(f"a reply has more than {REPLY_MAX_PARTS} blocks")
        self._blocks[index] = start(self._room, fields)

    def _open(self, event: dict[str, Any]) -> Block:
        block = self._blocks.get(_index(event))
        if block is None:
            raise MalformedStream("an event for a block that is not open")
        return block

    def _delta(self, block: Block, delta: dict[str, Any]) -> None:
        kind = _text(delta.get("type"))
        if not kind:
            raise MalformedStream("a delta without a type")
        if kind != block.takes:
            block.merge(delta)
            return
        text = delta.get(TEXT_OF[kind])
        if not isinstance(text, str):
            raise MalformedStream(f"a {kind} without its text")
        block.grow(text)

    def _untyped(self, event: dict[str, Any]) -> CallError:
        if event.get("error") is not None:
            return failures.call_error(_error(event))
        return MalformedStream("an event without a type")

    def body(self, data: bytes) -> None:
        message = _read_slowly(data, "an answer")
        self._model = _text(message.get("model"))
        self._usage.take(message.get("usage"))
        if message.get("type") == "error" or message.get("error") is not None:
            raise failures.call_error(_error(message))
        content = message.get("content")
        if not isinstance(content, list):
            raise MalformedStream("an answer without content")
        for fields in content:
            if not isinstance(fields, dict):
                raise MalformedStream("a block is not a JSON object")
            start(self._room, fields).close()
        self._reason = _text(message.get("stop_reason"))
        self.end_of_stream()

    def end_of_stream(self) -> None:
        if not self._reason:
            raise no_terminal("it ended without a stop reason")
        end = finish.meaning(self._reason, has_calls=self.parts.calls > 0)
        if end == "tool_calls" and not all(block.whole for block in self._blocks.values()):
            raise no_terminal("the stream ended within a tool call")
        for block in self._blocks.values():
            block.close()
        self._blocks.clear()
        if isinstance(end, CallError):
            raise end
        self.parts.out += [*self.usage(), ReplyEnded(self._call, end, self._model, self._reason)]
        self.done = True


def _index(event: dict[str, Any]) -> int:
    index = event.get("index")
    if not isinstance(index, int) or isinstance(index, bool):
        raise MalformedStream("an event for a block without its index")
    return index


def _error(event: dict[str, Any]) -> Any:
    """The error of an event: nested, or the event itself without the type that says no more than that."""
    if event.get("error") is not None:
        return event["error"]
    return {name: value for name, value in event.items() if name != "type"}


class Decoder(StreamDecoder):
    """A stream of events; see `headrace.wire` for the contract."""

    def __init__(
        self, call: int = 1, first_part: int = 1, dialect: Dialect = PLAIN, tools: Tools | None = None
    ) -> None:
        super().__init__(_Reply(call, first_part, dialect, tools or {}))


class BodyDecoder(_BodyDecoder):
    """A whole, non-streaming answer to the same events."""

    def __init__(
        self, call: int = 1, first_part: int = 1, dialect: Dialect = PLAIN, tools: Tools | None = None
    ) -> None:
        super().__init__(_Reply(call, first_part, dialect, tools or {}))
