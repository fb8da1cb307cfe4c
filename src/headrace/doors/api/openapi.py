"""What the server serves, described for programs: made from the schemas that requests are checked against."""

from typing import Any, Final

from headrace.doors.api.response_schemas import RESPONSE, RESPONSE_ID, RESPONSE_REQUEST
from headrace.doors.api.schemas import (
    ANSWER,
    CHAT_ANSWER,
    CHAT_REQUEST,
    ERROR,
    SESSION,
    TEXT,
    TURN,
    TURN_REQUEST,
    VERDICT,
    Schema,
)
from headrace.version import __version__

_ID: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 200}
_OBJECT: Final[Schema] = {"type": "object"}
_WHOLE: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 999_999_999_999}


_EVENT: Final[Schema] = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": TEXT, "event": TEXT, "id": TEXT},
    "description": "One server-sent event.",
}
_REFUSED: Final[dict[str, Any]] = {
    "description": "It was refused, or it failed.",
    "content": {"application/json": {"schema": ERROR}},
}


def _list(items: Schema) -> Schema:
    return {
        "type": "object",
        "required": ["object", "data"],
        "properties": {"data": {"type": "array", "items": items}},
    }


def _answers(
    about: str, schema: Schema | None, *, status: str = "200", streams: bool = False
) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if schema is not None:
        content["application/json"] = {"schema": schema}
    if streams:
        content["text/event-stream"] = {"schema": _EVENT}
    return {status: {"description": about, "content": content}, "default": _REFUSED}


def _in_path(name: str, schema: Schema = _ID) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(name: str, schema: Schema, about: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": about}


_SESSION_HEADER: Final = {
    "name": "X-Headrace-Session",
    "in": "header",
    "schema": SESSION,
    "description": "The session this belongs to: it is kept, and knows what was said before.",
}
_TICKET_HEADER: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    "description": "Requests with the same key and body attach to one turn.",
}


def _operation(
    about: str,
    answers: dict[str, Any],
    *parameters: dict[str, Any],
    body: Schema | None = None,
    key: bool = True,
) -> dict[str, Any]:
    out: dict[str, Any] = {"summary": about, "responses": answers}
    if parameters:
        out["parameters"] = [*parameters]
    if body is not None:
        out["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if not key:
        out["security"] = []
    return out


def _server_paths() -> dict[str, Any]:
    return {
        "/health": {"get": _operation("Whether it is up.", _answers("It is.", _OBJECT), key=False)},
        "/metrics": {
            "get": _operation(
                "Counters, as Prometheus reads them.",
                {
                    "200": {"description": "Text.", "content": {"text/plain": {"schema": TEXT}}},
                    "default": _REFUSED,
                },
            )
        },
        "/openapi.json": {"get": _operation("This description.", _answers("It.", _OBJECT))},
    }


def _openai_paths() -> dict[str, Any]:
    response = _in_path("id", RESPONSE_ID)
    return {
        "/v1/models": {"get": _operation("What is configured.", _answers("Models.", _list(_OBJECT)))},
        "/v1/chat/completions": {
            "post": _operation(
                "OpenAI's chat completions.",
                _answers("The answer; with `stream`, chunks.", CHAT_ANSWER, streams=True),
                _SESSION_HEADER,
                _TICKET_HEADER,
                body=CHAT_REQUEST,
            )
        },
        "/v1/responses": {
            "post": _operation(
                "OpenAI's Responses.",
                _answers("The response; with `stream`, numbered events.", RESPONSE, streams=True),
                _SESSION_HEADER,
                _TICKET_HEADER,
                body=RESPONSE_REQUEST,
            )
        },
        "/v1/responses/{id}": {
            "get": _operation(
                "A stored response; with `stream`, its events again, and those to come.",
                _answers("It, as it stands.", RESPONSE, streams=True),
                response,
                _in_query("stream", {"type": "boolean"}, "Events instead of the whole."),
                _in_query("starting_after", _WHOLE, "The last sequence number that was seen."),
            ),
            "delete": _operation("Delete it for good.", _answers("It is gone.", _OBJECT), response),
        },
        "/v1/responses/{id}/cancel": {
            "post": _operation(
                "Stop it; what was said stays.", _answers("It, cancelled.", RESPONSE), response
            )
        },
    }


def _turn_paths() -> dict[str, Any]:
    turn = _in_path("turn")
    return {
        "/v1/turns": {
            "get": _operation("The turns of this process.", _answers("Turns, latest first.", _list(TURN))),
            "post": _operation(
                "Start a turn, detached from who asks.",
                _answers("It has begun.", TURN, status="202"),
                _SESSION_HEADER,
                _TICKET_HEADER,
                body=TURN_REQUEST,
            ),
        },
        "/v1/turns/{turn}": {"get": _operation("A turn as it stands.", _answers("It.", TURN), turn)},
        "/v1/turns/{turn}/events": {
            "get": _operation(
                "Its log, replayed and then followed until it is closed; the frames' ids are its numbers.",
                _answers("Events.", None, streams=True),
                turn,
                _in_query("after", _WHOLE, "The last number that was seen."),
                {
                    "name": "Last-Event-ID",
                    "in": "header",
                    "schema": TEXT,
                    "description": "The same, as readers of server-sent events send it by themselves.",
                },
            )
        },
        "/v1/turns/{turn}/stop": {
            "post": _operation("Stop it; what was shown stays.", _answers("It, closed.", TURN), turn)
        },
        "/v1/turns/{turn}/approvals/{approval}": {
            "post": _operation(
                "Allow or deny what the agent asks about.",
                _answers("It is settled.", _OBJECT),
                turn,
                _in_path("approval"),
                body=VERDICT,
            )
        },
        "/v1/turns/{turn}/questions/{question}": {
            "post": _operation(
                "Answer what the agent asks.",
                _answers("It is answered.", _OBJECT),
                turn,
                _in_path("question"),
                body=ANSWER,
            )
        },
    }


def _session_paths() -> dict[str, Any]:
    session = _in_path("session", SESSION)
    return {
        "/v1/sessions": {
            "get": _operation("What is kept.", _answers("Sessions, latest first.", _list(_OBJECT)))
        },
        "/v1/sessions/{session}": {
            "get": _operation("Its latest turns.", _answers("Turns, oldest first.", _OBJECT), session),
            "delete": _operation("Delete it for good.", _answers("It is gone.", _OBJECT), session),
        },
        "/v1/search": {
            "get": _operation(
                "Turns whose question or answer holds every word.",
                _answers("What was found, latest first.", _list(_OBJECT)),
                _in_query("q", {"type": "string", "minLength": 1}, "The words.", required=True),
            )
        },
    }


def description() -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headrace",
            "version": __version__,
            "description": "A self-hosted AI agent whose every answer streams.",
        },
        "security": [{"key": []}],
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "paths": {**_server_paths(), **_openai_paths(), **_turn_paths(), **_session_paths()},
    }
