"""A request of OpenAI's chat completions, read into a question."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headrace.doors.api.asked import AGENT_MODEL, Asked, Refused, refuse_tools
from headrace.events import (
    AssistantMessage,
    Content,
    ImageContent,
    Message,
    OtherContent,
    ReplyPart,
    SystemMessage,
    TextContent,
    ToolMessage,
    UserMessage,
)
from headrace.ports import ToolSpec
from headrace.runtime.question import Options
from headrace.views.chat_completions import KEPT_OF_CALLS
from headrace.wire import jsontext

# Read here; what is left over is the model's own and is passed on under its name.
_READ: Final = frozenset(
    {"model", "messages", "stream", "stream_options", "tools", "n", "store", "max_tokens", "temperature",
     "reasoning_effort"}
)  # fmt: skip
# What would change the answer in a way that is not passed back.
_REFUSED: Final[Mapping[str, str]] = {
    "logprobs": "Log probabilities are not passed on.",
    "top_logprobs": "Log probabilities are not passed on.",
    "audio": "Audio is not passed on.",
    "functions": "Use tools.",
    "function_call": "Use tool_choice.",
    "web_search_options": "A provider's own search is not passed on.",
}
# What the agent's own calls can be given; its tools are its own.
_AGENT_TAKES: Final = frozenset(
    {"max_completion_tokens", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias",
     "response_format", "user", "metadata", "service_tier", "verbosity", "prompt_cache_key", "safety_identifier"}
)  # fmt: skip
_HARMLESS: Final[Mapping[str, object]] = {"logprobs": False, "top_logprobs": 0, "modalities": ["text"]}


def read(body: Mapping[str, Any], *, replays: bool = False) -> Asked:
    """Raises Refused. `replays`: the model takes back what it sent beside its calls, in this protocol's form."""
    given = {
        name: value
        for name, value in body.items()
        if value is not None and (name not in _HARMLESS or value != _HARMLESS[name])
    }
    model = given["model"]
    for name, why in _REFUSED.items():
        if name in given:
            raise Refused(400, f"{name} is not supported. {why}", param=name, code="unsupported_parameter")
    if given.get("modalities"):
        raise Refused(400, "Only text is answered.", param="modalities", code="unsupported_parameter")
    extra = {name: value for name, value in given.items() if name not in _READ}
    tools = tuple(_tools(given.get("tools", ())))
    if model == AGENT_MODEL:
        _check_agent(tools, extra)
    options = given.get("stream_options")
    return Asked(
        model=model,
        messages=tuple(_messages(given["messages"], model if replays else "")),
        stream=bool(given.get("stream")),
        include_usage=bool(options and options.get("include_usage")),
        options=Options(
            tools=tools,
            stream_options=_upstream(options),
            max_tokens=given.get("max_tokens"),
            temperature=given.get("temperature"),
            reasoning_effort=given.get("reasoning_effort"),
            extra=extra,
        ),
    )


def _upstream(options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The caller's own options; usage is always asked for, because it is accounted whoever wants to see it."""
    return {**options, "include_usage": True} if options and len(options) > 1 else None


def _check_agent(tools: Sequence[ToolSpec], extra: Mapping[str, Any]) -> None:
    refuse_tools(tools)
    for name in extra:
        if name not in _AGENT_TAKES:
            raise Refused(
                400,
                f"The model {AGENT_MODEL} does not know {name}; a direct model may.",
                param=name,
                code="unsupported_parameter",
            )


def _tools(given: Sequence[Mapping[str, Any]]) -> Iterator[ToolSpec]:
    for tool in given:
        function = tool["function"]
        yield ToolSpec(
            name=function["name"],
            description=function.get("description") or "",
            parameters=function.get("parameters") or {"type": "object", "properties": {}},
            strict=function.get("strict"),
        )


def _messages(given: Sequence[Mapping[str, Any]], model: str) -> Iterator[Message]:
    names: dict[str, str] = {}
    for message in given:
        content = message.get("content")
        match message["role"]:
            case "system" | "developer":
                yield SystemMessage(_text(content))
            case "user":
                yield UserMessage(tuple(_contents(message["content"])))
            case "assistant":
                parts = tuple(_parts(message, replays=bool(model)))
                names |= {part.tool_id: part.name for part in parts if part.kind == "tool_call"}
                if parts:
                    yield AssistantMessage(parts, model)
            case _:
                tool_id = message["tool_call_id"]
                yield ToolMessage(tool_id, (TextContent(_text(content)),), names.get(tool_id, ""))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


def _contents(content: str | Sequence[Mapping[str, Any]]) -> Iterator[Content]:
    if isinstance(content, str):
        yield TextContent(content)
        return
    for part in content:
        match part["type"]:
            case "text":
                yield TextContent(part["text"])
            case "image_url":
                image = part["image_url"]
                yield ImageContent(image["url"], image.get("detail") or "")
            case _:
                yield OtherContent("chat_completions", jsontext.dump(part))


def _parts(message: Mapping[str, Any], *, replays: bool) -> Iterator[ReplyPart]:
    thought = message.get("reasoning_content")
    if thought:
        item = jsontext.dump({"reasoning_content": thought}) if replays else ""
        yield ReplyPart("reasoning", thought, item=item)
    if text := _text(message.get("content")):
        yield ReplyPart("text", text)
    if refusal := message.get("refusal") or _refusal(message.get("content")):
        yield ReplyPart("refusal", refusal)
    for call in message.get("tool_calls") or ():
        function = call["function"]
        kept = {name: call[name] for name in KEPT_OF_CALLS if name in call} if replays else {}
        yield ReplyPart(
            "tool_call",
            function["arguments"],
            tool_id=call["id"],
            name=function["name"],
            item=jsontext.dump(kept) if kept else "",
        )


def _refusal(content: Any) -> str:
    if not isinstance(content, list):
        return ""
    return "".join(part.get("refusal", "") for part in content)
