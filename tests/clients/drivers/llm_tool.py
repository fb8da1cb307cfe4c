"""Simon Willison's `llm`, configured as its users configure it: `extra-openai-models.yaml` in its folder."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

_home = tempfile.TemporaryDirectory()
os.environ["LLM_USER_PATH"] = _home.name

import llm  # noqa: E402

from tests.clients.drivers.speaking import PROMPT, TOOL, Answer, Asked, speak  # noqa: E402


def ask(asked: Asked, answer: Answer) -> None:
    Path(_home.name, "keys.json").write_text(json.dumps({"headrace": asked.key}), encoding="utf-8")
    entry = {
        "model_id": "asked",
        "model_name": asked.model,
        "api_base": asked.base_url,
        "api_key_name": "headrace",
        "supports_tools": True,
        "responses": asked.mode.startswith("responses"),
    }
    # JSON is YAML.
    Path(_home.name, "extra-openai-models.yaml").write_text(json.dumps([entry]), encoding="utf-8")
    tools = (
        [llm.Tool(TOOL["name"], TOOL["description"], TOOL["parameters"])] if "tools" in asked.mode else None
    )
    response = llm.get_model("asked").prompt(PROMPT, stream=asked.mode.endswith("stream"), tools=tools)
    for event in response.stream_events():
        if event.type == "text":
            answer.text += event.chunk
        elif event.type == "reasoning":
            answer.reasoning += event.chunk
    answer.tool_calls = [
        {"id": call.tool_call_id or "", "name": call.name, "arguments": json.dumps(call.arguments)}
        for call in response.tool_calls()
    ]
    told: dict[str, Any] = response.response_json or {}
    answer.finish = told.get("finish_reason") or told.get("status")
    for choice in told.get("choices", []):
        answer.finish = choice.get("finish_reason")
    usage = response.usage()
    answer.usage = {"input": usage.input, "output": usage.output} if usage.input is not None else None


if __name__ == "__main__":
    kinds = ("chat", "chat-tools", "responses", "responses-tools")
    speak(dict.fromkeys([*kinds, *(f"{kind}-stream" for kind in kinds)], ask))
