"""What the bytes of an answer show of a provider's habits, beyond what the decoders make of them.

Theory of operation. The decoders level differences out; this module names them. `read` takes all bytes of one answer,
streamed or whole, in any protocol and however broken, and says what was seen: how the answer was framed, which markers
ended it, where usage and reasoning stood, and the quirks. It never fails: what cannot be read is itself a trait. It
repeats none of the peer's words but the model's name, so nothing a peer wrote gets any further by this way.

    bytes --form--> events --each, by what it looks like--> chunk | responses event | messages event
               '--> document ------------------------------^          '--> nothing, page, other

The quirks of tool calls in chat completions are many and have a module of their own, `call_traits`.
"""

import itertools
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from headrace.errors import CallError
from headrace.wire import jsontext, sse
from headrace.wire.call_traits import CallHabits, CallQuirk
from headrace.wire.think import Splitter

Form = Literal["events", "document", "page", "nothing", "other"]
"""`page` is HTML; `other` is nothing a model's endpoint sends."""

Marker = Literal[
    "finish_reason", "[DONE]", "stop_reason", "message_stop",
    "response.completed", "response.incomplete", "response.failed", "response.cancelled", "status", "error",
]  # fmt: skip
UsagePlace = Literal[
    "last_chunk", "every_chunk", "choice", "x_groq", "message_start", "message_delta", "response", "document"
]
ReasoningForm = Literal[
    "reasoning_content", "reasoning", "reasoning_details", "content_parts", "tags", "thinking", "redacted_thinking",
    "summary", "reasoning_text", "encrypted",
]  # fmt: skip
Quirk = (
    Literal[
        "comments", "crlf", "bom", "unreadable", "done_missing", "finish_missing", "several_finishes",
        "choices_empty", "delta_missing", "content_parts", "role_empty", "cumulative", "output_empty",
    ]
    | CallQuirk
)  # fmt: skip


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen, each list in the order it was met."""

    form: Form
    markers: tuple[Marker, ...] = ()
    usage: tuple[UsagePlace, ...] = ()
    reasoning: tuple[ReasoningForm, ...] = ()
    quirks: tuple[Quirk, ...] = ()
    model: str = ""
    """As the provider spells it: a peer's text, unchecked."""


_BOM: Final = b"\xef\xbb\xbf"
_FIELDS: Final = (b"data", b"event", b"id", b"retry", b"")  # a line that begins with a colon is a comment
_ENDS: Final[Mapping[str, Marker]] = {
    "response.completed": "response.completed",
    "response.incomplete": "response.incomplete",
    "response.failed": "response.failed",
    "response.cancelled": "response.cancelled",
    "message_stop": "message_stop",
}
_DELTA_FORMS: Final[Mapping[str, ReasoningForm]] = {
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_text.delta": "reasoning_text",
}
_BLOCK_FORMS: Final[Mapping[str, ReasoningForm]] = {
    "thinking": "thinking",
    "redacted_thinking": "redacted_thinking",
}
_FIELD_FORMS: Final[tuple[ReasoningForm, ...]] = ("reasoning_content", "reasoning", "reasoning_details")
# A delta that repeats the text before it does so again and again; twice may be chance.
_CUMULATIVE_DELTAS: Final = 3


def read(data: bytes) -> Traits:
    """Look at all bytes of one answer."""
    form = _form(data)
    seen = _Seen()
    if data.startswith(_BOM):
        seen.quirk("bom")
    match form:
        case "events":
            _stream(data, seen)
        case "document":
            seen.document(_object(data))
        case _:
            pass
    return seen.traits(form)


def _form(data: bytes) -> Form:
    text = data.removeprefix(_BOM).lstrip()
    if not text:
        return "nothing"
    if text[:1] in (b"{", b"["):
        return "document"
    if text[:1] == b"<":
        return "page"
    fields = (line.partition(b":")[0] for line in text.splitlines() if line)
    return "events" if any(field in _FIELDS for field in fields) else "other"


def _stream(data: bytes, seen: "_Seen") -> None:
    lines = data.removeprefix(_BOM).splitlines()
    if any(line.startswith(b":") for line in lines):
        seen.quirk("comments")
    if b"\r" in data:
        seen.quirk("crlf")
    whole: list[sse.ServerSentEvent] = []
    try:
        sse.Decoder().feed(data, whole)
    except CallError:
        seen.quirk("unreadable")
    for event in whole:
        text = event.data.strip()
        if text == b"[DONE]":
            seen.marker("[DONE]")
        elif text:
            seen.event(_object(text), event.name.decode(errors="replace"))


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = jsontext.parse(data)
    except CallError:
        return None
    return value if isinstance(value, dict) else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _thinks(text: str) -> bool:
    """Whether the text begins with reasoning between tags."""
    splitter = Splitter("auto")
    return any(kind == "reasoning" for kind, _ in splitter.feed(text) + splitter.end())


