"""What goes out: requests in three protocols, from messages and from turns that were really decoded."""

import json
from typing import Any

import anthropic.types.message_create_params as anthropic_params
import openai.types.chat.completion_create_params as chat_params
import openai.types.responses.response_create_params as responses_params
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.agent.history import answered
from headrace.errors import CallError
from headrace.events import (
    AssistantMessage,
    Event,
    ImageContent,
    Message,
    OtherContent,
    PartClosed,
    PartGrew,
    PartStarted,
    ReplyPart,
    SystemMessage,
    TextContent,
    ToolMessage,
    UserMessage,
    user_message,
)
from headrace.ports import ProtocolName, Request
from headrace.providers.history import distinct_tool_ids
from headrace.providers.http import PROTOCOLS as SPOKEN
from headrace.runtime.question import Options
from headrace.testing.modelserver import CallTool, Raw, Reply, Say, Script, Think, scenario
from headrace.turn.folds import Folded
from headrace.wire import chat_completions as chat_wire
from headrace.wire import messages as messages_wire
from headrace.wire import responses as responses_wire
from tests.pure.turns import TURN, a_reply
from tests.pure.turns import text as text_part
from tests.turns import PROTOCOLS, RELAY, TOOLS, Bench, bench, closed

ME = "lab:model-1"
OTHER = "elsewhere:model-2"
HELLO = (user_message("Hello?"),)
CALLS = Reply(
    (Think("Hm."), Say("Let me look."), CallTool("weather", {"city": "Oban"}), CallTool("clock", {})),
)


def body(protocol: ProtocolName, messages: tuple[Message, ...] = HELLO, **settings: Any) -> dict[str, Any]:
    request = Request(model="model-1", messages=messages, **{"stream": False, **settings})
    # As it would be sent: through JSON.
    sent: dict[str, Any] = json.loads(json.dumps(SPOKEN[protocol].body(request, ME)))
    return sent


def said(protocol: ProtocolName, *messages: Message) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = body(protocol, messages)["input" if protocol == "responses" else "messages"]
    return sent


def refusal(protocol: ProtocolName, messages: tuple[Message, ...] = HELLO, **settings: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        body(protocol, messages, **settings)
    return caught.value


def assistant(*parts: ReplyPart, model: str = ME) -> AssistantMessage:
    return AssistantMessage(parts, model)


def tool_call(tool_id: str, arguments: str = "{}", item: str = "", name: str = "clock") -> ReplyPart:
    return ReplyPart("tool_call", arguments, tool_id, name, item)


def tool_result(tool_id: str, text: str = "noon") -> ToolMessage:
    return ToolMessage(tool_id, (TextContent(text),), "clock")


# --- messages and content

CONVERSATION = (
    SystemMessage("Be brief."),
    user_message("What time is it?"),
    assistant(ReplyPart("text", "I look."), tool_call("c1", '{"zone": "utc"}'), model=OTHER),
    tool_result("c1"),
)


def test_a_conversation_in_chat_completions() -> None:
    function = {"name": "clock", "arguments": '{"zone": "utc"}'}
    assert said("chat_completions", *CONVERSATION) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What time is it?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
    ]


def test_a_conversation_in_responses() -> None:
    assert said("responses", *CONVERSATION) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "What time is it?"}]},
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": '{"zone":"utc"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "noon"},
    ]


def test_a_conversation_in_messages() -> None:
    sent = body("messages", (*CONVERSATION, user_message("Well?")))
    assert sent["system"] == "Be brief."
    assert sent["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "What time is it?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "clock", "input": {"zone": "utc"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "noon"}]},
                {"type": "text", "text": "Well?"},
            ],
        },
    ]


def test_several_system_messages_are_one_in_messages() -> None:
    assert (
        body("messages", (SystemMessage("One."), SystemMessage("Two."), *HELLO))["system"] == "One.\n\nTwo."
    )


PICTURE = ImageContent("https://example.org/a.png", "low")
INLINE = ImageContent("data:image/png;base64,aGk=")


