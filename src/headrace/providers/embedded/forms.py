"""What the model is asked: histories as plain turns, tools as forms to fill in.

Theory of operation. Small models do not follow the tool markup of their templates. They do fill in forms: the prompt
shows one JSON object for a reply and one for each tool, three examples of plain replies, and placeholders where values
go, because a real value would be copied; and the output is constrained to exactly these objects. So a tool is chosen
or it is not, and nothing else can come out. `headrace.wire.step` reads what comes.

Earlier tool calls stand in the history as the objects they were, and their results as the user's next turn; or, where
the answer is to be plain text, both are part of what the user says.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from headrace.events import (
    AssistantMessage,
    Message,
    ReplyPart,
    SystemMessage,
    ToolMessage,
    UserMessage,
    user_message,
)
from headrace.ports import Request, ToolSpec
from headrace.providers.embedded import bounds
from headrace.providers.history import arguments_of, only_text, refused, text_of
from headrace.wire import jsontext
from headrace.wire.step import reply_word

# Keywords that the library's grammar can hold the output to. It refuses a whole request for the likes of a `$ref`, a
# pattern without anchors or a length of some thousands.
_KEYWORDS: Final = frozenset(
    {
        "type", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf", "oneOf",
        "minimum", "maximum",
    }
)  # fmt: skip
_EXAMPLES: Final = (
    ("Hi!", "Hello! How can I help?"),
    ("Which planet is the largest?", "Jupiter is the largest planet."),
    ("Write a rhyme about a cat.", "The cat sat on the mat, and that was that."),
)


def plain(request: Request) -> Request:
    """The question, to be answered in plain text."""
    return _asked(request, _turns(request.messages, ""), {}, bounds.TEMPERATURE)


AfterCall = Literal["answer", "another", "any"]
"""What a model may do once it has the result of a tool call: answer, call another tool or answer, or anything.

A small model makes the same call again and again if it may; a larger one goes on with the task.
"""


class Choices(NamedTuple):
    """What the model may do next."""

    tools: tuple[ToolSpec, ...] = ()
    """With none of them left it answers in plain text."""
    reply: bool = True
    """It may answer without a tool."""


def choices(request: Request, after_call: AfterCall) -> Choices:
    """What the caller's `tool_choice` and the calls already made leave."""
    wanted = request.extra.get("tool_choice")
    used = calls_answered(request.messages)
    if not request.tools or wanted == "none" or (used and after_call == "answer"):
        return Choices()
    gone = used if after_call == "another" else ()
    left = tuple(tool for tool in request.tools if tool.name not in gone)
    match wanted:
        case "required":
            return Choices(left or request.tools, reply=False)
        case {"function": {"name": str(name)}}:
            chosen = tuple(tool for tool in request.tools if tool.name == name)
            if not chosen:
                raise refused(
                    "tool_choice", f"tool_choice names {name[:80]!r}, which is not among the tools."
                )
            return Choices(chosen, reply=False)
        case _:
            return Choices(left)


def step(request: Request, choices: Choices) -> Request:
    """The question, to be answered with one of the forms."""
    if "response_format" in request.extra:
        raise refused(
            "response_format", "The local model cannot use tools and a response_format in one answer."
        )
    names = [tool.name for tool in request.tools]
    word = reply_word(names)
    turns = [
        SystemMessage("\n\n".join([*_system(request.messages), _instructions(choices.tools, word)])),
        *_examples(word),
        *_turns([m for m in request.messages if not isinstance(m, SystemMessage)], word),
    ]
    reply = [_reply_schema(word)] if choices.reply else []
    schema = {"anyOf": [*reply, *map(_call_schema, choices.tools)]}
    form = {"type": "json_schema", "json_schema": {"name": "step", "schema": schema}}
    return _asked(request, turns, {"response_format": form}, 0.0)


def calls_answered(messages: Sequence[Message]) -> frozenset[str]:
    """The tools whose results came after the last question."""
    names: dict[str, str] = {}
    answered: set[str] = set()
    for message in messages:
        match message:
            case UserMessage():
                answered.clear()
            case AssistantMessage(parts):
                names |= {part.tool_id: part.name for part in parts if part.kind == "tool_call"}
            case ToolMessage(tool_id, _, name):
                answered.add(name or names.get(tool_id, ""))
            case SystemMessage():
                pass
    return frozenset(answered)


def _asked(
    request: Request, turns: Sequence[Message], form: Mapping[str, Any], temperature: float
) -> Request:
    extra = {k: v for k, v in request.extra.items() if k not in ("tool_choice", "parallel_tool_calls")}
    return msgspec.structs.replace(
        request,
        model=request.model or "local",
        messages=tuple(turns),
        tools=(),
        max_tokens=request.max_tokens if request.max_tokens is not None else bounds.OUTPUT_MAX_TOKENS,
        temperature=request.temperature if request.temperature is not None else temperature,
        reasoning_effort=None,
        # Progress makes the server look after every batch whether anybody is still there.
        extra={
            "repeat_penalty": bounds.REPEAT_PENALTY,
            **extra,
            **form,
            **({"return_progress": True} if request.stream else {}),
        },
    )


