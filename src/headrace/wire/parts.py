"""Writing the parts of one reply: numbers, order and bounds, the same for every protocol.

Theory of operation. A decoder says what it has read ("this much text", "this tool call began"); `Parts` turns it
into events. Prose (text, refusal, reasoning) is open one part at a time: another kind, or a tool call, closes it, so
that text after a tool call is a part of its own. Tool calls may be open side by side.

    prose:      none --grow(kind)--> open(kind) --another kind, a tool call, the end--> closed
    tool call:  none --start_call--> open --grow_call--> open --close_call--> closed

Text is only ever appended as valid Unicode: the first half of a surrogate pair waits for the second.
"""

from headrace.errors import MalformedStream
from headrace.events import Event, PartClosed, PartGrew, PartKind, PartStarted
from headrace.limits import REPLY_ITEMS_MAX_CHARS, REPLY_MAX_CHARS, REPLY_MAX_PARTS
from headrace.wire import jsontext


class Parts:
    """Collects the events of one reply in `out`; `take` hands them over."""

    def __init__(self, call: int, first_part: int) -> None:
        self._call = call
        self._first = first_part
        self._next = first_part
        self._prose: int | None = None
        self._prose_kind: PartKind | None = None
        self._prose_item = ""
        self._halves: dict[int, str] = {}  # part -> the first half of a surrogate pair
        self._chars = 0
        self._item_chars = 0
        self._ids: set[str] = set()
        self.out: list[Event] = []
        self.calls = 0
        """Tool calls started so far."""

    def take(self) -> list[Event]:
        out, self.out = self.out, []
        return out

    # --- prose

    def grow(self, kind: PartKind, text: str) -> None:
        """Add to the open prose of this kind, or open a new part for it."""
        if not text:
            return
        if self._prose_kind != kind:
            self.open_prose(kind)
        assert self._prose is not None
        self._append(self._prose, text)

    def open_prose(self, kind: PartKind) -> None:
        self.close_prose()
        self._prose = self._number()
        self._prose_kind = kind
        self.out.append(PartStarted(self._call, self._prose, kind))

    def set_item(self, item: str) -> None:
        """What to send back verbatim for the prose that is open."""
        self._prose_item = item

    def close_prose(self) -> None:
        if self._prose is None:
            return
        self._close(self._prose, self._prose_item)
        self._prose = None
        self._prose_kind = None
        self._prose_item = ""

    def opaque(self, item: str, text: str = "") -> None:
        """A part nobody is shown."""
        self.open_prose("opaque")
        self.grow("opaque", text)
        self.set_item(item)
        self.close_prose()

    # --- parts held by their number

    def start(self, kind: PartKind) -> int:
        """Open a part beside whatever else is open; `grow_call` and `close_call` know it by its number."""
        part = self._number()
        self.out.append(PartStarted(self._call, part, kind))
        return part

    # --- tool calls

    def tool_id(self, given: str) -> str:
        """An id for the next tool call: the provider's, made its own where it is missing or repeated."""
        tool_id = jsontext.repair(given) or f"call_{self._call}_{self._next}"
        while tool_id in self._ids:
            tool_id = f"{tool_id}_{self._next}"
        return tool_id

    def start_call(self, tool_id: str, name: str) -> int:
        """Open a tool call and return its number."""
        self.close_prose()
        self.count(len(tool_id))
        part = self._number()
        self.calls += 1
        self._ids.add(tool_id)
        self.out.append(PartStarted(self._call, part, "tool_call", tool_id, jsontext.repair(name)))
        return part

    def grow_call(self, part: int, text: str) -> None:
        if text:
            self._append(part, text)

    def close_call(self, part: int, item: str = "") -> None:
        self._close(part, item)

    # --- what both share

    def count(self, chars: int) -> None:
        """Count what the reply makes us hold, shown or not."""
        self._chars += chars
        if self._chars > REPLY_MAX_CHARS:
            raise _too_long()

    def _append(self, part: int, text: str) -> None:
        if not text.isascii() or part in self._halves:
            text = self._halves.pop(part, "") + text
            if jsontext.ends_in_half(text):
                self._halves[part] = text[-1]
                text = text[:-1]
            text = jsontext.repair(text)
            if not text:
                return
        self._chars += len(text)
        if self._chars > REPLY_MAX_CHARS:
            raise _too_long()
        self.out.append(PartGrew(self._call, part, text))

    def _close(self, part: int, item: str) -> None:
        self._item_chars += len(item)
        if self._item_chars > REPLY_ITEMS_MAX_CHARS:
            raise MalformedStream(
                f"what a reply wants back is longer than {REPLY_ITEMS_MAX_CHARS} characters"
            )
        if self._halves.pop(part, ""):
            self.out.append(PartGrew(self._call, part, "\ufffd"))
        self.out.append(PartClosed(self._call, part, item))

    def _number(self) -> int:
        if self._next - self._first >= REPLY_MAX_PARTS:
            raise MalformedStream(f"a reply has more than {REPLY_MAX_PARTS} parts")
        self._next += 1
        return self._next - 1


def _too_long() -> MalformedStream:
    return MalformedStream(f"a reply is longer than {REPLY_MAX_CHARS} characters")
