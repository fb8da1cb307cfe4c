"""Answers in one piece: JSON, and errors in the envelope that OpenAI's clients know."""

import math
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from headrace.doors.api.asked import Refused
from headrace.errors import Cause
from headrace.views import failing
from headrace.wire import jsontext

# Says to clients that ask again by themselves: work has begun, and doing it twice is not what anybody wants.
NO_RETRY: Final = {"x-should-retry": "false"}


def json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=jsontext.dump(value).encode(), status=status, headers=headers, content_type="application/json"
    )


def refusal(refused: Refused) -> web.Response:
    error = {
        "message": refused.message,
        "type": failing.kind(refused.status),
        "param": refused.param or None,
        "code": refused.code or None,
    }
    return json({"error": error}, refused.status, _retry_after(refused.retry_after_s))


def failure(
    cause: Cause,
    body: Mapping[str, Any] | None = None,
    *,
    visible: bool = False,
    headers: Mapping[str, str],
) -> web.Response:
    """A turn that has failed before anything of it was sent; `visible`: something of the answer is in the body."""
    headers = {**headers, **NO_RETRY, **_retry_after(cause.retry_after_s)}
    status = 502 if visible else failing.status(cause)
    return json(body or {"error": failing.error(cause)}, status, headers)


def _retry_after(delay_s: float | None) -> dict[str, str]:
    return {} if delay_s is None else {"Retry-After": str(max(1, math.ceil(delay_s)))}
