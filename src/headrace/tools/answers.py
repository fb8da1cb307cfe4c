"""What every tool has in common: how it is described, and how a failure becomes an answer.

Theory of operation. A model is told in a sentence what went wrong and what to do instead; it is never shown a
traceback, and a turn never ends because a file is missing. So a tool raises `Refused` with that sentence, lets the
operating system's own errors rise, and `answering`, around each tool's `run`, makes both of them results. Everything
else that rises is a bug and is not caught here.
"""

import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, ParamSpec

from headrace.errors import HeadraceError
from headrace.ports import ToolResult, ToolSpec

P = ParamSpec("P")


class Refused(HeadraceError):
    """What a model asked for cannot be done as it was asked; the message says why, and what to do instead."""

    who = "caller"


def answering(run: Callable[P, Awaitable[ToolResult]]) -> Callable[P, Coroutine[Any, Any, ToolResult]]:
    """A tool's `run` that answers where it would fail."""

    @functools.wraps(run)
    async def answered(*args: P.args, **kwargs: P.kwargs) -> ToolResult:
        try:
            return await run(*args, **kwargs)
        except Refused as refusal:
            return ToolResult(str(refusal), ok=False)
        except OSError as error:
            return ToolResult(said(error), ok=False)

    return answered


def said(error: OSError) -> str:
    """An error of the operating system as a sentence."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{reason}: {error.filename}." if isinstance(error.filename, str) else f"{reason}."


def described(name: str, description: str, optional: int = 0, **arguments: Mapping[str, Any]) -> ToolSpec:
    """A spec whose arguments are all required but the last `optional` ones."""
    required = list(arguments)[: len(arguments) - optional]
    schema = {"type": "object", "properties": arguments, "required": required, "additionalProperties": False}
    return ToolSpec(name, description, schema)


class Stateless:
    """A tool of which nothing outlives a run."""

    async def close(self) -> None:
        """There is nothing to end."""
