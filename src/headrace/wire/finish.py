"""What a provider's finish reason means, for all protocols: one table.

A reason nobody knows is not an end we can vouch for, so it becomes a failure that names it; there is no default.
"""

from typing import Final

from headrace.errors import CallError, Cause
from headrace.events import EndReason
from headrace.wire.failures import clip

_REASONS: Final[dict[str, EndReason]] = {
    "": "stop",
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "completed": "stop",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
    "refusal": "refused",
    "pause_turn": "pause",
}
_ERRORS: Final = frozenset(
    {
        "error",
        "insufficient_system_resource",
        "network_error",
        "abort",
        "malformed_function_call",
        "function_call_filter",
    }
)

# Google writes details behind these: `function_call_filter: MALFORMED_FUNCTION_CALL`.
_DETAILED: Final = frozenset({"content_filter", "function_call_filter"})


def meaning(reason: str, *, has_calls: bool) -> EndReason | CallError:
    """What `reason` says, corrected by what came: calls make it `tool_calls`, none makes `tool_calls` a stop.

    "" stands for an end marker (`[DONE]`) that came without a reason: evidence of an end, no more.
    """
    end = _REASONS.get(_word(reason))
    if end is None:
        return _failure(reason)
    if end == "stop" and has_calls:
        return "tool_calls"
    if end == "tool_calls" and not has_calls:
        return "stop"
    return end


def is_ordinary(reason: str) -> bool:
    """Whether `reason` is an end like most, which a later one may correct."""
    return _REASONS.get(_word(reason)) in ("stop", "tool_calls")


def _word(reason: str) -> str:
    word = reason.lower()
    head = word.partition(": ")[0]
    return head if head in _DETAILED else word


def _failure(reason: str) -> CallError:
    shown = clip(reason, 80)
    if _word(reason) in _ERRORS:
        message = f"The provider ended the answer with an error of its own ({shown})."
        return CallError(Cause("finish_error", message, provider_code=shown))
    message = f"The provider ended the answer for a reason headrace does not know: {shown!r}."
    return CallError(Cause("finish_unknown", message, provider_code=shown))
