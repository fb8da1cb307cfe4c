"""headrace: a self-hosted AI agent whose every answer streams. See `headrace.library` for its use from Python."""

from typing import TYPE_CHECKING, Any

from headrace.version import __version__

__all__ = ["Agent", "Answer", "ToolCall", "__version__", "ask", "open"]

if TYPE_CHECKING:
    from headrace.library import Agent, Answer, ToolCall, ask, open  # noqa: A004


def __getattr__(name: str) -> Any:
    """Imported when asked for, so that the command line starts at once."""
    if name in __all__:
        from headrace import library  # noqa: PLC0415

        return getattr(library, name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
