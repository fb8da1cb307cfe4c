"""What a scripted model answers: plain frozen values, in nobody's wire format.

A `Reply` is a few parts, the way they are cut into deltas, the token counts and the reason it ends with.
The model server encodes it in each provider's protocol; the scripted provider turns it into events.
Everything is hashable and compares by value, so that what was derived from a reply can be kept.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from headrace.events import EndReason

Text = str | tuple[str, ...]
"""Text to be cut into deltas of `Reply.chunk_chars` characters, or the deltas themselves."""

DeltaKind = Literal["reasoning", "text", "arguments"]


@dataclass(frozen=True, slots=True)
class Say:
    text: Text


@dataclass(frozen=True, slots=True)
class Refuse:
    """A refusal, which counts as text where a protocol has nothing of its own for it."""

    text: Text


@dataclass(frozen=True, slots=True)
class Think:
    text: Text
    signature: str = "c2NyaXB0ZWQgc2lnbmF0dXJl"
    """What a provider wants back unchanged: a thinking signature, or the encrypted reasoning."""


@dataclass(frozen=True, slots=True)
class CallTool:
    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict, hash=False)
    """An object, or the exact JSON text (which then need not be JSON at all)."""
    id: str = ""
    """"" numbers the call by its place in the reply."""

    @property
    def text(self) -> str:
        """The arguments as they are sent."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


Part = Say | Refuse | Think | CallTool


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts with the meaning they have in `UsageReported`."""

    input_tokens: int = 12
    output_tokens: int = 34
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    parts: tuple[Part, ...] = ()
    """None at all is a reply with an end and nothing in it."""
    finish: EndReason | str = ""
    """An end reason, translated for each protocol, or a protocol's own word, sent as it is.

    "" is `tool_calls` if a tool is called and `stop` otherwise.
    """
    usage: Usage = Usage()
    model: str = ""
    """"" answers with the name that was asked for."""
    chunk_chars: int = 4

    def deltas(self, text: Text) -> tuple[str, ...]:
        if isinstance(text, tuple):
            return text
        return tuple(text[at : at + self.chunk_chars] for at in range(0, len(text), self.chunk_chars))

    def count(self, kind: DeltaKind) -> int:
        """How many deltas of one kind the reply has."""
        return sum(len(self.deltas(part.text)) for part in self.parts if delta_kind(part) == kind)

    @property
    def end(self) -> str:
        called = any(isinstance(part, CallTool) for part in self.parts)
        return self.finish or ("tool_calls" if called else "stop")


def delta_kind(part: Part) -> DeltaKind:
    match part:
        case Think():
            return "reasoning"
        case CallTool():
            return "arguments"
        case Say() | Refuse():
            return "text"


def whole(text: Text) -> str:
    return text if isinstance(text, str) else "".join(text)


HELLO: Final = Reply((Say("Hello from the scripted model."),))
