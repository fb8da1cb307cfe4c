"""Asking the references of a mixture, side by side.

Theory of operation. Each reference is an ordinary call with purpose advice: attempts and clocks of its own, no tools,
no fallback. The round is over when the first of these is true:

    all have ended | `deadline_s` has passed and the quorum has advised | twice `deadline_s` has passed

What is still running then is cancelled, which closes its connection, and is told as late. Stopping the turn cancels all
of them in the same way.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from headrace.agent.mixture import Mixture, has_advised
from headrace.errors import Cause
from headrace.events import AdviceSought, CallFailed, Message, NoticeShown, ReplyCut, ReplyEnded
from headrace.ports import Clock
from headrace.runtime.call import ModelCall
from headrace.runtime.recorder import Recorder
from headrace.turn.closing import ending_of

ALONE: Final = "No adviser has answered; the model answers alone."


class Round:
    """One round of advice; `calls` are the references' calls, not yet begun."""

    def __init__(
        self, calls: Sequence[ModelCall], mixture: Mixture, recorder: Recorder, clock: Clock
    ) -> None:
        self._calls = calls
        self._mixture = mixture
        self._recorder = recorder
        self._clock = clock
        self._advised = 0

    async def run(self, messages: tuple[Message, ...]) -> None:
        """Until the round is over; what came of it is in the log by then."""
        mixture = self._mixture
        sought = AdviceSought(tuple(call.number for call in self._calls), mixture.show)
        self._recorder.record([sought])
        # The clocks first: they begin before the references' own work does.
        clocks = [asyncio.create_task(self._clock.sleep(mixture.deadline_s * times)) for times in (1, 2)]
        running = {asyncio.create_task(self._one(call, messages)) for call in self._calls}
        try:
            await self._until_over(running, *clocks)
        finally:
            await _cancelled((*running, *clocks))
        for call in self._calls:
            self._late(call)
        if not self._advised:
            self._recorder.record([NoticeShown("no_advice", ALONE)])

    async def _until_over(
        self, running: "set[asyncio.Task[None]]", deadline: "asyncio.Task[None]", end: "asyncio.Task[None]"
    ) -> None:
        while running and not end.done():
            if deadline.done() and self._advised >= self._mixture.quorum:
                return
            waits = {end} if deadline.done() else {end, deadline}
            done, _ = await asyncio.wait(running | waits, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises what is no matter of one reference, such as a full disk
            running -= done

    async def _one(self, call: ModelCall, messages: tuple[Message, ...]) -> None:
        end = await call.run(messages)
        if has_advised(self._recorder.folded().replies[call.number]):
            self._advised += 1
        else:
            self._missing(call, _why(end))

    def _late(self, call: ModelCall) -> None:
        """A call that was cancelled has no end yet."""
        if self._recorder.log.machine.state("call", call.number) not in ("waiting", "trying", "visible"):
            return
        late = Cause("superseded", f"{call.model_id} was late: the answer was begun without its advice.")
        machine, folded = self._recorder.log.machine, self._recorder.folded()
        self._recorder.record([ending_of(call.number, machine, folded, late)])
        trouble = folded.replies[call.number].trouble
        self._missing(call, "It was late." if trouble is None else f"It was late. {trouble.message}")

    def _missing(self, call: ModelCall, why: str) -> None:
        text = f"{call.model_id} gave no advice. {why}"
        self._recorder.record([NoticeShown("advice_missing", text, call.number)])


def _why(end: ReplyEnded | ReplyCut | CallFailed) -> str:
    match end:
        case ReplyEnded(reason="refused"):
            return "It declined."
        case ReplyEnded(reason="content_filter"):
            return "Its provider's filter ended its answer."
        case ReplyEnded():
            return "Its answer was of no use."
        case ReplyCut(cause=cause) | CallFailed(cause=cause):
            return cause.message


async def _cancelled(tasks: "Sequence[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
