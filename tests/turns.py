"""Turns against the model server: the real providers and the real runtime, over real sockets."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from headrace.agent.decide import AGENT, RELAY, Plan
from headrace.events import Event, PartGrew, PartStarted, TurnClosed, user_message
from headrace.ports import ProtocolName, ToolSpec
from headrace.providers.http import Endpoint, HttpClient, HttpProvider
from headrace.runtime.call import Surroundings
from headrace.runtime.clock import SystemClock
from headrace.runtime.learnt import Learnt
from headrace.runtime.question import CallPolicy, Candidate, Options
from headrace.runtime.stalls import Patience
from headrace.runtime.turn import Turn
from headrace.testing.modelserver import ModelServer
from headrace.turn.log import Log

PROTOCOLS: tuple[ProtocolName, ...] = ("chat_completions", "responses", "messages")
TOOLS = (
    ToolSpec(
        "weather", "The weather somewhere", {"type": "object", "properties": {"city": {"type": "string"}}}
    ),
    ToolSpec("clock", "The time", {"type": "object", "properties": {}}),
)
IMPATIENT = Patience(connect_s=5, first_event_s=0.15, gap_s=0.15, no_progress_s=0.25)
PATIENT = Patience(connect_s=20, first_event_s=20, gap_s=20, no_progress_s=20)


@dataclass
class Bench:
    """What a test needs to run turns."""

    server: ModelServer
    client: HttpClient
    around: Surroundings
    options: Options = field(default_factory=Options)

    def candidate(
        self,
        protocol: ProtocolName = "chat_completions",
        name: str = "lab",
        keys: Sequence[str] = ("key-of-the-lab",),
        model: str = "model-1",
        **settings: object,
    ) -> Candidate:
        endpoint = Endpoint(name=name, protocol=protocol, base_url=f"{self.server.url}/v1")
        provider = HttpProvider(endpoint, self.client, keys=lambda: tuple(keys))
        return Candidate(model_id=f"{name}:{model}", provider=provider, model=model, **settings)  # type: ignore[arg-type]

    def start(self, *candidates: Candidate, plan: Plan = AGENT, options: Options | None = None) -> Turn:
        asked = candidates or (self.candidate(),)
        turn = Turn(Log("turn-1"), asked, self.around, options or self.options, plan)
        turn.start([user_message("Hello?")])
        return turn

    async def run(self, *candidates: Candidate, plan: Plan = AGENT, options: Options | None = None) -> Turn:
        turn = self.start(*candidates, plan=plan, options=options)
        await asyncio.wait_for(turn.wait(), 20)
        return turn


@asynccontextmanager
async def bench(
    *, retries: int = 2, streams: bool = True, patience: Patience = PATIENT, backoff_s: float = 0.001
) -> AsyncIterator[Bench]:
    clock = SystemClock()
    client = HttpClient(clock)
    policy = CallPolicy(
        retries=retries, streams=streams, patience=patience, backoff_s=backoff_s, backoff_most_s=backoff_s * 4
    )
    around = Surroundings(clock, Learnt(clock), policy, random.Random(1))
    async with ModelServer() as server:
        try:
            yield Bench(server, client, around)
        finally:
            await client.close()


def events(turn: Turn) -> list[Event]:
    return [recorded.event for recorded in turn.log.since(0)]


def closed(turn: Turn) -> TurnClosed:
    end = turn.log.closed
    assert end is not None
    return end


def shown(turn: Turn) -> str:
    """Every visible delta in the order it was shown, over all attempts: what a person who watched has seen."""
    visible = {
        (e.call, e.part) for e in events(turn) if isinstance(e, PartStarted) and e.kind in ("text", "refusal")
    }
    return "".join(e.text for e in events(turn) if isinstance(e, PartGrew) and (e.call, e.part) in visible)


__all__ = [
    "AGENT",
    "IMPATIENT",
    "PATIENT",
    "PROTOCOLS",
    "RELAY",
    "TOOLS",
    "Bench",
    "bench",
    "closed",
    "events",
    "shown",
]
