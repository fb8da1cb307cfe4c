"""Stop, from every state a call can be in: the connection upstream is closed at once, and the log says so."""

import asyncio
from collections.abc import Callable

import pytest

from headrace.errors import Cause
from headrace.events import (
    AttemptReplaced,
    AttemptStarted,
    CallFailed,
    PartGrew,
    PartKind,
    PartStarted,
    ReplyCut,
    TurnClosed,
)
from headrace.ports import ProtocolName
from headrace.providers.http import Endpoint, HttpProvider
from headrace.runtime.question import Candidate
from headrace.runtime.turn import Turn
from headrace.testing.modelserver import Reply, Say, Script, Status, scenario
from tests.rawserver import full_backlog
from tests.turns import PROTOCOLS, bench, closed, events, shown

STOP = Cause("stopped", "You stopped the turn.")
LONG = Script(Reply((Say("word " * 2000),)), pace_s=0.005)

Reached = Callable[[Turn, float], bool]
"""Given a turn and its last activity when it was started."""


def _asked(turn: Turn, _: float) -> bool:
    return any(isinstance(e, AttemptStarted) for e in events(turn))


def _heard(turn: Turn, began: float) -> bool:
    """Something has come, if only a chunk that says nothing."""
    return turn.last_activity > began


def _has(kind: PartKind, growths: int = 0) -> Reached:
    def reached(turn: Turn, _: float) -> bool:
        parts = {e.part for e in events(turn) if isinstance(e, PartStarted) and e.kind == kind}
        grown = sum(isinstance(e, PartGrew) and e.part in parts for e in events(turn))
        return bool(parts) and grown >= growths

    return reached


# Each state: the script that holds a call in it, how the call is seen to be there, and whether it streams.
STATES: dict[str, tuple[Script, Reached, bool]] = {
    "waiting for headers": (scenario("hang"), _asked, True),
    "waiting for the first bytes": (scenario("stall-after-headers"), _asked, True),
    "waiting for the first token": (scenario("stall-before-first-token"), _heard, True),
    "stalled in the reasoning": (scenario("stall-mid-reasoning"), _has("reasoning", 1), True),
    "stalled in the text": (scenario("stall-mid-text"), _has("text", 1), True),
    "stalled in the arguments": (scenario("stall-mid-arguments"), _has("tool_call"), True),
    "in the middle of the stream": (LONG, _has("text", 20), True),
    "dripping": (scenario("slow-drip"), _heard, True),
    "stalled in a whole answer": (scenario("stall-mid-text"), _heard, False),
}


async def _until(turn: Turn, reached: Reached) -> None:
    began = turn.last_activity
    async with asyncio.timeout(10):
        while not reached(turn, began):  # noqa: ASYNC110 - a sign of life wakes nobody
            await asyncio.sleep(0)
    for _ in range(20):  # what can happen without anybody waiting has happened
        await asyncio.sleep(0)


@pytest.mark.parametrize("state", sorted(STATES))
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_stopping_closes_the_upstream_and_ends_the_log(state: str, protocol: ProtocolName) -> None:
    script, reached, streams = STATES[state]
    async with bench() as lab:
        lab.server.default = script
        turn = lab.start(lab.candidate(protocol, streams=streams))
        await _until(turn, reached)
        await lab.server.wait_requests(1)
        turn.stop(STOP)
        end = await asyncio.wait_for(turn.wait(), 5)
        assert (end.outcome, end.cause) == ("cancelled", STOP)
        await asyncio.wait_for(lab.server.wait_disconnected(1), 5)
        assert [type(e) for e in events(turn)].count(TurnClosed) == 1
        assert any(isinstance(e, ReplyCut | CallFailed) for e in events(turn))
        assert len(lab.server.requests) == 1


async def test_stopping_while_waiting_to_try_again_makes_no_other_attempt() -> None:
    async with bench(backoff_s=30) as lab:
        lab.server.default = Script(fault=Status(503))
        turn = lab.start()
        async for _ in turn.follow():
            if any(isinstance(e, AttemptReplaced) for e in events(turn)):
                break
        turn.stop(STOP)
        assert (await asyncio.wait_for(turn.wait(), 5)).outcome == "cancelled"
        assert len(lab.server.requests) == 1


async def test_stopping_while_connecting() -> None:
    async with bench() as lab:
        with full_backlog() as port:
            endpoint = Endpoint(
                name="silent", protocol="chat_completions", base_url=f"http://127.0.0.1:{port}"
            )
            provider = HttpProvider(endpoint, lab.client)
            turn = lab.start(Candidate(model_id="silent:m", provider=provider, model="m"))
            await _until(turn, _asked)
            turn.stop(STOP)
            assert (await asyncio.wait_for(turn.wait(), 5)).outcome == "cancelled"


async def test_stopping_twice_or_after_the_end_changes_nothing() -> None:
    async with bench() as lab:
        lab.server.default = scenario("stall-mid-text")
        turn = lab.start()
        await lab.server.wait_requests(1)
        turn.stop(STOP)
        turn.stop(Cause("shutdown", "later"))
        assert (await turn.wait()).cause == STOP
        turn.stop(Cause("shutdown", "too late"))
        assert closed(turn).cause == STOP


async def test_whoever_waits_can_leave_without_stopping_the_turn() -> None:
    async with bench() as lab:
        lab.server.default = Script(Reply((Say("Slowly, but surely."),)), pace_s=0.02)
        turn = lab.start()
        waiter = asyncio.create_task(turn.wait())
        await lab.server.wait_requests(1)
        waiter.cancel()
        await asyncio.wait([waiter])
        assert (await turn.wait()).outcome == "stop"
        assert shown(turn) == "Slowly, but surely."


async def test_a_follower_that_fails_does_not_harm_the_turn() -> None:
    async with bench() as lab:
        lab.server.default = Script(Reply((Say("One two three."),)), pace_s=0.01)
        turn = lab.start()

        async def fail() -> None:
            async for _ in turn.follow():
                raise RuntimeError("a view with a fault")

        follower = asyncio.create_task(fail())
        assert (await turn.wait()).outcome == "stop"
        assert isinstance((await asyncio.gather(follower, return_exceptions=True))[0], RuntimeError)