# --- the history


def _system(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if isinstance(message, SystemMessage) and message.text]


def _turns(messages: Sequence[Message], word: str) -> list[Message]:
    """The history with every turn as text, and turns of one side that follow each other made one."""
    out: list[tuple[str, str]] = []
    for role, text in _said(messages, word):
        if out and out[-1][0] == role:
            out[-1] = (role, f"{out[-1][1]}\n\n{text}")
        else:
            out.append((role, text))
    return [_message(role, text) for role, text in out]


def _said(messages: Sequence[Message], word: str) -> Iterator[tuple[str, str]]:
    """Who said what. With a word for replies, the model's own turns are the objects it writes.

    Without one it is told of its calls by the user: what it once wrote as an object it would write again.
    """
    calls: dict[str, ReplyPart] = {}
    question = ""
    for message in messages:
        match message:
            case SystemMessage(text):
                yield "system", text
            case UserMessage(content):
                question = _only_text(content)
                yield "user", question
            case AssistantMessage(parts):
                calls |= {part.tool_id: part for part in parts if part.kind == "tool_call"}
                yield from (("assistant", text) for part in parts if (text := _written(part, word)))
            case ToolMessage(tool_id, content, name):
                call = calls.get(tool_id, ReplyPart("tool_call", name=name or "a tool"))
                yield "user", _result(call, _only_text(content), word)
    if messages and isinstance(messages[-1], ToolMessage):
        yield "user", f"Now reply to: {question}" if word else "Now answer me."


def _written(part: ReplyPart, word: str) -> str:
    match part.kind:
        case "text" | "refusal" if part.text:
            return jsontext.dump({"tool": word, "text": part.text}) if word else part.text
        case "tool_call" if word:
            return jsontext.dump({"tool": part.name, "arguments": arguments_of(part)})
        case _:
            return ""


def _result(call: ReplyPart, result: str, word: str) -> str:
    if word:
        return f"Result of {call.name}: {result}"
    return f"You have used {call.name} ({jsontext.dump(arguments_of(call))}). Its result:\n{result}"


def _only_text(content: Any) -> str:
    if not only_text(content):
        raise refused("messages", "The local model reads text only.")
    return text_of(content)


def _message(role: str, text: str) -> Message:
    match role:
        case "system":
            return SystemMessage(text)
        case "assistant":
            return AssistantMessage((ReplyPart("text", text),))
        case _:
            return user_message(text)


# --- the forms


def _instructions(tools: Sequence[ToolSpec], word: str) -> str:
    reply = jsontext.dump({"tool": word, "text": "<your full answer>"})
    return "\n".join(
        [
            "You are a helpful assistant. Answer every message with exactly one JSON object, in one of these forms:",
            f"- Anything you can answer yourself (greetings, facts, writing, explanations): {reply}",
            *(f"- {_clipped(t.description, bounds.DESCRIPTION_MAX_CHARS)}: {_form(t)}" for t in tools),
            f"Use a tool whenever the user asks for what that tool does. Otherwise use {word}.",
        ]
    )


def _form(tool: ToolSpec) -> str:
    properties = tool.parameters.get("properties") or {}
    needed = tool.parameters.get("required") or ()
    return jsontext.dump(
        {
            "tool": tool.name,
            "arguments": {n: f"<{_about(n, properties[n])}>" for n in needed if n in properties},
        }
    )


def _about(name: str, schema: Any) -> str:
    described = schema.get("description") if isinstance(schema, dict) else None
    return _clipped(described or name, bounds.PARAMETER_MAX_CHARS)


def _clipped(text: str, most: int) -> str:
    """The first sentence, within the bound."""
    line = " ".join(text.split())
    return line.partition(". ")[0].rstrip(".")[:most]


def _examples(word: str) -> Iterator[Message]:
    for question, answer in _EXAMPLES:
        yield user_message(question)
        yield _message("assistant", jsontext.dump({"tool": word, "text": answer}))


def _reply_schema(word: str) -> dict[str, Any]:
    return _object({"tool": {"const": word}, "text": {"type": "string"}})


def _call_schema(tool: ToolSpec) -> dict[str, Any]:
    arguments = _constraint(tool.parameters)
    if not arguments.get("properties"):
        arguments = _object({})
    return _object({"tool": {"const": tool.name}, "arguments": {**arguments, "type": "object"}})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _constraint(schema: Any, depth: int = 0) -> dict[str, Any]:
    """As much of a schema as the grammar can hold the output to; the rest is checked when the call has come."""
    if not isinstance(schema, Mapping) or depth > bounds.SCHEMA_MAX_DEPTH:
        return {}
    out = {key: value for key, value in schema.items() if key in _KEYWORDS}
    for key, value in out.items():
        match key, value:
            case "properties", {**properties}:
                out[key] = {name: _constraint(inner, depth + 1) for name, inner in properties.items()}
            case (("items" | "additionalProperties"), {**inner}):
                out[key] = _constraint(inner, depth + 1)
            case (("anyOf" | "oneOf"), [*choices]):
                out[key] = [_constraint(inner, depth + 1) for inner in choices]
            case _:
                pass
    return out
