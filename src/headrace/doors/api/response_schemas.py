"""What may be sent to `/v1/responses` and what comes back, as JSON schemas; see `schemas`."""

from typing import Any, Final

from headrace.doors.api.schemas import (
    COUNT,
    EFFORT,
    METADATA,
    NAME,
    PENALTY,
    SHARE,
    TEMPERATURE,
    TEXT,
    URL,
    Schema,
    nullable,
)

RESPONSE_ID: Final[Schema] = {"type": "string", "pattern": "^resp_[0-9a-f]{8,40}$"}


def _typed(kind: str, required: list[str], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "required": ["type", *required],
        "properties": {"type": {"const": kind}, **properties},
    }


_CONTENT: Final[Schema] = {
    "anyOf": [
        TEXT,
        {
            "type": "array",
            "items": {
                "anyOf": [
                    _typed("input_text", ["text"], text=TEXT),
                    _typed(
                        "input_image",
                        ["image_url"],
                        image_url=URL,
                        detail=nullable({"enum": ["auto", "low", "high"]}),
                    ),
                    _typed("input_file", [], filename=nullable(TEXT), file_url=nullable(URL)),
                    _typed("output_text", ["text"], text=TEXT),
                    _typed("refusal", ["refusal"], refusal=TEXT),
                ]
            },
        },
    ]
}
_SUMMARY: Final[Schema] = {"type": "array", "items": _typed("summary_text", ["text"], text=TEXT)}
_ITEM: Final[Schema] = {
    "anyOf": [
        {
            "type": "object",
            "required": ["role", "content"],
            "properties": {
                "type": {"const": "message"},
                "role": {"enum": ["user", "assistant", "system", "developer"]},
                "content": _CONTENT,
                "phase": nullable(TEXT),
            },
        },
        _typed("function_call", ["call_id", "name", "arguments"], call_id=TEXT, name=NAME, arguments=TEXT),
        _typed("function_call_output", ["call_id", "output"], call_id=TEXT, output=_CONTENT),
        _typed("reasoning", [], summary=_SUMMARY, encrypted_content=nullable(TEXT)),
    ]
}
_FUNCTION: Final[Schema] = _typed(
    "function",
    ["name"],
    name={"type": "string", "pattern": "^[A-Za-z0-9_.:/-]{1,128}$"},
    description=nullable(TEXT),
    parameters=nullable({"type": "object"}),
    strict=nullable({"type": "boolean"}),
)
_FORMAT: Final[Schema] = {
    "anyOf": [
        _typed("text", []),
        _typed("json_object", []),
        _typed(
            "json_schema",
            ["name", "schema"],
            name=NAME,
            schema={"type": "object"},
            description=nullable(TEXT),
            strict=nullable({"type": "boolean"}),
        ),
    ]
}

RESPONSE_REQUEST: Final[Schema] = {
    "type": "object",
    "required": ["model", "input"],
    "additionalProperties": False,
    "properties": {
        "model": {
            **NAME,
            "description": "`headrace`, the agent with its tools; or any configured model, as a direct call.",
        },
        "input": {"anyOf": [TEXT, {"type": "array", "minItems": 1, "items": _ITEM}]},
        "instructions": nullable(TEXT),
        "previous_response_id": nullable(RESPONSE_ID),
        "stream": nullable({"type": "boolean"}),
        "stream_options": nullable({"type": "object"}),
        "store": nullable(
            {
                "type": "boolean",
                "description": "Kept, and followed after its client has left; true by default.",
            }
        ),
        "background": nullable(
            {"type": "boolean", "description": "Answer at once and work on; needs `store`."}
        ),
        "tools": nullable({"type": "array", "items": _FUNCTION}),
        "tool_choice": nullable(
            {"anyOf": [{"enum": ["auto", "none", "required"]}, _typed("function", ["name"], name=NAME)]}
        ),
        "parallel_tool_calls": nullable({"type": "boolean"}),
        "max_output_tokens": nullable(COUNT),
        "max_tool_calls": {"type": "null"},
        "temperature": nullable(TEMPERATURE),
        "top_p": nullable(SHARE),
        "top_logprobs": nullable({"type": "integer", "const": 0}),
        "presence_penalty": nullable(PENALTY),
        "frequency_penalty": nullable(PENALTY),
        "text": nullable(
            {
                "type": "object",
                "properties": {"format": nullable(_FORMAT), "verbosity": nullable(EFFORT)},
            }
        ),
        "reasoning": nullable(
            {
                "type": "object",
                "properties": {"effort": nullable(EFFORT), "summary": nullable(EFFORT)},
            }
        ),
        "truncation": nullable({"const": "disabled"}),
        "include": nullable({"type": "array", "items": {"const": "reasoning.encrypted_content"}}),
        "metadata": nullable(METADATA),
        "user": nullable(TEXT),
        "safety_identifier": nullable(TEXT),
        "prompt_cache_key": nullable(TEXT),
        "service_tier": nullable(EFFORT),
    },
}

RESPONSE: Final[dict[str, Any]] = {
    "type": "object",
    "required": [
        "id",
        "object",
        "created_at",
        "status",
        "model",
        "output",
        "error",
        "incomplete_details",
        "usage",
    ],
    "properties": {
        "id": RESPONSE_ID,
        "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "completed_at": nullable({"type": "integer"}),
        "status": {"enum": ["in_progress", "completed", "incomplete", "failed", "cancelled"]},
        "model": TEXT,
        "output": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "type"],
                "properties": {"id": TEXT, "type": {"enum": ["message", "function_call", "reasoning"]}},
            },
        },
        "error": nullable({"type": "object", "required": ["code", "message"]}),
        "incomplete_details": nullable({"type": "object", "required": ["reason"]}),
        "usage": nullable({"type": "object"}),
        "previous_response_id": nullable(RESPONSE_ID),
    },
}
