"""The items of an OpenAI response: what each kind becomes, delta by delta and then whole.

Theory of operation. An item is announced, grows by deltas and is handed over done; each of the three may be missing.
So an item keeps what came, and `fill` writes what the whole item has beyond it, once. `close` ends its parts; the
item's JSON goes with the first of them.

    message       one part for each of its contents          reasoning    one part, even where nothing can be read
    function and custom tool calls     one part, once the name is known     anything else    one opaque part
"""

from typing import Any, Final, Literal

from headrace.errors import MalformedStream
from headrace.limits import TOOL_ARGUMENTS_MAX_CHARS, TOOL_NAME_MAX_CHARS
from headrace.wire import jsontext
from headrace.wire.dialect import Dialect, Tools
from headrace.wire.lanes import COVERED, Lane, Sofar, after_first, close_all
from headrace.wire.parts import Parts
from headrace.wire.prose import Prose

ContentKind = Literal["text", "refusal"]
Section = tuple[str, int]


class Room:
    """Where the items of one reply write."""

    def __init__(self, parts: Parts, dialect: Dialect, tools: Tools) -> None:
        self.parts = parts
        self.refused = False
        self._dialect = dialect
        self._tools = tools

    def prose(self, lane: Lane) -> Prose:
        prose = Prose(lane, self._dialect, self._tools)
        self._dialect = after_first(self._dialect)
        return prose


class Item:
    """What all kinds share. `item` is the announcement, and empty where there was none."""

    def __init__(self, room: Room, item: dict[str, Any]) -> None:
        self.id = text_of(item, "id")
        self.done = False
        self._parts = room.parts

    @property
    def whole(self) -> bool:
        """Whether it may end as it is, though it was not handed over done."""
        return True

    def fill(self, item: dict[str, Any]) -> None:
        """Write what the whole item has and the deltas had not."""

    def close(self, item: str) -> None:
        """End the parts; `item` is what to send back, "" where it never came whole."""
        raise NotImplementedError


class Content:
    """One text or refusal of a message."""

    def __init__(self, room: Room, kind: ContentKind) -> None:
        self.lane = Lane(room.parts)
        self._kind: ContentKind = kind
        self._prose = room.prose(self.lane) if kind == "text" else None
        self._sofar = Sofar()

    def grow(self, text: str) -> None:
        self._sofar.add(text)
        if self._prose is None:
            self.lane.grow(self._kind, text)
        else:
            self._prose.feed(text)

    def fill(self, whole: str) -> None:
        # A whole text that begins otherwise changes nothing: what was shown stays, the item is sent back.
        missing = self._sofar.missing(whole)
        if missing:
            self.grow(missing)

    def end(self) -> None:
        if self._prose is not None:
            self._prose.end()


class Message(Item):
    def __init__(self, room: Room, item: dict[str, Any]) -> None:
        super().__init__(room, item)
        self._room = room
        self._contents: dict[tuple[int, ContentKind], Content] = {}

    def grow(self, index: int, kind: ContentKind, text: str) -> None:
        content = self._contents.get((index, kind))
        if content is None:
            content = self._content(index, kind)
        content.grow(text)

    def fill_content(self, index: int, kind: ContentKind, whole: str) -> None:
        if whole:
            self._content(index, kind).fill(whole)

    def fill(self, item: dict[str, Any]) -> None:
        for index, content in enumerate(_objects(item.get("content"))):
            match content.get("type"):
                case "output_text":
                    self.fill_content(index, "text", text_of(content, "text"))
                case "refusal":
                    self.fill_content(index, "refusal", text_of(content, "refusal"))
                case _:
                    pass

    def close(self, item: str) -> None:
        for content in self._contents.values():
            content.end()
        close_all(self._parts, (content.lane for content in self._contents.values()), item)
        self._contents.clear()
        self.done = True

    def _content(self, index: int, kind: ContentKind) -> Content:
        content = self._contents.get((index, kind))
        if content is None:
            content = self._contents[index, kind] = Content(self._room, kind)
            self._room.refused |= kind == "refusal"
        return content


