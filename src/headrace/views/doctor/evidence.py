"""What was heard, sorted by question, and the sentences that all rows need."""

from headrace.errors import Cause
from headrace.views.doctor.values import Finding, Heard, Question, Subject
from headrace.views.doctor.wording import ADVICE, ELSE


class Evidence:
    """Of a question that was asked again in another shape, the last request counts."""

    def __init__(self, subject: Subject, heard: tuple[Heard, ...]) -> None:
        self.subject = subject
        self.heard = heard
        self.first = heard[0]
        self.works = any(one.answered for one in heard)
        self.stream = self._last("stream")
        self.whole = self._last("whole")
        self.one_call = self._last("one_call")
        self.two_calls = self._last("two_calls")

    def _last(self, question: Question) -> Heard | None:
        return next((one for one in reversed(self.heard) if one.question == question), None)

    def advice(self, text: str) -> str:
        """`text` with what is known of the endpoint filled in."""
        subject = self.subject
        return text.format(
            provider=subject.provider,
            model=subject.model,
            model_id=subject.model_id,
            protocol=subject.protocol,
            base_url=subject.base_url,
            key_name=" or ".join(subject.key_names) or "its key",
        )

    def failed(self, name: str, cause: Cause, advice: str = "") -> Finding:
        """A row about a request that got no answer; where there is no address to look at, its own words say it all."""
        text = advice or ADVICE.get(cause.code, ELSE)
        if "{base_url}" in text and not self.subject.base_url:
            text = ""
        return Finding(name=name, verdict="problem", seen=cause.message, advice=self.advice(text))
