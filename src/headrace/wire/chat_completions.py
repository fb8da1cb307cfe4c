"""OpenAI's chat completions, as OpenAI and the many who follow it send them.

Theory of operation. `Decoder` reads a stream, `BodyDecoder` a whole answer; both hand choice after choice to one
`_Reply`, which knows what a delta means. Chunks are read into typed structs that refuse fields nobody named; a chunk
that does not fit goes the slow way through plain JSON, where oddities are brought into the same shape and unknown
fields are kept for replay. What follows is the same for both ways.

    deltas --finish reason--> finished --[DONE], EOF--> done
    deltas --[DONE]--> done, if every tool call is whole        deltas --EOF--> failed: no terminal evidence

A finish reason does not end the stream: usage follows it, and some providers finish once per parallel call. Tool calls
are told apart by `ToolCalls`, which holds all that is known of how providers number them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from headrace.errors import CallError, MalformedStream
from headrace.events import Event, ReplyEnded, UsageReported
from headrace.wire import failures, feeding, finish, jsontext
from headrace.wire.dialect import PLAIN, Dialect, Tools
from headrace.wire.feeding import no_terminal
from headrace.wire.kept import Kept
from headrace.wire.parts import Parts
from headrace.wire.prose import Prose
from headrace.wire.tool_deltas import Function, ToolCalls, ToolDelta


class _Delta(msgspec.Struct, forbid_unknown_fields=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolDelta] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta
    index: int = 0
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: dict[str, Any] | None = None
    model: str | None = None
    error: Any = None
    x_groq: dict[str, Any] | None = None


_read_chunk = msgspec.json.Decoder(_Chunk).decode

_DELTA_FIELDS: Final = frozenset(_Delta.__struct_fields__) | {"function_call"}
_CALL_FIELDS: Final = frozenset(ToolDelta.__struct_fields__)

MODEL_MAX_CHARS: Final = 200


# --- the slow way: bringing oddities into shape ---------------------------------------------------------


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _read_object(data: bytes, what: str) -> dict[str, Any]:
    value = jsontext.parse(data, what)
    if not isinstance(value, dict):
        raise MalformedStream(f"{what} is not a JSON object")
    return value


def _error_of(data: bytes) -> Any:
    """What an event that is named an error holds: JSON, or a sentence."""
    try:
        return jsontext.parse(data)
    except MalformedStream:
        return data.decode(errors="replace")


def _prose_of(content: Any) -> Iterator[tuple[Literal["content", "reasoning"], str]]:
    """Content as text or as a list of parts, which Mistral sends, thinking among them."""
    if isinstance(content, str):
        yield "content", content
    for part in _list(content):
        if isinstance(part, str):
            yield "content", part
        elif isinstance(part, dict):
            thinking = part.get("thinking")
            inner = [{"text": thinking}] if isinstance(thinking, str) else _list(thinking)
            yield "reasoning", "".join(_text(_mapping(piece).get("text")) for piece in inner)
            yield "content", _text(part.get("text"))


def _calls_of(delta: dict[str, Any], *, whole: bool) -> list[tuple[ToolDelta, dict[str, Any]]]:
    """The deltas of tool calls, each with its unknown fields. In a whole message every entry is a call of its own."""
    calls = [call for call in _list(delta.get("tool_calls")) if isinstance(call, dict)]
    if isinstance(delta.get("function_call"), dict):
        calls.append({"index": 0, "function": delta["function_call"]})
    if whole:
        calls = [{**call, "index": index} for index, call in enumerate(calls)]
    return [(_tool_delta(call), _unknown_of(call)) for call in calls]


def _tool_delta(call: dict[str, Any]) -> ToolDelta:
    function = _mapping(call.get("function"))
    arguments = function.get("arguments")
    if isinstance(arguments, dict | list):
        arguments = jsontext.dump(arguments)
    index = call.get("index")
    return ToolDelta(
        index=index if isinstance(index, int) else None,
        id=str(call["id"]) if call.get("id") is not None else None,
        function=Function(_text(function.get("name")), _text(arguments)),
    )


def _unknown_of(call: dict[str, Any]) -> dict[str, Any]:
    function = _mapping(call.get("function"))
    unknown = {name: value for name, value in call.items() if name not in _CALL_FIELDS}
    inner = {name: value for name, value in function.items() if name not in ("name", "arguments")}
    return {**unknown, "function": inner} if inner else unknown


# --- usage ----------------------------------------------------------------------------------------------


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def read_usage(call: int, usage: Mapping[str, Any]) -> UsageReported:
    sent = _mapping(usage.get("prompt_tokens_details"))
    made = _mapping(usage.get("completion_tokens_details"))
    # OpenAI's place for it, DeepSeek's, Kimi's.
    cached = (sent.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens"))
    return UsageReported(
        call,
        input_tokens=_number(usage.get("prompt_tokens")),
        output_tokens=_number(usage.get("completion_tokens")),
        reasoning_tokens=_number(made.get("reasoning_tokens")),
        cache_read_tokens=next((n for n in map(_number, cached) if n is not None), None),
        cache_write_tokens=_number(sent.get("cache_write_tokens")),
    )


# --- the reply ------------------------------------------------------------------------------------------


class _Reasoning:
    """The provider's own reasoning, shown block by block, and the fields that are sent back with it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.unknown = Kept(parts.count)
        self._field = ""
        self._pieces: list[str] = []
        self._open = False
        self._sent: dict[str, Any] | None = None  # the item of the first block

    def grow(self, text: str, field: str = "") -> None:
        if text:
            self._open = True
            self._field = field or self._field
            self._pieces.append(text)
            self._parts.grow("reasoning", text)

    def close(self) -> None:
        """End the block under way, if one is. The first takes along what there is to send back."""
        if not self._open:
            return
        self._open = False
        if self._sent is None:
            self._sent = {k: v for k, v in self._fields().items() if k in (self._field, "reasoning_details")}
            self._parts.set_item(jsontext.dump(self._sent) if self._sent else "")
        self._parts.close_prose()

    def leftover(self) -> dict[str, Any]:
        """What has to be sent back and is in no item, or has grown since."""
        sent = self._sent or {}
        return {name: value for name, value in self._fields().items() if sent.get(name) != value}

    def _fields(self) -> dict[str, Any]:
        text = {self._field: "".join(self._pieces)} if self._field else {}
        return text | self.unknown.fields()


