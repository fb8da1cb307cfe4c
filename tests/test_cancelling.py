"""Stop, from every state a call can be in: the connection upstream is closed at once, and the log says so."""

import asyncio
import statistics

import pytest

from headrace.errors import Cause
from headrace.events import AttemptReplaced, CallFailed, ReplyCut, TurnClosed
from headrace.providers.http import Endpoint, HttpProvider
from headrace.runtime.question import Candidate
from headrace.testing.modelserver import Reply, Say, Script, Status, scenario
from tests.rawserver import full_backlog
from tests.turns import PROTOCOLS, Bench, bench, closed, events, shown

STOP = Cause("stopped", "You stopped the turn.")
LONG = Script(Reply((Say("word " * 2000),)), pace_s=0.005)

# Each state, and the script that holds a call in it.
STATES = {
    "waiting for headers": scenario("hang"),
    "waiting for the first token": scenario("stall-after-headers"),
    "stalled in the text": scenario("stall-mid-text"),
    "stalled in the arguments": scenario("stall-mid-arguments"),
    "in the middle of the stream": LONG,
    "dripping": scenario("slow-drip"),
}


async def _until_reading(lab: Bench, turn: object, requests: int) -> None:
    await lab.server.wait_requests(requests)
    await asyncio.sleep(0)


@pytest.mark.parametrize("state", sorted(STATES))
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_stopping_closes_the_upstream_and_ends_the_log(state: str, protocol: str) -> None:
    async with bench() as lab:
        lab.server.default = STATES[state]
        turn = lab.start(lab.candidate(protocol))  # type: ignore[arg-type]
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
            await asyncio.sleep(0.05)
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


async def test_cancelling_in_any_state_is_noticed_upstream_in_time() -> None:
    """The 99th percentile is stated by `make bench`; here the median of a few must not be slow by a mistake."""
    delays: list[float] = []
    async with bench() as lab:
        for state in sorted(STATES):
            lab.server.default = STATES[state]
            for _ in range(3):
                turn = lab.start()
                await lab.server.wait_requests(lab.server.total_requests + 1)
                record = lab.server.requests[-1]
                stopped_at = asyncio.get_running_loop().time()
                turn.stop(STOP)
                delays.append((await asyncio.wait_for(record.wait_ended(), 5)).at - stopped_at)
                await turn.wait()
    assert statistics.median(delays) < 0.1
