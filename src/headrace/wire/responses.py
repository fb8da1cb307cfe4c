"""OpenAI's responses: items that are announced, grow and are handed over done.

Theory of operation. One `_Reply` reads the events of a stream and the response of a whole body; a body is read like
the response in a terminal event. An event names its item by output index, by id, or by neither; `_Reply` finds the item
and `responses_items` knows what becomes of it.

    output_item.added --> item.*.delta --> output_item.done        any of the three may be missing
    response.completed, .incomplete --> done        response.failed, .cancelled, error --> failed

Items are the truth: what an item has beyond its deltas is written when it is done, and what the terminal response has
beyond the items is written then; a response that repeats nothing takes nothing back. Of a terminal response the status
goes before the name of its event, because some servers call an answer completed that was cut short.

Events nobody knows are ignored, whatever they hold.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from headrace.errors import CallError, Cause, MalformedStream
from headrace.events import EndReason, Event, ReplyEnded, UsageReported
from headrace.limits import REPLY_MAX_PARTS
from headrace.wire import failures, finish, jsontext
from headrace.wire.dialect import PLAIN, Dialect, Tools
from headrace.wire.feeding import BodyDecoder as _BodyDecoder
from headrace.wire.feeding import StreamDecoder, no_terminal
from headrace.wire.parts import Parts
from headrace.wire.responses_items import Call, Item, Message, Reasoning, Room, kind_of, text_of


class _Response(msgspec.Struct):
    status: str | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    error: Any = None
    output: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int | None = None
    item_id: str | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    item: msgspec.Raw = msgspec.Raw()
    response: _Response | None = None


_read_event = msgspec.json.Decoder(_Event).decode
_read_response = msgspec.json.Decoder(_Response).decode

_TEXTS: Final = ("item_id", "delta", "text", "refusal", "arguments", "input")
_NUMBERS: Final = ("output_index", "content_index", "summary_index")
_ENDS: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})

_AnItem = TypeVar("_AnItem", bound=Item)


# --- the slow way: what the typed structs refuse --------------------------------------------------------


def _object(data: bytes | msgspec.Raw, what: str) -> dict[str, Any]:
    value = jsontext.parse(bytes(data), what)
    if not isinstance(value, dict):
        raise MalformedStream(f"{what} is not a JSON object")
    return value


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(jsontext.dump(value).encode())


def _event_slowly(data: bytes, name: str) -> _Event:
    value = _object(data, "an event")
    event = _Event(type=text_of(value, "type"))
    if (event.type or name) not in _KNOWN:
        return event
    for field in _TEXTS + _NUMBERS:
        _set(event, field, value.get(field))
    if "item" in value:
        event.item = _raw(value["item"])
    if isinstance(value.get("response"), dict):
        event.response = _response_slowly(value["response"])
    return event


def _set(event: _Event, name: str, value: Any) -> None:
    wanted = str if name in _TEXTS else int
    if value is None:
        return
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise MalformedStream(f"{name} of an event is not {'text' if wanted is str else 'a number'}")
    setattr(event, name, value)


def _response_slowly(value: dict[str, Any]) -> _Response:
    output = value.get("output")
    return _Response(
        status=text_of(value, "status"),
        model=text_of(value, "model"),
        usage=value["usage"] if isinstance(value.get("usage"), dict) else None,
        incomplete_details=(
            value["incomplete_details"] if isinstance(value.get("incomplete_details"), dict) else None
        ),
        error=value.get("error"),
        output=[_raw(item) for item in output] if isinstance(output, list) else None,
    )


def _response_of(data: bytes) -> _Response:
    try:
        return _read_response(data)
    except (ValueError, RecursionError):
        return _response_slowly(_object(data, "an answer"))


# --- usage ----------------------------------------------------------------------------------------------


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def read_usage(call: int, usage: dict[str, Any]) -> UsageReported:
    sent, made = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    sent = sent if isinstance(sent, dict) else {}
    made = made if isinstance(made, dict) else {}
    return UsageReported(
        call,
        input_tokens=_number(usage.get("input_tokens")),
        output_tokens=_number(usage.get("output_tokens")),
        reasoning_tokens=_number(made.get("reasoning_tokens")),
        cache_read_tokens=_number(sent.get("cached_tokens")),
        cache_write_tokens=_number(sent.get("cache_write_tokens")),
    )


# --- items and their names ------------------------------------------------------------------------------


class _Items:
    """The items of a reply, by the names events have for them."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._all: list[Item] = []
        self._by_index: dict[int, Item] = {}
        self._by_id: dict[str, Item] = {}

    def __iter__(self) -> Iterator[Item]:
        return iter(self._all)

    def added(self, item: dict[str, Any], index: int | None) -> None:
        item_id = text_of(item, "id")
        known = self._find(index, item_id)
        if known is None or not item_id or known.id != item_id or self._is_elsewhere(known, index):
            self._open(kind_of(item), item, index)

    def growing(self, kind: type[_AnItem], event: _Event) -> _AnItem:
        """The item a delta belongs to; one that nobody announced begins with it."""
        item = self._named(event)
        if item is None:
            return self._open(kind, {}, event.output_index)
        if not isinstance(item, kind):
            raise MalformedStream("a delta for an item of another kind")
        if item.done:
            raise MalformedStream("a delta for an item that is already done")
        return item

    def is_done(self, event: _Event) -> bool:
        item = self._named(event)
        return item is not None and item.done

    def finished(self, raw: msgspec.Raw, index: int | None, *, repeated: bool) -> None:
        """Take a whole item; `repeated` where it stands in the terminal response, most likely once more."""
        whole = _object(raw, "an item")
        item = self._whole(whole, index, repeated=repeated)
        if not item.done:
            item.fill(whole)
            item.close(bytes(raw).decode())

    def _named(self, event: _Event) -> Item | None:
        if event.output_index is None and not event.item_id:
            return self._all[-1] if self._all else None
        return self._find(event.output_index, event.item_id)

    def _find(self, index: int | None, item_id: str | None) -> Item | None:
        """By place, unless the id says otherwise: ids may repeat or change, and places may all be 0."""
        placed = self._by_index.get(index) if index is not None else None
        if placed is not None and (not item_id or not placed.id or placed.id == item_id):
            return placed
        return self._by_id.get(item_id or "") or placed

    def _whole(self, whole: dict[str, Any], index: int | None, *, repeated: bool) -> Item:
        kind, item_id = kind_of(whole), text_of(whole, "id")
        item = self._find(index, item_id)
        if item is None and index is None and self._all and not self._all[-1].done:
            item = self._all[-1]
        if item is None or (repeated and type(item) is not kind):
            return self._open(kind, whole, index)
        another = item_id and item.id and item.id != item_id
        if item.done and not repeated and (another or self._is_elsewhere(item, index)):
            return self._open(kind, whole, index)
        if type(item) is not kind:
            raise MalformedStream("an item became one of another kind")
        if item_id:
            self._name(item, item_id)
        return item

    def _is_elsewhere(self, item: Item, index: int | None) -> bool:
        return index is not None and self._by_index.get(index) is not item

    def _open(self, kind: type[_AnItem], item: dict[str, Any], index: int | None) -> _AnItem:
        if len(self._all) >= REPLY_MAX_PARTS:
            raise MalformedStream(f"a reply has more than {REPLY_MAX_PARTS} items")
        opened = kind(self._room, item)
        self._by_index[len(self._all) if index is None else index] = opened
        self._all.append(opened)
        if opened.id:
            self._name(opened, opened.id)
        return opened

    def _name(self, item: Item, item_id: str) -> None:
        if self._by_id.get(item_id) is not item:
            self._room.parts.count(len(item_id))
        item.id = item_id
        self._by_id[item_id] = item


