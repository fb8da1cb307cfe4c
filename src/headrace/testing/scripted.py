"""A provider without a network: it answers from a list, the same way every time.

Theory of operation. Each request takes the next answer of the list and turns its reply into the events that a
decoder would make of it, one batch for each. With the list used up it says so and repeats the question, so that
headrace can be tried, and shown, without any model. Between two batches it gives way to the event loop, and
waits if the answer has a pace, so it can be cancelled after any event.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, get_args

from headrace.errors import CallError, Cause
from headrace.events import (
    EndReason,
    Event,
    PartClosed,
    PartGrew,
    PartKind,
    PartStarted,
    ReplyEnded,
    TextContent,
    UsageReported,
    UserMessage,
)
from headrace.ports import AttemptIds, Clock, Request, Sink
from headrace.testing.scripts import CallTool, Part, Refuse, Reply, Say, Think

_REASONS: Final[dict[str, EndReason]] = {reason: reason for reason in get_args(EndReason)}


@dataclass(frozen=True, slots=True)
class Fail:
    """After so many events the attempt raises CallError."""

    cause: Cause
    after_events: int = 0


@dataclass(frozen=True, slots=True)
class Hang:
    """After so many events nothing comes any more, until the attempt is cancelled."""

    after_events: int = 0


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    reply: Reply
    fault: Fail | Hang | None = None
    pace_s: float = 0.0
    """Before each delta."""

    def __post_init__(self) -> None:
        if self.reply.end not in _REASONS:
            raise ValueError(f"`{self.reply.end}` is no end reason; there are: {', '.join(_REASONS)}")
        events = sum(1 for _ in _events(self.reply, AttemptIds(call=1), ""))
        if self.fault is not None and self.fault.after_events >= events:
            raise ValueError(f"the reply ends with event number {events}; the fault would come too late")


class ScriptedProvider:
    """A `Provider` for tests and demonstrations."""

    def __init__(
        self,
        answers: Iterable[ScriptedAnswer | Reply] = (),
        *,
        clock: Clock | None = None,
        name: str = "scripted",
    ) -> None:
        """An answer that has a pace needs a clock."""
        self._name = name
        self._clock = clock
        self._answers: deque[ScriptedAnswer] = deque()
        self.requests: list[Request] = []
        self.closed = False
        self.enqueue(*answers)

    @property
    def name(self) -> str:
        return self._name

    @property
    def key_count(self) -> int:
        return 0

    def enqueue(self, *answers: ScriptedAnswer | Reply) -> None:
        for answer in answers:
            scripted = ScriptedAnswer(answer) if isinstance(answer, Reply) else answer
            if scripted.pace_s and self._clock is None:
                raise ValueError("an answer with a pace needs a clock")
            self._answers.append(scripted)

    async def attempt(self, request: Request, ids: AttemptIds, sink: Sink) -> None:
        self.requests.append(request)
        answer = self._answers.popleft() if self._answers else ScriptedAnswer(echo(request))
        sink.connected()
        for number, event in enumerate(_events(answer.reply, ids, request.model)):
            if answer.fault is not None and number == answer.fault.after_events:
                await _befall(answer.fault)
            await self._give_way(answer.pace_s if isinstance(event, PartGrew) else 0.0)
            sink.received([event])

    async def close(self) -> None:
        self.closed = True

    async def _give_way(self, pace_s: float) -> None:
        if pace_s and self._clock is not None:
            await self._clock.sleep(pace_s)
        else:
            await asyncio.sleep(0)


def echo(request: Request) -> Reply:
    """What is said when nothing is scripted."""
    question = next(
        (message for message in reversed(request.messages) if isinstance(message, UserMessage)), None
    )
    content = question.content if question else ()
    asked = "".join(part.text for part in content if isinstance(part, TextContent))
    text = "This is the scripted provider: no model was asked, and no answer is scripted."
    return Reply((Say(f"{text} You said: {asked}" if asked else text),))


async def _befall(fault: Fail | Hang) -> None:
    if isinstance(fault, Fail):
        raise CallError(fault.cause)
    await asyncio.get_running_loop().create_future()


def _events(reply: Reply, ids: AttemptIds, model: str) -> Iterator[Event]:
    call = ids.call
    for number, part in enumerate(reply.parts, ids.first_part):
        yield _started(part, call, number)
        for delta in reply.deltas(part.text):
            yield PartGrew(call, number, delta)
        yield PartClosed(call, number)
    usage = reply.usage
    yield UsageReported(
        call,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    yield ReplyEnded(call, _REASONS[reply.end], model=reply.model or model, provider_reason=reply.end)


def _started(part: Part, call: int, number: int) -> PartStarted:
    if isinstance(part, CallTool):
        return PartStarted(call, number, "tool_call", tool_id=part.id or f"call_{number}", name=part.name)
    return PartStarted(call, number, _kind(part))


def _kind(part: Say | Refuse | Think) -> PartKind:
    match part:
        case Say():
            return "text"
        case Refuse():
            return "refusal"
        case Think():
            return "reasoning"
