"""What a provider's refusal means: HTTP statuses and error objects to causes.

Theory of operation. Three layers, each a table. `STATUS` maps an HTTP status. `CODES` maps the machine-readable
words providers put into `code` and `type`. What carries neither is a `provider_error`, which is not transient; an
adapter that knows its provider's phrases may refine it, and nobody else reads messages.
"""

from collections.abc import Mapping
from typing import Any, Final

from headrace.errors import CallError, Cause, CauseCode
from headrace.limits import ERROR_TEXT_MAX_CHARS
from headrace.wire import jsontext

STATUS: Final[Mapping[int, CauseCode]] = {
    400: "bad_request",
    401: "key_rejected",
    402: "payment_required",
    403: "forbidden",
    404: "model_not_found",
    405: "bad_request",
    408: "request_timeout",
    409: "conflict",
    413: "request_too_large",
    422: "bad_request",
    425: "too_early",
    429: "rate_limited",
    503: "overloaded",
    529: "overloaded",
}

CODES: Final[Mapping[str, CauseCode]] = {
    # OpenAI and those who follow it
    "invalid_api_key": "key_rejected",
    "incorrect_api_key": "key_rejected",
    "insufficient_quota": "quota_exhausted",
    "billing_hard_limit_reached": "quota_exhausted",
    "billing_not_active": "quota_exhausted",
    "insufficient_balance": "payment_required",
    "rate_limit_exceeded": "rate_limited",
    "rate_limit_error": "rate_limited",
    "tokens": "rate_limited",
    "requests": "rate_limited",
    "server_error": "server_error",
    "internal_error": "server_error",
    "internal_server_error": "server_error",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
    "service_unavailable": "overloaded",
    "model_not_found": "model_not_found",
    "context_length_exceeded": "request_too_large",
    "string_above_max_length": "request_too_large",
    "unsupported_parameter": "parameter_rejected",
    "unsupported_value": "parameter_rejected",
    "unknown_parameter": "parameter_rejected",
    "invalid_request_error": "bad_request",
    "content_filter": "filtered",
    "content_policy_violation": "filtered",
    "timeout": "request_timeout",
    "connection_error": "connection_lost",
    "stream_read_error": "connection_lost",
    # Anthropic
    "authentication_error": "key_rejected",
    "billing_error": "payment_required",
    "permission_error": "forbidden",
    "not_found_error": "model_not_found",
    "request_too_large": "request_too_large",
    "api_error": "server_error",
    "timeout_error": "request_timeout",
    "overloaded_error": "overloaded",
    # Google's and Azure's names
    "RESOURCE_EXHAUSTED": "rate_limited",
    "UNAVAILABLE": "overloaded",
    "INTERNAL": "server_error",
    "DEADLINE_EXCEEDED": "request_timeout",
    "UNAUTHENTICATED": "key_rejected",
    "PERMISSION_DENIED": "forbidden",
    "NOT_FOUND": "model_not_found",
    "INVALID_ARGUMENT": "bad_request",
}

NO_REASON: Final = "The provider reported an error and gave no reason."

# Broad words that a more precise one in the same error, or the HTTP status, goes before.
_BROAD: Final = frozenset({"invalid_request_error", "api_error", "server_error", "tokens", "requests"})


def of_status(status: int) -> CauseCode:
    """The cause an HTTP status alone tells of."""
    known = STATUS.get(status)
    if known is not None:
        return known
    if status >= 500:
        return "server_error"
    return "bad_request" if status >= 400 else "provider_error"


def of_error(error: Any, status: int | None = None) -> Cause:
    """The cause an error object tells of, in any of the shapes providers use, with its HTTP status if any."""
    found = _fields(error)
    words = [w for w in (found["code"], found["type"], found["status"]) if isinstance(w, str) and w]
    number = next((int(n) for n in (found["code"], found["status"]) if _is_status(n)), status)
    return Cause(
        _code(words, number),
        clip(found["message"]) or NO_REASON,
        status=number,
        provider_code=clip(next(iter(words), "" if number is None else str(number)), 80),
        parameter=clip(found["param"], 80),
    )


def _fields(error: Any) -> dict[str, Any]:
    """Flatten `{"error": {...}}`, `{"error": "text"}`, flat objects, plain text, and a list of one of these."""
    if isinstance(error, list) and error:
        error = error[0]
    outer = error if isinstance(error, dict) else {"message": error}
    inner = outer.get("error")
    if isinstance(inner, str):
        inner = {"message": inner, "code": outer.get("code"), "type": outer.get("error_type")}
    if not isinstance(inner, dict):
        inner = outer
    message = inner.get("message") or inner.get("detail") or outer.get("message") or ""
    if not isinstance(message, str):
        message = jsontext.dump(message)
    names = ("code", "type", "status", "param")
    return {"message": message, **{name: inner.get(name) for name in names}}


def _is_status(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) == 3 and value.isdecimal() and value[0] in "45"
    return isinstance(value, int) and 400 <= value <= 599


def _code(words: list[str], status: int | None) -> CauseCode:
    precise = next((CODES[w] for w in words if w in CODES and w not in _BROAD), None)
    if precise is not None:
        return precise
    if status is not None:
        return of_status(status)
    return next((CODES[w] for w in words if w in CODES), "provider_error")


def clip(value: Any, most: int = ERROR_TEXT_MAX_CHARS) -> str:
    """A peer's text, short enough to quote and without control characters."""
    if not isinstance(value, str):
        return ""
    text = "".join(c if c.isprintable() else " " for c in value[: 2 * most])
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def call_error(error: Any, status: int | None = None) -> CallError:
    return CallError(of_error(error, status))
