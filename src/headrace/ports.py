"""What the rooms ask of each other: Protocols, and the values that pass through them.

An adapter implements a port and knows nothing of who calls it; `runtime` calls ports and knows no adapter.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import msgspec

from headrace.events import Event, Message, Recorded
from headrace.wire.dialect import PLAIN, Dialect

ProtocolName = Literal["chat_completions", "responses", "messages"]


class Clock(Protocol):
    """Where every room that is not pure takes its time from."""

    def now(self) -> float:
        """Seconds since 1970, for people and for `Recorded.at`."""

    def monotonic(self) -> float:
        """Seconds that only move forward, for everything that is measured."""

    async def sleep(self, delay_s: float) -> None: ...

    def timeout(self, delay_s: float | None) -> "Deadline":
        """For `async with`: cancels what is within when the time is over and raises TimeoutError instead."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> "Timer":
        """Call back once, unless the timer is cancelled first."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Deadline(Protocol):
    """An end of time that can be moved."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def expire(self) -> None:
        """The time is over now."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model is told of it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments object."""
    strict: bool | None = None
    """Whether a provider that can is to hold the arguments to it; None leaves it to the provider."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a model, in nobody's wire format."""

    model: str
    """The name its provider knows."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    stream: bool = True
    stream_options: Mapping[str, Any] | None = None
    """The caller's own, forwarded as they are; None lets the adapter choose."""
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    extra: Mapping[str, Any] = {}
    """Further parameters under the names of chat completions; an adapter translates or refuses each."""
    dialect: Dialect = PLAIN
    dropped: frozenset[str] = frozenset()
    """Parameters this provider has refused; they are left out, or put differently."""
    key: int = 0
    """Which of the provider's keys to use, counted round."""


class AttemptIds(msgspec.Struct, frozen=True):
    """The numbers an attempt's events carry."""

    call: int
    first_part: int = 1


class Sink(Protocol):
    """Where an attempt's signs of life go."""

    def connected(self) -> None:
        """The request is on its way."""

    def received(self, events: list[Event]) -> None:
        """One socket read and what it decoded to, possibly nothing."""


class Provider(Protocol):
    """One configured endpoint, spoken to in one protocol. It opens requests; it owns no retries."""

    @property
    def name(self) -> str: ...

    @property
    def key_count(self) -> int:
        """How many keys there are to rotate through."""

    async def attempt(self, request: Request, ids: AttemptIds, sink: Sink) -> None:
        """Put the question once. Returns after `ReplyEnded` went to the sink; raises CallError otherwise.

        Cancelling it closes the connection before the cancellation leaves.
        """
        ...

    async def close(self) -> None: ...


class Store(Protocol):
    """Where the logs of sessions outlive the process."""

    def recent_turns(self, session: str, most_chars: int) -> list[list[Recorded]]:
        """The logs of the latest turns that take so much of a model's context, newest last; of an open one always.

        To be folded: growth of a closed turn may come in one event where it was many.
        """

    def append(self, session: str, batch: Sequence[Recorded]) -> None:
        """Write down what happened; what has been written survives the process."""


class ContextFile(msgspec.Struct, frozen=True):
    """Notes for the agent that somebody has written beside the work."""

    path: str
    text: str


class Touch(msgspec.Struct, frozen=True):
    """What a tool call would lay hands on: what rules and people decide about."""

    kind: Literal["nothing", "read", "write", "run", "fetch", "remember", "ask"]
    target: str = ""
    """A path as the model wrote it, a command, or an address."""


class ToolResult(msgspec.Struct, frozen=True):
    text: str
    """What the model is told; bounded by the tool."""
    ok: bool = True
    detail: str = ""
    """What people are shown beside it: a diff, a summary."""


class ToolRun(Protocol):
    """What one run of a tool may use, passed as values: nothing comes from globals."""

    @property
    def folder(self) -> Path:
        """The working folder, resolved."""

    @property
    def target(self) -> Path:
        """What the path of the call's touch meant when the call was judged, free of links: use this one, and follow
        no link on the way to it. The working folder where the touch is about no path."""

    @property
    def owner(self) -> Hashable:
        """Whose run it is. What outlives a run is for later runs of the same owner alone."""

    @property
    def home(self) -> Path:
        """Where headrace keeps what is the person's own."""

    @property
    def env(self) -> Mapping[str, str]:
        """For child processes: without any provider's key or token."""

    @property
    def clock(self) -> Clock: ...

    def printed(self, text: str) -> None:
        """Show output as it comes."""

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str | None:
        """Put a question to the person; None if nobody answered in time or nobody is there."""

    def when_stopped(self, end: Callable[[], Awaitable[None]]) -> None:
        """What has to end as well when the turn is stopped, although this run may be over by then."""


class Tool(Protocol):
    """One thing a model can do. Small, stateless between runs unless its theory of operation says otherwise."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def only_reads(self) -> bool:
        """Whether runs may go side by side."""

    def touches(self, arguments: Mapping[str, Any]) -> Touch: ...

    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        """Do it. Cancelling it ends everything it has started. Only whole, schema-valid arguments arrive here."""

    async def close(self) -> None:
        """End everything that outlives runs, such as background processes."""
