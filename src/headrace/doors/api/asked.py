"""What a request comes to, whichever of the endpoints it was put to."""

import msgspec

from headrace.events import Message
from headrace.runtime.question import Options

AGENT_MODEL = "headrace"
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
    """The conversation as it was sent, without its instructions."""
    options: Options = Options()
    """Parameters, tools, and in `prompt` the caller's instructions."""
    stream: bool = False
    include_usage: bool = False
    stored: bool = False
    background: bool = False
    previous: str = ""
    """The response this one follows."""

    @property
    def acts(self) -> bool:
        """Whether the agent answers."""
        return self.model == AGENT_MODEL
