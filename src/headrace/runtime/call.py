"""One question to a model: attempts until one is answered, something visible breaks, or nothing is left to try.

Theory of operation. For each candidate (the model, then its fallbacks) attempts are made within a budget of
1 + retries. What ends an attempt decides what follows, on codes alone:

    answered ------------------------------------> ReplyEnded
    broken after something visible --------------> ReplyCut; an attempt is replaced only if nothing was seen of it
    streaming, a parameter or a key refused -----> once per call each: another attempt, in another shape, for free
    transient ----------------------------------> wait, try again, within the budget
    budget spent, no credit, no quota -----------> the next candidate
    anything else, or none left -----------------> CallFailed

If streams broke before anything was visible, the last attempt of the budget asks for the answer in one piece. Each
attempt's connection is closed before the next one starts, because the provider's `attempt` has returned by then.
"""

import random
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.agent.seam import Seam
from headrace.errors import CallError, Cause, CauseCode
from headrace.events import (
    AttemptReplaced,
    AttemptStarted,
    CallFailed,
    CallStarted,
    Event,
    Message,
    NoticeShown,
    Purpose,
    ReplyCut,
    ReplyEnded,
)
from headrace.limits import REFUSED_PARAMETERS_MOST, RETRY_AFTER_MOST_S
from headrace.ports import AttemptIds, Clock, Request
from headrace.runtime.learnt import Learnt, Shape
from headrace.runtime.question import CallPolicy, Candidate, Options, lost_promise
from headrace.runtime.recorder import Recorder
from headrace.runtime.stalls import Patience, StallWatch

# A provider that breaks streams in these ways may still answer whole.
_STREAM_TROUBLE: Final[frozenset[CauseCode]] = frozenset(
    {"malformed_stream", "connection_lost", "no_terminal", "server_error", "overloaded"}
)
# Another model may have what this one lacks.
_NO_CREDIT: Final[frozenset[CauseCode]] = frozenset({"payment_required", "quota_exhausted"})
_KEY_TROUBLE: Final[frozenset[CauseCode]] = frozenset({"key_rejected", "rate_limited", "quota_exhausted"})


class Surroundings(msgspec.Struct, frozen=True):
    """What calls share."""

    clock: Clock
    learnt: Learnt
    policy: CallPolicy
    random: random.Random


class _Attempt:
    """The sink of one attempt: writes what arrives, and holds back an end that is not one."""

    def __init__(
        self, recorder: Recorder, watch: StallWatch, seam: Seam | None, *, empty_is_an_end: bool
    ) -> None:
        self._recorder = recorder
        self._watch = watch
        self._seam = seam
        self._empty_is_an_end = empty_is_an_end
        self.end: ReplyEnded | None = None
        self.empty = False
        """It ended with nothing said, which is no end. Told here, because a sink must not raise: it is called while a
        cancellation passes."""

    def connected(self) -> None:
        self._watch.connected()

    def received(self, events: list[Event]) -> None:
        self._watch.received(self._recorder.alive(), progress=bool(events))
        if self._seam is not None:
            events = self._seam.feed(events)
        if not events:
            return
        end = events[-1]
        if type(end) is ReplyEnded:
            self._ended(end, events)
        else:
            self._recorder.record(events)

    def _ended(self, end: ReplyEnded, events: list[Event]) -> None:
        self._recorder.record(events[:-1])
        if end.reason == "stop" and not self._empty_is_an_end and not self._said_anything(end.call):
            self.empty = True
            return
        self._recorder.record([end])
        self.end = end

    def _said_anything(self, call: int) -> bool:
        """A continuation that only repeated what was there has said that there is no more."""
        return self._recorder.visible(call) or (self._seam is not None and self._seam.heard)

    def flush(self) -> None:
        if self._seam is not None and (events := self._seam.flush()):
            self._recorder.record(events)


