"""Pydantic AI: an agent, which asks again after a tool unless it is told to hand calls back."""

import asyncio
from typing import Any

from openai import AsyncOpenAI
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from tests.clients.drivers.speaking import PROMPT, TOOL, Answer, Asked, speak


def _agent(asked: Asked) -> Any:
    client = AsyncOpenAI(base_url=asked.base_url, api_key=asked.key, max_retries=0, timeout=20)
    provider = OpenAIProvider(openai_client=client)
    kind = OpenAIResponsesModel if asked.mode.startswith("responses") else OpenAIChatModel
    model = kind(asked.model, provider=provider)
    if "tools" not in asked.mode:
        return Agent(model, retries=0)
    weather = ToolDefinition(
        name=str(TOOL["name"]),
        description=str(TOOL["description"]),
        parameters_json_schema=dict(TOOL["parameters"]),  # type: ignore[arg-type, unused-ignore]
    )
    return Agent(
        model, retries=0, toolsets=[ExternalToolset([weather])], output_type=[str, DeferredToolRequests]
    )


def _show(response: ModelResponse, answer: Answer) -> None:
    answer.text = response.text or ""
    answer.reasoning = response.thinking or ""
    answer.finish = response.finish_reason
    answer.tool_calls = [
        {"id": call.tool_call_id, "name": call.tool_name, "arguments": call.args_as_json_str()}
        for call in response.tool_calls
    ]
    usage = response.usage
    answer.usage = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}


async def _whole(asked: Asked, answer: Answer) -> None:
    _show((await _agent(asked).run(PROMPT)).response, answer)


async def _stream(asked: Asked, answer: Answer) -> None:
    async with _agent(asked).run_stream(PROMPT) as result:
        async for response in result.stream_response(debounce_by=None):
            _show(response, answer)
        _show(result.response, answer)


def whole(asked: Asked, answer: Answer) -> None:
    asyncio.run(_whole(asked, answer))


def stream(asked: Asked, answer: Answer) -> None:
    asyncio.run(_stream(asked, answer))


if __name__ == "__main__":
    kinds = ("chat", "chat-tools", "responses", "responses-tools")
    speak({**dict.fromkeys(kinds, whole), **{f"{kind}-stream": stream for kind in kinds}})
