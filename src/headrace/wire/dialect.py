"""How a model writes where its protocol leaves room: configured per model, never guessed from names."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

ThinkMode = Literal["auto", "anywhere", "prefilled", "off"]
"""Where `<think>` tags in text are reasoning.

`auto`: at the start of the text, where reasoning models put them, so that an answer *about* such tags stays whole.
`anywhere`: wherever one stands. `prefilled`: the template has opened the tag already; the text starts inside it.
"""

ToolMarkup = Literal["hermes", "qwen", "mistral"]

Tools = Mapping[str, Mapping[str, Any]]
"""The offered tools: name -> JSON schema of the arguments."""


class Dialect(msgspec.Struct, frozen=True):
    think: ThinkMode = "auto"
    tool_markup: ToolMarkup | None = None
    """Which markup this model uses when its tool calls leak into the text; None leaves text alone."""
    cumulative: bool = False
    """Every delta repeats the text so far."""


PLAIN = Dialect()
