"""Tool calls in chat completions: which delta belongs to which call, however the provider numbers them.

Theory of operation. A delta names its call by `index`, by `id`, by both, or by neither; providers leave out, repeat
and fragment either, and the name too. `ToolCalls` holds the calls that are open and all that is known of these
habits; a call becomes a part once its name is sure, and closes at a finish reason.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.errors import MalformedStream
from headrace.limits import TOOL_ARGUMENTS_MAX_CHARS, TOOL_NAME_MAX_CHARS
from headrace.wire import jsontext
from headrace.wire.dialect import Tools
from headrace.wire.parts import Parts


class Function(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    arguments: str | None = None


class ToolDelta(msgspec.Struct, forbid_unknown_fields=True):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None


def merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Gather fields that arrive in pieces: lists and objects grow, the rest is replaced by what is later."""
    for key, value in new.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merge(old, value)
        elif isinstance(old, list) and isinstance(value, list):
            for entry in value:
                _merge_entry(old, entry)
        elif value is not None:
            into[key] = value


def _merge_entry(entries: list[Any], new: Any) -> None:
    """Join a fragment of a `reasoning_details` entry to the entry it continues."""
    last = entries[-1] if entries else None
    if not (isinstance(last, dict) and isinstance(new, dict) and "index" in new):
        entries.append(new)
        return
    if any(last.get(k) != new.get(k) for k in ("type", "index")):
        entries.append(new)
        return
    for key, value in new.items():
        if key in ("text", "summary", "data") and isinstance(value, str) and isinstance(last.get(key), str):
            last[key] += value
        elif value is not None:
            last[key] = value


class _Call:
    """A tool call as far as it has come. It starts once its name is sure: when arguments come, or at its end."""

    def __init__(self, index: int | None, tool_id: str) -> None:
        self.index = index
        self.provider_id = tool_id
        self.tool_id = tool_id
        self.name = ""
        self.part: int | None = None
        self.arguments: list[str] = []
        self.size = 0
        self.unknown: dict[str, Any] = {}

    def is_whole(self) -> bool:
        return jsontext.is_whole_object("".join(self.arguments))


class ToolCalls:
    """Which delta belongs to which call.

    A delta continues the call of its index, or the latest call where there is no index, unless something says that it
    is another one: a new id, or a name together with arguments when the call's arguments are already whole. Calls that
    a finish reason has closed are continued by nothing, so the same index and id begin a new call after it.
    """

    def __init__(self, parts: Parts, tools: Tools, *, cumulative: bool) -> None:
        self._parts = parts
        self._tools = tools
        self._cumulative = cumulative
        self._open: list[_Call] = []
        self._finished = False

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, delta: ToolDelta, unknown: Mapping[str, Any] | None = None) -> None:
        function = delta.function or Function()
        if self._finished and not function.name and not self._open:
            return  # an empty delta that trails behind the finish reason
        call = self._call_for(delta, function)
        if unknown:
            merge(call.unknown, unknown)
        if function.name:
            self._name(call, function.name)
        if function.arguments:
            self._grow(call, function.arguments)

    def all_whole(self) -> bool:
        return all(call.is_whole() for call in self._open if call.size)

    def close(self) -> None:
        self._finished = True
        for call in self._open:
            self._start(call)
            arguments = "".join(call.arguments)
            function = {"name": call.name, "arguments": arguments, **call.unknown.pop("function", {})}
            item = {"id": call.tool_id, "type": "function", "function": function, **call.unknown}
            assert call.part is not None
            self._parts.close_call(call.part, jsontext.dump(item))
        self._open.clear()

    def _call_for(self, delta: ToolDelta, function: Function) -> _Call:
        call = self._candidate(delta)
        if call is None or self._is_another(call, delta, function):
            call = _Call(delta.index, delta.id or "")
            self._open.append(call)
        elif delta.id and not call.provider_id:
            call.provider_id = call.tool_id = delta.id
        return call

    def _candidate(self, delta: ToolDelta) -> _Call | None:
        if delta.index is None:
            if delta.id:
                return next((c for c in reversed(self._open) if c.provider_id == delta.id), None)
            return self._open[-1] if self._open else None
        return next((c for c in reversed(self._open) if c.index == delta.index), None)

    def _is_another(self, call: _Call, delta: ToolDelta, function: Function) -> bool:
        if delta.id and call.provider_id and delta.id != call.provider_id:
            return True
        new_arguments = function.name and function.arguments and not self._cumulative
        return bool(new_arguments and call.arguments and call.arguments[-1][-1:] == "}" and call.is_whole())

    def _name(self, call: _Call, name: str) -> None:
        """Take a name that comes once, in every delta, growing, or in fragments."""
        if call.part is not None or name == call.name:
            return
        joined = call.name + name
        offered = next((n for n in (joined, name, call.name) if n in self._tools), None)
        call.name = offered or (name if name.startswith(call.name) else joined)
        if len(call.name) > TOOL_NAME_MAX_CHARS:
            raise MalformedStream(f"a tool's name is longer than {TOOL_NAME_MAX_CHARS} characters")

    def _grow(self, call: _Call, arguments: str) -> None:
        if self._cumulative:
            arguments = arguments[call.size :]
        call.arguments.append(arguments)
        call.size += len(arguments)
        if call.size > TOOL_ARGUMENTS_MAX_CHARS:
            raise MalformedStream(f"tool arguments are longer than {TOOL_ARGUMENTS_MAX_CHARS} characters")
        if call.part is not None:
            self._parts.grow_call(call.part, arguments)
        elif call.name and (not self._tools or call.name in self._tools):
            self._start(call)

    def _start(self, call: _Call) -> None:
        if call.part is None:
            call.tool_id = self._parts.tool_id(call.provider_id)
            call.part = self._parts.start_call(call.tool_id, call.name)
            self._parts.grow_call(call.part, "".join(call.arguments))
