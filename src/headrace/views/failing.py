"""How the end of a turn is told to a program: the error object, its HTTP status, and whether it is a failure at all.

Theory of operation. Everything follows from the turn's outcome and the code of its cause. `stop`, `tool_calls`,
`length`, `limit`, `content_filter` and `refused` are answers; `cut`, `error` and `cancelled` are failures and are never
told as anything else. A status is about the caller's request: a key that a provider refuses is the server's, and is not
told as 401.
"""

from typing import Any, Final

from headrace.errors import Cause, CauseCode, Outcome
from headrace.events import TurnClosed

BUG: Final = "headrace failed. Its own log has the details; please report this."
NOT_WRITTEN: Final = (
    "What happens cannot be written down. The server's own log says why; its disk may be full."
)
# What is wrong with the server itself is told to its owner; callers get no path and no exception.
_OURS: Final[dict[CauseCode, str]] = {"bug": BUG, "store_failed": NOT_WRITTEN}

FAILURES: Final[frozenset[Outcome]] = frozenset({"cut", "error", "cancelled"})

_STATUS: Final[dict[CauseCode, int]] = {
    "bad_request": 400,
    "parameter_rejected": 400,
    "payment_required": 402,
    "model_not_found": 404,
    "request_too_large": 413,
    "quota_exhausted": 429,
    "rate_limited": 429,
    "config_invalid": 500,
    "crashed": 500,
    "bug": 500,
    "dependency_missing": 500,
    "resources_short": 503,
    "overloaded": 503,
    "shutdown": 503,
    "store_failed": 507,
}
_KINDS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "invalid_request_error",
    409: "invalid_request_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


def failed(closed: TurnClosed) -> bool:
    return closed.outcome in FAILURES


def status(cause: Cause) -> int:
    """What a request is answered with that has come to this before anything was sent."""
    return _STATUS.get(cause.code, 502)


def kind(status: int) -> str:
    """The `type` of an error with this status."""
    return _KINDS.get(status, "server_error")


def error(cause: Cause) -> dict[str, Any]:
    """The error object, as OpenAI's clients know it."""
    return {
        "message": _OURS.get(cause.code, cause.message),
        "type": kind(status(cause)),
        "param": cause.parameter or None,
        "code": cause.code,
    }


def fate(closed: TurnClosed, *, partial: bool) -> dict[str, Any]:
    """What is said beside the error of a failed turn; `partial`: something of the answer was seen."""
    return {"failed": True, "partial": partial, "completed": False, "error_code": closed.cause.code}
