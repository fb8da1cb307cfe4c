"""Reasoning that a model wrote into its text, between `<think>` tags, split from the text around it.

Theory of operation. Text comes in pieces cut anywhere; what may be the beginning of a tag is held until it is
decided, so nothing of a tag is ever shown, and every split of the same text gives the same result.

    start --an opening tag--> inside        start --anything else--> text
    inside --a closing tag--> start         (white space around a block belongs to the block)
    text --an opening tag, in mode `anywhere`--> inside

A block that is never closed is reasoning to the end.
"""

from typing import Final, Literal

from headrace.wire import tags
from headrace.wire.dialect import ThinkMode

NAMES: Final = ("think", "thinking", "mm:think")
OPENING: Final = tuple(f"<{name}>" for name in NAMES)
CLOSING: Final = tuple(f"</{name}>" for name in NAMES)

Kind = Literal["text", "reasoning"]
Pieces = list[tuple[Kind, str]]


class Splitter:
    """Feed text, get (kind, text) pieces in order."""

    def __init__(self, mode: ThinkMode) -> None:
        self._anywhere = mode == "anywhere"
        self._closing: tuple[str, ...] = CLOSING
        self._buffer = ""
        self._after_block = False
        self._state: Literal["start", "inside", "text"] = {"prefilled": "inside", "off": "text"}.get(  # type: ignore[assignment]
            mode, "start"
        )

    @property
    def passes(self) -> bool:
        """All further text is plain: callers may stop asking."""
        return self._state == "text" and not self._anywhere

    def feed(self, text: str) -> Pieces:
        out: Pieces = []
        self._buffer += text
        while self._buffer:
            if not self._step(out):
                break
        return out

    def end(self) -> Pieces:
        """The text is complete: what was held is what it looks like."""
        rest, self._buffer = self._buffer, ""
        if self._state == "inside":
            return [("reasoning", rest)] if rest else []
        if self._after_block and not rest.strip():
            return []
        return [("text", rest)] if rest else []

    def _step(self, out: Pieces) -> bool:
        """Decide what can be decided; returns whether another step may follow."""
        match self._state:
            case "start":
                return self._start()
            case "inside":
                return self._inside(out)
            case "text":
                return self._text(out)

    def _start(self) -> bool:
        body = self._buffer.lstrip()
        opening = next((tag for tag in OPENING if body.startswith(tag)), None)
        if opening is not None:
            self._enter(opening, body[len(opening) :])
            return True
        if any(tag.startswith(body) for tag in OPENING):
            return False
        if self._after_block:
            self._buffer = body
        self._state = "text"
        return True

    def _enter(self, opening: str, rest: str) -> None:
        self._state = "inside"
        self._closing = ("</" + opening[1:],)
        self._buffer = rest

    def _inside(self, out: Pieces) -> bool:
        found = tags.first_of(self._buffer, self._closing)
        if found is not None:
            at, tag = found
            self._emit(out, "reasoning", at, skip=len(tag))
            self._state, self._after_block = "start", True
            return True
        self._emit(out, "reasoning", len(self._buffer) - tags.held(self._buffer, self._closing))
        return False

    def _text(self, out: Pieces) -> bool:
        found = tags.first_of(self._buffer, OPENING) if self._anywhere else None
        if found is not None:
            at, tag = found
            self._emit(out, "text", at)
            self._enter(tag, self._buffer[len(tag) :])
            return True
        hold = tags.held(self._buffer, OPENING) if self._anywhere else 0
        self._emit(out, "text", len(self._buffer) - hold)
        return False

    def _emit(self, out: Pieces, kind: Kind, size: int, skip: int = 0) -> None:
        if size:
            out.append((kind, self._buffer[:size]))
        self._buffer = self._buffer[size + skip :]
