"""Examining an endpoint: a few bounded questions to one model, and what was heard of each.

Theory of operation. Four questions are put, one after another, each once and without a retry:

    stream --an answer, or a failure that says something about streams--> whole --> one_call --called--> two_calls
       '--any other failure--> the end                                      '--no answer to either--> the end

Where a parameter is refused, the question is asked again without it; where streaming is refused, the others are asked
whole. Requests are counted, and every one has an end in time, so a diagnosis ends too. What was heard is judged in
`views.doctor`; nothing is judged here.

The port shows events; what lies below them, the adapter's `tap` shows, if it has one.
"""

from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

import msgspec

from headrace.errors import CallError, Cause, CauseCode
from headrace.events import user_message
from headrace.limits import (
    DOCTOR_FIRST_EVENT_S,
    DOCTOR_GAP_S,
    DOCTOR_MAX_TOKENS,
    DOCTOR_MOST_REQUESTS,
    DOCTOR_NO_PROGRESS_S,
    DOCTOR_REQUEST_S,
)
from headrace.ports import AttemptIds, Clock, Request, ToolSpec
from headrace.runtime.listening import Listener
from headrace.runtime.question import Candidate, lost_promise
from headrace.runtime.stalls import Patience, StallWatch
from headrace.views.doctor import Diagnosis, Heard, Question, Subject, judge

PATIENCE: Final = Patience(
    first_event_s=DOCTOR_FIRST_EVENT_S, gap_s=DOCTOR_GAP_S, no_progress_s=DOCTOR_NO_PROGRESS_S
)

_WEATHER: Final = ToolSpec(
    "weather",
    "Tells the weather of today in one city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
_QUESTIONS: Final[dict[Question, str]] = {
    "stream": "Count from one to thirty in English words, separated by commas. Write nothing else.",
    "whole": "Reply with the word: ready",
    "one_call": "What is the weather in Kinlochleven? Use the weather tool to find out; do not guess.",
    "two_calls": "What is the weather in Oslo, and what is it in Lima? Call the weather tool twice in the same reply, "
    "once for each city; do not guess.",
}
_SAID: Final[dict[Question, str]] = {
    "stream": "asking for a stream",
    "whole": "asking for an answer in one piece",
    "one_call": "asking for a tool call",
    "two_calls": "asking for two tool calls at once",
}
# After these a whole answer may still come, and it is worth knowing whether it does.
_ASK_ON: Final[frozenset[CauseCode]] = frozenset(
    {
        "malformed_stream", "connection_lost", "no_terminal", "empty_reply", "stalled_gap", "stalled_progress",
        "stalled_total", "server_error", "overloaded", "provider_error", "finish_error", "finish_unknown",
        "streaming_unsupported", "bad_request",
    }
)  # fmt: skip

_FIRST_FAILED: Final = "The first question failed, so the others were not asked."
_NO_ANSWER: Final = "Neither a stream nor a whole answer came, so nothing else was asked."
_TOO_MANY: Final = f"Not everything was asked: a diagnosis makes at most {DOCTOR_MOST_REQUESTS} requests."

Progress = Callable[[str], None]
"""Told what is being done, in a few words."""


@runtime_checkable
class Tapped(Protocol):
    """A provider whose answers can be looked at byte for byte."""

    tap: Callable[[bytes], None] | None

    def redacted(self, text: str) -> str: ...


async def diagnose(
    candidate: Candidate,
    subject: Subject,
    clock: Clock,
    *,
    patience: Patience = PATIENCE,
    request_s: float = DOCTOR_REQUEST_S,
    progress: Progress | None = None,
) -> Diagnosis:
    """Examine the candidate. Cancelling it closes the connection that is open."""
    examination = _Examination(candidate, clock, patience, request_s, progress)
    stopped = await examination.run()
    return judge(subject, examination.heard, stopped)


class _Examination:
    def __init__(
        self,
        candidate: Candidate,
        clock: Clock,
        patience: Patience,
        request_s: float,
        progress: Progress | None,
    ) -> None:
        self._candidate = candidate
        self._clock = clock
        self._patience = patience
        self._request_s = request_s
        self._progress = progress
        self._streams = True
        self._dropped: frozenset[str] = frozenset()
        self.heard: list[Heard] = []

    async def run(self) -> str:
        """Ask; says why not everything was asked."""
        stream = await self._ask("stream")
        if stream.cause is not None and stream.cause.code not in _ASK_ON:
            return _FIRST_FAILED
        self._streams = stream.answered
        if self._spent():
            return _TOO_MANY
        whole = await self._ask("whole")
        if not (stream.answered or whole.answered):
            return _NO_ANSWER
        if self._spent():
            return _TOO_MANY
        called = await self._ask("one_call")
        if called.calls and self._spent():
            return _TOO_MANY
        if called.calls:
            await self._ask("two_calls")
        return ""

    def _spent(self) -> bool:
        return len(self.heard) >= DOCTOR_MOST_REQUESTS

    async def _ask(self, question: Question) -> Heard:
        """Put a question, again for each parameter that is refused and was not before."""
        if self._progress is not None:
            self._progress(_SAID[question])
        while True:
            heard = await self._once(question)
            self.heard.append(heard)
            cause = heard.cause
            if cause is None or cause.code != "parameter_rejected" or self._spent():
                return heard
            if not cause.parameter or cause.parameter in self._dropped:
                return heard
            self._dropped |= {cause.parameter}

    async def _once(self, question: Question) -> Heard:
        provider = self._candidate.provider
        streamed = self._streams and question != "whole"
        watch = StallWatch(self._clock, self._patience, streamed=streamed, who=provider.name)
        listener = Listener(self._clock, watch, {_WEATHER.name})
        cause: Cause | None = None
        if isinstance(provider, Tapped):
            provider.tap = listener.raw
        try:
            async with self._clock.timeout(self._request_s), watch:
                await provider.attempt(self._request(question, streamed=streamed), AttemptIds(1), listener)
            if listener.end is None:
                raise lost_promise(provider.name)
        except CallError as failure:
            cause = None if listener.end is not None else failure.cause
        except TimeoutError:
            cause = self._endless()
        finally:
            if isinstance(provider, Tapped):
                provider.tap = None
        heard = listener.heard(question, streamed=streamed, dropped=self._dropped, cause=cause)
        if isinstance(provider, Tapped) and heard.model:
            heard = msgspec.structs.replace(heard, model=provider.redacted(heard.model))
        return heard

    def _endless(self) -> Cause:
        name, limit_s = self._candidate.provider.name, self._request_s
        return Cause("stalled_total", f"{name}: The answer had not ended after {limit_s:g} s.")

    def _request(self, question: Question, *, streamed: bool) -> Request:
        candidate = self._candidate
        return Request(
            model=candidate.model,
            messages=(user_message(_QUESTIONS[question]),),
            tools=(_WEATHER,) if question in ("one_call", "two_calls") else (),
            stream=streamed,
            max_tokens=min(candidate.max_tokens or DOCTOR_MAX_TOKENS, DOCTOR_MAX_TOKENS),
            temperature=candidate.temperature,
            reasoning_effort=candidate.reasoning_effort,
            dialect=candidate.dialect,
            dropped=self._dropped,
        )
