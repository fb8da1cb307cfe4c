"""LiteLLM as a library, to an endpoint of OpenAI's kind."""

import os
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch a price list otherwise

import litellm

from tests.clients.drivers.speaking import PROMPT, TOOL, Answer, Asked, speak

litellm.suppress_debug_info = True


def _settings(asked: Asked) -> dict[str, Any]:
    return {
        "model": f"openai/{asked.model}",
        "api_base": asked.base_url,
        "api_key": asked.key,
        "num_retries": 0,
        "max_retries": 0,
        "timeout": 20,
    }


def _calls(message: Any) -> list[dict[str, str]]:
    return [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in message.tool_calls or []
    ]


def _ask(asked: Asked, **more: Any) -> Any:
    if "tools" in asked.mode:
        more["tools"] = [{"type": "function", "function": TOOL}]
    return litellm.completion(messages=[{"role": "user", "content": PROMPT}], **_settings(asked), **more)


def _show(whole: Any, answer: Answer) -> None:
    message, answer.finish = whole.choices[0].message, whole.choices[0].finish_reason
    answer.text = message.content or ""
    answer.reasoning = getattr(message, "reasoning_content", None) or ""
    answer.tool_calls = _calls(message)
    usage = getattr(whole, "usage", None)
    answer.usage = usage.model_dump() if usage else None


def chat(asked: Asked, answer: Answer) -> None:
    _show(_ask(asked), answer)


def chat_stream(asked: Asked, answer: Answer) -> None:
    chunks = []
    for chunk in _ask(asked, stream=True, stream_options={"include_usage": True}):
        chunks.append(chunk)
        for choice in chunk.choices:
            answer.text += choice.delta.content or ""
            answer.reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            answer.finish = choice.finish_reason or answer.finish
    built: Any = litellm.stream_chunk_builder(chunks)
    if built is not None:
        answer.tool_calls = _calls(built.choices[0].message)
        answer.usage = built.usage.model_dump()


def _response(response: Any, answer: Answer) -> None:
    answer.finish = response.status
    if response.incomplete_details:
        answer.finish = f"{response.status}: {response.incomplete_details.reason}"
    for item in response.output:
        if item.type == "message":
            answer.text += "".join(part.text or "" for part in item.content)
        if item.type == "function_call":
            answer.tool_calls.append({"id": item.call_id, "name": item.name, "arguments": item.arguments})
    answer.usage = response.usage.model_dump() if response.usage else None
    if response.status == "failed":
        answer.failed("status", str(response.error))


def _respond(asked: Asked, **more: Any) -> Any:
    if "tools" in asked.mode:
        more["tools"] = [{"type": "function", "strict": False, **TOOL}]
    return litellm.responses(input=PROMPT, **_settings(asked), **more)


def responses(asked: Asked, answer: Answer) -> None:
    _response(_respond(asked), answer)


def responses_stream(asked: Asked, answer: Answer) -> None:
    # Of a model it has never heard of it asks for the whole answer, and plays a stream from it.
    known = {"litellm_provider": "openai", "mode": "responses", "supports_native_streaming": True}
    litellm.register_model({asked.model: known})
    said = ""
    for event in _respond(asked, stream=True):
        kind = str(getattr(event.type, "value", event.type))
        if kind == "response.output_text.delta":
            said += event.delta
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            _response(event.response, answer)
        elif kind == "error":
            answer.failed("event", str(event))
        answer.text = said


if __name__ == "__main__":
    speak(
        {
            "chat": chat,
            "chat-stream": chat_stream,
            "chat-tools": chat,
            "chat-tools-stream": chat_stream,
            "responses": responses,
            "responses-stream": responses_stream,
            "responses-tools": responses,
            "responses-tools-stream": responses_stream,
        }
    )
