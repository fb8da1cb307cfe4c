"""A turn as OpenAI's Responses: numbered events as it grows, or the response as it stands.

Theory of operation. The view is fed the log and returns frames; frame n carries `sequence_number` n, so whoever knows
the last number seen can go on from there: the same log gives the same frames however it is fed. What was asked is in
the log too (`TurnOpened.request`), because every response repeats it. `response()` is made from the very items the
frames have told of, so the streamed and the whole answer cannot differ.

    created, in_progress --> per item: added, deltas, done --> completed | incomplete | failed

An item is told of when there is something to tell: text with its first delta, a call with its name. Items that are open
when their attempt breaks are done as `incomplete`. A failure is one event with the error both flat and nested, because
clients look in either place. Of an agent's turn its own tools are no items; its progress is an item of reasoning.
"""

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from headrace.events import (
    AttemptReplaced,
    CallFailed,
    Event,
    PartClosed,
    PartGrew,
    PartStarted,
    Recorded,
    ReplyCut,
    ReplyEnded,
    TurnClosed,
    TurnOpened,
    UsageReported,
)
from headrace.turn.folds import Usage, total
from headrace.views import failing
from headrace.views.asides import Asides
from headrace.views.joining import Joining
from headrace.views.progress import Progress, lines
from headrace.wire import jsontext, sse
from headrace.wire.chat_chunks import DONE

KEPT_OF_ITEMS: Final = ("encrypted_content", "phase")
"""What a provider puts into an item and wants back with it."""

PROGRESS_EVENT: Final = "headrace:progress"

_dump = msgspec.json.Encoder().encode

Place = tuple[int, int]
ItemKind = Literal["message", "function_call", "reasoning"]