def test_images() -> None:
    content = UserMessage((TextContent("Look:"), PICTURE, INLINE))
    assert said("chat_completions", content)[0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": PICTURE.url, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": INLINE.url}},
    ]
    assert said("responses", content)[0]["content"] == [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": PICTURE.url, "detail": "low"},
        {"type": "input_image", "image_url": INLINE.url, "detail": "auto"},
    ]
    assert said("messages", content)[0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": {"type": "url", "url": PICTURE.url}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    ]


def test_a_data_url_that_is_not_base64_is_refused_where_it_cannot_be_sent() -> None:
    failure = refusal("messages", (UserMessage((ImageContent("data:image/svg+xml,<svg/>"),)),))
    assert failure.cause.code == "bad_request"
    assert "base64" in failure.cause.message


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_other_content_goes_to_its_own_protocol_as_it_came(protocol: ProtocolName) -> None:
    item = {"type": "file", "file": {"file_id": "f1"}}
    sent = said(protocol, UserMessage((OtherContent(protocol, json.dumps(item)),)))
    assert sent[0]["content"] == [item]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_other_content_is_refused_by_another_protocol(protocol: ProtocolName) -> None:
    failure = refusal(protocol, (UserMessage((OtherContent("teletext", "{}"),)),))
    assert failure.cause.code == "bad_request"
    assert failure.cause.parameter == ("input" if protocol == "responses" else "messages")
    assert "cannot be sent" in failure.cause.message


def test_tools() -> None:
    weather = TOOLS[0]
    about = {"name": weather.name, "description": weather.description}
    chat, other, anthropic = (body(p, tools=TOOLS)["tools"][0] for p in PROTOCOLS)
    assert chat == {"type": "function", "function": {**about, "parameters": weather.parameters}}
    assert other == {"type": "function", **about, "parameters": weather.parameters, "strict": False}
    assert anthropic == {**about, "input_schema": weather.parameters}
    assert all("tools" not in body(p) for p in PROTOCOLS)


# --- parameters


def test_common_parameters() -> None:
    settings: dict[str, Any] = {"max_tokens": 50, "temperature": 0.5}
    chat, other, anthropic = (body(p, **settings) for p in PROTOCOLS)
    assert (chat["max_tokens"], chat["temperature"]) == (50, 0.5)
    assert (other["max_output_tokens"], other["temperature"]) == (50, 0.5)
    assert (anthropic["max_tokens"], anthropic["temperature"]) == (50, 0.5)


def test_reasoning_effort() -> None:
    assert body("chat_completions", reasoning_effort="low")["reasoning_effort"] == "low"
    assert body("responses", reasoning_effort="low")["reasoning"] == {"effort": "low"}
    sent = body("messages", reasoning_effort="low", max_tokens=100, temperature=0.5)
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert sent["max_tokens"] == 2148
    assert "temperature" not in sent
    assert "thinking" not in body("messages", reasoning_effort="none")
    assert refusal("messages", reasoning_effort="enormous").cause.parameter == "reasoning_effort"


@pytest.mark.parametrize("dropped", [frozenset(), frozenset({"max_tokens"})])
@pytest.mark.parametrize("newer", [{}, {"max_completion_tokens": 300}])
@pytest.mark.parametrize("effort", ["minimal", "low", "medium", "high", "xhigh"])
def test_thinking_always_fits_into_the_bound(dropped: frozenset[str], newer: Any, effort: str) -> None:
    sent = body("messages", reasoning_effort=effort, max_tokens=100, extra=newer, dropped=dropped)
    assert 1024 <= sent["thinking"]["budget_tokens"] < sent["max_tokens"]


def test_extra_in_chat_completions_goes_out_as_it_is() -> None:
    extra = {"tool_choice": "required", "stop": ["x"], "parallel_tool_calls": False, "top_p": 0.1}
    assert body("chat_completions", extra=extra).items() >= extra.items()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_there_is_one_bound_on_the_answer(protocol: ProtocolName) -> None:
    sent = body(protocol, max_tokens=100, extra={"max_completion_tokens": 50})
    assert [value for name, value in sent.items() if name.startswith("max_")] == [50]


FORCED = {"type": "function", "function": {"name": "clock"}}
SCHEMA = {"name": "s", "schema": {"type": "object"}, "strict": True}


@pytest.mark.parametrize(
    ("protocol", "extra", "sent"),
    [
        ("responses", {"tool_choice": "auto"}, {"tool_choice": "auto"}),
        ("responses", {"tool_choice": FORCED}, {"tool_choice": {"type": "function", "name": "clock"}}),
        (
            "responses",
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
            {"text": {"format": {"type": "json_schema", **SCHEMA}}},
        ),
        (
            "responses",
            {"response_format": {"type": "json_object"}},
            {"text": {"format": {"type": "json_object"}}},
        ),
        ("responses", {"max_completion_tokens": 9}, {"max_output_tokens": 9}),
        ("responses", {"parallel_tool_calls": False, "top_p": 0.5}, {"parallel_tool_calls": False}),
        (
            "responses",
            {"include": ["message.output_text.logprobs"]},
            {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]},
        ),
        ("messages", {"tool_choice": "auto"}, {"tool_choice": {"type": "auto"}}),
        ("messages", {"tool_choice": "none"}, {"tool_choice": {"type": "none"}}),
        ("messages", {"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
        ("messages", {"tool_choice": FORCED}, {"tool_choice": {"type": "tool", "name": "clock"}}),
        ("messages", {"stop": "x"}, {"stop_sequences": ["x"]}),
        ("messages", {"stop": ["x", "y"]}, {"stop_sequences": ["x", "y"]}),
        ("messages", {"max_completion_tokens": 9}, {"max_tokens": 9}),
        ("messages", {"top_p": 0.5, "metadata": {"user_id": "u"}}, {"top_p": 0.5}),
    ],
)
def test_extra_parameters_are_translated(protocol: ProtocolName, extra: Any, sent: dict[str, Any]) -> None:
    assert body(protocol, extra=extra).items() >= sent.items()


@pytest.mark.parametrize(
    ("protocol", "name", "value"),
    [
        ("responses", "stop", ["x"]),
        ("responses", "seed", 7),
        ("responses", "logit_bias", {}),
        ("messages", "response_format", {"type": "json_object"}),
        ("messages", "parallel_tool_calls", False),
        ("messages", "tool_choice", {"type": "odd"}),
        ("messages", "n", 2),
        ("messages", "seed", 7),
    ],
)
def test_what_a_protocol_cannot_carry_is_refused_by_name(
    protocol: ProtocolName, name: str, value: Any
) -> None:
    failure = refusal(protocol, extra={name: value})
    assert (failure.cause.code, failure.cause.parameter) == ("bad_request", name)
    assert name in failure.cause.message


@pytest.mark.parametrize("protocol", ["responses", "messages"])
@pytest.mark.parametrize("name", ["stop", "seed", "tool_choice", "response_format", "top_p"])
def test_a_parameter_that_is_none_is_not_there(protocol: ProtocolName, name: str) -> None:
    assert body(protocol, extra={name: None}) == body(protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refused_parameter_is_left_out(protocol: ProtocolName) -> None:
    sent = body(protocol, temperature=0.5, extra={"top_p": 0.1}, dropped=frozenset({"temperature", "top_p"}))
    assert not sent.keys() & {"temperature", "top_p"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_whole_answer_is_asked_for_without_a_word_of_streams(protocol: ProtocolName) -> None:
    sent = body(protocol, stream_options={"include_usage": True, "include_obfuscation": False})
    assert not sent.keys() & {"stream", "stream_options"}


def test_stream_options() -> None:
    assert body("chat_completions", stream=True)["stream_options"] == {"include_usage": True}
    own = {"include_usage": False, "include_obfuscation": False}
    assert body("chat_completions", stream=True, stream_options=own)["stream_options"] == own
    assert body("responses", stream=True, stream_options=own)["stream_options"] == {
        "include_obfuscation": False
    }
    assert "stream_options" not in body("responses", stream=True)
    assert "stream_options" not in body("messages", stream=True, stream_options=own)
    for protocol in PROTOCOLS:
        sent = body(protocol, stream=True, stream_options=own, dropped=frozenset({"stream_options"}))
        assert "stream_options" not in sent
        assert sent["stream"] is True


# --- what a provider wants back

SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def decoded(decoder: Any, data: bytes, model: str = ME) -> Folded:
    """A turn with one reply, made of what a decoder said."""
    events: list[Event] = [*decoder.feed(data), *decoder.close()]
    assert decoder.failure is None, decoder.failure
    opening = a_reply(*events)[:2]
    folded = Folded()
    for event in (*opening, *events):
        folded.apply(event)
    folded.replies[1].model = model
    return folded


def anthropic_stream(*blocks: dict[str, Any], reason: str) -> bytes:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"model": "m", "usage": {}}}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}})
    return sse(*events, {"type": "message_stop"})