class Reasoning(Item):
    """Summaries and reasoning texts are sections of one part, a blank line between them."""

    def __init__(self, room: Room, item: dict[str, Any]) -> None:
        super().__init__(room, item)
        self._part = self._parts.start("reasoning")
        self._section: Section | None = None
        self._came: dict[Section, Sofar] = {}

    def grow(self, section: Section, text: str) -> None:
        if section != self._section:
            if self._section is not None:
                self._parts.grow_call(self._part, "\n\n")
            self._section = section
        came = self._came.get(section)
        if came is None:
            came = self._came[section] = Sofar()
        came.add(text)
        self._parts.grow_call(self._part, text)

    def fill_section(self, section: Section, whole: str) -> None:
        came = self._came.get(section)
        missing = whole if came is None else came.missing(whole)
        if missing and (came is None or section == self._section):
            self.grow(section, missing)

    def fill(self, item: dict[str, Any]) -> None:
        for name in ("summary", "content"):
            for index, section in enumerate(_objects(item.get(name))):
                self.fill_section((name, index), text_of(section, "text"))

    def close(self, item: str) -> None:
        self._parts.close_call(self._part, item)
        self._came.clear()
        self.done = True


class Call(Item):
    """A call of a function, whose arguments are JSON, or of a custom tool, whose input is any text."""

    def __init__(self, room: Room, item: dict[str, Any]) -> None:
        super().__init__(room, item)
        self._part: int | None = None
        self._own_id = False
        self._custom = item.get("type") == "custom_tool_call"
        self._sofar = Sofar()
        self._size = 0
        self._start(item)

    @property
    def whole(self) -> bool:
        return self._custom or not self._size or jsontext.is_whole_object(self._sofar.text())

    def grow(self, text: str) -> None:
        self._size += len(text)
        if self._size > TOOL_ARGUMENTS_MAX_CHARS:
            raise MalformedStream(f"tool arguments are longer than {TOOL_ARGUMENTS_MAX_CHARS} characters")
        self._sofar.add(text)
        if self._part is None:
            self._parts.count(len(text))
        else:
            self._parts.grow_call(self._part, text)

    def fill_arguments(self, whole: str) -> None:
        if not whole:
            return
        missing = self._sofar.missing(whole)
        if missing is None and not _same_json(self._sofar.text(), whole):
            raise MalformedStream("the whole arguments of a tool call are not what its deltas were")
        if missing:
            self.grow(missing)

    def fill(self, item: dict[str, Any]) -> None:
        self._start(item)
        arguments = item.get("input" if item.get("type") == "custom_tool_call" else "arguments")
        if isinstance(arguments, dict | list):
            arguments = jsontext.dump(arguments)
        self.fill_arguments(arguments if isinstance(arguments, str) else "")

    def close(self, item: str) -> None:
        if self._part is None:
            raise MalformedStream("a tool call without a name")
        # An id of our own has to be in what is sent back, so the item is built anew from what is displayed.
        self._parts.close_call(self._part, "" if self._own_id else item)
        self.done = True

    def _start(self, item: dict[str, Any]) -> None:
        name = text_of(item, "name")
        if self._part is not None or not name:
            return
        if len(name) > TOOL_NAME_MAX_CHARS:
            raise MalformedStream(f"a tool's name is longer than {TOOL_NAME_MAX_CHARS} characters")
        given = text_of(item, "call_id")
        tool_id = self._parts.tool_id(given)
        self._own_id = tool_id != given
        self._part = self._parts.start_call(tool_id, name)
        self._parts.grow_call(self._part, self._sofar.text())


class Opaque(Item):
    """A hosted tool's call, a compaction, or what nobody knows yet."""

    def __init__(self, room: Room, item: dict[str, Any]) -> None:
        super().__init__(room, item)
        self._part = self._parts.start("opaque")

    def close(self, item: str) -> None:
        self._parts.close_call(self._part, item or COVERED)  # one that never came whole is not sent back
        self.done = True


_KINDS: Final[dict[str, type[Item]]] = {
    "message": Message,
    "reasoning": Reasoning,
    "function_call": Call,
    "custom_tool_call": Call,
}


def kind_of(item: dict[str, Any]) -> type[Item]:
    return _KINDS.get(text_of(item, "type"), Opaque)


def text_of(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    return jsontext.repair(text) if isinstance(text, str) else ""


def _objects(value: Any) -> list[dict[str, Any]]:
    """The entries of a list, each at its index; what is no object counts as an empty one."""
    entries = value if isinstance(value, list) else []
    return [entry if isinstance(entry, dict) else {} for entry in entries]


def _same_json(one: str, other: str) -> bool:
    try:
        return bool(jsontext.parse(one) == jsontext.parse(other))
    except (MalformedStream, RecursionError):
        return False
