"""Asking the person: the question goes to whoever watches the turn, and the turn goes on without an answer."""

from collections.abc import Mapping
from typing import Any

from headrace.ports import ToolResult, ToolRun, Touch
from headrace.tools.answers import Stateless, answering, described


class Clarify(Stateless):
    spec = described(
        "clarify",
        "Ask the person one question, when the answer changes what you do and you cannot find it out yourself.",
        optional=1,
        question={"type": "string", "minLength": 1},
        choices={
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "maxItems": 8,
            "description": "Answers to choose from, if there are obvious ones; another may be given all the same.",
        },
    )
    only_reads = False

    def touches(self, arguments: Mapping[str, Any]) -> Touch:
        return Touch("ask", arguments["question"])

    @answering
    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        answer = await run.ask(arguments["question"], tuple(arguments.get("choices", ())))
        if answer is None:
            return ToolResult(
                "Nobody answered. Use your best judgement, go on, and say what you assumed.",
                detail="no answer",
            )
        return ToolResult(answer or "(an empty answer)", detail=answer)
