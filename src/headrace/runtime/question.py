"""What is asked, whom, and how patiently: the values a turn is started with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import CallError, Cause
from headrace.events import Message
from headrace.limits import BACKOFF_FIRST_S, BACKOFF_MOST_S
from headrace.ports import Provider, ToolSpec
from headrace.runtime.stalls import Patience
from headrace.wire.dialect import PLAIN, Dialect


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A model that may be asked, with what is configured for it."""

    model_id: str
    """"<provider>:<model>"."""
    provider: Provider
    model: str
    streams: bool = True
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    dialect: Dialect = PLAIN


class CallPolicy(msgspec.Struct, frozen=True, kw_only=True):
    retries: int = 2
    patience: Patience = Patience()
    streams: bool = True
    """Whether models are asked to stream at all."""
    backoff_s: float = BACKOFF_FIRST_S
    backoff_most_s: float = BACKOFF_MOST_S


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller adds to every call of a turn; what is None is the model's configured value."""

    tools: tuple[ToolSpec, ...] = ()
    stream_options: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    read_timeout_s: float | None = None
    """The caller's own patience between two reads."""
    extra: Mapping[str, Any] = {}
    prompt: tuple[Message, ...] = ()
    """What the caller has the model told before everything else, in this turn alone."""
    request: str = ""
    """Kept with the turn's opening, for the door that was asked; see `TurnOpened.request`."""


class Acting(msgspec.Struct, frozen=True, kw_only=True):
    """How far a turn may act by itself, and for whom."""

    folder: Path
    attended: bool = False
    """Whether somebody sees the turn who can be asked."""
    assume_yes: bool = False
    """Allow what would be asked about."""
    tools: bool | None = None
    """None: as configured."""
    context_files: bool = True
    memory: bool = True


def lost_promise(provider: str) -> CallError:
    """A provider returned without an end; its adapter has a fault."""
    return CallError(
        Cause("bug", f"{provider}: the adapter returned without an end of the answer. Please report this.")
    )