def test_signed_and_redacted_thinking_goes_back_unchanged_to_the_model_that_thought() -> None:
    called = {"type": "tool_use", "id": "t1", "name": "clock", "input": {"zone": "utc"}}
    data = anthropic_stream(SIGNED, REDACTED, called, reason="tool_use")
    history = decoded(messages_wire.Decoder(), data).messages()
    assert said("messages", *HELLO, *history)[1]["content"] == [SIGNED, REDACTED, called]
    elsewhere = decoded(messages_wire.Decoder(), data, OTHER).messages()
    assert said("messages", *HELLO, *elsewhere)[1]["content"] == [called]


@pytest.mark.parametrize("blocks", [(SIGNED,), (REDACTED,), ({"type": "text", "text": "Yes."}, SIGNED)])
def test_thinking_never_ends_a_message(blocks: tuple[dict[str, Any], ...]) -> None:
    """Anthropic refuses it, and a reply that reached its bound while it thought would spoil the session."""
    history = decoded(messages_wire.Decoder(), anthropic_stream(*blocks, reason="max_tokens")).messages()
    sent = said("messages", *HELLO, *history, user_message("Go on."))
    assert_valid_messages(sent)
    assert SIGNED not in sent[-1]["content"]


def responses_stream(*items: dict[str, Any], status: str = "completed") -> bytes:
    done = [
        {"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items)
    ]
    reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
    response = {"status": status, "incomplete_details": reason, "output": list(items)}
    return sse(*done, {"type": f"response.{status}", "response": response})


REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "ZW5j"}
PHASED = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
}
FUNCTION = {
    "id": "fc_1",
    "status": "completed",
    "type": "function_call",
    "call_id": "c1",
    "name": "clock",
    "arguments": "{ }",
}


