"""How the three protocols say that something went wrong: by an HTTP status, and in the midst of a stream."""

from typing import Any, Final, NamedTuple

from headrace.ports import ProtocolName
from headrace.testing.modelserver.frames import Frame, sse, to_json
from headrace.testing.modelserver.responses import response
from headrace.testing.modelserver.script import ErrorShape, Status


class _Usual(NamedTuple):
    message: str
    openai: str
    """The `type` in OpenAI's envelope."""
    code: str | None
    anthropic: str
    """The `type` in Anthropic's."""


_INVALID: Final = "invalid_request_error"
_USUAL: Final = {
    400: _Usual("Invalid request.", _INVALID, None, _INVALID),
    401: _Usual("Incorrect API key provided.", _INVALID, "invalid_api_key", "authentication_error"),
    402: _Usual("Insufficient credits.", "billing_error", "payment_required", "billing_error"),
    403: _Usual("You may not use this model.", "permission_error", "forbidden", "permission_error"),
    404: _Usual("The model does not exist.", _INVALID, "model_not_found", "not_found_error"),
    408: _Usual("The request timed out.", "timeout", "request_timeout", "timeout_error"),
    409: _Usual("The request conflicts with another.", "conflict_error", "conflict", "conflict_error"),
    413: _Usual("The request is too large.", _INVALID, "request_too_large", "request_too_large"),
    422: _Usual("The request cannot be processed.", _INVALID, "unprocessable_entity", _INVALID),
    429: _Usual("Rate limit reached.", "requests", "rate_limit_exceeded", "rate_limit_error"),
    500: _Usual("The server had an error.", "server_error", "server_error", "api_error"),
    503: _Usual("The server is overloaded.", "server_error", "service_unavailable", "overloaded_error"),
    529: _Usual("Overloaded", "overloaded_error", "overloaded", "overloaded_error"),
}
_ELSE: Final = _Usual("Something went wrong.", "server_error", None, "api_error")

BAD_GATEWAY: Final = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n"
    b"<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
)
_LOST: Final = "The upstream connection failed."


def envelope(protocol: ProtocolName, fault: Status, parameter: str | None = None) -> bytes:
    """The body of an HTTP error."""
    usual = _USUAL.get(fault.status, _ELSE)
    message = fault.message or usual.message
    if protocol == "messages":
        error = {"type": fault.code or usual.anthropic, "message": message}
        return to_json({"type": "error", "error": error, "request_id": "req_scripted"})
    code = fault.code or usual.code
    return to_json({"error": {"message": message, "type": usual.openai, "param": parameter, "code": code}})


def error_frame(shape: ErrorShape, protocol: ProtocolName, model: str, number: int) -> Frame:
    """An error as the event number `number` of a stream."""
    event, data = _error(shape, protocol, model, number)
    return Frame("inner", sse(data, event))


def error_body(shape: ErrorShape, protocol: ProtocolName, model: str) -> bytes:
    """An error where the body of a whole answer should be."""
    if protocol == "responses" and shape in {"native", "failed"}:
        return to_json(_failed(model))
    _, data = _error(shape, protocol, model, 0)
    return to_json(data)


def _error(shape: ErrorShape, protocol: ProtocolName, model: str, number: int) -> tuple[str, dict[str, Any]]:
    plain = {"message": _LOST, "type": "server_error"}
    match shape:
        case "native":
            native: dict[ProtocolName, ErrorShape] = {"messages": "overloaded", "responses": "failed"}
            return _error(native.get(protocol, "code"), protocol, model, number)
        case "code":
            return "", {"error": {**plain, "param": None, "code": "server_error"}}
        case "int_code":
            return "", {"error": {**plain, "param": None, "code": 502}}
        case "event":
            return "error", {"error": {**plain, "param": None, "code": "server_error"}}
        case "bare":
            return "", {"error": {"message": "Network connection lost."}}
        case "overloaded":
            return "error", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        case "flat":
            flat = {"code": "server_error", "message": _LOST, "param": None}
            return "error", {"type": "error", **flat, "sequence_number": number}
        case "nested":
            nested = {**plain, "code": "server_error", "param": None}
            return "error", {"type": "error", "error": nested, "sequence_number": number}
        case "failed":
            event = "response.failed"
            return event, {"type": event, "response": _failed(model), "sequence_number": number}


def _failed(model: str) -> dict[str, Any]:
    failed = response(model, "failed", [])
    failed["error"] = {"code": "server_error", "message": _LOST}
    return failed
