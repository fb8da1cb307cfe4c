"""How a provider of chat completions numbers, names and ends its tool calls.

Theory of operation. `CallHabits` is shown every delta (or the one message of a whole answer) and keeps, for each index,
the id and the name that came; whatever differs from one index, one id and one name a call is a quirk. It judges
nothing: `tool_deltas` copes with all of them.
"""

from typing import Any, Literal

CallQuirk = Literal[
    "index_missing", "index_shared", "call_id_missing", "call_id_repeated", "name_repeated", "name_in_pieces",
    "arguments_object", "legacy_function_call", "calls_end_with_stop", "calls_announced_only",
]  # fmt: skip


class _Call:
    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""


class CallHabits:
    """Shown deltas, says quirks."""

    def __init__(self) -> None:
        self._latest: dict[int | None, _Call] = {}
        self._calls: list[_Call] = []
        self._quirks: dict[CallQuirk, None] = {}

    def add(self, delta: dict[str, Any], *, whole: bool) -> None:
        if isinstance(delta.get("function_call"), dict):
            self._quirks["legacy_function_call"] = None
        calls = delta.get("tool_calls")
        for place, call in enumerate(calls if isinstance(calls, list) else []):
            if isinstance(call, dict):
                self._one({**call, "index": place} if whole else call)

    def ended(self, reasons: list[str]) -> None:
        """The reply had these finish reasons."""
        called = bool(self._calls) or "legacy_function_call" in self._quirks
        if called and set(reasons) == {"stop"}:
            self._quirks["calls_end_with_stop"] = None
        if not called and "tool_calls" in reasons:
            self._quirks["calls_announced_only"] = None

    def quirks(self) -> list[CallQuirk]:
        ids = [call.id for call in self._calls if call.id]
        if len(ids) < len(self._calls):
            self._quirks["call_id_missing"] = None
        if len(set(ids)) < len(ids):
            self._quirks["call_id_repeated"] = None
        return list(self._quirks)

    def _one(self, delta: dict[str, Any]) -> None:
        index = delta.get("index") if isinstance(delta.get("index"), int) else None
        if index is None:
            self._quirks["index_missing"] = None
        call = self._call(index, delta.get("id"))
        function = delta.get("function")
        if not isinstance(function, dict):
            return
        if isinstance(function.get("arguments"), dict | list):
            self._quirks["arguments_object"] = None
        name = function.get("name")
        if isinstance(name, str) and name:
            self._name(call, name)

    def _call(self, index: int | None, call_id: Any) -> _Call:
        call_id = "" if call_id is None else str(call_id)
        call = self._latest.get(index)
        if call is not None and call_id and call.id and call.id != call_id:
            if index is not None:
                self._quirks["index_shared"] = None
            call = None
        if call is None:
            call = self._latest[index] = _Call(call_id)
            self._calls.append(call)
        call.id = call.id or call_id
        return call

    def _name(self, call: _Call, name: str) -> None:
        if call.name:
            self._quirks["name_repeated" if name == call.name else "name_in_pieces"] = None
        call.name = call.name or name
