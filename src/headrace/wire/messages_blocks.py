"""The content blocks of an Anthropic message: what each kind becomes, and what is sent back for it.

Theory of operation. A block starts with its fields empty (or, in a body, whole), grows by deltas and stops. Every kind
has one delta it `takes`, whose text is shown or gathered; any other delta is merged into the block's fields, so that
signatures, citations and what is not known yet are in the item that goes back. A delta with text for another kind of
block is malformed.

    text            prose; plain text needs no item
    thinking        one reasoning part, with its signature; redacted_thinking is one without text
    tool_use        one tool call; a block that was whole from the start gives its input when it stops
    anything else   one opaque part
"""

from typing import Any, Final

from headrace.errors import MalformedStream
from headrace.limits import TOOL_ARGUMENTS_MAX_CHARS, TOOL_NAME_MAX_CHARS
from headrace.wire import jsontext
from headrace.wire.dialect import Dialect, Tools
from headrace.wire.kept import Pieces, size
from headrace.wire.lanes import Lane, after_first, close_all
from headrace.wire.parts import Parts
from headrace.wire.prose import Prose

TEXT_OF: Final = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""Which field of a delta holds its text."""


class Room:
    """Where the blocks of one reply write."""

    def __init__(self, parts: Parts, dialect: Dialect, tools: Tools) -> None:
        self.parts = parts
        self._dialect = dialect
        self._tools = tools

    def prose(self, lane: Lane) -> Prose:
        prose = Prose(lane, self._dialect, self._tools)
        self._dialect = after_first(self._dialect)
        return prose


class Block:
    """What all kinds share: the fields, and the text that came for them."""

    takes = ""

    def __init__(self, room: Room, fields: dict[str, Any]) -> None:
        self._parts = room.parts
        self._parts.count(size(fields))
        self._fields = fields
        self._pieces: list[str] = []

    @property
    def whole(self) -> bool:
        """Whether it may stop where it is."""
        return True

    def grow(self, text: str) -> None:
        """Take the text of a delta."""
        self._pieces.append(text)

    def merge(self, delta: dict[str, Any]) -> None:
        """Take a delta of another type."""
        if delta.get("type") in TEXT_OF:
            raise MalformedStream("a delta for a block of another kind")
        for name, value in delta.items():
            if name != "type" and value is not None:
                self._parts.count(len(name) + size(value))
                self._keep(name, value)

    def close(self) -> None:
        grown = {name: "".join(value) for name, value in self._fields.items() if isinstance(value, Pieces)}
        self._fields |= grown
        self._end()

    def _end(self) -> None:
        raise NotImplementedError

    def _keep(self, name: str, value: Any) -> None:
        if name == "citation":
            name, citations = "citations", self._fields.get("citations")
            if isinstance(citations, list):
                citations.append(value)
                return
            value = [value]
        before = self._fields.get(name)
        if name != "signature" and isinstance(before, str | Pieces) and isinstance(value, str):
            before = before if isinstance(before, Pieces) else Pieces([before])
            before.append(value)
            value = before
        self._fields[name] = value

    def _initial(self, name: str) -> str:
        """Text the block started with."""
        text = self._fields.get(name)
        return text if isinstance(text, str) else ""

    def _item(self, name: str) -> str:
        return jsontext.dump({**self._fields, name: "".join(self._pieces)})


class Text(Block):
    takes = "text_delta"

    def __init__(self, room: Room, fields: dict[str, Any]) -> None:
        super().__init__(room, fields)
        self._lane = Lane(room.parts)
        self._prose = room.prose(self._lane)
        self.grow(self._initial("text"))

    def grow(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._prose.feed(text)

    def _end(self) -> None:
        self._prose.end()
        plain = not self._fields.get("citations") and self._fields.keys() <= {"type", "text", "citations"}
        close_all(self._parts, [self._lane], "" if plain else self._item("text"))


class Thinking(Block):
    takes = "thinking_delta"

    def __init__(self, room: Room, fields: dict[str, Any]) -> None:
        super().__init__(room, fields)
        self._part = self._parts.start("reasoning")
        self.grow(self._initial("thinking"))

    def grow(self, text: str) -> None:
        self._pieces.append(text)
        self._parts.grow_call(self._part, text)

    def _end(self) -> None:
        whole = self._item("thinking") if "thinking" in self._fields else jsontext.dump(self._fields)
        self._parts.close_call(self._part, whole)


class _WithInput(Block):
    """A block whose input comes as JSON text, or stood whole in its start."""

    takes = "input_json_delta"

    def __init__(self, room: Room, fields: dict[str, Any]) -> None:
        super().__init__(room, fields)
        self._size = 0

    def grow(self, text: str) -> None:
        self._size += len(text)
        if self._size > TOOL_ARGUMENTS_MAX_CHARS:
            raise MalformedStream(f"tool arguments are longer than {TOOL_ARGUMENTS_MAX_CHARS} characters")
        self._pieces.append(text)

    def _input(self) -> str:
        """The input as JSON text. Nothing but an empty object at the start, and no delta, is an empty object."""
        if self._size:
            return jsontext.repair("".join(self._pieces))
        given = self._fields.get("input")
        if isinstance(given, str):
            return given
        return "{}" if given is None else jsontext.dump(given)

    def _with_input(self, text: str) -> str:
        """The block with `text` as its input, in the very digits it came in."""
        rest = {name: value for name, value in self._fields.items() if name != "input"}
        return f'{jsontext.dump(rest)[:-1]}{"," if rest else ""}"input":{text}}}'


class ToolUse(_WithInput):
    def __init__(self, room: Room, fields: dict[str, Any]) -> None:
        super().__init__(room, fields)
        name = jsontext.repair(self._initial("name"))
        if not name:
            raise MalformedStream("a tool call without a name")
        if len(name) > TOOL_NAME_MAX_CHARS:
            raise MalformedStream(f"a tool's name is longer than {TOOL_NAME_MAX_CHARS} characters")
        tool_id = self._parts.tool_id(jsontext.repair(self._initial("id")))
        self._fields = {**fields, "id": tool_id}
        self._part = self._parts.start_call(tool_id, name)

    @property
    def whole(self) -> bool:
        return jsontext.is_whole_object(self._input())

    def grow(self, text: str) -> None:
        super().grow(text)
        self._parts.grow_call(self._part, text)

    def _end(self) -> None:
        text = self._input()
        if not self._size:
            self._parts.grow_call(self._part, text)
        # Arguments that are no object cannot go back as one; what is displayed has to do.
        self._parts.close_call(self._part, self._with_input(text) if jsontext.is_whole_object(text) else "")


class Opaque(_WithInput):
    """A hosted tool's use or result, a compaction, or what nobody knows yet."""

    def __init__(self, room: Room, fields: dict[str, Any]) -> None:
        super().__init__(room, fields)
        self._part = self._parts.start("opaque")

    def merge(self, delta: dict[str, Any]) -> None:
        super().merge({**delta, "type": ""})

    def _end(self) -> None:
        text = self._input() if self._size else ""
        whole = self._with_input(text) if jsontext.is_whole_object(text) else jsontext.dump(self._fields)
        self._parts.close_call(self._part, whole)


_KINDS: Final[dict[str, type[Block]]] = {
    "text": Text,
    "thinking": Thinking,
    "redacted_thinking": Thinking,
    "tool_use": ToolUse,
}


def start(room: Room, fields: dict[str, Any]) -> Block:
    kind = fields.get("type")
    return _KINDS.get(kind if isinstance(kind, str) else "", Opaque)(room, fields)
