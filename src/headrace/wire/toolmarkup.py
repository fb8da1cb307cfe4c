"""Tool calls that leaked into a model's text as markup.

Theory of operation. A server that does not parse its model's tool markup sends it as text. Where the configuration
names the markup, text is searched for its opening; from there on everything is held until the call is whole:

    text --opening--> inside --closing, or the end of the text--> text

A whole call that names an offered tool becomes a call. Anything else that was inside is opaque: kept, never run,
never shown as prose. Text that may be the beginning of a tag is held until it is decided; white space that follows a
call belongs to it.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from headrace.errors import MalformedStream
from headrace.limits import TOOL_ARGUMENTS_MAX_CHARS
from headrace.wire import jsontext
from headrace.wire.dialect import ToolMarkup, Tools
from headrace.wire.tags import Tags


class Found(NamedTuple):
    kind: Literal["text", "call", "opaque"]
    text: str
    """Prose, the call's arguments as JSON text, or the markup as it came."""
    name: str = ""


_OPENING: Final[dict[ToolMarkup, Tags]] = {
    "hermes": Tags("<tool_call>"),
    "qwen": Tags("<tool_call>", "<function="),
    "mistral": Tags("[TOOL_CALLS]"),
}
_CLOSING: Final = {"<tool_call>": "</tool_call>", "<function=": "</function>"}
_CLOSING_TAGS: Final = {opening: Tags(closing) for opening, closing in _CLOSING.items()}

_SPACE: Final = re.compile(r"\s*")
_MISTRAL_HEAD: Final = re.compile(r"\s*(?:\[TOOL_CALLS\])?([\w.-]+)(?:\[CALL_ID\][\w-]*)?(?:\[ARGS\])?\s*")


class Finder:
    """Feed text, get prose and calls in order."""

    def __init__(self, markup: ToolMarkup, tools: Tools) -> None:
        self._markup: ToolMarkup = markup
        self._tools = tools
        self._opening = ""  # the tag we are inside of
        self._inside: list[str] = []
        self._inside_size = 0
        self._held = ""
        self._after_markup = False

    def feed(self, text: str) -> list[Found]:
        out: list[Found] = []
        text, self._held = self._held + text, ""
        at = 0
        while at < len(text):
            at = self._find_closing(text, at, out) if self._opening else self._find_opening(text, at, out)
        return out

    def end(self) -> list[Found]:
        """The text is complete."""
        rest, self._held = self._held, ""
        if not self._opening:
            return [Found("text", rest)] if rest else []
        return self._leave(rest, "")

    def _find_opening(self, text: str, at: int, out: list[Found]) -> int:
        if self._after_markup:
            at = _end_of_space(text, at)
            self._after_markup = at == len(text)
        tags = _OPENING[self._markup]
        opening = tags.search(text, at)
        end = len(text) - tags.held(text, at) if opening is None else opening.start()
        if end > at:
            out.append(Found("text", text[at:end]))
        if opening is None:
            self._held = text[end:]
            return len(text)
        self._opening = opening[0]
        return opening.end()

    def _find_closing(self, text: str, at: int, out: list[Found]) -> int:
        tags = _CLOSING_TAGS.get(self._opening)
        closing = tags.search(text, at) if tags else None
        if closing is not None:
            out += self._leave(text[at : closing.start()], closing[0])
            return closing.end()
        end = len(text) - (tags.held(text, at) if tags else 0)
        self._inside.append(text[at:end])
        self._inside_size += end - at
        if self._inside_size > TOOL_ARGUMENTS_MAX_CHARS:
            raise MalformedStream(f"tool markup is longer than {TOOL_ARGUMENTS_MAX_CHARS} characters")
        self._held = text[end:]
        return len(text)

    def _leave(self, rest: str, closing: str) -> list[Found]:
        """Read what was inside; `closing` is "" where the text ended before the tag."""
        body = "".join(self._inside) + rest
        opening, self._opening = self._opening, ""
        self._inside.clear()
        self._inside_size = 0
        self._after_markup = True
        calls: list[Found | None]
        if self._markup == "mistral":
            calls = self._mistral(body)
        elif self._markup == "qwen":
            calls = [self._qwen(body if opening == "<tool_call>" else opening + body + closing)]
        else:
            calls = [self._json_call(_read(body))]
        found = [call for call in calls if call is not None]
        if not found or len(found) < len(calls):
            return [Found("opaque", opening + body + closing)]
        return found

    def _json_call(self, value: Any) -> Found | None:
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str) or name not in self._tools:
            return None
        arguments = value.get("arguments", value.get("parameters", {}))
        if isinstance(arguments, str):
            arguments = _read(arguments)
        if not isinstance(arguments, dict):
            return None
        return Found("call", jsontext.dump(arguments), name)

    def _qwen(self, body: str) -> Found | None:
        """`<function=name>`, parameters in tags of their own, `</function>`; some models write JSON instead."""
        body = body.strip()
        if not body.startswith("<function="):
            return self._json_call(_read(body))
        name, _, rest = body.removeprefix("<function=").partition(">")
        inner, end, after = rest.partition("</function>")
        if name not in self._tools or not end or after:
            return None
        properties = self._tools[name].get("properties")
        arguments: dict[str, Any] = {}
        *parameters, tail = inner.split("</parameter>")
        for parameter in parameters:
            key, tag_end, value = parameter.lstrip().removeprefix("<parameter=").partition(">")
            if not tag_end or not parameter.lstrip().startswith("<parameter="):
                return None
            schema = properties.get(key) if isinstance(properties, Mapping) else None
            arguments[key] = _typed(value.removeprefix("\n").removesuffix("\n"), schema)
        return None if tail.strip() else Found("call", jsontext.dump(arguments), name)

    def _mistral(self, body: str) -> list[Found | None]:
        """Either one JSON array of calls, or `name{arguments}` once or more."""
        values = _read(body)
        if isinstance(values, list):
            return [self._json_call(value) for value in values]
        calls: list[Found | None] = []
        at = _end_of_space(body, 0)
        while at < len(body):
            head = _MISTRAL_HEAD.match(body, at)
            if head is None:
                return [None]
            try:
                arguments, at = jsontext.parse_at(body, head.end())
            except MalformedStream:
                return [None]
            calls.append(self._json_call({"name": head[1], "arguments": arguments}))
            at = _end_of_space(body, at)
        return calls


def _end_of_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None
    return space.end()


def _read(text: str) -> Any:
    """A JSON value, or None where there is none."""
    try:
        return jsontext.parse(text.strip())
    except MalformedStream:
        return None


def _typed(text: str, schema: Any) -> Any:
    """A parameter's text as the type its schema wants; text is what it stays where nothing says otherwise."""
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    wanted = wanted if isinstance(wanted, list) else [wanted]
    if "string" in wanted and not ("null" in wanted and text.strip() == "null"):
        return text
    value = _read(text)
    if value is not None or text.strip() == "null":
        return value
    return {"True": True, "False": False}.get(text.strip(), text)