def test_encrypted_reasoning_and_phases_go_back_unchanged_to_the_model_they_came_from() -> None:
    data = responses_stream({**REASONING, "status": None}, PHASED, FUNCTION)
    history = decoded(responses_wire.Decoder(), data).messages()
    assert said("responses", *history)[:3] == [REASONING, PHASED, FUNCTION]
    elsewhere = said("responses", *decoded(responses_wire.Decoder(), data, OTHER).messages())
    assert elsewhere[0] == {"role": "assistant", "content": "I look."}
    assert [item["type"] for item in elsewhere[1:]] == ["function_call", "function_call_output"]


def test_reasoning_without_what_followed_it_is_not_sent_back() -> None:
    data = responses_stream(PHASED, REASONING, status="incomplete")
    assert said("responses", *decoded(responses_wire.Decoder(), data).messages()) == [PHASED]


SIGNATURE = {"google": {"thought_signature": "c2ln"}}


def chat_stream(*deltas: dict[str, Any], finish: str) -> bytes:
    choices: list[dict[str, Any]] = [{"index": 0, "delta": d, "finish_reason": None} for d in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    return sse(*({"choices": [choice]} for choice in choices)) + b"data: [DONE]\n\n"


def gemini_call(tool_id: str) -> dict[str, Any]:
    function = {"name": "clock", "arguments": "{}"}
    return {
        "tool_calls": [{"id": tool_id, "type": "function", "function": function, "extra_content": SIGNATURE}]
    }


def test_thought_signatures_go_back_with_their_tool_calls() -> None:
    data = chat_stream(gemini_call("c1"), finish="tool_calls")
    call = said("chat_completions", *decoded(chat_wire.Decoder(), data).messages())[0]["tool_calls"][0]
    assert call["extra_content"] == SIGNATURE
    elsewhere = said("chat_completions", *decoded(chat_wire.Decoder(), data, OTHER).messages())
    assert "extra_content" not in elsewhere[0]["tool_calls"][0]


def test_a_renamed_call_keeps_what_its_provider_wants_back() -> None:
    """Gemini sends no ids, so every turn's first call has the same one; without its signature it is refused."""
    data = chat_stream(gemini_call(""), finish="tool_calls")
    turn = decoded(chat_wire.Decoder(), data).messages()
    calls = [
        m["tool_calls"][0] for m in said("chat_completions", *turn, *turn, *turn) if m["role"] == "assistant"
    ]
    assert len({call["id"] for call in calls}) == 3
    assert all(call["extra_content"] == SIGNATURE for call in calls)


def test_a_renamed_call_keeps_its_item_in_responses_and_messages() -> None:
    turn = decoded(responses_wire.Decoder(), responses_stream(FUNCTION)).messages()
    items = said("responses", *turn, *turn)
    assert [i["call_id"] for i in items] == ["c1", "c1", "c1_2", "c1_2"]
    assert items[2]["arguments"] == "{ }"
    called = {"type": "tool_use", "id": "t1", "name": "clock", "input": {}, "caller": {"type": "direct"}}
    turn = decoded(messages_wire.Decoder(), anthropic_stream(called, reason="tool_use")).messages()
    blocks = [m["content"][0] for m in said("messages", *turn, *turn)]
    assert blocks[2] == {**called, "id": "t1_2"}
    assert blocks[3]["tool_use_id"] == "t1_2"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_plain_reasoning_goes_back_with_tool_calls_alone(field: str) -> None:
    thought = {field: "Hm."}
    with_call = chat_stream(thought, gemini_call("c1"), finish="tool_calls")
    assert said("chat_completions", *decoded(chat_wire.Decoder(), with_call).messages())[0][field] == "Hm."
    without = chat_stream(thought, {"content": "Noon."}, finish="stop")
    assert field not in said("chat_completions", *decoded(chat_wire.Decoder(), without).messages())[0]


def test_reasoning_details_go_back_in_one_piece() -> None:
    def detail(text: str) -> dict[str, Any]:
        return {"type": "reasoning.text", "index": 0, "text": text}

    deltas = [{"reasoning": t, "reasoning_details": [detail(t)]} for t in ("Hm, ", "well.")]
    data = chat_stream(*deltas, {"content": "Noon."}, finish="stop")
    sent = said("chat_completions", *decoded(chat_wire.Decoder(), data).messages())[0]
    assert sent["reasoning_details"] == [detail("Hm, well.")]
    assert sent["content"] == "Noon."


def test_a_reply_that_only_thought_is_not_quoted() -> None:
    data = chat_stream({"reasoning_content": "Hm."}, finish="length")
    history = decoded(chat_wire.Decoder(), data).messages()
    assert said("chat_completions", *HELLO, *history, *HELLO) == said("chat_completions", *HELLO, *HELLO)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_arguments_that_are_no_object_go_back_as_an_empty_one(protocol: ProtocolName) -> None:
    sent = said(protocol, *HELLO, assistant(tool_call("c1", '{"cut')), tool_result("c1"))
    assert '{"cut' not in json.dumps(sent)


# --- conversations that were really held


async def held(lab: Bench, protocol: ProtocolName) -> tuple[Message, ...]:
    """A turn that was answered with two tool calls whose results never came, as the next call is told of it."""
    lab.server.enqueue(Script(CALLS))
    turn = await lab.run(lab.candidate(protocol), plan=RELAY, options=Options(tools=TOOLS))
    assert closed(turn).outcome == "tool_calls"
    return tuple(answered(turn.folded().messages()))


PARAMS: dict[ProtocolName, Any] = {
    "chat_completions": chat_params.CompletionCreateParamsNonStreaming,
    "responses": responses_params.ResponseCreateParamsNonStreaming,
    "messages": anthropic_params.MessageCreateParamsNonStreaming,
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_second_step_of_a_tool_conversation_is_what_the_sdk_would_send(
    protocol: ProtocolName,
) -> None:
    async with bench() as lab:
        history = await held(lab, protocol)
    sent = body(protocol, history, tools=TOOLS, max_tokens=100)
    assert_valid(protocol, sent)
    adapter = pydantic.TypeAdapter(PARAMS[protocol])
    adapter.dump_json(
        adapter.validate_python(sent), warnings=False
    )  # writing it reads what is checked lazily
    flat = json.dumps(sent)
    assert all(word in flat for word in ("Let me look.", "Oban", "weather", "clock", "was not run"))
    # What was thought goes back as it came.
    marks = {
        "chat_completions": "reasoning_content",
        "responses": "encrypted_content",
        "messages": "signature",
    }
    assert marks[protocol] in flat


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("other", PROTOCOLS)
async def test_a_conversation_goes_on_with_another_model_in_another_protocol(
    protocol: ProtocolName, other: ProtocolName
) -> None:
    async with bench() as lab:
        history = await held(lab, protocol)
        lab.server.enqueue(scenario("hello"))
        second = lab.candidate(other, name="elsewhere")
        await second.provider.attempt(Request(model="m", messages=history, tools=TOOLS), ids(), Deaf())
        sent = lab.server.requests[-1].body
    assert_valid(other, sent)
    assert not any(
        word in json.dumps(sent) for word in ("signature", 'encrypted_content":', "reasoning_content")
    )


def ids() -> Any:
    from headrace.ports import AttemptIds

    return AttemptIds(1)


class Deaf:
    def connected(self) -> None:
        pass

    def received(self, events: list[Event]) -> None:
        pass


async def test_a_turn_that_ended_within_odd_arguments_can_be_gone_on_with() -> None:
    async with bench() as lab:
        lab.server.enqueue(Script(Reply((CallTool("weather", '{"city": "Ob'),), finish="length")))
        turn = await lab.run(plan=RELAY, options=Options(tools=TOOLS))
        sent = body("chat_completions", (*turn.folded().messages(), *HELLO))
        assert_valid("chat_completions", sent)
        assert "tool_calls" not in json.dumps(sent)


# --- histories that are cut, dangling, repeated


def assert_valid(protocol: ProtocolName, sent: dict[str, Any]) -> None:
    match protocol:
        case "chat_completions":
            assert_valid_chat(sent["messages"])
        case "responses":
            assert_valid_input(sent["input"])
        case "messages":
            assert_valid_messages(sent["messages"])


def assert_valid_chat(messages: list[dict[str, Any]]) -> None:
    open_calls: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls
        if message["role"] == "assistant":
            calls = message.get("tool_calls", [])
            assert message["content"] or message.get("refusal") or calls
            open_calls = [call["id"] for call in calls]
            assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)
            assert len({*open_calls}) == len(open_calls)
            assert not seen & {*open_calls}
            seen |= {*open_calls}
    assert not open_calls


def assert_valid_input(items: list[dict[str, Any]]) -> None:
    called = [item["call_id"] for item in items if item.get("type") == "function_call"]
    answered = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert len({*called}) == len(called)
    assert called == answered
    for item, following in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") == "reasoning":
            assert following.get("type") in ("reasoning", "message", "function_call")
            assert following.get("role", "assistant") == "assistant"


def assert_valid_messages(messages: list[dict[str, Any]]) -> None:
    roles = [message["role"] for message in messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)
    open_calls: list[str] = []
    seen: set[str] = set()
    for message in messages:
        blocks = message["content"]
        assert blocks
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        assert results == open_calls
        open_calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
        assert len({*open_calls}) == len(open_calls)
        assert not seen & {*open_calls}
        seen |= {*open_calls}
        for block in blocks + [c for b in blocks for c in b.get("content", [])]:
            assert block["type"] != "text" or block["text"].strip()
        if message["role"] == "assistant":
            assert blocks[-1]["type"] not in ("thinking", "redacted_thinking")
    assert not open_calls


@given(st.lists(TURN, min_size=1, max_size=3), st.sampled_from(PROTOCOLS))
def test_any_history_makes_a_valid_request(turns: list[list[Event]], protocol: ProtocolName) -> None:
    """Cut replies, tools that never ran, replies of nothing: sessions hold all of it, with ids that repeat."""
    history: list[Message] = []
    for events in turns:
        folded = Folded()
        for event in events:
            folded.apply(event)
        history += folded.messages()
    assert_valid(protocol, body(protocol, (*history, user_message("And now?"))))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_tool_that_says_nothing_has_a_result_all_the_same(protocol: ProtocolName) -> None:
    history = (*HELLO, assistant(tool_call("c1")), tool_result("c1", ""))
    assert_valid(protocol, body(protocol, history))


def test_consecutive_messages_of_one_side_are_one_in_messages() -> None:
    sent = said(
        "messages",
        user_message("One."),
        user_message("Two."),
        assistant(ReplyPart("text", "Three.")),
        assistant(ReplyPart("text", "Four.")),
        user_message("Five."),
    )
    texts = [[block["text"] for block in message["content"]] for message in sent]
    assert texts == [["One.", "Two."], ["Three.", "Four."], ["Five."]]


def test_parts_that_an_earlier_item_covers_are_not_sent_twice() -> None:
    whole = json.dumps({"type": "text", "text": "All of it.", "citations": [{"n": 1}]})
    events: list[Event] = [*text_part(1, "All "), PartStarted(1, 2, "text"), PartGrew(1, 2, "of it.")]
    events = [*a_reply(*events[:2], PartClosed(1, 1, whole), *events[3:], PartClosed(1, 2, "{}"))]
    folded = Folded()
    for event in events:
        folded.apply(event)
    folded.replies[1].model = ME
    assert said("messages", *HELLO, *folded.messages())[1]["content"] == [json.loads(whole)]


IDS = st.sampled_from(["", "a", "a_2", "a_2_2", "call", "b"])


@given(st.lists(st.lists(IDS, max_size=4), max_size=5), st.randoms(use_true_random=False))
def test_ids_become_unique_and_every_result_keeps_its_call(replies: list[list[str]], chance: Any) -> None:
    """The result of every call says which it answers; calls that share an id are answered in their order."""
    history: list[Message] = []
    for number, asked in enumerate(replies):
        calls = [tool_call(tool_id, name=f"{number}.{n}") for n, tool_id in enumerate(asked)]
        history.append(assistant(*calls))
        results = [tool_result(call.tool_id, call.name) for call in calls]
        order = sorted(range(len(results)), key=lambda _: chance.random())
        by_id = {tool_id: iter([r for r in results if r.tool_id == tool_id]) for tool_id in {*asked}}
        history += [next(by_id[results[at].tool_id]) for at in order]
    out = distinct_tool_ids(history)
    names = {p.tool_id: p.name for m in out if isinstance(m, AssistantMessage) for p in m.parts}
    assert len(names) == sum(map(len, replies))
    assert "" not in names
    for message in out:
        if isinstance(message, ToolMessage):
            content = message.content[0]
            assert isinstance(content, TextContent)
            assert names[message.tool_id] == content.text


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=2, unique=True), max_size=3))
def test_ids_that_are_unique_stay_as_they_are(replies: list[list[str]]) -> None:
    asked = [f"{n}{tool_id}" for n, reply in enumerate(replies) for tool_id in reply]
    history = [m for tool_id in asked for m in (assistant(tool_call(tool_id)), tool_result(tool_id))]
    assert distinct_tool_ids(history) == history


def test_a_result_stays_with_its_call_across_a_reply_without_calls() -> None:
    call, result = assistant(tool_call("a")), tool_result("a")
    out = distinct_tool_ids([call, result, call, assistant(ReplyPart("text", "Wait.")), result])
    assert isinstance(out[-1], ToolMessage)
    assert out[-1].tool_id == "a_2"


async def test_what_is_sent_over_the_wire_is_what_was_encoded() -> None:
    async with bench() as lab:
        await lab.run(plan=RELAY, options=Options(tools=TOOLS, temperature=0.25))
        sent = lab.server.requests[0]
        assert sent.body == body("chat_completions", tools=TOOLS, temperature=0.25, stream=True)
        assert sent.headers["authorization"] == "Bearer key-of-the-lab"
        assert sent.headers["accept"] == "text/event-stream"
        assert sent.headers["user-agent"].startswith("headrace/")
        lab.server.enqueue(Script(Raw((b'{"choices":[]}',), "application/json")))
        await lab.run(lab.candidate(streams=False), plan=RELAY)
        assert lab.server.requests[1].headers["accept"] == "application/json"
        assert lab.server.requests[1].body == body("chat_completions")