class ModelCall:
    """Put one question; `run` returns the event that ended the call, which is in the log by then."""

    def __init__(
        self,
        call: int,
        purpose: Purpose,
        candidates: Sequence[Candidate],
        options: Options,
        recorder: Recorder,
        around: Surroundings,
    ) -> None:
        self.number = self._call = call
        self.model_id = candidates[0].model_id
        self._purpose: Purpose = purpose
        self._candidates = candidates
        self._options = options
        self._recorder = recorder
        self._around = around
        self._attempts = 0

    async def run(
        self, messages: tuple[Message, ...], seam: str = "", *, empty_is_an_end: bool = False
    ) -> ReplyEnded | ReplyCut | CallFailed:
        self._messages = messages
        self._seam = seam
        self._empty_is_an_end = empty_is_an_end
        self._recorder.record([CallStarted(self._call, self._purpose, self.model_id)])
        first: Cause | None = None
        lasts: list[tuple[str, Cause]] = []
        for candidate in self._candidates:
            if lasts:
                self._fall_back(*lasts[-1], candidate)
            asked = _Asked(self._around, candidate)
            end = await self._ask(candidate, asked)
            if not isinstance(end, Cause):
                return end
            first = first or asked.first
            lasts.append((candidate.model_id, end))
            if not (asked.exhausted or end.code in _NO_CREDIT):
                break
        assert first is not None
        failed = CallFailed(self._call, first, tuple(lasts))
        self._recorder.record([failed])
        return failed

    def _fall_back(self, failed: str, cause: Cause, candidate: Candidate) -> None:
        text = f"{failed} gave no answer ({cause.message}) Asking {candidate.model_id} instead."
        self._replace(cause)
        self._recorder.record([NoticeShown("fallback", text, self._call)])

    def _replace(self, cause: Cause) -> None:
        self._recorder.record([AttemptReplaced(self._call, self._attempts, cause)])

    async def _ask(self, candidate: Candidate, asked: "_Asked") -> ReplyEnded | ReplyCut | Cause:
        """One model, until it has answered or its budget is spent; then the last cause."""
        while True:
            end = await self._attempt(candidate, asked)
            if not isinstance(end, Cause):
                return end
            wait_s = asked.after(end)
            if wait_s is None:
                return end
            self._replace(end)
            if wait_s:
                await self._around.clock.sleep(wait_s)

    async def _attempt(self, candidate: Candidate, asked: "_Asked") -> ReplyEnded | ReplyCut | Cause:
        request = self._request(candidate, asked)
        self._attempts += 1
        started = AttemptStarted(self._call, self._attempts, candidate.model_id, request.stream)
        self._recorder.record([started])
        ids = AttemptIds(self._call, self._recorder.next_part(self._call))
        watch = StallWatch(
            self._around.clock, self._patience(), streamed=request.stream, who=candidate.provider.name
        )
        seam = Seam(self._seam) if self._seam else None
        sink = _Attempt(self._recorder, watch, seam, empty_is_an_end=self._empty_is_an_end)
        try:
            async with watch:
                await candidate.provider.attempt(request, ids, sink)
            if sink.end is None:
                raise _unended(candidate.provider.name, empty=sink.empty)
        except CallError as failure:
            cause = failure.cause
        else:
            return sink.end
        if sink.end is not None:  # the answer is whole; what broke came after it
            return sink.end
        sink.flush()
        return self._cut(cause) if self._recorder.visible(self._call) else cause

    def _cut(self, cause: Cause) -> ReplyCut:
        reply = self._recorder.folded().replies[self._call]
        tools = [part.name for part in reply.parts.values() if part.kind == "tool_call"]
        cut = ReplyCut(self._call, cause, tuple(tools))
        self._recorder.record([cut])
        if tools:
            text = f"Stream stalled mid tool-call ({', '.join(tools)}). Nothing of it was run."
            self._recorder.record([NoticeShown("tool_call_dropped", text, self._call)])
        return cut

    def _patience(self) -> Patience:
        patience = self._around.policy.patience
        own = self._options.read_timeout_s
        if own is None:
            return patience
        return msgspec.structs.replace(patience, gap_s=own, no_progress_s=max(own, patience.no_progress_s))

    def _request(self, candidate: Candidate, asked: "_Asked") -> Request:
        own, model = self._options, candidate
        stream = asked.streams()
        return Request(
            model=model.model,
            messages=self._messages,
            tools=own.tools,
            stream=stream,
            stream_options=own.stream_options,
            max_tokens=own.max_tokens if own.max_tokens is not None else model.max_tokens,
            temperature=own.temperature if own.temperature is not None else model.temperature,
            reasoning_effort=own.reasoning_effort or model.reasoning_effort,
            extra=own.extra,
            dialect=model.dialect,
            dropped=asked.shape.dropped,
            key=asked.next_key(),
        )