# --- the reply ------------------------------------------------------------------------------------------


class _Reply:
    def __init__(self, call: int, first_part: int, dialect: Dialect, tools: Tools) -> None:
        self._call = call
        self.parts = Parts(call, first_part)
        self._room = Room(self.parts, dialect, tools)
        self._items = _Items(self._room)
        self._usage: dict[str, Any] | None = None
        self._model = ""
        self.done = False

    @property
    def finished(self) -> bool:
        return self.done

    def event(self, data: bytes, name: bytes) -> None:
        try:
            event = _read_event(data)
        except (ValueError, RecursionError):
            event = _event_slowly(data, name.decode("ascii", "replace"))
        kind = event.type or name.decode("ascii", "replace")
        match kind:
            case "response.output_text.delta":
                if event.delta:
                    self._items.growing(Message, event).grow(event.content_index or 0, "text", event.delta)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                if event.delta:
                    self._items.growing(Call, event).grow(event.delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                if event.delta:
                    self._items.growing(Reasoning, event).grow(_section(kind, event), event.delta)
            case "response.refusal.delta":
                if event.delta:
                    self._items.growing(Message, event).grow(event.content_index or 0, "refusal", event.delta)
            case _:
                self._seldom(kind, event, data)

    def _seldom(self, kind: str, event: _Event, data: bytes) -> None:
        """Everything but deltas: a few of each in a reply."""
        match kind:
            case "response.output_item.added":
                self._items.added(_object(event.item, "an item"), event.output_index)
            case "response.output_item.done":
                self._items.finished(event.item, event.output_index, repeated=False)
            case "response.created" | "response.in_progress" | "response.queued":
                self._note(event.response)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                self._end(kind.removeprefix("response."), event.response or _Response(), data)
            case "error":
                raise _failure(_object(data, "an event"))
            case "":
                self._untyped(data)
            case _:
                self._whole(kind, event)

    def _whole(self, kind: str, event: _Event) -> None:
        """What came in deltas comes once more as a whole; it matters where deltas are missing."""
        if kind not in _KNOWN or self._items.is_done(event):
            return
        at = event.content_index or 0
        match kind:
            case "response.output_text.done" if event.text:
                self._items.growing(Message, event).fill_content(at, "text", event.text)
            case "response.refusal.done" if event.refusal:
                self._items.growing(Message, event).fill_content(at, "refusal", event.refusal)
            case "response.reasoning_summary_text.done" | "response.reasoning_text.done" if event.text:
                self._items.growing(Reasoning, event).fill_section(_section(kind, event), event.text)
            case "response.function_call_arguments.done" if event.arguments:
                self._items.growing(Call, event).fill_arguments(event.arguments)
            case "response.custom_tool_call_input.done" if event.input:
                self._items.growing(Call, event).fill_arguments(event.input)
            case _:
                pass

    def _untyped(self, data: bytes) -> None:
        event = _object(data, "an event")
        if event.get("error") is not None:
            raise _failure(event)
        raise MalformedStream("an event without a type")

    def body(self, data: bytes) -> None:
        response = _response_of(data)
        if response.error is None and response.status not in _ENDS:
            answer = _object(data, "an answer")
            if answer.get("type") == "error":
                raise _failure(answer)
            raise no_terminal(
                f"the provider answered while it was {failures.clip(response.status, 80) or 'unknown'}"
            )
        if response.output is None and response.status in ("completed", "incomplete"):
            raise MalformedStream("an answer without output")
        self._end("failed", response, data)

    def end_of_stream(self) -> None:
        raise no_terminal("the connection was closed before the answer had ended")

    def usage(self) -> list[Event]:
        return [read_usage(self._call, self._usage)] if self._usage else []

    def _note(self, response: _Response | None) -> None:
        if response is not None:
            self._model = response.model or self._model
            self._usage = response.usage or self._usage

    def _end(self, named: str, response: _Response, data: bytes) -> None:
        self._note(response)
        status = response.status if response.status in _ENDS else named
        if status == "cancelled":
            raise CallError(
                Cause("provider_error", "The provider cancelled the answer.", provider_code="cancelled")
            )
        if status == "failed" or response.error is not None:
            raise _failure(_object(data, "an event"))
        for index, item in enumerate(response.output or ()):
            self._items.finished(item, index, repeated=True)
        reason = _reason(status, response)
        end = self._meaning(reason)
        unfinished = [item for item in self._items if not item.done]
        if end == "tool_calls" and not all(item.whole for item in unfinished):
            raise no_terminal("the answer ended within a tool call")
        for left in unfinished:
            left.close("")
        self.parts.out += [*self.usage(), ReplyEnded(self._call, end, self._model, reason)]
        self.done = True

    def _meaning(self, reason: str) -> EndReason:
        end = finish.meaning(reason, has_calls=self.parts.calls > 0)
        if isinstance(end, CallError):
            raise end
        return "refused" if self._room.refused and end in ("stop", "tool_calls") else end


def _section(kind: str, event: _Event) -> tuple[str, int]:
    if kind.startswith("response.reasoning_summary"):
        return "summary", event.summary_index or 0
    return "content", event.content_index or 0


def _reason(status: str | None, response: _Response) -> str:
    if status == "incomplete":
        return text_of(response.incomplete_details or {}, "reason") or "incomplete"
    return status or ""


def _failure(event: dict[str, Any]) -> CallError:
    """The error of an event or a body: in its response, nested, or flat."""
    response = event.get("response")
    for holder in (response, event):
        if isinstance(holder, dict) and holder.get("error") is not None:
            return failures.call_error(holder["error"])
    return failures.call_error({name: event.get(name) for name in ("code", "message", "param")})


_KNOWN: Final = frozenset(
    {
        "error",
        *(f"response.output_item.{step}" for step in ("added", "done")),
        *(f"response.{word}" for word in ("created", "in_progress", "queued", *_ENDS)),
        *(
            f"response.{what}.{step}"
            for step in ("delta", "done")
            for what in (
                "output_text",
                "refusal",
                "reasoning_text",
                "reasoning_summary_text",
                "function_call_arguments",
                "custom_tool_call_input",
            )
        ),
    }
)


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
