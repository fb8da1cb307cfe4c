"""What may be sent to the chat endpoint and the native ones, as JSON schemas: checked against, and served.

Theory of operation. A request is checked against the very schema that the OpenAPI description serves, so the two cannot
differ. What a schema lets through is read by the module of its endpoint, which refuses by name what cannot be honoured.
Only words that draft 7 and OpenAPI 3.1 both know are used.
"""

from typing import Any, Final

Schema = dict[str, Any]


def nullable(schema: Schema) -> Schema:
    """null means: not given."""
    return {"anyOf": [schema, {"type": "null"}]}


TEXT: Final[Schema] = {"type": "string"}
URL: Final[Schema] = {"type": "string", "pattern": "^(https?|data):"}
NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 256}
SESSION: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 100_000_000}
TEMPERATURE: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 2}
SHARE: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 1}
PENALTY: Final[Schema] = {"type": "number", "minimum": -2, "maximum": 2}
EFFORT: Final[Schema] = {"type": "string", "pattern": "^[a-z]{1,20}$"}
METADATA: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}

_TEXT_PART: Final[Schema] = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": TEXT},
}
_REFUSAL_PART: Final[Schema] = {
    "type": "object",
    "required": ["type", "refusal"],
    "properties": {"type": {"const": "refusal"}, "refusal": TEXT},
}
_IMAGE_PART: Final[Schema] = {
    "type": "object",
    "required": ["type", "image_url"],
    "properties": {
        "type": {"const": "image_url"},
        "image_url": {
            "type": "object",
            "required": ["url"],
            "properties": {"url": URL, "detail": nullable({"enum": ["auto", "low", "high"]})},
        },
    },
}
_OTHER_PART: Final[Schema] = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"enum": ["input_audio", "file", "video_url"]},
        "video_url": {"type": "object", "properties": {"url": URL}},
    },
}
_TEXTS: Final[Schema] = {"anyOf": [TEXT, {"type": "array", "items": _TEXT_PART}]}
_CALL: Final[Schema] = {
    "type": "object",
    "required": ["id", "function"],
    "properties": {
        "id": TEXT,
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "required": ["name", "arguments"],
            "properties": {"name": NAME, "arguments": TEXT},
        },
    },
}


def _message(roles: list[str], required: list[str], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "required": ["role", *required],
        "properties": {"role": {"enum": roles}, "name": nullable(TEXT), **properties},
    }


MESSAGE: Final[Schema] = {
    "anyOf": [
        _message(["system", "developer"], ["content"], content=_TEXTS),
        _message(
            ["user"],
            ["content"],
            content={
                "anyOf": [
                    TEXT,
                    {"type": "array", "items": {"anyOf": [_TEXT_PART, _IMAGE_PART, _OTHER_PART]}},
                ]
            },
        ),
        _message(
            ["assistant"],
            [],
            content=nullable(
                {"anyOf": [TEXT, {"type": "array", "items": {"anyOf": [_TEXT_PART, _REFUSAL_PART]}}]}
            ),
            refusal=nullable(TEXT),
            reasoning_content=nullable(TEXT),
            tool_calls=nullable({"type": "array", "items": _CALL}),
        ),
        _message(["tool"], ["content", "tool_call_id"], content=_TEXTS, tool_call_id=TEXT),
    ]
}

TOOL: Final[Schema] = {
    "type": "object",
    "required": ["type", "function"],
    "properties": {
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "pattern": "^[A-Za-z0-9_.:/-]{1,128}$"},
                "description": nullable(TEXT),
                "parameters": nullable({"type": "object"}),
                "strict": nullable({"type": "boolean"}),
            },
        },
    },
}
TOOL_CHOICE: Final[Schema] = {
    "anyOf": [
        {"enum": ["auto", "none", "required"]},
        {
            "type": "object",
            "required": ["type", "function"],
            "properties": {
                "type": {"const": "function"},
                "function": {"type": "object", "required": ["name"], "properties": {"name": NAME}},
            },
        },
    ]
}
RESPONSE_FORMAT: Final[Schema] = {
    "anyOf": [
        {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"enum": ["text", "json_object"]}},
        },
        {
            "type": "object",
            "required": ["type", "json_schema"],
            "properties": {
                "type": {"const": "json_schema"},
                "json_schema": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": NAME, "schema": {"type": "object"}},
                },
            },
        },
    ]
}

