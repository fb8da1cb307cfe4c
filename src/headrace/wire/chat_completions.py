"""OpenAI's chat completions, as OpenAI and the many who follow it send them.

Theory of operation. `Decoder` reads a stream, `BodyDecoder` a whole answer; both hand `Choice` after choice to one
`_Reply`, which knows what a delta means. Chunks are read into typed structs that refuse fields nobody named; a chunk
that does not fit goes the slow way through plain JSON, where oddities are brought into the same shape and unknown
fields are kept for replay. What follows is the same for both ways.

    deltas --finish reason--> finished --[DONE], EOF--> done
    deltas --[DONE]--> done, if every tool call is whole        deltas --EOF--> failed: no terminal evidence

A finish reason does not end the stream: usage follows it, and some providers finish once per parallel call. Tool calls
are told apart by `ToolCalls`, which holds all that is known of how providers number them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headrace.errors import CallError, Cause, MalformedStream
from headrace.events import Event, ReplyEnded, UsageReported
from headrace.limits import BODY_MAX_BYTES
from headrace.wire import failures, finish, jsontext, sse
from headrace.wire.dialect import PLAIN, Dialect, Tools
from headrace.wire.parts import Parts
from headrace.wire.prose import Prose
from headrace.wire.tool_deltas import Function, ToolCalls, ToolDelta, merge


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

_DELTA_FIELDS: Final = frozenset(_Delta.__struct_fields__)
_CALL_FIELDS: Final = frozenset(ToolDelta.__struct_fields__)


# --- the slow way: bringing oddities into shape ---------------------------------------------------------


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _read_slowly(data: bytes) -> Any:
    value = jsontext.parse(data, "a chunk")
    if not isinstance(value, dict):
        raise MalformedStream("a chunk is not a JSON object")
    return value


class _Odd:
    """A choice as plain JSON, in pieces that `_Reply` understands."""

    def __init__(self, choice: dict[str, Any]) -> None:
        raw = choice.get("delta")
        delta = _mapping(choice.get("message") if raw is None else raw)
        self.reasoning: list[str] = []
        self.content: list[str] = []
        self._split_content(delta.get("content"))
        self.delta = _Delta(
            role=None,
            reasoning_content=_text(delta.get("reasoning_content")),
            reasoning=_text(delta.get("reasoning")),
            refusal=_text(delta.get("refusal")),
        )
        calls = [c for c in _list(delta.get("tool_calls")) if isinstance(c, dict)]
        if isinstance(delta.get("function_call"), dict):
            calls.append({"index": 0, "function": delta["function_call"]})
        self.calls = [(_tool_delta(c), _unknown_of(c)) for c in calls]
        self.unknown = {k: v for k, v in delta.items() if k not in _DELTA_FIELDS and k != "function_call"}

    def _split_content(self, content: Any) -> None:
        if isinstance(content, str):
            self.content.append(content)
        for part in _list(content):
            if isinstance(part, str):
                self.content.append(part)
            elif isinstance(part, dict):
                self.content.append(_text(part.get("text")) or "")
                thinking = part.get("thinking")
                pieces = _list(thinking) if not isinstance(thinking, str) else [{"text": thinking}]
                self.reasoning += [_text(_mapping(p).get("text")) or "" for p in pieces]


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
    unknown = {k: v for k, v in call.items() if k not in _CALL_FIELDS}
    inner = {k: v for k, v in function.items() if k not in ("name", "arguments")}
    return {**unknown, "function": inner} if inner else unknown


# --- usage ----------------------------------------------------------------------------------------------


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def read_usage(call: int, usage: Mapping[str, Any]) -> UsageReported:
    sent = _mapping(usage.get("prompt_tokens_details"))
    made = _mapping(usage.get("completion_tokens_details"))
    cached = _number(sent.get("cached_tokens"))
    if cached is None:
        cached = _number(usage.get("prompt_cache_hit_tokens"))
    return UsageReported(
        call,
        input_tokens=_number(usage.get("prompt_tokens")),
        output_tokens=_number(usage.get("completion_tokens")),
        reasoning_tokens=_number(made.get("reasoning_tokens")),
        cache_read_tokens=cached,
        cache_write_tokens=_number(sent.get("cache_write_tokens")),
    )


# --- the reply ------------------------------------------------------------------------------------------


class _Reply:
    """What the deltas of one choice add up to."""

    def __init__(self, call: int, first_part: int, dialect: Dialect, tools: Tools) -> None:
        self._call = call
        self._dialect = dialect
        self.parts = Parts(call, first_part)
        self._prose = Prose(self.parts, dialect, tools)
        self.calls = ToolCalls(self.parts, tools, cumulative=dialect.cumulative)
        self._seen = {"content": 0, "reasoning": 0, "refusal": 0}  # characters, for cumulative deltas
        self._reasoning_field = ""
        self._reasoning: list[str] = []
        self._unknown: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None
        self.model = ""
        self.reason = ""

    def chunk(self, chunk: _Chunk) -> None:
        if chunk.error is not None:
            raise failures.call_error(chunk.error)
        for choice in chunk.choices:
            if choice.error is not None:
                raise failures.call_error(choice.error)
            if choice.index == 0:
                self._choice(choice)
        if chunk.usage is not None:
            self._usage = chunk.usage
        elif chunk.x_groq is not None and isinstance(chunk.x_groq.get("usage"), dict):
            self._usage = chunk.x_groq["usage"]
        if chunk.model:
            self.model = chunk.model

    def _choice(self, choice: _Choice) -> None:
        delta = choice.delta
        if delta.content and not delta.reasoning_content and not delta.reasoning:
            self._content(delta.content)
        elif delta.content or delta.reasoning_content or delta.reasoning:
            self._reasoned(delta)
            self._content(delta.content or "")
        if delta.refusal:
            self._refused(delta.refusal)
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._tool(call)
        if choice.usage is not None:
            self._usage = choice.usage
        if choice.finish_reason:
            self._finish(choice.finish_reason)

    def odd_chunk(self, chunk: dict[str, Any]) -> None:
        if chunk.get("error") is not None or "error" in (chunk.get("object"), chunk.get("type")):
            raise failures.call_error(chunk)
        for choice in _list(chunk.get("choices")):
            if not isinstance(choice, dict):
                raise MalformedStream("a choice is not a JSON object")
            if choice.get("error") is not None:
                raise failures.call_error(choice)
            if choice.get("index") in (0, None):
                self._odd_choice(choice)
        usage = _mapping(chunk.get("usage")) or _mapping(_mapping(chunk.get("x_groq")).get("usage"))
        self._usage = usage or self._usage
        self.model = _text(chunk.get("model")) or self.model

    def _odd_choice(self, choice: dict[str, Any]) -> None:
        odd = _Odd(choice)
        merge(self._unknown, odd.unknown)
        self._reasoned(odd.delta)
        for piece in odd.reasoning:
            self._grow_reasoning(piece)
        for piece in odd.content:
            self._content(piece)
        if odd.delta.refusal:
            self._refused(odd.delta.refusal)
        for call, unknown in odd.calls:
            self._tool(call, unknown)
        self._usage = _mapping(choice.get("usage")) or self._usage
        if isinstance(choice.get("finish_reason"), str) and choice["finish_reason"]:
            self._finish(choice["finish_reason"])

    def _fresh(self, what: str, text: str) -> str:
        """The part of a cumulative delta that is new."""
        if not self._dialect.cumulative:
            return text
        seen, self._seen[what] = self._seen[what], max(self._seen[what], len(text))
        return text[seen:]

    def _content(self, text: str) -> None:
        text = self._fresh("content", text)
        if text:
            self._end_reasoning()
            self._prose.feed(text)

    def _refused(self, text: str) -> None:
        self._end_reasoning()
        self.parts.grow("refusal", self._fresh("refusal", text))

    def _reasoned(self, delta: _Delta) -> None:
        """Providers send one of the two names, or both with the same text."""
        field = "reasoning_content" if delta.reasoning_content else "reasoning"
        text = delta.reasoning_content or delta.reasoning
        if text:
            self._reasoning_field = field
            self._grow_reasoning(self._fresh("reasoning", text))

    def _grow_reasoning(self, text: str) -> None:
        if text:
            self._reasoning.append(text)
            self.parts.grow("reasoning", text)

    def _end_reasoning(self) -> None:
        """Close the provider's own reasoning with what it wants to see again."""
        if not self._reasoning:
            return
        item: dict[str, Any] = {}
        if self._reasoning_field:
            item[self._reasoning_field] = "".join(self._reasoning)
        if "reasoning_details" in self._unknown:
            item["reasoning_details"] = self._unknown.pop("reasoning_details")
        self._reasoning.clear()
        self.parts.set_item(jsontext.dump(item) if item else "")
        self.parts.close_prose()

    def _tool(self, delta: ToolDelta, unknown: Mapping[str, Any] | None = None) -> None:
        self._end_reasoning()
        if not self.calls:
            self._prose.end()
        self.calls.add(delta, unknown)

    def _finish(self, reason: str) -> None:
        self.reason = reason
        self._end_reasoning()
        self._prose.end()
        self.calls.close()

    def usage(self) -> list[Event]:
        """Once, at the end: a count that comes with every chunk would double the log."""
        return [read_usage(self._call, self._usage)] if self._usage else []

    def end(self, *, done_marker: bool) -> CallError | None:
        """Close everything on terminal evidence; without it, or with a bad end, say why."""
        if not self.reason and not done_marker:
            return _no_terminal("the connection was closed before the answer had ended")
        if not self.reason and not self.calls.all_whole():
            return _no_terminal("the stream ended within the arguments of a tool call")
        if not self.reason:
            self._finish("")
        end = finish.meaning(self.reason, has_calls=self.parts.calls > 0)
        if isinstance(end, CallError):
            return end
        if self._unknown:
            self.parts.opaque(jsontext.dump(self._unknown))
            self._unknown = {}
        self.parts.close_prose()
        self.parts.out += self.usage()
        self.parts.out.append(ReplyEnded(self._call, end, self.model, self.reason))
        return None


