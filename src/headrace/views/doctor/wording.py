"""The words of a diagnosis: what to do about a cause, what a quirk means, how forms and markers are called.

Every quirk and form has its sentence here, and `{...}` stands for what is known of the endpoint. A quirk that needs a
setting of its own has advice and is a problem; with all others headrace copes by itself.
"""

from collections.abc import Mapping
from typing import Final

from headrace.errors import CauseCode
from headrace.wire.traits import Marker, Quirk, ReasoningForm, UsagePlace

REPORT: Final = "This lies with those who run the endpoint: tell them."
_AGAIN: Final = (
    "Run this again: a model that is being loaded may answer then. If not, look into the server's log."
)

ADVICE: Final[Mapping[CauseCode, str]] = {
    "connect_failed": "Check that the server runs and that providers.{provider}.base_url is right ({base_url}).",
    "stalled_connect": "Check the network, a proxy or firewall in between, and providers.{provider}.base_url "
    "({base_url}).",
    "tls_failed": "Renew the server's certificate or trust it on this machine (SSL_CERT_FILE=...); for a server "
    "without TLS, write http:// in providers.{provider}.base_url.",
    "config_invalid": "Correct providers.{provider}.base_url ({base_url}).",
    "connection_lost": "Try again; if it stays so, look into the server's log, and at proxies in between.",
    "key_missing": "export {key_name}=...",
    "key_rejected": "Get a valid key from the provider and export {key_name}=...",
    "forbidden": "Allow this model for the key in {key_name} at the provider, or choose another model.",
    "payment_required": "Add credit at the provider, or choose another model.",
    "quota_exhausted": "Raise the quota at the provider or wait for its next period, or choose another model.",
    "model_not_found": "Check the model's name ({model}), and that the address is right: {base_url}.",
    "rate_limited": "Wait a little and run this again.",
    "overloaded": "The provider is busy: run this again later.",
    "server_error": "The provider is broken at the moment: run this again later, and look at its status page or log.",
    "request_timeout": _AGAIN,
    "stalled_first_event": _AGAIN,
    "stalled_total": _AGAIN,
    "malformed_stream": "Check that {base_url} is the address of an API that speaks {protocol} (often it ends in /v1), "
    "or set providers.{provider}.protocol.",
    "bad_request": "Check the settings of models.{model_id}, and that the provider speaks {protocol}.",
    "parameter_rejected": "Take the setting it refuses out of models.{model_id}.",
    "no_terminal": REPORT,
    "empty_reply": "Ask the model something with `headrace ask`; if it stays silent, choose another model.",
    "dependency_missing": "Install what is missing.",
    "resources_short": "Choose a smaller model.",
}
ELSE: Final = "Look into the server's log, or choose another model."

BROKEN: Final = "It is reached, and its answers break off or cannot be read: look into the server's log."
SET_UNSTREAMED: Final = "Set models.{model_id}.streams: false."
NO_TOOLS: Final = (
    "It can answer, but not act. For work with tools choose another model, or start its server with tools."
)

QUIRKS: Final[Mapping[Quirk, str]] = {
    "comments": "sends comments to keep the connection alive",
    "crlf": "ends lines with CRLF",
    "bom": "begins with a byte order mark",
    "unreadable": "sends events that are no JSON",
    "done_missing": "sends no [DONE] at the end",
    "finish_missing": "sends [DONE] without a finish reason",
    "several_finishes": "sends more than one finish reason",
    "choices_empty": "sends chunks without choices",
    "delta_missing": "sends choices without a delta",
    "content_parts": "sends content as a list of parts",
    "role_empty": "sends an empty role",
    "cumulative": "repeats the text so far in every chunk",
    "output_empty": "ends without repeating the output",
    "index_missing": "sends tool calls without an index",
    "index_shared": "gives several tool calls the same index",
    "call_id_missing": "sends tool calls without an id",
    "call_id_repeated": "gives several tool calls the same id",
    "name_repeated": "repeats a tool's name in every chunk",
    "name_in_pieces": "sends a tool's name in pieces",
    "arguments_object": "sends arguments as an object instead of text",
    "legacy_function_call": "calls tools in the old way (function_call)",
    "calls_end_with_stop": "ends tool calls with `stop`",
    "calls_announced_only": "ends with `tool_calls` without a tool call",
}
QUIRK_ADVICE: Final[Mapping[Quirk, str]] = {"cumulative": "Set models.{model_id}.cumulative: true."}

REASONING: Final[Mapping[ReasoningForm, str]] = {
    "reasoning_content": "the field reasoning_content",
    "reasoning": "the field reasoning",
    "reasoning_details": "the field reasoning_details",
    "content_parts": "thinking parts of the content",
    "tags": "<think> tags in the text",
    "thinking": "thinking blocks",
    "redacted_thinking": "redacted thinking blocks",
    "summary": "summaries",
    "reasoning_text": "plain reasoning text",
    "encrypted": "encrypted items",
}
USAGE: Final[Mapping[UsagePlace, str]] = {
    "last_chunk": "in the last chunk",
    "every_chunk": "in every chunk",
    "choice": "within a choice",
    "x_groq": "in x_groq",
    "message_start": "in message_start",
    "message_delta": "in message_delta",
    "response": "in the final response",
    "document": "in the answer",
}
WITH_REASON: Final[frozenset[Marker]] = frozenset({"finish_reason", "stop_reason", "status"})
"""Markers that carry a reason of the provider's."""


def seconds(value: float) -> str:
    """A length of time as people say it."""
    if value < 0.9995:
        return f"{max(1, round(value * 1000))} ms"
    return f"{value:.1f} s"


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
