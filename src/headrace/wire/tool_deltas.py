"""Tool calls in chat completions: which delta belongs to which call, however the provider numbers them.

Theory of operation. A delta names its call by `index`, by `id`, by both, or by neither; providers leave out, repeat
and fragment either, and the name too. `ToolCalls` holds the calls that are open and all that is known of these
habits; a call becomes a part once its name is sure, and closes at a finish reason.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.errors import MalformedStream
from headrace.limits import REPLY_MAX_CALLS, TOOL_ARGUMENTS_MAX_CHARS, TOOL_NAME_MAX_CHARS
from headrace.wire import jsontext
from headrace.wire.dialect import Tools
from headrace.wire.kept import Kept
from headrace.wire.parts import Parts


class Function(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    arguments: str | None = None


class ToolDelta(msgspec.Struct, forbid_unknown_fields=True):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None


class _Call:
    """A tool call as far as it has come. It starts once its name is sure: when it is offered and no longer name begins
    with it, when arguments come, or at its end.
    """

    def __init__(self, index: int | None, provider_id: str, kept: Kept) -> None:
        self.index = index
        self.provider_id = provider_id
        self.tool_id = ""
        self.name = ""
        self.next_name = ""
        """A name that came when there were arguments already: said again, or the next call's."""
        self.part: int | None = None
        self.arguments: list[str] = []
        self.size = 0
        self.kept = kept
        self._looked_at = 0

    def is_whole(self) -> bool:
        return jsontext.is_whole_object("".join(self.arguments))

    def is_followed_by(self, arguments: str) -> bool:
        """Whether the call is whole and `arguments` begin anew.

        Within one JSON text `}` and `{` meet only in a string. For arguments full of that, looking has to stop
        before it costs more than reading.
        """
        met = self.size and self.arguments[-1].rstrip()[-1:] == "}" and arguments.lstrip()[:1] == "{"
        if not met or self._looked_at > 16 * self.size:
            return False
        self._looked_at += self.size
        return self.is_whole()


class ToolCalls:
    """Which delta belongs to which call.

    A delta continues the call of its index, or the latest call where there is no index, unless something says that it
    is another one: a new id, another tool's name, or a name and then arguments that begin anew when the call's are
    whole. Calls that a finish reason has closed are continued by nothing, so the same index and id begin a new
    call after it.
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
            call.kept.add(unknown)
        if function.name:
            self._name(call, function.name)
        if function.arguments:
            self._grow(call, function.arguments)

    def all_whole(self) -> bool:
        return all(call.is_whole() for call in self._open if call.size)

    def close(self) -> None:
        self._finished = True
        for call in self._open:
            if call.name or call.size:
                self._start(call)
                self._close(call)
        self._open.clear()

    def _call_for(self, delta: ToolDelta, function: Function) -> _Call:
        call = self._candidate(delta)
        if call is None:
            return self._new(delta)
        if self._is_another(call, function):
            another = self._new(delta)
            if not function.name:
                self._name(another, call.next_name)
            return another
        if delta.id and not call.provider_id:
            self._parts.count(len(delta.id))
            call.provider_id = delta.id
        return call

    def _new(self, delta: ToolDelta) -> _Call:
        if len(self._open) >= REPLY_MAX_CALLS:
            raise MalformedStream(f"a reply has more than {REPLY_MAX_CALLS} tool calls")
        self._parts.count(len(delta.id or ""))
        self._open.append(_Call(delta.index, delta.id or "", Kept(self._parts.count)))
        return self._open[-1]

    def _candidate(self, delta: ToolDelta) -> _Call | None:
        """The latest open call that the delta's index and id allow."""
        for call in reversed(self._open):
            if delta.index is not None and call.index != delta.index:
                continue
            if not delta.id or call.provider_id == delta.id:
                return call
            if delta.index is not None and not call.provider_id:
                return call
        return None

    def _is_another(self, call: _Call, function: Function) -> bool:
        name, arguments = function.name or "", function.arguments
        if arguments and (name or call.next_name) and not self._cumulative and call.is_followed_by(arguments):
            return True
        offered = call.name in self._tools and name in self._tools
        return offered and not name.startswith(call.name) and call.name + name not in self._tools

    def _name(self, call: _Call, name: str) -> None:
        """Take a name that comes once, in every delta, growing, or in fragments."""
        if call.size:
            call.next_name = name
        if call.part is not None or name == call.name:
            return
        joined = call.name + name
        offered = next((n for n in (joined, name, call.name) if n in self._tools), None)
        call.name = offered or (name if name.startswith(call.name) else joined)
        if len(call.name) > TOOL_NAME_MAX_CHARS:
            raise MalformedStream(f"a tool's name is longer than {TOOL_NAME_MAX_CHARS} characters")
        if call.provider_id and self._is_sure(call.name):
            self._start(call)

    def _is_sure(self, name: str) -> bool:
        """Whether `name` is a tool's, and can no longer become another's: providers stall between it and arguments."""
        return name in self._tools and sum(other.startswith(name) for other in self._tools) == 1

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
        else:
            self._parts.count(len(arguments))

    def _start(self, call: _Call) -> None:
        if call.part is None:
            call.tool_id = self._parts.tool_id(call.provider_id)
            call.part = self._parts.start_call(call.tool_id, call.name)
            self._parts.grow_call(call.part, "".join(call.arguments))

    def _close(self, call: _Call) -> None:
        assert call.part is not None
        unknown = call.kept.fields()
        function = {"name": call.name, "arguments": "".join(call.arguments), **unknown.pop("function", {})}
        item = {"id": call.tool_id, "type": "function", "function": function, **unknown}
        self._parts.close_call(call.part, jsontext.dump(item))
