"""Tool calls that leaked into a model's text as markup.

Theory of operation. A server that does not parse its model's tool markup sends it as text. Where the configuration
names the markup, text is searched for its opening; from there on everything is held until the call is whole:

    text --opening--> inside --closing, or the end of the text--> text

A whole call that names an offered tool becomes a call. Anything else that was inside is opaque: kept, never run,
never shown as prose. Text that may be the beginning of an opening is held until it is decided.
"""

import json
import re
from typing import Any, Final, Literal, NamedTuple

from headrace.errors import MalformedStream
from headrace.limits import TOOL_ARGUMENTS_MAX_CHARS
from headrace.wire import jsontext, tags
from headrace.wire.dialect import ToolMarkup, Tools


class Found(NamedTuple):
    kind: Literal["text", "call", "opaque"]
    text: str
    """Prose, the call's arguments as JSON text, or the markup as it came."""
    name: str = ""


_OPENING: Final[dict[ToolMarkup, tuple[str, ...]]] = {
    "hermes": ("<tool_call>",),
    "qwen": ("<tool_call>", "<function="),
    "mistral": ("[TOOL_CALLS]",),
}
_CLOSING: Final = {"<tool_call>": "</tool_call>", "<function=": "</function>"}

_FUNCTION: Final = re.compile(r"<function=([^>\s]+)>(.*?)</function>", re.DOTALL)
_PARAMETER: Final = re.compile(r"<parameter=([^>\s]+)>(.*?)</parameter>", re.DOTALL)
_MISTRAL_HEAD: Final = re.compile(r"\s*(?:\[TOOL_CALLS\])?([\w.-]+)(?:\[CALL_ID\][\w-]*)?(?:\[ARGS\])?\s*")


class Finder:
    """Feed text, get prose and calls in order."""

    def __init__(self, markup: ToolMarkup, tools: Tools) -> None:
        self._markup: ToolMarkup = markup
        self._tools = tools
        self._opening = _OPENING[markup]
        self._inside = ""  # the opening tag, while inside
        self._pieces: list[str] = []  # since the opening, or held prose
        self._size = 0
        self._tail = ""  # the end of what has come, where a closing tag may have begun

    def feed(self, text: str) -> list[Found]:
        out: list[Found] = []
        while text:
            text = self._find_closing(text, out) if self._inside else self._find_opening(text, out)
        return out

    def end(self) -> list[Found]:
        """The text is complete."""
        rest, opening = self._drain(), self._inside
        self._inside = ""
        if not opening:
            return [Found("text", rest)] if rest else []
        if self._markup == "mistral":
            return self._mistral(rest)
        return [Found("opaque", opening + rest)]

    def _drain(self) -> str:
        rest = "".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        self._tail = ""
        return rest

    def _find_opening(self, text: str, out: list[Found]) -> str:
        text = self._drain() + text
        found = tags.first_of(text, self._opening)
        if found is None:
            hold = tags.held(text, self._opening)
            if hold:
                self._pieces.append(text[-hold:])
            if len(text) > hold:
                out.append(Found("text", text[: len(text) - hold]))
            return ""
        at, self._inside = found
        if at:
            out.append(Found("text", text[:at]))
        return text[at + len(self._inside) :]

    def _find_closing(self, text: str, out: list[Found]) -> str:
        closing = _CLOSING.get(self._inside)
        at = (self._tail + text).find(closing) if closing else -1
        if closing is None or at < 0:
            self._hold(text, keep=len(closing or ""))
            return ""
        end = at + len(closing) - len(self._tail)
        body = self._drain() + text[:end]
        opening, self._inside = self._inside, ""
        out.append(self._call(opening, body.removesuffix(closing), closing))
        return text[end:]

    def _hold(self, text: str, keep: int) -> None:
        self._pieces.append(text)
        self._size += len(text)
        if self._size > TOOL_ARGUMENTS_MAX_CHARS:
            raise MalformedStream(f"tool markup is longer than {TOOL_ARGUMENTS_MAX_CHARS} characters")
        self._tail = (self._tail + text)[-keep:] if keep else ""

    def _call(self, opening: str, body: str, closing: str) -> Found:
        found = None
        if self._markup == "hermes":
            found = self._json_call(_read(body))
        else:
            found = self._qwen(body if opening == "<tool_call>" else opening + body + closing)
            if found is None and opening == "<tool_call>":
                found = self._json_call(_read(body))
        return found or Found("opaque", opening + body + closing)

    def _json_call(self, value: Any) -> Found | None:
        if not isinstance(value, dict) or value.get("name") not in self._tools:
            return None
        arguments = value.get("arguments", value.get("parameters", {}))
        if isinstance(arguments, str):
            arguments = _read(arguments)
        if not isinstance(arguments, dict):
            return None
        return Found("call", jsontext.dump(arguments), value["name"])

    def _qwen(self, body: str) -> Found | None:
        match = _FUNCTION.fullmatch(body.strip())
        if match is None or match[1] not in self._tools:
            return None
        properties = self._tools[match[1]].get("properties", {})
        arguments = {
            name: _typed(value.removeprefix("\n").removesuffix("\n"), properties.get(name))
            for name, value in _PARAMETER.findall(match[2])
        }
        return Found("call", jsontext.dump(arguments), match[1])

    def _mistral(self, body: str) -> list[Found]:
        """Either one JSON array of calls, or `name{arguments}` once or more."""
        values = _read(body)
        calls = [self._json_call(v) for v in values] if isinstance(values, list) else self._named(body)
        if not calls or None in calls:
            return [Found("opaque", "[TOOL_CALLS]" + body)]
        return [call for call in calls if call is not None]

    def _named(self, body: str) -> list[Found | None]:
        calls: list[Found | None] = []
        decoder = json.JSONDecoder()
        at = 0
        while body[at:].strip():
            head = _MISTRAL_HEAD.match(body, at)
            try:
                arguments, at = decoder.raw_decode(body, head.end()) if head else (None, at)
            except (ValueError, RecursionError):
                return [None]
            if head is None:
                return [None]
            calls.append(self._json_call({"name": head[1], "arguments": arguments}))
        return calls


def _read(text: str) -> Any:
    """A JSON value, or None where there is none."""
    try:
        return jsontext.parse(text.strip())
    except MalformedStream:
        return None


def _typed(text: str, schema: Any) -> Any:
    """A parameter's text as the type its schema wants; text is what it stays where nothing says otherwise."""
    wanted = schema.get("type") if isinstance(schema, dict) else None
    if wanted == "string":
        return text
    value = _read(text)
    if value is not None or text.strip() == "null":
        return value
    return {"True": True, "False": False}.get(text.strip(), text)
