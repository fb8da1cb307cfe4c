"""The official SDK for Python."""

from typing import Any

from openai import OpenAI

from tests.clients.drivers.speaking import PROMPT, TOOL, Answer, Asked, speak

MESSAGES: Any = [{"role": "user", "content": PROMPT}]
CHAT_TOOL: Any = {"type": "function", "function": TOOL}
RESPONSES_TOOL: Any = {"type": "function", "strict": False, **TOOL}


def client(asked: Asked) -> OpenAI:
    return OpenAI(base_url=asked.base_url, api_key=asked.key, max_retries=0, timeout=20)


def chat(asked: Asked, answer: Answer, **more: Any) -> None:
    whole = client(asked).chat.completions.create(model=asked.model, messages=MESSAGES, **more)
    message, answer.finish = whole.choices[0].message, whole.choices[0].finish_reason
    answer.text = message.content or ""
    answer.reasoning = getattr(message, "reasoning_content", None) or ""
    answer.tool_calls = [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in message.tool_calls or []
        if call.type == "function"
    ]
    answer.usage = whole.usage.to_dict() if whole.usage else None


def chat_tools(asked: Asked, answer: Answer) -> None:
    chat(asked, answer, tools=[CHAT_TOOL])


def chat_stream(asked: Asked, answer: Answer, **more: Any) -> None:
    stream = client(asked).chat.completions.create(
        model=asked.model, messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **more
    )
    for chunk in stream:
        if chunk.usage:
            answer.usage = chunk.usage.to_dict()
        for choice in chunk.choices:
            answer.text += choice.delta.content or ""
            answer.reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            for call in choice.delta.tool_calls or []:
                if call.index == len(answer.tool_calls):
                    answer.tool_calls.append({"id": call.id or "", "name": "", "arguments": ""})
                if call.function:
                    answer.tool_calls[call.index]["name"] += call.function.name or ""
                    answer.tool_calls[call.index]["arguments"] += call.function.arguments or ""
            answer.finish = choice.finish_reason or answer.finish


def chat_tools_stream(asked: Asked, answer: Answer) -> None:
    chat_stream(asked, answer, tools=[CHAT_TOOL])


def chat_helper(asked: Asked, answer: Answer) -> None:
    """`.stream()`, which builds the answer beside handing on events."""
    with client(asked).chat.completions.stream(model=asked.model, messages=MESSAGES) as stream:
        for event in stream:
            if event.type == "content.delta":
                answer.text += event.delta
        whole = stream.get_final_completion()
    answer.finish = whole.choices[0].finish_reason
    assert (whole.choices[0].message.content or "") == answer.text


def _whole_response(response: Any, answer: Answer) -> None:
    answer.text = response.output_text
    answer.finish = response.status
    if response.incomplete_details:
        answer.finish = f"{response.status}: {response.incomplete_details.reason}"
    for item in response.output:
        if item.type == "function_call":
            answer.tool_calls.append({"id": item.call_id, "name": item.name, "arguments": item.arguments})
        if item.type == "reasoning":
            answer.reasoning = "".join(part.text for part in item.content or item.summary)
    answer.usage = response.usage.to_dict() if response.usage else None
    if response.status == "failed":
        answer.failed("status", response.error.message if response.error else "")


def responses(asked: Asked, answer: Answer, **more: Any) -> None:
    _whole_response(client(asked).responses.create(model=asked.model, input=PROMPT, **more), answer)


def responses_tools(asked: Asked, answer: Answer) -> None:
    responses(asked, answer, tools=[RESPONSES_TOOL])


def _events(stream: Any, answer: Answer, *, whole: bool = True) -> None:
    said = ""
    for event in stream:
        if event.type == "response.output_text.delta":
            said += event.delta
        elif event.type == "response.failed":
            _whole_response(event.response, answer)
        elif event.type in ("response.completed", "response.incomplete"):
            _whole_response(event.response, answer)
            assert answer.text == said or not whole, "the last event holds another text than was streamed"
        elif event.type == "error":
            answer.failed("event", event.message)
        answer.text = said


def responses_stream(asked: Asked, answer: Answer, **more: Any) -> None:
    _events(client(asked).responses.create(model=asked.model, input=PROMPT, stream=True, **more), answer)


def responses_tools_stream(asked: Asked, answer: Answer) -> None:
    responses_stream(asked, answer, tools=[RESPONSES_TOOL])


def responses_helper(asked: Asked, answer: Answer) -> None:
    with client(asked).responses.stream(model=asked.model, input=PROMPT) as stream:
        _events(stream, answer)


def resume(asked: Asked, answer: Answer) -> None:
    """Leave a stored response after its first event, and follow it from a cursor; `usage` tells which numbers came."""
    api = client(asked).responses
    with api.create(model=asked.model, input=PROMPT, stream=True, store=True, background=True) as begun:
        first: Any = next(iter(begun))
    numbers: list[int] = []

    def numbered(stream: Any) -> Any:
        for event in stream:
            numbers.append(event.sequence_number)
            yield event

    cursor: Any = {} if asked.starting_after is None else {"starting_after": asked.starting_after}
    rest = api.retrieve(first.response.id, stream=True, **cursor)
    _events(numbered(rest), answer, whole=False)
    answer.usage = {"numbers": numbers}


if __name__ == "__main__":
    speak(
        {
            "chat": chat,
            "chat-stream": chat_stream,
            "chat-helper": chat_helper,
            "chat-tools": chat_tools,
            "chat-tools-stream": chat_tools_stream,
            "responses": responses,
            "responses-stream": responses_stream,
            "responses-helper": responses_helper,
            "responses-tools": responses_tools,
            "responses-tools-stream": responses_tools_stream,
            "resume": resume,
        }
    )