def _no_terminal(what: str) -> CallError:
    return CallError(Cause("no_terminal", f"The answer is incomplete: {what}."))


class Decoder:
    """A stream of chunks to events; see `headrace.wire` for the contract."""

    def __init__(
        self, call: int = 1, first_part: int = 1, dialect: Dialect = PLAIN, tools: Tools | None = None
    ) -> None:
        self._reply = _Reply(call, first_part, dialect, tools or {})
        self._sse = sse.Decoder()
        self.failure: CallError | None = None
        self.done = False

    @property
    def finished(self) -> bool:
        """A finish reason has come; only usage and the end of the stream can follow."""
        return bool(self._reply.reason)

    def feed(self, data: bytes) -> list[Event]:
        whole: list[sse.ServerSentEvent] = []
        try:
            try:
                self._sse.feed(data, whole)
            finally:
                for event in whole:
                    self._event(event)
        except CallError as failure:
            self._fail(failure)
        return self._reply.parts.take()

    def close(self) -> list[Event]:
        if not self.done and self.failure is None:
            self._end(done_marker=False)
        return self._reply.parts.take()

    def _event(self, event: sse.ServerSentEvent) -> None:
        if self.done or self.failure is not None or not event.data.strip():
            return
        if event.data.strip() == b"[DONE]":
            self._end(done_marker=True)
        elif event.name == b"error":
            raise failures.call_error(_read_slowly(event.data))
        else:
            self._chunk(event.data)

    def _chunk(self, data: bytes) -> None:
        try:
            chunk = _read_chunk(data)
        except (ValueError, RecursionError):
            self._reply.odd_chunk(_read_slowly(data))
            return
        if chunk.choices or chunk.usage:
            self._reply.chunk(chunk)
        else:
            self._reply.odd_chunk(_read_slowly(data))

    def _end(self, *, done_marker: bool) -> None:
        failure = self._reply.end(done_marker=done_marker)
        if failure is not None:
            self._fail(failure)
        else:
            self.done = True

    def _fail(self, failure: CallError) -> None:
        self.failure = failure
        self._reply.parts.out += self._reply.usage()


class BodyDecoder:
    """A whole, non-streaming answer to the same events."""

    finished = False

    def __init__(
        self, call: int = 1, first_part: int = 1, dialect: Dialect = PLAIN, tools: Tools | None = None
    ) -> None:
        self._reply = _Reply(call, first_part, dialect, tools or {})
        self._pieces: list[bytes] = []
        self._size = 0
        self.failure: CallError | None = None
        self.done = False

    def feed(self, data: bytes) -> list[Event]:
        self._size += len(data)
        if self._size > BODY_MAX_BYTES:
            self.failure = MalformedStream(f"an answer is larger than {BODY_MAX_BYTES} bytes")
        elif self.failure is None:
            self._pieces.append(data)
        return []

    def close(self) -> list[Event]:
        if self.done or self.failure is not None:
            return []
        try:
            answer = _read_slowly(b"".join(self._pieces))
            self._reply.odd_chunk(answer)
            if not answer.get("choices"):
                raise MalformedStream("an answer without choices")
            self.failure = self._reply.end(done_marker=True)  # a whole document is a whole answer
        except CallError as failure:
            self.failure = failure
        self.done = self.failure is None
        return self._reply.parts.take()
