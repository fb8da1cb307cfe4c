"""From a provider's text to parts: inline reasoning and leaked tool markup taken out on the way.

    text -> think.Splitter -> toolmarkup.Finder -> parts

A stage that has nothing to do is not there; most replies go straight through.
"""

from typing import Protocol

from headrace.events import PartKind
from headrace.wire import jsontext, think, toolmarkup
from headrace.wire.dialect import Dialect, Tools


class Writer(Protocol):
    """Where prose goes: the reply's `Parts`, or one block's `Lane`."""

    def grow(self, kind: PartKind, text: str) -> None: ...
    def opaque(self, item: str, text: str = "") -> None: ...
    def tool_id(self, given: str) -> str: ...
    def start_call(self, tool_id: str, name: str) -> int: ...
    def grow_call(self, part: int, text: str) -> None: ...
    def close_call(self, part: int, item: str = "") -> None: ...


class Prose:
    def __init__(self, parts: Writer, dialect: Dialect, tools: Tools) -> None:
        self._parts = parts
        self._think: think.Splitter | None = think.Splitter(dialect.think)
        self._markup = toolmarkup.Finder(dialect.tool_markup, tools) if dialect.tool_markup else None
        self._drop_idle_stage()

    def feed(self, text: str) -> None:
        if self._think is None and self._markup is None:
            self._parts.grow("text", text)
            return
        if self._think is None:
            self._after_think("text", text)
            return
        for kind, piece in self._think.feed(text):
            self._after_think(kind, piece)
        self._drop_idle_stage()

    def end(self) -> None:
        """The text is complete; what a stage held back is decided."""
        if self._think is not None:
            for kind, piece in self._think.end():
                self._after_think(kind, piece)
        if self._markup is not None:
            self._write(self._markup.end())

    def _drop_idle_stage(self) -> None:
        if self._think is not None and self._think.passes:
            self._think = None

    def _after_think(self, kind: think.Kind, text: str) -> None:
        if kind == "reasoning" or self._markup is None:
            self._parts.grow(kind, text)
        else:
            self._write(self._markup.feed(text))

    def _write(self, found: list[toolmarkup.Found]) -> None:
        for piece in found:
            match piece.kind:
                case "text":
                    self._parts.grow("text", piece.text)
                case "opaque":
                    self._parts.opaque("{}", piece.text)
                case "call":
                    self._write_call(piece)

    def _write_call(self, piece: toolmarkup.Found) -> None:
        tool_id = self._parts.tool_id("")
        part = self._parts.start_call(tool_id, piece.name)
        self._parts.grow_call(part, piece.text)
        function = {"name": piece.name, "arguments": piece.text}
        self._parts.close_call(part, jsontext.dump({"id": tool_id, "type": "function", "function": function}))
