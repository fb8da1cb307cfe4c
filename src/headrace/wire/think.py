"""Reasoning that a model wrote into its text, between `<think>` tags, split from the text around it.

Theory of operation. Text comes in pieces cut anywhere; what may be the beginning of a tag is held until it is
decided, so nothing of a tag is ever shown, and every split of the same text gives the same result.

    start --an opening tag--> inside        start --anything else--> text (inside, where the tag was prefilled)
    inside --the closing tag--> start       (white space before the first block and after each belongs to it)
    text --an opening tag, in mode `anywhere`--> inside

A block that is never closed is reasoning to the end.
"""

import re
from typing import Final, Literal

from headrace.limits import MARKUP_HOLD_MAX_CHARS
from headrace.wire.dialect import ThinkMode
from headrace.wire.tags import Tags

_NAMES: Final = ("think", "thinking", "mm:think")
_OPENING: Final = Tags(*(f"<{name}>" for name in _NAMES))
_CLOSING: Final = {f"<{name}>": Tags(f"</{name}>") for name in _NAMES}
_ANY_CLOSING: Final = Tags(*(f"</{name}>" for name in _NAMES))
_SPACE: Final = re.compile(r"\s*")

Kind = Literal["text", "reasoning"]
Pieces = list[tuple[Kind, str]]


class Splitter:
    """Feed text, get (kind, text) pieces in order."""

    def __init__(self, mode: ThinkMode) -> None:
        self._anywhere = mode == "anywhere"
        self._prefilled = mode == "prefilled"
        self._closing = _ANY_CLOSING
        self._held = ""
        self._after_block = False
        self._state: Literal["start", "inside", "text"] = "text" if mode == "off" else "start"

    @property
    def passes(self) -> bool:
        """All further text is plain: callers may stop asking."""
        return self._state == "text" and not self._anywhere

    def feed(self, text: str) -> Pieces:
        out: Pieces = []
        text, self._held = self._held + text, ""
        at = 0
        while at < len(text):
            match self._state:
                case "start":
                    at = self._start(text, at)
                case "inside":
                    at = self._inside(text, at, out)
                case "text":
                    at = self._text(text, at, out)
        return out

    def end(self) -> Pieces:
        """The text is complete: what was held is what it looks like."""
        rest, self._held = self._held, ""
        inside = self._state == "inside" or (self._state == "start" and self._prefilled)
        return [("reasoning" if inside else "text", rest)] if rest else []

    def _start(self, text: str, at: int) -> int:
        space = _SPACE.match(text, at)
        assert space is not None
        body = space.end()
        if self._after_block:
            at = body
        if body - at <= MARKUP_HOLD_MAX_CHARS:
            if (opening := _OPENING.match(text, body)) is not None:
                return self._enter(opening)
            if _OPENING.held(text, body) == len(text) - body:
                self._held = text[at:]
                return len(text)
        self._state = "inside" if self._prefilled else "text"
        self._prefilled = False
        return at

    def _enter(self, opening: re.Match[str]) -> int:
        self._state = "inside"
        self._prefilled = False
        self._closing = _CLOSING[opening[0]]
        return opening.end()

    def _inside(self, text: str, at: int, out: Pieces) -> int:
        closing = self._closing.search(text, at)
        if closing is None:
            return self._pass("reasoning", text, at, self._closing.held(text, at), out)
        if closing.start() > at:
            out.append(("reasoning", text[at : closing.start()]))
        self._state, self._after_block = "start", True
        return closing.end()

    def _text(self, text: str, at: int, out: Pieces) -> int:
        opening = _OPENING.search(text, at) if self._anywhere else None
        if opening is None:
            return self._pass("text", text, at, _OPENING.held(text, at) if self._anywhere else 0, out)
        if opening.start() > at:
            out.append(("text", text[at : opening.start()]))
        return self._enter(opening)

    def _pass(self, kind: Kind, text: str, at: int, hold: int, out: Pieces) -> int:
        """Hand on all from `at` but for what has to be held."""
        end = len(text) - hold
        if end > at:
            out.append((kind, text[at:end]))
        self._held = text[end:]
        return len(text)