CHAT_REQUEST: Final[Schema] = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": {
        "model": {
            **NAME,
            "description": "`headrace`, the agent with its tools; or any configured model, as a direct call.",
        },
        "messages": {"type": "array", "minItems": 1, "items": MESSAGE},
        "stream": nullable({"type": "boolean"}),
        "stream_options": nullable(
            {"type": "object", "properties": {"include_usage": nullable({"type": "boolean"})}}
        ),
        "tools": nullable(
            {"type": "array", "items": TOOL, "description": "For direct models; `headrace` has its own."}
        ),
        "tool_choice": nullable(TOOL_CHOICE),
        "parallel_tool_calls": nullable({"type": "boolean"}),
        "max_tokens": nullable(COUNT),
        "max_completion_tokens": nullable(COUNT),
        "temperature": nullable(TEMPERATURE),
        "top_p": nullable(SHARE),
        "n": nullable({"type": "integer", "const": 1}),
        "stop": nullable(
            {"anyOf": [TEXT, {"type": "array", "items": TEXT, "maxItems": 16}]},
        ),
        "seed": nullable({"type": "integer"}),
        "presence_penalty": nullable(PENALTY),
        "frequency_penalty": nullable(PENALTY),
        "logit_bias": nullable({"type": "object", "additionalProperties": {"type": "number"}}),
        "response_format": nullable(RESPONSE_FORMAT),
        "reasoning_effort": nullable(EFFORT),
        "user": nullable(TEXT),
        "metadata": nullable(METADATA),
        "store": nullable({"const": False}),
    },
}

TURN_REQUEST: Final[Schema] = {
    "type": "object",
    "required": ["input"],
    "additionalProperties": False,
    "properties": {
        "input": {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "minItems": 1, "items": MESSAGE},
            ],
            "description": "A question, or a conversation in the form of chat completions.",
        },
        "model": nullable({**NAME, "description": "`headrace`, the agent, where none is named."}),
        "session": nullable(SESSION),
        "store": nullable({"type": "boolean", "description": "Kept on disk; true by default."}),
        "manner": nullable(
            {
                "enum": ["queue", "interrupt", "steer"],
                "description": "What it does to a turn of the session that runs; as configured otherwise.",
            }
        ),
        "attended": nullable(
            {"type": "boolean", "description": "Whether somebody can be asked; true by default."}
        ),
        "instructions": nullable(TEXT),
        "max_tokens": nullable(COUNT),
        "temperature": nullable(TEMPERATURE),
        "reasoning_effort": nullable(EFFORT),
    },
}
VERDICT: Final[Schema] = {
    "type": "object",
    "required": ["allow"],
    "additionalProperties": False,
    "properties": {"allow": {"type": "boolean"}, "by": nullable(NAME)},
}
ANSWER: Final[Schema] = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {"text": {"type": "string", "maxLength": 10_000}, "by": nullable(NAME)},
}
TURN: Final[Schema] = {
    "type": "object",
    "required": ["id", "object", "session", "model", "opened_at", "events", "answer", "outcome"],
    "properties": {
        "id": TEXT,
        "object": {"const": "turn"},
        "session": nullable(TEXT),
        "model": TEXT,
        "opened_at": {"type": "number"},
        "events": {"type": "integer", "description": "How many its log has so far."},
        "question": TEXT,
        "answer": TEXT,
        "outcome": nullable(TEXT),
        "cause": nullable(TEXT),
        "runs_here": {
            "type": "boolean",
            "description": "Whether this server runs it now, so that it can be stopped and answered here.",
        },
    },
}

USAGE: Final[Schema] = {
    "type": "object",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "properties": {
        "prompt_tokens": {"type": "integer"},
        "completion_tokens": {"type": "integer"},
        "total_tokens": {"type": "integer"},
    },
}
FATE: Final[Schema] = {
    "type": "object",
    "description": "How a turn ended that did not end well. Absent where it did.",
    "properties": {
        "failed": {"type": "boolean"},
        "partial": {"type": "boolean", "description": "Whether something of the answer was seen."},
        "completed": {"type": "boolean"},
        "error_code": TEXT,
        "partial_text": TEXT,
    },
}
ERROR: Final[Schema] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": TEXT,
                "type": TEXT,
                "param": nullable(TEXT),
                "code": nullable(TEXT),
            },
        },
        "headrace": FATE,
        "usage": nullable(USAGE),
    },
}
CHAT_ANSWER: Final[Schema] = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices"],
    "properties": {
        "id": TEXT,
        "object": {"const": "chat.completion"},
        "created": {"type": "integer"},
        "model": TEXT,
        "choices": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["index", "message", "finish_reason"],
                "properties": {
                    "index": {"const": 0},
                    "finish_reason": {"enum": ["stop", "tool_calls", "length", "content_filter"]},
                    "message": {"type": "object", "required": ["role", "content"]},
                },
            },
        },
        "usage": nullable(USAGE),
        "headrace": FATE,
    },
}
