"""What the model server sends when nothing goes wrong, to the providers' own SDKs and byte for byte."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.testing.modelserver import (
    Drip,
    ModelServer,
    Raw,
    Refuse,
    Reply,
    Say,
    Script,
)
from tests.modelclient import REPLY, TEXT, USER, anthropic_sdk, ask, openai_sdk, see


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


# --- the official SDKs -------------------------------------------------------------------------------------


async def test_chat_completions_whole(server: ModelServer) -> None:
    server.enqueue(Script(REPLY))
    async with openai_sdk(server) as client:
        got = await client.chat.completions.create(model="gpt-x", messages=USER)
    message = got.choices[0].message
    assert (got.model, message.content, got.choices[0].finish_reason) == ("gpt-x", TEXT, "tool_calls")
    assert message.model_extra is not None
    assert message.model_extra["reasoning_content"] == "First I think."
    calls: list[Any] = message.tool_calls or []
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        ("call_1", "weather", '{"city": "Kinlochleven"}'),
        ("call_of_mine", "clock", '{"zone": "UTC"}'),
    ]
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.total_tokens) == (100, 50, 150)


async def test_chat_completions_streamed(server: ModelServer) -> None:
    server.enqueue(Script(REPLY))
    chunks: list[Any] = []
    async with openai_sdk(server) as client:
        stream = await client.chat.completions.create(
            model="gpt-x", messages=USER, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == TEXT
    reasoning = [(delta.model_extra or {}).get("reasoning_content", "") for delta in deltas]
    assert "".join(reasoning) == "First I think."
    arguments = {0: "", 1: ""}
    for call in [call for delta in deltas for call in delta.tool_calls or []]:
        arguments[call.index] += call.function.arguments
    assert arguments == {0: '{"city": "Kinlochleven"}', 1: '{"zone": "UTC"}'}
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 150


async def test_chat_completions_stream_helper_rebuilds_the_whole_answer(server: ModelServer) -> None:
    server.enqueue(Script(REPLY))
    async with (
        openai_sdk(server) as client,
        client.chat.completions.stream(model="gpt-x", messages=USER) as stream,
    ):
        message = (await stream.get_final_completion()).choices[0].message
    assert message.content == TEXT
    calls: list[Any] = message.tool_calls or []
    assert [call.function.name for call in calls] == ["weather", "clock"]


async def test_usage_comes_only_if_asked_for(server: ModelServer) -> None:
    seen = await ask(server, Script(REPLY), "chat_completions", stream=True)
    assert seen.events[-1] == "[DONE]"
    assert not any("usage" in event for event in seen.events[:-1])


async def test_responses_whole(server: ModelServer) -> None:
    server.enqueue(Script(REPLY))
    async with openai_sdk(server) as client:
        got = await client.responses.create(model="gpt-x", input="How is the weather?")
    assert (got.status, got.output_text) == ("completed", TEXT)
    assert [item.type for item in got.output] == ["reasoning", "message", "function_call", "function_call"]
    reasoning: Any = got.output[0]
    assert (reasoning.summary[0].text, reasoning.encrypted_content) == ("First I think.", "sig==")
    assert got.usage is not None
    assert got.usage.output_tokens_details.reasoning_tokens == 7


async def test_responses_streamed(server: ModelServer) -> None:
    server.enqueue(Script(REPLY))
    async with openai_sdk(server) as client:
        stream = await client.responses.create(model="gpt-x", input="Hello", stream=True)
        events: list[Any] = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    # Every event was understood as its own type, not as some neighbour in the union.
    assert all(type(event).model_fields["type"].annotation.__args__[0] == event.type for event in events)
    by_type = {event.type: [e for e in events if e.type == event.type] for event in events}
    assert "".join(event.delta for event in by_type["response.output_text.delta"]) == TEXT
    thought = "".join(event.delta for event in by_type["response.reasoning_summary_text.delta"])
    assert thought == "First I think."
    assert by_type["response.function_call_arguments.done"][0].arguments == '{"city": "Kinlochleven"}'
    assert by_type["response.output_item.done"][0].item.encrypted_content == "sig=="
    ended = events[-1].response
    assert [item.type for item in ended.output] == ["reasoning", "message", "function_call", "function_call"]
    assert ended.usage.total_tokens == 150
    done = [event.item for event in by_type["response.output_item.done"]]
    assert [item.model_dump() for item in done] == [item.model_dump() for item in ended.output]


async def test_responses_stream_helper_rebuilds_the_whole_answer(server: ModelServer) -> None:
    server.enqueue(Script(REPLY))
    async with openai_sdk(server) as client, client.responses.stream(model="g", input="Hi") as stream:
        got = await stream.get_final_response()
    assert got.output_text == TEXT


async def test_messages_whole(server: ModelServer) -> None:
    server.enqueue(Script(REPLY))
    async with anthropic_sdk(server) as client:
        got = await client.messages.create(model="claude-x", max_tokens=99, messages=USER)
    check_message(got)


async def test_messages_streamed(server: ModelServer) -> None:
    server.enqueue(Script(REPLY))
    async with (
        anthropic_sdk(server) as client,
        client.messages.stream(model="claude-x", max_tokens=99, messages=USER) as stream,
    ):
        check_message(await stream.get_final_message())


def check_message(got: Any) -> None:
    thinking, text, weather, clock = got.content
    assert (thinking.thinking, thinking.signature) == ("First I think.", "sig==")
    assert text.text == TEXT
    assert (weather.id, weather.name, weather.input) == ("toolu_3", "weather", {"city": "Kinlochleven"})
    assert (clock.id, clock.input) == ("call_of_mine", {"zone": "UTC"})
    assert (got.stop_reason, got.model) == ("tool_use", "claude-x")
    assert (got.usage.input_tokens, got.usage.cache_read_input_tokens) == (70, 30)
    assert got.usage.output_tokens == 50


async def test_models_are_listed_for_both_sdks(server: ModelServer) -> None:
    async with openai_sdk(server) as client:
        assert "script:hello" in [model.id async for model in client.models.list()]
    async with anthropic_sdk(server) as claude:
        assert "script:hello" in [model.id async for model in claude.models.list()]


@pytest.mark.parametrize("stream", [False, True])
async def test_refusals(server: ModelServer, *, stream: bool) -> None:
    server.default = Script(Reply((Refuse("I would rather not."),)))
    async with openai_sdk(server) as client:
        got: Any = await client.responses.create(model="g", input="Hi", stream=stream)
        if stream:
            *_, last = [event async for event in got]
            got = last.response
        assert got.output[0].content[0].refusal == "I would rather not."
    chat = await see(server, "chat_completions", stream=stream)
    if stream:
        refused = [event["choices"][0]["delta"].get("refusal") for event in chat.events[:-1]]
        assert "".join(text or "" for text in refused) == "I would rather not."
    else:
        assert chat.json["choices"][0]["message"]["refusal"] == "I would rather not."
    message = await see(server, "messages", stream=stream)
    assert b'"refusal"' in message.data


@pytest.mark.parametrize(
    ("protocol", "marks"),
    [
        ("chat_completions", b'"finish_reason":"length"'),
        ("responses", b'"incomplete_details":{"reason":"max_output_tokens"}'),
        ("messages", b'"stop_reason":"max_tokens"'),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_end_reason_is_translated(
    server: ModelServer, protocol: str, marks: bytes, *, stream: bool
) -> None:
    seen = await ask(server, Script(Reply((Say("and"),), finish="length")), protocol, stream=stream)
    assert marks in seen.data


async def test_another_finish_is_sent_as_it_is(server: ModelServer) -> None:
    seen = await ask(server, Script(Reply(finish="network_error")), "chat_completions", stream=True)
    assert seen.events[-2]["choices"][0]["finish_reason"] == "network_error"


# --- exactly these bytes -----------------------------------------------------------------------------------


async def test_a_chat_completions_stream_byte_for_byte(server: ModelServer) -> None:
    seen = await ask(server, Script(Reply((Say("Hey"),))), "chat_completions", stream=True)
    head = '{"id":"chatcmpl-scripted","object":"chat.completion.chunk","created":1760000000,"model":"m"'
    tail = '"logprobs":null,"finish_reason"'
    opened = '{"role":"assistant","content":"","refusal":null}'
    assert seen.data.decode() == (
        f'data: {head},"choices":[{{"index":0,"delta":{opened},{tail}:null}}]}}\n\n'
        f'data: {head},"choices":[{{"index":0,"delta":{{"content":"Hey"}},{tail}:null}}]}}\n\n'
        f'data: {head},"choices":[{{"index":0,"delta":{{}},{tail}:"stop"}}]}}\n\n'
        "data: [DONE]\n\n"
    )
    assert "content-type: text/event-stream" in seen.head.lower()
    assert seen.terminated


async def test_a_messages_stream_event_by_event(server: ModelServer) -> None:
    seen = await ask(server, Script(Reply((Say("Hey"),))), "messages", stream=True)
    names = [line[7:].decode() for line in seen.data.split(b"\n") if line.startswith(b"event: ")]
    assert names == [event["type"] for event in seen.events]
    assert names == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_a_raw_script_is_served_as_it_is(server: ModelServer) -> None:
    raw = Raw((b"data: {", b'"a":1}\n', b"\n\xff"), content_type="text/x-odd", status=207)
    seen = await ask(server, Script(raw), "messages", stream=True)
    assert (seen.status, seen.data) == (207, b'data: {"a":1}\n\n\xff')
    assert "text/x-odd" in seen.head
    assert seen.body == b'7\r\ndata: {\r\n7\r\n"a":1}\n\r\n2\r\n\n\xff\r\n0\r\n\r\n'


async def test_a_raw_script_can_break_off(server: ModelServer) -> None:
    seen = await ask(server, Script(Raw((b"data: {",), end="rst")), "messages")
    assert seen.reset
    assert seen.body == b"7\r\ndata: {\r\n"


async def test_a_drip_is_one_byte_in_each_chunk(server: ModelServer) -> None:
    plain = await ask(server, Script(), "chat_completions", stream=True)
    seen = await ask(server, Script(fault=Drip()), "chat_completions", stream=True)
    assert seen.data == plain.data
    assert seen.body == b"".join(b"1\r\n%c\r\n" % byte for byte in plain.data) + b"0\r\n\r\n"


async def test_explicit_deltas_are_not_cut_again(server: ModelServer) -> None:
    seen = await ask(server, Script(Reply((Say(("Hel", "", "lo there")),))), "messages", stream=True)
    deltas = [event["delta"]["text"] for event in seen.events if event["type"] == "content_block_delta"]
    assert deltas == ["Hel", "", "lo there"]
