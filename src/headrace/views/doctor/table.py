"""A diagnosis as lines for a person: one row a finding, and below a problem what to do next.

Theory of operation. Nothing that a provider said reaches the terminal as it came: every cell is made harmless and put
on one line before it is wrapped. Rows keep their columns when they wrap.
"""

import textwrap
from typing import Final

from headrace.views.asides import harmless
from headrace.views.doctor.values import Diagnosis, Finding
from headrace.views.doctor.wording import count

_VERDICT: Final = 9
_NAME: Final = 16
_LEAST_WIDTH: Final = 60


def lines(diagnosis: Diagnosis, width: int = 100) -> list[str]:
    """The table, without line ends."""
    width = max(width, _LEAST_WIDTH)
    subject = diagnosis.subject
    place = f"  ({subject.protocol} at {subject.base_url})" if subject.base_url else ""
    out = [_one_line(f"{subject.model_id}{place}"), ""]
    for finding in diagnosis.findings:
        out += _row(finding, width)
    out.append("")
    if diagnosis.stopped:
        out += _wrapped(diagnosis.stopped, "", "", width)
    return [*out, *_wrapped(_summary(diagnosis), "", "", width)]


def _row(finding: Finding, width: int) -> list[str]:
    indent = "  " + " " * (_VERDICT + _NAME)
    head = f"  {finding.verdict:<{_VERDICT}}{finding.name.replace('_', ' '):<{_NAME}}"
    rows = _wrapped(finding.seen, head, indent, width)
    if finding.advice:
        rows += _wrapped(finding.advice, f"{indent}-> ", f"{indent}   ", width)
    return rows


def _wrapped(text: str, head: str, indent: str, width: int) -> list[str]:
    wrapped = textwrap.wrap(
        _one_line(text), width, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
    )
    return wrapped or [head.rstrip()]


def _one_line(text: str) -> str:
    return " ".join(harmless(text).split())


def _summary(diagnosis: Diagnosis) -> str:
    numbers = diagnosis.numbers
    spent = [number for number in (numbers.input_tokens, numbers.output_tokens) if number is not None]
    cost = f", {count(sum(spent), 'token')}" if spent else ""
    made = f"{count(numbers.requests, 'request')}{cost}."
    if not diagnosis.works:
        return f"{made} It does not answer."
    if diagnosis.problems:
        return f"{made} It works, with {count(diagnosis.problems, 'problem')}."
    return f"{made} No problem was found."
