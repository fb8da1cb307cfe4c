"""LangChain's `ChatOpenAI`."""

from typing import Any

from langchain_openai import ChatOpenAI

from tests.clients.drivers.speaking import PROMPT, TOOL, Answer, Asked, speak


def _model(asked: Asked, tools: bool) -> Any:
    model = ChatOpenAI(
        base_url=asked.base_url,
        api_key=asked.key,  # type: ignore[arg-type, unused-ignore]
        model=asked.model,
        max_retries=0,
        timeout=20,
        stream_usage=True,
        use_responses_api=asked.mode.startswith("responses"),
        output_version="v0",
    )
    return model.bind_tools([{"type": "function", "function": TOOL}]) if tools else model


def _show(message: Any, answer: Answer) -> None:
    answer.text = message.text if isinstance(message.text, str) else message.text()
    answer.reasoning = str(message.additional_kwargs.get("reasoning_content", ""))
    told = message.response_metadata
    answer.finish = told.get("finish_reason") or told.get("status")
    if details := told.get("incomplete_details"):
        answer.finish = f"{answer.finish}: {details.get('reason')}"
    answer.tool_calls = [
        {"id": call["id"] or "", "name": call["name"], "arguments": str(call["args"])}
        for call in message.tool_calls
    ]
    answer.usage = dict(message.usage_metadata) if message.usage_metadata else None


def whole(asked: Asked, answer: Answer) -> None:
    _show(_model(asked, "tools" in asked.mode).invoke(PROMPT), answer)


def stream(asked: Asked, answer: Answer) -> None:
    gathered = None
    for chunk in _model(asked, "tools" in asked.mode).stream(PROMPT):
        gathered = chunk if gathered is None else gathered + chunk
        _show(gathered, answer)


if __name__ == "__main__":
    kinds = ("chat", "chat-tools", "responses", "responses-tools")
    speak({**dict.fromkeys(kinds, whole), **{f"{kind}-stream": stream for kind in kinds}})
