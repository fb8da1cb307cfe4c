"""headrace from Python.

    import headrace

    answer = headrace.ask("What is the capital of France?")        # blocking
    print(answer.text, answer.outcome)

    async with headrace.open() as agent:                            # asyncio
        turn = agent.start("What is the capital of France?")
        async for recorded in agent.follow(turn):
            print(recorded.seq, recorded.event)
        answer = await agent.answer(turn)

A turn owns its lifetime: a follower that raises, or leaves, does not harm it; `turn.stop(cause)` ends it, and so does
leaving `open`. Failures of the configuration raise ConfigError; a turn that failed does not raise, its outcome says so.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from headrace.app import App
from headrace.errors import Cause, Outcome, UserError
from headrace.events import Message, Recorded, user_message
from headrace.runtime.question import Options
from headrace.runtime.session import Session
from headrace.runtime.turn import Turn
from headrace.turn.folds import Usage
from headrace.wire import jsontext

LEFT = Cause("shutdown", "The program closed headrace while the turn was running.")


class ToolCall(msgspec.Struct, frozen=True):
    """A call that the model wants its caller to run."""

    id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it."""

    def read(self) -> Any:
        """The arguments as a value; raises MalformedStream where they are no JSON."""
        return jsontext.parse(self.arguments, f"the arguments of {self.name}")


class Answer(msgspec.Struct, frozen=True):
    """What a turn came to."""

    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage
    model: str
    """The model that answered, as "<provider>:<model>"."""
    outcome: Outcome
    cause: Cause


class Agent:
    """Open it with `async with headrace.open() as agent`."""

    def __init__(self, app: App, model: str | None) -> None:
        self._app = app
        self._model = model
        self._turns: set[Turn] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for turn in self._turns:
            turn.stop(LEFT)
        for turn in self._turns:
            await turn.wait()
        await self._app.close()

    def session(self, name: str = "") -> Session:
        """Turns that are started with it share a history; with a name it is kept on disk."""
        return self._app.session(name)

    def start(
        self,
        question: str | Sequence[Message],
        *,
        model: str | None = None,
        session: Session | None = None,
        options: Options | None = None,
    ) -> Turn:
        """Set a turn to work and return at once; raises ConfigError where the model cannot be asked."""
        messages = [user_message(question)] if isinstance(question, str) else question
        turn = self._app.start(messages, model or self._model, session, options)
        self._turns = {t for t in self._turns if t.log.closed is None} | {turn}
        return turn

    async def follow(self, turn: Turn, after: int = 0) -> AsyncIterator[Recorded]:
        """Everything after number `after`, as it happens, until the turn is closed."""
        async for batch in turn.follow(after):
            for recorded in batch:
                yield recorded

    async def answer(self, turn: Turn) -> Answer:
        """Wait for the turn's end, and take together what it came to."""
        closed = await turn.wait()
        folded = turn.folded()
        replies = [reply for reply in folded.replies.values() if reply.purpose == "reply"]
        return Answer(
            text=folded.answer_text() or folded.refusal_text(),
            reasoning=folded.reasoning_text(),
            tool_calls=tuple(ToolCall(p.tool_id, p.name, p.text) for p in folded.tool_calls()),
            usage=folded.usage(),
            model=replies[-1].model if replies else "",
            outcome=closed.outcome,
            cause=closed.cause,
        )

    async def ask(self, question: str | Sequence[Message], *, session: Session | None = None) -> Answer:
        return await self.answer(self.start(question, session=session))


def open(model: str | None = None, env: Mapping[str, str] | None = None) -> Agent:  # noqa: A001 - headrace.open
    """headrace with the configuration that `env` leads to; raises ConfigError."""
    return Agent(App.from_env(os.environ if env is None else env), model)


def ask(
    question: str | Sequence[Message], *, model: str | None = None, env: Mapping[str, str] | None = None
) -> Answer:
    """Put one question and wait for the answer; raises UserError within a running event loop (use `open` there)."""
    if _loop_is_running():
        raise UserError(
            "headrace.ask waits, and an event loop is running here, as in a notebook. Write: "
            "async with headrace.open() as agent: answer = await agent.ask(...)"
        )

    async def once() -> Answer:
        async with open(model, env) as agent:
            return await agent.ask(question)

    return asyncio.run(once())


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
