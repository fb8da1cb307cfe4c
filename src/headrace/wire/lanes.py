"""The parts that one block of a provider's reply becomes, where the protocol names the block of every delta.

Theory of operation. In responses and messages several blocks (an item's content part, a content block) may grow side
by side, and what has to be sent back for one is known when it is done. So every block writes to a `Lane` of its own,
which keeps its parts open until then; inline reasoning and leaked tool markup may make several parts of one block.

    grow(kind) --another kind, a tool call--> a new part beside the open ones --close(item)--> all closed

The first part that is closed carries the item; the others are covered by it.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.events import PartKind
from headrace.wire import jsontext
from headrace.wire.dialect import Dialect
from headrace.wire.parts import Parts

COVERED: Final = "{}"
"""The item of a part that an earlier part's item covers."""


class Lane:
    """A writer for `Prose` that holds its parts open."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._kind: PartKind | None = None
        self._part = 0
        self._open: list[int] = []
        self.has_calls = False
        """Tool calls were found in the text, so it has to be sent back as calls and not as it came."""

    def grow(self, kind: PartKind, text: str) -> None:
        if kind == self._kind:
            self._parts.grow_call(self._part, text)
        elif text:
            self._kind = kind
            self._part = self._parts.start(kind)
            self._open.append(self._part)
            self._parts.grow_call(self._part, text)

    def opaque(self, item: str, text: str = "") -> None:
        self._kind = None
        self._parts.opaque(item, text)

    def tool_id(self, given: str) -> str:
        return self._parts.tool_id(given)

    def start_call(self, tool_id: str, name: str) -> int:
        self._kind = None
        self.has_calls = True
        return self._parts.start_call(tool_id, name)

    def grow_call(self, part: int, text: str) -> None:
        self._parts.grow_call(part, text)

    def close_call(self, part: int, item: str = "") -> None:  # noqa: ARG002 - the item is of another protocol
        self._parts.close_call(part)

    def close(self, item: str) -> str:
        """Close every part; returns what is left to carry: the item, or that it is covered."""
        for part in self._open:
            self._parts.close_call(part, item)
            item = item and COVERED
        self._open.clear()
        return item


def close_all(parts: Parts, lanes: Iterable[Lane], item: str) -> None:
    """Close the lanes of one item. An item that no part can carry becomes an opaque part."""
    lanes = list(lanes)
    if any(lane.has_calls for lane in lanes):
        item = ""
    for lane in lanes:
        item = lane.close(item)
    if item not in ("", COVERED):
        parts.opaque(item)


class Sofar:
    """Text that comes in pieces and then, perhaps, once more as a whole."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.add = self._pieces.append

    def text(self) -> str:
        return "".join(self._pieces)

    def missing(self, whole: str) -> str | None:
        """What `whole` has beyond what came; None where it is another text."""
        came = jsontext.repair(self.text())
        whole = jsontext.repair(whole)
        return whole[len(came) :] if whole.startswith(came) else None


def after_first(dialect: Dialect) -> Dialect:
    """The dialect of the second text of a reply: only the first begins inside a tag that the template opened."""
    if dialect.think != "prefilled":
        return dialect
    return msgspec.structs.replace(dialect, think="auto")
