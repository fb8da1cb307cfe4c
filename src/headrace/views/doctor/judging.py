"""From what was heard to findings.

Theory of operation. Each function below is one row: it looks at the evidence and says what it saw, or nothing where
nothing can be said. The rows of the beginning (`opening`) say whether the endpoint answers at all; only if it does are
there others (`streaming`, `tools`, `quirks`). A row claims no more than was seen: an answer too short or too fast to
tell a stream from a block is a note and no praise.
"""

from collections.abc import Iterable, Sequence

import msgspec

from headrace.views.doctor import opening, quirks, streaming, tools
from headrace.views.doctor.evidence import Evidence
from headrace.views.doctor.values import Diagnosis, Finding, Heard, Numbers, Subject

_BEGINNING = (opening.reachable, opening.key, opening.answers)
_ROWS = (
    streaming.streams,
    streaming.first_token,
    streaming.speed,
    streaming.usage,
    tools.tool_calls,
    tools.parallel_calls,
    streaming.reasoning,
    streaming.ending,
    opening.whole_answer,
)


def judge(subject: Subject, heard: Sequence[Heard], stopped: str = "") -> Diagnosis:
    """What the requests so far show, in the order they were made; there is at least one."""
    evidence = Evidence(subject, tuple(heard))
    rows = [row(evidence) for row in _BEGINNING + (_ROWS if evidence.works else ())]
    findings: list[Finding] = [row for row in rows if row is not None]
    if evidence.works:
        findings += quirks.quirks(evidence)
    return Diagnosis(
        subject=subject,
        works=evidence.works,
        findings=tuple(findings),
        numbers=_numbers(evidence),
        stopped=stopped,
    )


def _numbers(evidence: Evidence) -> Numbers:
    stream = evidence.stream
    measured = Numbers(
        requests=sum(not _unsent(heard) for heard in evidence.heard),
        connect_s=_rounded(evidence.first.connected_s),
        input_tokens=_total(h.usage.input_tokens for h in evidence.heard if h.usage),
        output_tokens=_total(h.usage.output_tokens for h in evidence.heard if h.usage),
    )
    if stream is None or not stream.growths:
        return measured
    return msgspec.structs.replace(
        measured,
        first_token_s=_rounded(stream.growths[0]),
        tokens_per_s=_rounded(streaming.tokens_per_s(stream)),
    )


def _unsent(heard: Heard) -> bool:
    return heard.cause is not None and heard.cause.code == "key_missing"


def _total(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
