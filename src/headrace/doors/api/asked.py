"""What a request comes to, whichever of the endpoints it was put to."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headrace.events import AssistantMessage, Message, SystemMessage
from headrace.ports import ToolSpec
from headrace.runtime.question import Options

AGENT_MODEL: Final = "headrace"
"""The agent with its tools; every other model is a direct call."""


class Refused(Exception):
    """A request that is answered with an error before anything is begun."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str = "",
        code: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question as an endpoint has read it."""

    model: str
    """As the caller named it: `headrace`, or a direct model."""
    messages: tuple[Message, ...]
    """The conversation as it was sent."""
    options: Options = Options()
    """Parameters, tools, and in `prompt` the caller's instructions."""
    stream: bool = False
    include_usage: bool = False
    stored: bool = False
    background: bool = False
    previous: str = ""
    """The response this one follows."""
    echo: dict[str, Any] = {}
    """What the answer repeats of the request."""

    @property
    def acts(self) -> bool:
        """Whether the agent answers."""
        return self.model == AGENT_MODEL

    def told_apart(self) -> "Asked":
        """With the instructions out of the conversation and in the prompt, where they hold for this turn alone."""
        rules = tuple(message for message in self.messages if isinstance(message, SystemMessage))
        if not rules:
            return self
        options = msgspec.structs.replace(self.options, prompt=(*self.options.prompt, *rules))
        others = tuple(message for message in self.messages if not isinstance(message, SystemMessage))
        return msgspec.structs.replace(self, messages=others, options=options)

    def news(self) -> "Asked":
        """With the messages after the last answer alone: a session knows what was said before."""
        asked = self.told_apart()
        said = [n for n, message in enumerate(asked.messages) if isinstance(message, AssistantMessage)]
        messages = asked.messages[said[-1] + 1 :] if said else asked.messages
        return msgspec.structs.replace(asked, messages=messages)


def check_kept(session: str, *, kept: bool) -> None:
    """A session keeps what it is told."""
    if session and not kept:
        raise Refused(
            409,
            f"What is said in the session {session} is kept: leave out store, or the session.",
            param="store",
        )


def refuse_tools(tools: Sequence[ToolSpec]) -> None:
    """The agent runs tools of its own and takes none."""
    if tools:
        raise Refused(
            400,
            f"The model {AGENT_MODEL} runs tools of its own and takes none from callers. To have your tool calls "
            "returned, name a direct model; GET /v1/models lists them.",
            param="tools",
            code="unsupported_parameter",
        )
