"""Messages that race for one session: one turn at a time, everything answered or superseded, in order."""

import asyncio
import itertools
import random
from collections.abc import Callable

import pytest

from headrace.agent.decide import Plan
from headrace.agent.history import Context
from headrace.errors import Cause
from headrace.events import CallStarted, InputAdded, TurnOpened, UserMessage, user_message
from headrace.providers.history import text_of
from headrace.runtime.question import Candidate, Options
from headrace.runtime.session import Manner, Session
from headrace.runtime.turn import Turn
from headrace.testing.modelserver import CallTool, Reply, Say, Script, scenario
from headrace.testing.scripted import ScriptedProvider
from headrace.testing.tools import ScriptedTool
from headrace.turn.folds import INTERRUPTED
from tests.test_tool_turns import toolbox
from tests.turns import Bench, bench, events, shown

SLOW = Script(Reply((Say("One two three four five six seven eight."),)), pace_s=0.01)


class World:
    """A session whose turns are all remembered, in the order they were made."""

    def __init__(self, lab: Bench, candidate: Candidate | None = None) -> None:
        self.turns: list[Turn] = []
        self.session = Session("s")
        numbers = itertools.count(1)

        def make() -> Turn:
            turn = Turn(
                self.session.log(f"t{next(numbers)}"),
                [candidate or lab.candidate()],
                lab.around,
                recall=lambda: Context(past=self.session.past),
            )
            self.turns.append(turn)
            return turn

        self.make = make

    def post(self, text: str, manner: Manner = "queue") -> Turn:
        return self.session.post([user_message(text)], self.make, manner)


def texts(turn: Turn) -> list[str]:
    opened = events(turn)[0]
    assert isinstance(opened, TurnOpened)
    return [text_of(m.content) for m in opened.input if isinstance(m, UserMessage)]


async def test_queued_messages_are_answered_in_order_each_seeing_the_last() -> None:
    async with bench() as lab:
        world = World(lab)
        for n in range(3):
            world.post(f"m{n}")
        await world.session.idle()
        assert [texts(t) for t in world.turns] == [["m0"], ["m1"], ["m2"]]
        assert [len(r.body["messages"]) for r in lab.server.requests] == [1, 3, 5]


async def test_a_message_is_in_its_log_before_its_turn_works() -> None:
    async with bench() as lab:
        lab.server.default = scenario("hang")
        world = World(lab)
        world.post("first")
        second = world.post("second")
        assert texts(second) == ["second"]
        await lab.server.wait_requests(1)
        await world.session.close(Cause("shutdown", "headrace was closed."))
        assert [t.log.closed.cause.code for t in world.turns if t.log.closed] == ["shutdown", "superseded"]


async def test_an_interruption_keeps_what_was_shown_and_the_next_turn_sees_it() -> None:
    async with bench() as lab:
        lab.server.enqueue(SLOW)
        world = World(lab)
        first = world.post("first")
        async for _ in first.follow():
            if shown(first):
                break
        world.post("second", "interrupt")
        await world.session.idle()
        assert first.log.closed is not None
        assert first.log.closed.cause.code == "interrupted"
        contents = [m["content"] for m in lab.server.requests[1].body["messages"]]
        assert contents == ["first", shown(first), f"{INTERRUPTED}\n\nsecond"]


@pytest.mark.parametrize("boundary", [True, False], ids=["a tool boundary", "none"])
async def test_steering_reaches_the_model_at_a_tool_boundary_or_opens_the_next_turn(
    tmp_path,
    boundary: bool,  # type: ignore[no-untyped-def]
) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def wait(arguments, run):  # type: ignore[no-untyped-def]
        entered.set()
        await leave.wait()
        from headrace.ports import ToolResult

        return ToolResult("worked")

    async with bench() as lab:
        box = toolbox(tmp_path, ScriptedTool("work", wait))
        session = Session("s")
        turns: list[Turn] = []

        def make() -> Turn:
            plan = Plan(runs_tools=True)
            options = Options(tools=box.specs())
            log = session.log(f"t{len(turns)}")
            turns.append(
                Turn(
                    log, [lab.candidate()], lab.around, options, plan, lambda: Context(past=session.past), box
                )
            )
            return turns[-1]

        lab.server.enqueue(Script(Reply((CallTool("work", {}),))) if boundary else SLOW)
        first = session.post([user_message("go")], make)
        if boundary:
            await entered.wait()
        else:
            await lab.server.wait_requests(1)
        assert session.post([user_message("and quickly")], make, "steer") is first
        leave.set()
        await session.idle()
        assert [e.input for e in events(first) if isinstance(e, InputAdded)] == [
            (user_message("and quickly"),)
        ]
        assert len(turns) == (1 if boundary else 2)
        assert lab.server.requests[1].body["messages"][-1]["content"] == "and quickly"


async def test_a_turn_that_is_stopped_before_its_first_step_is_closed() -> None:
    async with bench() as lab:
        turn = lab.start()
        turn.stop(Cause("stopped", "At once."))
        assert (await asyncio.wait_for(turn.wait(), 5)).cause.code == "stopped"
        assert not any(isinstance(e, CallStarted) for e in events(turn))


@pytest.mark.parametrize("seed", range(3))
async def test_a_thousand_racing_messages_are_all_answered_or_superseded(seed: int) -> None:
    dice = random.Random(seed)
    provider = ScriptedProvider()
    candidate = Candidate(model_id="scripted:echo", provider=provider, model="echo")
    async with bench() as lab:
        world = World(lab, candidate)
        posted: list[tuple[str, Turn, Manner]] = []
        most_active = 0

        async def person(number: int, pause: Callable[[], int]) -> None:
            nonlocal most_active
            for n in range(100):
                for _ in range(pause()):
                    await asyncio.sleep(0)
                manner: Manner = dice.choice(["queue", "queue", "interrupt", "steer"])
                text = f"{number}-{n}"
                posted.append((text, world.post(text, manner), manner))
                working = [t for t in world.turns if t._task is not None and not t._task.done()]
                most_active = max(most_active, len(working))

        await asyncio.gather(*(person(n, lambda: dice.randrange(4)) for n in range(10)))
        await asyncio.wait_for(world.session.idle(), 60)
        assert most_active <= 1
        assert all(turn.log.closed is not None for turn in world.turns)
        answered = [text for turn in world.turns for text in texts(turn)]
        for turn in world.turns:
            late = turn.folded().unheard()
            added = [m for e in events(turn) if isinstance(e, InputAdded) for m in e.input]
            answered += [text_of(m.content) for m in added if isinstance(m, UserMessage) and m not in late]
        assert sorted(answered) == sorted(text for text, _, _ in posted)
        own = [text for text, _, manner in posted if manner != "steer"]
        order = [text for turn in world.turns for text in texts(turn) if text in set(own)]
        assert order == own
        outcomes = {turn.log.closed.cause.code for turn in world.turns if turn.log.closed}
        assert outcomes <= {"answered", "interrupted"}
