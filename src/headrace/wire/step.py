"""One step of a model that writes its answer as JSON: `{"tool": "reply", "text": ...}`, or a tool and its arguments.

Theory of operation. A small model's output is constrained to one JSON object (`schema`), and `Step` reads that object
while it is still arriving, so that a reply streams although it is wrapped. It reads the forms the schema allows and no
others:

    head --tool is the reply word--> text ------closing quote--> tail --}--> after
      '----tool is an offered one--> arguments --closing brace-->'

The head is short and matched as a whole once enough of it is there. Text is unescaped as it comes; an escape that a
piece ends in the middle of waits for the rest. Arguments pass through verbatim, by counting brackets outside of
strings, and are parsed once at the end. So every character is looked at a fixed number of times.
"""

import re
from collections.abc import Collection
from typing import Final, Literal

from headrace.errors import MalformedStream
from headrace.limits import TOOL_ARGUMENTS_MAX_CHARS, TOOL_NAME_MAX_CHARS
from headrace.wire import jsontext
from headrace.wire.parts import Parts

State = Literal["head", "text", "arguments", "tail", "after"]

# The longest head: a name of which every character is an escape, and some white space.
HEAD_MAX_CHARS: Final = 6 * TOOL_NAME_MAX_CHARS + 128

_WS: Final = r"[ \t\r\n]*"
_STRING: Final = r'"(?:[^"\\\x00-\x1f]|\\.)*"'
_HEAD: Final = re.compile(
    rf'{_WS}\{{{_WS}"tool"{_WS}:{_WS}({_STRING}){_WS},{_WS}"(text|arguments)"{_WS}:{_WS}(["{{])'
)
_RUN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPE: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_HALF_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_BRACKETS: Final = re.compile(r'["{}\[\]]')
_IN_STRING: Final = re.compile(r'["\\]')
_SPACE: Final = re.compile(_WS)
_CHARACTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def reply_word(tools: Collection[str]) -> str:
    """What stands for "no tool": a word that no tool is called."""
    word = "reply"
    while word in tools:
        word = f"plain_{word}"
    return word


class Step:
    """Writes to `parts` what the object says; raises MalformedStream for one that is of no form."""

    def __init__(self, parts: Parts, tools: Collection[str]) -> None:
        self._parts = parts
        self._tools = tools
        self._reply = reply_word(tools)
        self._state: State = "head"
        self._held = ""  # the head so far, or half an escape
        self._call = 0
        self._object = _Object()

    @property
    def whole(self) -> bool:
        return self._state == "after"

    def feed(self, text: str) -> None:
        text, self._held = self._held + text, ""
        at = 0
        while at < len(text):
            match self._state:
                case "head":
                    at = self._head(text)
                case "text":
                    at = self._text(text, at)
                case "arguments":
                    at = self._arguments(text, at)
                case "tail" | "after":
                    at = self._tail(text, at)

    def end(self) -> None:
        """The model has ended its output."""
        if not self.whole:
            raise MalformedStream("a step ended before its JSON was whole")

    def cut(self) -> None:
        """The output met a bound on its length: what is open closes as it is."""
        if self._state == "text":
            self._parts.close_prose()
        elif self._state == "arguments":
            self._parts.close_call(self._call)

    # --- each returns how far it has read

    def _head(self, text: str) -> int:
        found = _HEAD.match(text[:HEAD_MAX_CHARS])
        if found is not None:
            return found.start(3) + self._begin(*found.groups())
        if len(text) >= HEAD_MAX_CHARS:
            raise MalformedStream("a step does not begin as one")
        self._held = text
        return len(text)

    def _begin(self, quoted: str, key: str, opening: str) -> int:
        """Open the part; says how many characters of the value's opening it has taken."""
        name = jsontext.parse(quoted, "a tool's name")
        if name == self._reply and key == "text" and opening == '"':
            self._state = "text"
            self._parts.open_prose("text")
            return 1
        if name in self._tools and key == "arguments" and opening == "{":
            self._state = "arguments"
            self._call = self._parts.start_call(self._parts.tool_id(""), name)
            return 0
        raise MalformedStream(f"a step has {key} for {jsontext.repair(name)[:80]!r}")

    def _text(self, text: str, at: int) -> int:
        """Unescape up to the closing quote, or as far as it has come."""
        out: list[str] = []
        while True:
            run = _RUN.match(text, at)
            assert run is not None
            out.append(run.group())
            at = run.end()
            escape = _ESCAPE.match(text, at)
            if escape is None:
                break
            out.append(_unescaped(escape.group()))
            at = escape.end()
        self._parts.grow("text", "".join(out))
        return self._after_text(text, at)

    def _after_text(self, text: str, at: int) -> int:
        """At the end of the piece, a quote, half an escape, or something that may not stand in a string."""
        if text[at : at + 1] == '"':
            self._parts.close_prose()
            self._state = "tail"
            return at + 1
        if _HALF_ESCAPE.fullmatch(text, at):
            self._held = text[at:]
        elif at < len(text):
            raise MalformedStream("a step's text is not a JSON string")
        return len(text)

    def _arguments(self, piece: str, at: int) -> int:
        end = self._object.feed(piece, at)
        self._parts.grow_call(self._call, piece[at:end])
        if self._object.whole:
            self._object.check()
            self._parts.close_call(self._call)
            self._state = "tail"
        return end

    def _tail(self, text: str, at: int) -> int:
        found = _SPACE.match(text, at)
        assert found is not None
        at = found.end()
        if at == len(text):
            return at
        if self._state == "after" or text[at] != "}":
            raise MalformedStream("something follows the end of a step")
        self._state = "after"
        return at + 1


def _unescaped(escape: str) -> str:
    if escape[1] == "u":
        return chr(int(escape.removeprefix("\\u"), 16))
    return _CHARACTERS.get(escape[1], escape[1])


class _Object:
    """Finds the end of a JSON object that arrives in pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False  # the piece before ended in a backslash
        self.whole = False

    def feed(self, piece: str, start: int) -> int:
        """Take the object's share of `piece` and say where it ends."""
        end = self._scan(piece, start)
        self._size += end - start
        if self._size > TOOL_ARGUMENTS_MAX_CHARS:
            raise MalformedStream(f"tool arguments are longer than {TOOL_ARGUMENTS_MAX_CHARS} characters")
        self._pieces.append(piece[start:end])
        return end

    def check(self) -> None:
        if not jsontext.is_whole_object("".join(self._pieces)):
            raise MalformedStream("a step's arguments are not a JSON object")

    def _scan(self, piece: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            at += 1
        while found := (_IN_STRING if self._in_string else _BRACKETS).search(piece, at):
            at = found.end()
            match found.group():
                case "\\":
                    self._escaped = at == len(piece)
                    at += 1
                case '"':
                    self._in_string = not self._in_string
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth == 0:
                        self.whole = True
                        return at
        return len(piece)
