"""Fields that headrace does not know, gathered from the pieces they came in, to be sent back verbatim.

Theory of operation. Of a field that comes more than once, objects grow field by field, lists by what is appended, and
anything else is replaced by what is later. An entry of a list continues the one before it if it has the same `index`,
`type` and id, as the fragments of `reasoning_details` do: its text grows. Growing text stays in pieces until `fields`
joins it, so a fragment costs what a fragment costs. Fields with nothing in them are not kept.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.errors import MalformedStream
from headrace.wire import jsontext

_GROWING: Final = ("text", "summary", "data")


class Pieces(list[str]):
    """Text that is still growing."""


class Kept:
    def __init__(self, count: Callable[[int], None]) -> None:
        self._fields: dict[str, Any] = {}
        self._count = count
        """Told the characters of everything added, so that somebody can bound it."""

    def __bool__(self) -> bool:
        return bool(self._fields)

    def add(self, new: Mapping[str, Any]) -> None:
        try:
            self._merge(self._fields, new)
        except RecursionError:
            raise MalformedStream("an object is nested too deeply") from None

    def fields(self) -> dict[str, Any]:
        """Everything so far, as it would have come in one piece."""
        try:
            return {name: _joined(value) for name, value in self._fields.items()}
        except RecursionError:
            raise MalformedStream("an object is nested too deeply") from None

    def _merge(self, into: dict[str, Any], new: Mapping[str, Any]) -> None:
        for name, value in new.items():
            old = into.get(name)
            if isinstance(old, dict) and isinstance(value, dict):
                self._merge(old, value)
            elif isinstance(old, list) and isinstance(value, list):
                for entry in value:
                    self._append(old, entry)
            elif value not in (None, "", [], {}):
                self._count(len(name) + size(value))
                into[name] = value

    def _append(self, entries: list[Any], new: Any) -> None:
        last = entries[-1] if entries else None
        if isinstance(last, dict) and isinstance(new, dict) and _continues(last, new):
            self._grow(last, new)
        else:
            self._count(size(new))
            entries.append(new)

    def _grow(self, entry: dict[str, Any], new: Mapping[str, Any]) -> None:
        for name, value in new.items():
            old = entry.get(name)
            if name in _GROWING and isinstance(value, str) and isinstance(old, str | Pieces):
                pieces = old if isinstance(old, Pieces) else Pieces([old])
                pieces.append(value)
                self._count(len(value))
                entry[name] = pieces
            elif value is not None and value != old:
                self._count(len(name) + size(value))
                entry[name] = value


def _continues(last: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if "index" not in new or any(last.get(name) != new.get(name) for name in ("type", "index")):
        return False
    return not (last.get("id") and new.get("id") and last["id"] != new["id"])


def size(value: Any) -> int:
    """Characters it takes as JSON text."""
    return len(value) if isinstance(value, str) else len(jsontext.dump(value))


def _joined(value: Any) -> Any:
    match value:
        case Pieces():
            return "".join(value)
        case dict():
            return {name: _joined(field) for name, field in value.items()}
        case list():
            return [_joined(entry) for entry in value]
        case _:
            return value