class Request(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How the turn was asked for, as its log keeps it."""

    model: str = ""
    acts: bool = True
    """Whether the agent answers: its tool calls are not the caller's."""
    progress: Progress = "off"
    echo: dict[str, Any] = {}
    """What the response repeats of the request."""

    def text(self) -> str:
        return _dump(self).decode()


_read_request = msgspec.json.Decoder(Request).decode


def request_of(opened: TurnOpened) -> Request:
    """A turn that another door has opened was asked for in no words of this one."""
    if not opened.request:
        return Request(model=opened.model)
    try:
        return _read_request(opened.request)
    except msgspec.DecodeError:
        return Request(model=opened.model)


DEFAULTS: Final[dict[str, Any]] = {
    "previous_response_id": None,
    "instructions": None,
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "top_p": 1.0,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "reasoning": {"effort": None, "summary": None},
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": True,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
    "user": None,
}
"""What a response says of parameters that were not given."""


class _Item:
    """One item of the output, as far as it has been told of."""

    def __init__(self, key: str, index: int, kind: ItemKind) -> None:
        self.id = key
        self.index = index
        self.kind = kind
        self.pieces: list[str] = []
        self.status: Literal["in_progress", "completed", "incomplete"] = "in_progress"
        self.refuses = False
        self.tool_id = ""
        self.name = ""
        self.kept: dict[str, Any] = {}
        self.delta_head = b""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def value(self, *, empty: bool = False) -> dict[str, Any]:
        out: dict[str, Any] = {"id": self.id, "type": self.kind}
        match self.kind:
            case "message":
                out |= {"status": self.status, "role": "assistant"}
                out["content"] = [] if empty else [self.content(self.text)]
            case "function_call":
                out |= {"status": self.status, "call_id": self.tool_id, "name": self.name}
                out["arguments"] = "" if empty else self.text
            case "reasoning":
                out["summary"] = [] if empty or not self.pieces else [_summary(self.text)]
        return out | self.kept

    def content(self, text: str) -> dict[str, Any]:
        if self.refuses:
            return {"type": "refusal", "refusal": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponsesView:
    """Feed entries of one turn from its first, get frames."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._number = 0
        self._turn = ""
        self._at = 0.0
        self._ended_at: float | None = None
        self._request = Request()
        self._items: list[_Item] = []
        self._open: dict[Place, _Item] = {}
        self._kinds: dict[Place, PartStarted] = {}
        self._asides = Asides()
        self._telling: _Item | None = None  # the item that progress goes into
        self._joining = Joining()
        self._usage: dict[int, UsageReported | None] = {}
        self._closed: TurnClosed | None = None

    @property
    def begun(self) -> bool:
        """Whether more than the opening has been told."""
        return self._number > 2

    def feed(self, entries: Iterable[Recorded]) -> list[bytes]:
        for recorded in entries:
            event = recorded.event
            if type(event) is PartGrew:
                self._grew(event)
            elif type(event) is TurnOpened:
                self._opened(recorded, event)
            else:
                self._one(event, recorded.at)
        frames, self._frames = self._frames, []
        return frames

    def response(self) -> dict[str, Any]:
        """As it stands."""
        status, closed = self._status(), self._closed
        out: dict[str, Any] = {
            "id": response_id(self._turn),
            "object": "response",
            "created_at": int(self._at),
            "completed_at": int(self._ended_at) if self._ended_at and status == "completed" else None,
            "status": status,
            "model": self._request.model,
            "output": [item.value() for item in self._items],
            "error": None,
            "incomplete_details": None,
            "usage": None,
        }
        if closed is not None:
            out["usage"] = usage_of(total([*self._usage.values()]))
            if status == "incomplete":
                out["incomplete_details"] = {"reason": _reason(closed)}
            elif status != "completed":
                out["error"] = failing.error(closed.cause)
                out["headrace"] = failing.fate(closed, partial=self._visible())
        return DEFAULTS | self._request.echo | out

    @property
    def closed(self) -> TurnClosed | None:
        return self._closed

    # --- what the log says

    def _opened(self, recorded: Recorded, opened: TurnOpened) -> None:
        self._turn, self._at = recorded.turn, recorded.at
        self._request = request_of(opened)
        self._tell("response.created", response=self.response())
        self._tell("response.in_progress", response=self.response())

    def _one(self, event: Event, at: float) -> None:
        match event:
            case PartStarted(call) if call not in self._asides.calls:
                self._started(event)
            case PartClosed(call, part, item) if call not in self._asides.calls:
                self._part_closed((call, part), item)
            case UsageReported(call):
                self._usage[call] = event
            case AttemptReplaced(call):
                self._usage.pop(call, None)
                self._break_off(call)
            case ReplyEnded(call) | ReplyCut(call) if call not in self._asides.calls:
                self._usage.setdefault(call, None)
                self._joining.ended(event)
                self._break_off(call)
            case CallFailed(call) if call not in self._asides.calls:
                self._break_off(call)
                self._aside(event)
            case TurnClosed():
                self._ended(event, at)
            case _:
                self._aside(event)

    def _started(self, event: PartStarted) -> None:
        place = event.call, event.part
        self._kinds[place] = event
        if event.kind == "tool_call" and not self._request.acts:
            item = self._add(place, "function_call", event)
            self._tell_added(item)

    def _grew(self, event: PartGrew) -> None:
        place = event.call, event.part
        started = self._kinds.get(place)
        if started is None:
            self._asides.feed(event)
            return
        text = event.text
        if started.kind == "text":
            text = self._joining.text(event)
        item = self._open.get(place) or self._begun(place, started)
        if item is not None:
            self._delta(item, text)

    def _begun(self, place: Place, started: PartStarted) -> _Item | None:
        """The item of a part that has just begun to grow; None where callers see nothing of it."""
        if started.kind in ("tool_call", "opaque"):
            return None
        item = self._add(place, "reasoning" if started.kind == "reasoning" else "message", started)
        item.refuses = started.kind == "refusal"
        self._tell_added(item)
        return item

    def _part_closed(self, place: Place, kept: str) -> None:
        started = self._kinds.get(place)
        if started is None:
            return
        fields = {} if self._request.acts else kept_of_item(kept)
        item = self._open.get(place)
        if item is None and started.kind == "reasoning" and "encrypted_content" in fields:
            item = self._begun(place, started)
        if item is not None:
            item.kept = fields
            self._done(place, item, "completed")

    def _break_off(self, call: int) -> None:
        """What is open of the call has no end of its own."""
        for place in [place for place in self._open if place[0] == call]:
            self._done(place, self._open[place], "incomplete")

    def _ended(self, closed: TurnClosed, at: float) -> None:
        self._end_telling()
        for place in list(self._open):
            self._done(place, self._open[place], "incomplete")
        self._closed, self._ended_at = closed, at
        response = self.response()
        match response["status"]:
            case "completed" | "incomplete" as status:
                self._tell(f"response.{status}", response=response)
            case _:
                error = response["error"]
                flat = {name: error[name] for name in ("code", "message", "param")}
                self._tell("response.failed", response=response, error=error, **flat)
        self._frames.append(DONE)

    def _aside(self, event: Event) -> None:
        pieces = self._asides.feed(event)
        if self._request.acts:
            shown, told = lines(self._request.progress, event, pieces)
            for line in told:
                self._progress(line, shown)

    def _progress(self, line: str, shown: Progress) -> None:
        if shown == "chunks":
            self._tell(PROGRESS_EVENT, text=line)
            return
        if self._telling is None:
            self._telling = self._item("reasoning")
            self._tell_added(self._telling)
        self._delta(self._telling, f"{line}\n")

    def _end_telling(self) -> None:
        if self._telling is not None:
            item, self._telling = self._telling, None
            self._tell_done(item, "completed")

    # --- items and their frames

    def _add(self, place: Place, kind: ItemKind, started: PartStarted) -> _Item:
        self._end_telling()
        item = self._open[place] = self._item(kind)
        item.tool_id, item.name = started.tool_id, started.name
        return item

    def _item(self, kind: ItemKind) -> _Item:
        index = len(self._items)
        item = _Item(f"{_PREFIX[kind]}_{_suffix(self._turn)}{index:03d}", index, kind)
        self._items.append(item)
        return item

    def _tell_added(self, item: _Item) -> None:
        self._tell("response.output_item.added", output_index=item.index, item=item.value(empty=True))
        at = {"item_id": item.id, "output_index": item.index}
        match item.kind:
            case "message":
                self._tell("response.content_part.added", **at, content_index=0, part=item.content(""))
                name = "refusal" if item.refuses else "output_text"
                beside: dict[str, Any] = {} if item.refuses else {"logprobs": []}
                item.delta_head = _head(f"response.{name}.delta", {**at, "content_index": 0, **beside})
            case "function_call":
                item.delta_head = _head("response.function_call_arguments.delta", at)
            case "reasoning":
                item.delta_head = b""  # its part is told of with its first text

    def _delta(self, item: _Item, text: str) -> None:
        if not item.delta_head:
            at = {"item_id": item.id, "output_index": item.index, "summary_index": 0}
            self._tell("response.reasoning_summary_part.added", **at, part=_summary(""))
            item.delta_head = _head("response.reasoning_summary_text.delta", at)
        item.pieces.append(text)
        number = str(self._number).encode()
        self._number += 1
        self._frames.append(item.delta_head + number + b',"delta":' + _dump(text) + b"}\n\n")

    def _done(self, place: Place, item: _Item, status: Literal["completed", "incomplete"]) -> None:
        del self._open[place]
        self._tell_done(item, status)

    def _tell_done(self, item: _Item, status: Literal["completed", "incomplete"]) -> None:
        item.status = status
        text = item.text
        at: dict[str, Any] = {"item_id": item.id, "output_index": item.index}
        match item.kind:
            case "message":
                at["content_index"] = 0
                name, field = ("refusal", "refusal") if item.refuses else ("output_text", "text")
                beside: dict[str, Any] = {} if item.refuses else {"logprobs": []}
                self._tell(f"response.{name}.done", **at, **{field: text}, **beside)
                self._tell("response.content_part.done", **at, part=item.content(text))
            case "function_call":
                name = "response.function_call_arguments.done"
                self._tell(name, **at, name=item.name, arguments=text)
            case "reasoning" if item.pieces:
                at["summary_index"] = 0
                self._tell("response.reasoning_summary_text.done", **at, text=text)
                self._tell("response.reasoning_summary_part.done", **at, part=_summary(text))
            case "reasoning":
                pass
        self._tell("response.output_item.done", output_index=item.index, item=item.value())

    def _tell(self, kind: str, **fields: Any) -> None:
        value = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        self._frames.append(sse.encode(jsontext.dump(value).encode(), kind.encode()))

    # --- how it stands

    def _status(self) -> str:
        closed = self._closed
        if closed is None:
            return "in_progress"
        match closed.outcome:
            case "stop" | "tool_calls":
                return "completed"
            case "length" | "limit" | "content_filter" | "refused":
                return "incomplete"
            case "cancelled":
                return "cancelled"
            case "cut" | "error":
                return "failed"

    def _visible(self) -> bool:
        return any(item.kind != "reasoning" for item in self._items)


_PREFIX: Final[dict[ItemKind, str]] = {"message": "msg", "function_call": "fc", "reasoning": "rs"}


def _head(kind: str, fields: dict[str, Any]) -> bytes:
    """The bytes of a delta up to its number."""
    value = _dump({"type": kind, **fields})[:-1]
    return b"event: " + kind.encode() + b"\ndata: " + value + b',"sequence_number":'


def _summary(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def _reason(closed: TurnClosed) -> str:
    return "max_output_tokens" if closed.outcome in ("length", "limit") else "content_filter"


def _suffix(turn: str) -> str:
    return turn.removeprefix("turn_")


def response_id(turn: str) -> str:
    return f"resp_{_suffix(turn)}"


def turn_of(response: str) -> str:
    """The turn a response shows."""
    return f"turn_{response.removeprefix('resp_')}"


def kept_of_item(item: str) -> dict[str, Any]:
    """What of a provider's item its caller has to bring back."""
    if not any(name in item for name in KEPT_OF_ITEMS):
        return {}
    value = jsontext.parse(item, "a stored item")
    return {name: value[name] for name in KEPT_OF_ITEMS if isinstance(value.get(name), str)}


def usage_of(usage: Usage) -> dict[str, Any] | None:
    """None where a count is unknown: unknown is not zero."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens or 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
