"""A request of OpenAI's Responses, read into a question."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from headrace.views.responses import KEPT_OF_ITEMS
from headrace.wire import jsontext

# Passed on under the name chat completions has for it, which is the one adapters translate from.
_SAME: Final = ("top_p", "presence_penalty", "frequency_penalty", "parallel_tool_calls")
# Hints to a provider that change no answer: passed on to those that know them, which are those of the same protocol.
_HINTS: Final = ("user", "safety_identifier", "prompt_cache_key", "service_tier")
_NOT_ECHOED: Final = frozenset({"model", "input", "stream", "stream_options", "include"})


def read(body: Mapping[str, Any], *, same_protocol: bool = False) -> Asked:
    """Raises Refused. `same_protocol`: the model is spoken to in this protocol too, and takes back its own items."""
    given = {name: value for name, value in body.items() if value is not None}
    model = given["model"]
    tools = tuple(_tools(given.get("tools", ())))
    if model == AGENT_MODEL:
        refuse_tools(tools)
    stored = given.get("store", True)
    if given.get("background") and not stored:
        raise Refused(400, "A response in the background has to be stored: leave out store.", param="store")
    instructions = given.get("instructions")
    reasoning = given.get("reasoning") or {}
    return Asked(
        model=model,
        messages=tuple(_messages(given["input"], model if same_protocol else "")),
        stream=bool(given.get("stream")),
        stored=stored,
        background=bool(given.get("background")),
        previous=given.get("previous_response_id", ""),
        echo=_echo(given),
        options=Options(
            tools=tools,
            max_tokens=given.get("max_output_tokens"),
            temperature=given.get("temperature"),
            reasoning_effort=reasoning.get("effort"),
            extra=_extra(given, same_protocol=same_protocol),
            prompt=(SystemMessage(instructions),) if instructions else (),
        ),
    )


def _echo(given: Mapping[str, Any]) -> dict[str, Any]:
    out = {name: value for name, value in given.items() if name not in _NOT_ECHOED}
    if "tools" in out:
        blank = {"description": None, "parameters": None, "strict": None}
        out["tools"] = [blank | tool for tool in out["tools"]]
    if "reasoning" in out:
        out["reasoning"] = {"effort": None, "summary": None} | out["reasoning"]
    if "text" in out:
        out["text"] = {"format": {"type": "text"}} | {k: v for k, v in out["text"].items() if v is not None}
    return out


def _extra(given: Mapping[str, Any], *, same_protocol: bool) -> dict[str, Any]:
    out = {name: given[name] for name in _SAME if name in given}
    if choice := given.get("tool_choice"):
        named = isinstance(choice, dict)
        out["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}} if named else choice
    text = given.get("text") or {}
    if (form := text.get("format")) and form["type"] != "text":
        out["response_format"] = _format(form)
    if verbosity := text.get("verbosity"):
        out["verbosity"] = verbosity
    if same_protocol:
        out |= {name: given[name] for name in _HINTS if name in given}
        if summary := (given.get("reasoning") or {}).get("summary"):
            out["reasoning_summary"] = summary
    return out


def _format(form: Mapping[str, Any]) -> dict[str, Any]:
    if form["type"] != "json_schema":
        return dict(form)
    return {"type": "json_schema", "json_schema": {k: v for k, v in form.items() if k != "type"}}


def _tools(given: Sequence[Mapping[str, Any]]) -> Iterator[ToolSpec]:
    for tool in given:
        yield ToolSpec(
            name=tool["name"],
            description=tool.get("description") or "",
            parameters=tool.get("parameters") or {"type": "object", "properties": {}},
            strict=tool.get("strict"),
        )


# --- items into messages


def _messages(given: str | Sequence[Mapping[str, Any]], model: str) -> Iterator[Message]:
    """What the assistant said, thought and called between two messages of others is one reply."""
    if isinstance(given, str):
        yield UserMessage((TextContent(given),))
        return
    said: list[ReplyPart] = []
    names: dict[str, str] = {}
    for item in given:
        if item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning"):
            said += _parts(item, replays=bool(model))
            names |= {part.tool_id: part.name for part in said if part.kind == "tool_call"}
            continue
        if said:
            yield AssistantMessage(tuple(said), model)
            said = []
        yield _message(item, names)
    if said:
        yield AssistantMessage(tuple(said), model)


def _message(item: Mapping[str, Any], names: Mapping[str, str]) -> Message:
    if item.get("type") == "function_call_output":
        content = tuple(_contents(item["output"]))
        return ToolMessage(item["call_id"], content, names.get(item["call_id"], ""))
    content = tuple(_contents(item["content"]))
    if item["role"] == "user":
        return UserMessage(content)
    return SystemMessage("".join(part.text for part in content if isinstance(part, TextContent)))


def _contents(content: str | Sequence[Mapping[str, Any]]) -> Iterator[Content]:
    if isinstance(content, str):
        yield TextContent(content)
        return
    for part in content:
        match part["type"]:
            case "input_text" | "output_text":
                yield TextContent(part["text"])
            case "refusal":
                yield TextContent(part["refusal"])
            case "input_image":
                yield ImageContent(part["image_url"], part.get("detail") or "")
            case _:
                yield OtherContent("responses", jsontext.dump(part))


def _parts(item: Mapping[str, Any], *, replays: bool) -> Iterable[ReplyPart]:
    kind = item.get("type", "message")
    kept = jsontext.dump(item) if replays and any(item.get(name) for name in KEPT_OF_ITEMS) else ""
    if kind == "function_call":
        return [ReplyPart("tool_call", item["arguments"], item["call_id"], item["name"])]
    if kind == "reasoning":
        text = "".join(part["text"] for part in item.get("summary", ()))
        return [ReplyPart("reasoning", text, item=kept)] if text or kept else []
    content = item["content"]
    if isinstance(content, str):
        return [ReplyPart("text", content, item=kept)]
    return [
        ReplyPart("refusal", part["refusal"], item=kept)
        if part["type"] == "refusal"
        else ReplyPart("text", part.get("text", ""), item=kept)
        for part in content
    ]