class _Seen:
    """Gathers traits from events or from a document."""

    def __init__(self) -> None:
        self._markers: dict[Marker, None] = {}
        self._usage: dict[UsagePlace, None] = {}
        self._reasoning: dict[ReasoningForm, None] = {}
        self._quirks: dict[Quirk, None] = {}
        self._model = ""
        self._calls = CallHabits()
        self._finishes: list[str] = []
        self._contents: list[str] = []
        self._chunks = 0
        self._chunks_with_usage = 0
        self._items = 0

    def quirk(self, quirk: Quirk) -> None:
        self._quirks[quirk] = None

    def marker(self, marker: Marker) -> None:
        self._markers[marker] = None

    def traits(self, form: Form) -> Traits:
        if self._chunks and form == "events":
            self._end_of_chunks()
        if self._finishes:
            self._calls.ended(self._finishes)
        if _thinks("".join(self._contents)):
            self._reasoning["tags"] = None
        for quirk in self._calls.quirks():
            self.quirk(quirk)
        return Traits(
            form=form,
            markers=tuple(self._markers),
            usage=tuple(self._usage),
            reasoning=tuple(self._reasoning),
            quirks=tuple(self._quirks),
            model=jsontext.repair(self._model),
        )

    def event(self, event: dict[str, Any] | None, name: str) -> None:
        if event is None:
            self.quirk("unreadable")
            return
        kind = _text(event.get("type")) or name
        if event.get("error") is not None or kind == "error":
            self.marker("error")
        elif isinstance(event.get("choices"), list):
            self._chunk(event)
        elif kind.startswith("response."):
            self._response_event(kind, event)
        else:
            self._message_event(kind, event)

    def document(self, document: dict[str, Any] | None) -> None:
        if document is None:
            self.quirk("unreadable")
            return
        self._model = _text(document.get("model"))
        if document.get("error") is not None:
            self.marker("error")
        if document.get("usage"):
            self._usage["document"] = None
        if document.get("status"):
            self.marker("status")
        if document.get("stop_reason"):
            self.marker("stop_reason")
        for choice in _list(document.get("choices")):
            self._choice(_mapping(choice), "message")
        for block in _list(document.get("content")):
            self._block(_mapping(block))
        for item in _list(document.get("output")):
            self._item(_mapping(item))

    # --- chat completions

    def _chunk(self, chunk: dict[str, Any]) -> None:
        self._chunks += 1
        self._model = _text(chunk.get("model")) or self._model
        if chunk.get("usage"):
            self._chunks_with_usage += 1
        if _mapping(chunk.get("x_groq")).get("usage"):
            self._usage["x_groq"] = None
        if not chunk["choices"] and not chunk.get("usage"):
            self.quirk("choices_empty")
        for choice in map(_mapping, chunk["choices"]):
            if choice.get("index") in (0, None):
                self._choice(choice, "delta")

    def _choice(self, choice: dict[str, Any], where: Literal["delta", "message"]) -> None:
        if choice.get("usage"):
            self._usage["choice"] = None
        if where == "delta" and choice.get("delta") is None:
            self.quirk("delta_missing")
        delta = _mapping(choice.get(where) or choice.get("message"))
        for field in _FIELD_FORMS:
            if delta.get(field):
                self._reasoning[field] = None
        if delta.get("role") == "":
            self.quirk("role_empty")
        self._content(delta.get("content"))
        self._calls.add(delta, whole=where == "message")
        if reason := _text(choice.get("finish_reason")):
            self._finishes.append(reason)
            self.marker("finish_reason")

    def _content(self, content: Any) -> None:
        if isinstance(content, str) and content:
            self._contents.append(content)
        if isinstance(content, list):
            self.quirk("content_parts")
            if any("thinking" in _mapping(part) for part in content):
                self._reasoning["content_parts"] = None

    def _end_of_chunks(self) -> None:
        if "finish_reason" in self._markers and "[DONE]" not in self._markers:
            self.quirk("done_missing")
        if "[DONE]" in self._markers and not {"finish_reason", "error"} & self._markers.keys():
            self.quirk("finish_missing")
        if len(self._finishes) > 1:
            self.quirk("several_finishes")
        if self._chunks_with_usage:
            everywhere = self._chunks_with_usage > max(1, self._chunks // 2)
            self._usage["every_chunk" if everywhere else "last_chunk"] = None
        if self._cumulates():
            self.quirk("cumulative")

    def _cumulates(self) -> bool:
        pieces = self._contents
        if len(pieces) < _CUMULATIVE_DELTAS:
            return False
        pairs = itertools.pairwise(pieces)
        return all(later.startswith(earlier) for earlier, later in pairs) and len(pieces[-1]) > len(pieces[0])

    # --- responses

    def _response_event(self, kind: str, event: dict[str, Any]) -> None:
        response = _mapping(event.get("response"))
        self._model = _text(response.get("model")) or self._model
        if form := _DELTA_FORMS.get(kind):
            self._reasoning[form] = None
        if kind == "response.output_item.done":
            self._items += 1
            self._item(_mapping(event.get("item")))
        if marker := _ENDS.get(kind):
            self.marker(marker)
            if response.get("usage"):
                self._usage["response"] = None
            if self._items and not response.get("output"):
                self.quirk("output_empty")

    def _item(self, item: dict[str, Any]) -> None:
        if item.get("type") == "reasoning":
            if item.get("summary"):
                self._reasoning["summary"] = None
            if item.get("encrypted_content"):
                self._reasoning["encrypted"] = None

    # --- messages

    def _message_event(self, kind: str, event: dict[str, Any]) -> None:
        match kind:
            case "message_start":
                message = _mapping(event.get("message"))
                self._model = _text(message.get("model"))
                if message.get("usage"):
                    self._usage["message_start"] = None
            case "content_block_start":
                self._block(_mapping(event.get("content_block")))
            case "message_delta":
                if event.get("usage"):
                    self._usage["message_delta"] = None
                if _mapping(event.get("delta")).get("stop_reason"):
                    self.marker("stop_reason")
            case "message_stop":
                self.marker("message_stop")
            case _:
                pass

    def _block(self, block: dict[str, Any]) -> None:
        if form := _BLOCK_FORMS.get(_text(block.get("type"))):
            self._reasoning[form] = None
