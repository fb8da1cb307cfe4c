"""The values of a diagnosis: what was asked of whom, what was heard, what follows from it."""

from typing import Literal

import msgspec

from headrace.errors import Cause
from headrace.events import ReplyEnded, UsageReported
from headrace.wire.traits import Traits

Question = Literal["stream", "whole", "one_call", "two_calls"]
"""A text as a stream, a text in one piece, one tool call, two tool calls at once."""

Verdict = Literal["ok", "note", "problem"]
"""`note`: worth knowing, nothing to mend. `problem`: something does not work, and there is advice what to do."""

ExitStatus = Literal[0, 1, 3]


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Subject(_Value, frozen=True):
    """Who was examined, as configured."""

    model_id: str
    """"<provider>:<model>"."""
    provider: str
    model: str
    protocol: str = ""
    base_url: str = ""
    key_names: tuple[str, ...] = ()
    """The environment variables its keys are read from."""
    streams: bool = True
    """Whether the configuration lets it stream."""
    cumulative: bool = False
    """Whether the configuration says that its deltas repeat the text so far."""


class HeardCall(_Value, frozen=True):
    """A tool call of a reply."""

    offered: bool
    """Its name is that of an offered tool."""
    whole: bool
    """Its arguments are one JSON object."""
    pieces: int
    """In how many deltas the arguments came."""


class Heard(_Value, frozen=True):
    """One request and what came of it. Times are seconds since it was made."""

    question: Question
    streamed: bool
    """Whether a stream was asked for."""
    dropped: tuple[str, ...] = ()
    """Parameters that were left out because they had been refused."""
    cause: Cause | None = None
    """Why there is no answer; None where there is one."""
    connected_s: float | None = None
    reads: int = 0
    growths: tuple[float, ...] = ()
    """When something of the answer came, once for each read that brought any."""
    ended_s: float = 0.0
    text: str = ""
    reasoned: bool = False
    calls: tuple[HeardCall, ...] = ()
    usage: UsageReported | None = None
    end: ReplyEnded | None = None
    traits: Traits | None = None
    """None where the provider's bytes could not be seen."""
    model: str = ""
    """What the provider calls the model, as it may be shown."""

    @property
    def answered(self) -> bool:
        return self.end is not None and self.cause is None


class Finding(_Value, frozen=True):
    """One row."""

    name: str
    verdict: Verdict
    seen: str
    advice: str = ""
    """What to do next."""


class Numbers(_Value, frozen=True):
    """What was measured; None is unknown."""

    requests: int
    connect_s: float | None = None
    first_token_s: float | None = None
    tokens_per_s: float | None = None
    input_tokens: int | None = None
    """Of all requests together, as the provider counts them."""
    output_tokens: int | None = None


class Diagnosis(_Value, frozen=True):
    subject: Subject
    works: bool
    """At least one question was answered."""
    findings: tuple[Finding, ...]
    numbers: Numbers
    stopped: str = ""
    """Why not everything was asked."""

    @property
    def problems(self) -> int:
        return sum(finding.verdict == "problem" for finding in self.findings)

    @property
    def exit_status(self) -> ExitStatus:
        """0: no problem was found. 1: it does not answer. 3: it answers, with problems."""
        if not self.works:
            return 1
        return 3 if self.problems else 0
