"""A mixture against its own parts: what waiting for advice costs beyond the waiting, and that nobody starves."""

import asyncio
import random
import statistics
import time
from collections.abc import Mapping, Sequence

from bench.measure import table
from headrace.agent.decide import RELAY, Plan
from headrace.agent.mixture import Mixture
from headrace.events import CallStarted, PartGrew, ReplyEnded, user_message
from headrace.providers.http import Endpoint, HttpClient, HttpProvider
from headrace.runtime.call import Surroundings
from headrace.runtime.clock import SystemClock
from headrace.runtime.learnt import Learnt
from headrace.runtime.question import CallPolicy, Candidate, Options
from headrace.runtime.turn import Turn
from headrace.testing.modelserver import ModelServer, RecordedRequest, Reply, Say, Script
from headrace.turn.log import Log

TURNS = 100
RUNS = 50
DEADLINES = 9


class _Lab:
    def __init__(self, url: str) -> None:
        self._clock = SystemClock()
        self.client = HttpClient(self._clock)
        self._around = Surroundings(self._clock, Learnt(self._clock), CallPolicy(retries=0), random.Random(1))
        endpoint = Endpoint(name="lab", protocol="chat_completions", base_url=f"{url}/v1")
        self._provider = HttpProvider(endpoint, self.client, lambda: ("key",))

    def _candidate(self, model: str) -> Candidate:
        return Candidate(model_id=f"lab:{model}", provider=self._provider, model=model)

    def start(self, model: str, references: Sequence[str] = (), deadline_s: float = 30.0) -> Turn:
        advise = [self._candidate(name) for name in references]
        names = tuple(each.model_id for each in advise)
        mixture = Mixture(name="moa:bench", references=names, deadline_s=deadline_s)
        plan = Plan(mixture=mixture) if references else RELAY
        turn = Turn(Log("turn"), [self._candidate(model)], self._around, Options(), plan, references=advise)
        turn.start([user_message("?")])
        return turn

    async def timed(self, turn: Turn) -> Mapping[str, float]:
        """Seconds from here until something is to be seen, until the answer begins, and until the end."""
        begun = time.perf_counter()
        seen: dict[str, float] = {}
        answers: set[int] = set()
        async for batch in turn.follow():
            now = time.perf_counter() - begun
            for event in (recorded.event for recorded in batch):
                match event:
                    case CallStarted(call, purpose):
                        seen.setdefault("progress", now)
                        if purpose == "reply":
                            answers.add(call)
                    case PartGrew(call) if call in answers:
                        seen.setdefault("first", now)
                    case ReplyEnded():
                        seen["end"] = now
                    case _:
                        pass
        return seen


def _by_delay(request: RecordedRequest) -> Script:
    """The model's name says how long its two words take."""
    pace_s = int(request.body["model"]) / 1000
    return Script(Reply((Say(("Well", " then.")),)), pace_s=pace_s)


async def _deadline(lab: _Lab) -> None:
    alone = [await lab.timed(lab.start("50")) for _ in range(DEADLINES)]
    mixed = [
        await lab.timed(lab.start("50", ("400", "800", "20000"), deadline_s=1.0)) for _ in range(DEADLINES)
    ]
    own, first = (statistics.median(each["first"] for each in turns) for turns in (alone, mixed))
    table(
        f"references of 0.4, 0.8 and 20 s, deadline 1 s, the median of {DEADLINES}",
        ("", "s"),
        [
            ("progress to be seen", f"{statistics.median(each['progress'] for each in mixed):.4f}"),
            ("the aggregator's own first token", f"{own:.4f}"),
            ("first text of the answer", f"{first:.4f}"),
            ("beyond deadline and aggregator", f"{first - 1.0 - own:.4f}"),
        ],
    )


async def _overhead(lab: _Lab) -> None:
    """The two halves one after the other, in turns of their own, against one turn of the mixture."""
    halves, wholes = [], []
    for _ in range(RUNS):
        reference, aggregator = await lab.timed(lab.start("20")), await lab.timed(lab.start("1"))
        halves.append(reference["end"] + aggregator["first"])
        wholes.append((await lab.timed(lab.start("1", ("5", "10", "20"))))["first"])
    apart, mixed = statistics.median(halves), statistics.median(wholes)
    table(
        "overhead of a mixture of three",
        ("", "ms"),
        [
            ("the slowest reference, then the aggregator's first token", apart * 1e3),
            ("a mixture's first token", mixed * 1e3),
            ("overhead", (mixed - apart) * 1e3),
        ],
    )


async def _many(lab: _Lab) -> None:
    turns = [lab.start("100", ("100", "100", "100")) for _ in range(TURNS)]
    cpu = time.process_time()
    seen = await asyncio.gather(*(lab.timed(turn) for turn in turns))
    cpu = time.process_time() - cpu
    assert all(turn.log.closed and turn.log.closed.outcome == "stop" for turn in turns)
    firsts = sorted(each["first"] for each in seen)
    table(
        f"{TURNS} mixtures of three at once, each call 0.1 s and more",
        ("", "s"),
        [
            ("first token, median", firsts[len(firsts) // 2]),
            ("first token, slowest", firsts[-1]),
            ("CPU, the model server's included", cpu),
        ],
    )


async def _run() -> None:
    async with ModelServer() as server:
        server.respond = _by_delay
        lab = _Lab(server.url)
        try:
            await lab.timed(lab.start("1"))
            await _deadline(lab)
            await _overhead(lab)
            await _many(lab)
        finally:
            await lab.client.close()


def run() -> None:
    asyncio.run(_run())