class _Reply:
    """What the deltas of one choice add up to."""

    def __init__(self, call: int, first_part: int, dialect: Dialect, tools: Tools) -> None:
        self._call = call
        self._dialect = dialect
        self.parts = Parts(call, first_part)
        self._prose = Prose(self.parts, dialect, tools)
        self._reasoning = _Reasoning(self.parts)
        self._calls = ToolCalls(self.parts, tools, cumulative=dialect.cumulative)
        self._seen = {"content": 0, "reasoning": 0, "refusal": 0}  # characters, for cumulative deltas
        self._usage: dict[str, Any] = {}
        self._refusing = False
        self._model = ""
        self._reason = ""
        self.closed = False
        """The peer has ended its body."""
        self.done = False

    @property
    def finished(self) -> bool:
        return bool(self._reason)

    # --- what the decoders bring

    def event(self, data: bytes, name: bytes) -> None:
        if name == b"error":
            raise failures.call_error(_error_of(data))
        try:
            chunk = _read_chunk(data)
        except (ValueError, RecursionError):
            self._odd_chunk(_read_object(data, "a chunk"))
            return
        if chunk.error is None and (chunk.choices or chunk.usage):
            self._chunk(chunk)
        else:
            self._odd_chunk(_read_object(data, "a chunk"))

    def body(self, data: bytes) -> None:
        answer = _read_object(data, "an answer")
        self._odd_chunk(answer)
        if not _list(answer.get("choices")):
            raise MalformedStream("an answer without choices")
        if not self._reason:
            raise no_terminal("it names no reason for its end")
        self.end_of_stream()

    def end_of_stream(self) -> None:
        """At `[DONE]`, at the end of a whole answer, or when the stream is closed, which alone is no evidence."""
        if self.closed and not self._reason:
            raise no_terminal("the connection was closed before the answer had ended")
        if (self.closed and self._calls) or not (self._reason or self._calls.all_whole()):
            raise no_terminal("the stream ended within a tool call")
        self._settle()
        end = finish.meaning(self._reason, has_calls=self.parts.calls > 0)
        if isinstance(end, CallError):
            raise end
        if end == "stop" and self._refusing:
            end = "refused"
        if leftover := self._reasoning.leftover():
            self.parts.opaque(jsontext.dump(leftover))
        self.parts.close_prose()
        model = failures.clip(self._model, MODEL_MAX_CHARS)
        self.parts.out += [*self.usage(), ReplyEnded(self._call, end, model, self._reason)]
        self.done = True

    def usage(self) -> list[Event]:
        """Once, at the end: a count that comes with every chunk would double the log."""
        return [read_usage(self._call, self._usage)] if self._usage else []

    # --- chunks, the fast way and the slow way

    def _chunk(self, chunk: _Chunk) -> None:
        for choice in chunk.choices:
            if choice.error is not None:
                raise failures.call_error({"error": choice.error})
            if choice.index == 0:
                self._choice(choice)
        if chunk.usage:
            self._usage = chunk.usage
        elif chunk.x_groq is not None:
            self._usage = _mapping(chunk.x_groq.get("usage")) or self._usage
        if chunk.model:
            self._model = chunk.model

    def _choice(self, choice: _Choice) -> None:
        delta = choice.delta
        if delta.reasoning_content or delta.reasoning:
            self._reasoned(delta)
        if delta.content:
            self._content(delta.content)
        if delta.refusal:
            self._refused(delta.refusal)
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._tool(call)
        if choice.usage:
            self._usage = choice.usage
        if choice.finish_reason:
            self._finish(choice.finish_reason)

    def _odd_chunk(self, chunk: dict[str, Any]) -> None:
        usage = _mapping(chunk.get("usage")) or _mapping(_mapping(chunk.get("x_groq")).get("usage"))
        self._usage = usage or self._usage
        if chunk.get("error") is not None or "error" in (chunk.get("object"), chunk.get("type")):
            raise failures.call_error(chunk)
        self._model = _text(chunk.get("model")) or self._model
        for choice in _list(chunk.get("choices")):
            if not isinstance(choice, dict):
                raise MalformedStream("a choice is not a JSON object")
            if choice.get("error") is not None:
                raise failures.call_error({"error": choice["error"]})
            if choice.get("index") in (0, None):
                self._odd_choice(choice)

    def _odd_choice(self, choice: dict[str, Any]) -> None:
        whole = choice.get("delta") is None
        delta = _mapping(choice.get("message" if whole else "delta"))
        unknown = {name: value for name, value in delta.items() if name not in _DELTA_FIELDS}
        if unknown:
            self._reasoning.unknown.add(unknown)
        self._reasoned(
            _Delta(
                reasoning_content=_text(delta.get("reasoning_content")),
                reasoning=_text(delta.get("reasoning")),
            )
        )
        for kind, text in _prose_of(delta.get("content")):
            if kind == "content":
                self._content(text)
            else:
                self._reasoning.grow(self._fresh("reasoning", text))
        self._refused(_text(delta.get("refusal")))
        for call, kept in _calls_of(delta, whole=whole):
            self._tool(call, kept)
        self._usage = _mapping(choice.get("usage")) or self._usage
        if reason := _text(choice.get("finish_reason")):
            self._finish(reason)

    # --- what a delta says

    def _fresh(self, what: str, text: str) -> str:
        """The part of a cumulative delta that is new."""
        if not self._dialect.cumulative:
            return text
        if jsontext.ends_in_half(text):
            text = text[:-1]  # the next delta has the character whole
        seen, self._seen[what] = self._seen[what], max(self._seen[what], len(text))
        return text[seen:]

    def _content(self, text: str) -> None:
        if self._dialect.cumulative:
            text = self._fresh("content", text)
        if text:
            self._reasoning.close()
            self._prose.feed(text)

    def _refused(self, text: str) -> None:
        text = self._fresh("refusal", text)
        if text:
            self._reasoning.close()
            self._prose.end()
            self._refusing = True
            self.parts.grow("refusal", text)

    def _reasoned(self, delta: _Delta) -> None:
        """Providers send one of the two names, or both with the same text."""
        if delta.reasoning_content:
            self._reasoning.grow(self._fresh("reasoning", delta.reasoning_content), "reasoning_content")
        elif delta.reasoning:
            self._reasoning.grow(self._fresh("reasoning", delta.reasoning), "reasoning")

    def _tool(self, delta: ToolDelta, unknown: Mapping[str, Any] | None = None) -> None:
        self._reasoning.close()
        self._prose.end()
        self._calls.add(delta, unknown)

    def _finish(self, reason: str) -> None:
        if finish.is_ordinary(self._reason):
            self._reason = reason
        self._settle()

    def _settle(self) -> None:
        self._reasoning.close()
        self._prose.end()
        self._calls.close()


class Decoder(feeding.StreamDecoder):
    """A stream of chunks to events; see `headrace.wire` for the contract."""

    def __init__(
        self, call: int = 1, first_part: int = 1, dialect: Dialect = PLAIN, tools: Tools | None = None
    ) -> None:
        self._chat = _Reply(call, first_part, dialect, tools or {})
        super().__init__(self._chat)

    def _end(self) -> None:
        self._chat.closed = True
        super()._end()


class BodyDecoder(feeding.BodyDecoder):
    """A whole, non-streaming answer to the same events."""

    def __init__(
        self, call: int = 1, first_part: int = 1, dialect: Dialect = PLAIN, tools: Tools | None = None
    ) -> None:
        super().__init__(_Reply(call, first_part, dialect, tools or {}))
