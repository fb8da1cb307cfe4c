"""A turn at work: one task that asks `agent.decide` what comes next and does it.

Theory of operation. Starting a turn writes `TurnOpened` and starts its task; from then on the turn owns its lifetime.
Whoever watches follows the log; whoever wants it to end calls `stop` with a cause. However the task ends, the log gets
exactly one `TurnClosed`: by decision, by being stopped, or because headrace itself failed, which is said as what it is.

    open --decide: ask--> ModelCall --> decide ...  --decide: close--> closed
      '------ stop, an error of our own ------> closing events ------> closed
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from headrace.agent.decide import AGENT, ALONE, Advise, Ask, Close, Compact, Plan, RunTools, decide
from headrace.agent.history import Context
from headrace.errors import Cause, StoreError
from headrace.events import (
    LOG_VERSION,
    HistoryCompacted,
    InputAdded,
    Message,
    NoticeShown,
    Purpose,
    Recorded,
    ReplyEnded,
    TurnClosed,
    TurnOpened,
)
from headrace.limits import SUMMARY_MAX_CHARS
from headrace.runtime.advice import Round
from headrace.runtime.call import ModelCall, Surroundings
from headrace.runtime.follow import follow, watching
from headrace.runtime.question import Candidate, Options
from headrace.runtime.recorder import Recorder
from headrace.runtime.tools import Toolbox, ToolRunner
from headrace.turn.closing import closing
from headrace.turn.folds import Folded
from headrace.turn.log import Log, TurnTooLong

_log = logging.getLogger(__name__)

NOT_COMPACTED: Final = (
    "The conversation is too long for the model and could not be summarised: its oldest part is left out."
)
_SHUT_DOWN: Final = Cause("shutdown", "headrace was shut down while the turn was running.")

Recall = Callable[[], Context]
"""What was said before and what the model is told beside, asked for when the turn begins to work."""


def nothing() -> Context:
    return ALONE


class Turn:
    """A running or finished turn. Make it with `start`."""

    def __init__(
        self,
        log: Log,
        candidates: Sequence[Candidate],
        around: Surroundings,
        options: Options | None = None,
        plan: Plan = AGENT,
        recall: Recall = nothing,
        toolbox: Toolbox | None = None,
        references: Sequence[Candidate] = (),
    ) -> None:
        self.log = log
        self._recall = recall
        self._recorder = Recorder(log, around.clock)
        self._candidates = candidates
        self._references = references
        self._around = around
        self._options = options or Options()
        self._plan = plan
        self._tools = ToolRunner(toolbox, self._recorder) if toolbox else None
        self._stopped: Cause | None = None
        self._working = False
        self._task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.log.turn

    @property
    def mixed(self) -> bool:
        """Whether a mixture of models answers."""
        return self._plan.mixture is not None

    @property
    def last_activity(self) -> float:
        """When a provider last gave a sign of life, on the monotonic clock."""
        return self._recorder.last_activity

    def start(self, messages: Sequence[Message], session: str = "") -> None:
        """Open the turn and set it to work; raises if it cannot be written down."""
        self.open(messages, session)
        self.begin()

    def open(self, messages: Sequence[Message], session: str = "") -> None:
        """Accept the messages: from here on the turn is in its log, whatever happens to the process."""
        mixture = self._plan.mixture
        model = mixture.name if mixture else self._candidates[0].model_id
        self._recorder.record(
            [TurnOpened(LOG_VERSION, tuple(messages), session, model, self._options.request)]
        )

    def begin(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"turn {self.id}")
        self._task.add_done_callback(self._ended)
        if self._plan.max_wall_s is not None:
            late = Cause(
                "time_limit", f"The turn was ended after {self._plan.max_wall_s:g} s, as configured."
            )
            timer = self._around.clock.call_later(self._plan.max_wall_s, lambda: self.stop(late))
            self._task.add_done_callback(lambda _: timer.cancel())

    def stop(self, cause: Cause) -> None:
        """End the turn; what has been shown stays. Does nothing if it has ended or is being stopped."""
        if self.log.closed is not None or self._stopped is not None:
            return
        self._stopped = cause
        if self._task is None:
            self._close(cause)
        elif self._working:  # a task that has not taken its first step would never reach its closing
            self._task.cancel()

    def steer(self, messages: Sequence[Message]) -> bool:
        """Add input that the model hears at the next tool boundary; whether the turn could still take it.

        What comes too late for a boundary is in `Folded.unheard` when the turn is closed.
        """
        if self.log.closed is not None or self._stopped is not None:
            return False
        self._recorder.record([InputAdded(tuple(messages))])
        return True

    async def wait(self) -> TurnClosed:
        """The turn's end. Cancelling the one who waits does not stop the turn."""
        if self._task is None:
            await self._begun()
        if self._task is not None:
            await asyncio.wait([self._task])
            if self.log.closed is None:
                self._task.result()  # raises: not even an end could be written
        closed = self.log.closed
        assert closed is not None
        return closed

    async def _begun(self) -> None:
        """Until it works, or is over without that."""
        with watching(self.log) as signal:
            while self._task is None and self.log.closed is None:
                await signal.wait()

    def approve(self, approval: str, *, allowed: bool, by: str) -> bool:
        """Answer an approval that is asked for; whether it was still open."""
        return self._tools is not None and self._tools.approvals.give(
            approval, "allowed" if allowed else "denied", by
        )

    def answer(self, question: str, text: str, by: str) -> bool:
        """Answer a question that a tool has put; whether it was still open."""
        return self._tools is not None and self._tools.questions.give(question, text, by)

    def follow(self, after: int = 0) -> AsyncIterator[list[Recorded]]:
        """Everything after number `after`, in batches, until the turn is closed."""
        return follow(self.log, after)

    def folded(self) -> Folded:
        return self._recorder.folded()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """A loop that shuts down cancels tasks that have not taken their first step."""
        if task.cancelled() and self.log.closed is None:
            self._close(_SHUT_DOWN)

    async def _run(self) -> None:
        self._working = True
        try:
            await self._work()
        except asyncio.CancelledError:
            await self._abort(self._stopped or _SHUT_DOWN)
            if self._stopped is None:
                raise
        except TurnTooLong as error:
            await self._abort(error.cause)
        except StoreError as error:
            self.log.forsake_journal()
            await self._abort(Cause("store_failed", str(error)))
        except Exception as error:  # noqa: BLE001 - it is told: in the turn, and in the program's own log
            # Our own fault: the turn says so, and the log of the program has the details.
            _log.exception("turn %s failed", self.id)
            await self._abort(
                Cause("bug", f"headrace failed ({type(error).__name__}: {error}). Please report this.")
            )

    async def _work(self) -> None:
        context = self._recall()
        while self._stopped is None:  # asked each time, since a tool may not have let its cancellation pass
            action = decide(self._recorder.folded(), self._plan, context)
            match action:
                case Close(outcome, cause):
                    self._recorder.record([TurnClosed(outcome, cause)])
                    return
                case Ask(messages, seam):
                    call = self._call("reply", self._candidates, self._options)
                    await call.run(messages, seam, empty_is_an_end=self._after_tools())
                case Advise(messages):
                    await self._seek_advice(messages)
                case Compact(through, messages):
                    await self._compact(through, messages)
                case RunTools(call_number, parts):
                    assert self._tools is not None
                    await self._tools.run(call_number, parts)
        await self._abort(self._stopped)

    def _call(
        self, purpose: Purpose, candidates: Sequence[Candidate], options: Options, place: int = 0
    ) -> ModelCall:
        number = len(self._recorder.folded().replies) + 1 + place
        return ModelCall(number, purpose, candidates, options, self._recorder, self._around)

    async def _seek_advice(self, messages: tuple[Message, ...]) -> None:
        mixture = self._plan.mixture
        assert mixture is not None
        calls = [
            self._call("advice", [reference], Options(), place)
            for place, reference in enumerate(self._references)
        ]
        await Round(calls, mixture, self._recorder, self._around.clock).run(messages)

    async def _compact(self, through: str, messages: tuple[Message, ...]) -> None:
        end = await self._call("summary", self._candidates, Options()).run(messages)
        summary = self._recorder.folded().replies[end.call].text()[:SUMMARY_MAX_CHARS].strip()
        if isinstance(end, ReplyEnded) and summary:
            self._recorder.record([HistoryCompacted(through, summary, end.call)])
        else:
            self._recorder.record([NoticeShown("not_compacted", NOT_COMPACTED, end.call)])

    def _after_tools(self) -> bool:
        """Tools have just answered and text has been shown: the model may have nothing to add."""
        folded = self._recorder.folded()
        return bool(folded.tool_calls()) and bool(folded.answer_text())

    async def _abort(self, cause: Cause) -> None:
        """End the turn early, and with it whatever its tools have left running."""
        try:
            if self._tools is not None:
                await self._tools.end_what_runs_on()
        finally:
            self._close(cause)

    def _close(self, cause: Cause) -> None:
        try:
            self._end(cause)
        except StoreError:
            self.log.forsake_journal()
            self._end(cause)

    def _end(self, cause: Cause) -> None:
        self._recorder.record(closing(self.log.machine, self._recorder.folded(), cause))
