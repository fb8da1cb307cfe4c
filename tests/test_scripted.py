"""The scripted provider, as a runtime sees it."""

import asyncio

import pytest

from headrace.errors import CallError, Cause
from headrace.events import (
    Event,
    PartClosed,
    PartGrew,
    PartStarted,
    ReplyEnded,
    SystemMessage,
    UsageReported,
    user_message,
)
from headrace.ports import AttemptIds, Provider, Request
from headrace.runtime.clock import SystemClock
from headrace.testing.scripted import Fail, Hang, ScriptedAnswer, ScriptedProvider
from headrace.testing.scripts import CallTool, Refuse, Reply, Say, Think, Usage

IDS = AttemptIds(call=3, first_part=5)
REQUEST = Request(model="any", messages=(SystemMessage("Be brief."), user_message("How are you?")))


class Heard:
    """A sink that keeps what it is given."""

    def __init__(self, enough: int = 1000) -> None:
        self.connections = 0
        self.events: list[Event] = []
        self.enough = asyncio.Event()
        self._wanted = enough

    def connected(self) -> None:
        self.connections += 1

    def received(self, events: list[Event]) -> None:
        self.events += events
        if len(self.events) >= self._wanted:
            self.enough.set()

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, PartGrew))


class Slept(SystemClock):
    """A clock that never waits and remembers for how long it should have."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, delay_s: float) -> None:
        self.delays.append(delay_s)


async def test_a_reply_becomes_its_events() -> None:
    reply = Reply(
        (Think("Hmm"), Say("Hello you"), CallTool("clock", {"a": 1}), Refuse("No")),
        usage=Usage(input_tokens=1, output_tokens=2, reasoning_tokens=3),
        chunk_chars=5,
    )
    provider: Provider = ScriptedProvider([reply])
    heard = Heard()
    await provider.attempt(REQUEST, IDS, heard)
    assert heard.connections == 1
    assert heard.events == [
        PartStarted(3, 5, "reasoning"),
        PartGrew(3, 5, "Hmm"),
        PartClosed(3, 5),
        PartStarted(3, 6, "text"),
        PartGrew(3, 6, "Hello"),
        PartGrew(3, 6, " you"),
        PartClosed(3, 6),
        PartStarted(3, 7, "tool_call", tool_id="call_7", name="clock"),
        PartGrew(3, 7, '{"a":'),
        PartGrew(3, 7, " 1}"),
        PartClosed(3, 7),
        PartStarted(3, 8, "refusal"),
        PartGrew(3, 8, "No"),
        PartClosed(3, 8),
        UsageReported(3, 1, 2, 3, 0, 0),
        ReplyEnded(3, "tool_calls", model="any", provider_reason="tool_calls"),
    ]


async def test_without_a_script_it_says_what_it_is_and_echoes() -> None:
    provider = ScriptedProvider()
    heard = Heard()
    await provider.attempt(REQUEST, IDS, heard)
    assert "scripted provider" in heard.text
    assert heard.text.endswith("You said: How are you?")
    assert provider.requests == [REQUEST]
    silent = Heard()
    await provider.attempt(Request(model="any", messages=()), IDS, silent)
    assert silent.text.endswith("no answer is scripted.")


async def test_answers_are_given_in_order_and_can_be_added() -> None:
    provider = ScriptedProvider([Reply((Say("one"),))], name="mine")
    provider.enqueue(Reply((Say("two"),), finish="length"))
    first, second = Heard(), Heard()
    await provider.attempt(REQUEST, IDS, first)
    await provider.attempt(REQUEST, IDS, second)
    assert (first.text, second.text, provider.name) == ("one", "two", "mine")
    assert isinstance(second.events[-1], ReplyEnded)
    assert second.events[-1].reason == "length"
    await provider.close()
    assert provider.closed


async def test_it_fails_after_so_many_events() -> None:
    cause = Cause("connection_lost", "The connection broke.")
    provider = ScriptedProvider([ScriptedAnswer(Reply((Say("Hello"),)), Fail(cause, after_events=2))])
    heard = Heard()
    with pytest.raises(CallError) as raised:
        await provider.attempt(REQUEST, IDS, heard)
    assert raised.value.cause is cause
    assert heard.events == [PartStarted(3, 5, "text"), PartGrew(3, 5, "Hell")]


@pytest.mark.parametrize("after_events", [0, 2])
async def test_a_hang_can_be_cancelled(after_events: int) -> None:
    provider = ScriptedProvider([ScriptedAnswer(Reply((Say("Hello"),)), Hang(after_events))])
    heard = Heard(enough=after_events)
    task = asyncio.create_task(provider.attempt(REQUEST, IDS, heard))
    if after_events:
        await heard.enough.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(heard.events) == after_events


async def test_a_long_reply_can_be_cancelled_midway() -> None:
    provider = ScriptedProvider([Reply((Say("x" * 10_000),), chunk_chars=1)])
    heard = Heard(enough=10)
    task = asyncio.create_task(provider.attempt(REQUEST, IDS, heard))
    await heard.enough.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(heard.events) < 20


async def test_the_pace_is_the_clocks() -> None:
    clock = Slept()
    answer = ScriptedAnswer(Reply((Say("Hello"),)), pace_s=0.5)
    await ScriptedProvider([answer], clock=clock).attempt(REQUEST, IDS, Heard())
    assert clock.delays == [0.5, 0.5]
    with pytest.raises(ValueError, match="clock"):
        ScriptedProvider([answer])


def test_an_answer_that_could_not_be_given_is_refused() -> None:
    with pytest.raises(ValueError, match="no end reason"):
        ScriptedAnswer(Reply(finish="network_error"))
    with pytest.raises(ValueError, match="too late"):
        ScriptedAnswer(Reply(), Hang(after_events=2))