def _unended(provider: str, *, empty: bool) -> CallError:
    if empty:
        return CallError(Cause("empty_reply", f"{provider}: The model's answer was empty."))
    return lost_promise(provider)


class _Asked:
    """What has been tried with one candidate, and what follows from it."""

    def __init__(self, around: Surroundings, candidate: Candidate) -> None:
        self._around = around
        self._candidate = candidate
        self._changes: set[str] = set()
        self._causes: list[Cause] = []
        self._key = 0
        self.first: Cause | None = None
        self.exhausted = False

    @property
    def shape(self) -> Shape:
        return self._around.learnt.shape(self._candidate.model_id)

    def next_key(self) -> int:
        """The key the next attempt uses."""
        self._key = self._around.learnt.key(self._candidate.provider.name)
        return self._key

    def streams(self) -> bool:
        """Whether the next attempt asks for a stream."""
        wanted = self._around.policy.streams and self._candidate.streams and self.shape.streams
        return wanted and not self._last_resort()

    def _last_resort(self) -> bool:
        """One attempt is left, and streams broke before."""
        last_of_several = len(self._causes) == self._around.policy.retries > 0
        return last_of_several and any(cause.code in _STREAM_TROUBLE for cause in self._causes)

    def after(self, cause: Cause) -> float | None:
        """Seconds until the next attempt; None if there is none."""
        self.first = self.first or cause
        if self._changed(cause):
            return 0.0
        # That it must be asked to stream is no answer either, where not streaming was the last resort.
        refused_whole = cause.code == "bad_request" and self._last_resort()
        self._causes.append(cause)
        policy = self._around.policy
        self.exhausted = (cause.transient or refused_whole) and len(self._causes) > policy.retries
        if self.exhausted or not cause.transient:
            return None
        if cause.retry_after_s is not None:
            self.exhausted = cause.retry_after_s > RETRY_AFTER_MOST_S
            return None if self.exhausted else cause.retry_after_s
        step_s = min(policy.backoff_s * 2.0 ** (len(self._causes) - 1), policy.backoff_most_s)
        return step_s * self._around.random.uniform(0.5, 1.0)

    def _changed(self, cause: Cause) -> bool:
        """Learn from a refusal and ask differently: at most once for each thing that can be changed."""
        learnt, candidate = self._around.learnt, self._candidate
        match cause.code:
            case "streaming_unsupported" if self._once("streaming"):
                learnt.no_streaming(candidate.model_id)
            case "parameter_rejected" if cause.parameter and self._once(f"without {cause.parameter}"):
                learnt.refuses(candidate.model_id, cause.parameter)
            case code if code in _KEY_TROUBLE and candidate.provider.key_count > 1 and self._once("key"):
                learnt.next_key(candidate.provider.name, self._key)
            case _:
                return False
        return True

    def _once(self, change: str) -> bool:
        """Bounded, because it is the provider who names the parameters it refuses."""
        if change in self._changes or len(self._changes) >= REFUSED_PARAMETERS_MOST:
            return False
        self._changes.add(change)
        return True
