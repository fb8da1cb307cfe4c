"""What a diagnosis of an endpoint says: from what was heard to findings, and from findings to a table.

Theory of operation. `runtime.doctor` asks a model a few questions and writes down what it heard (`values`). From there
on everything is pure: `judging` turns what was heard into findings, each with a verdict and, for a problem, what to do
next (`wording`); `table` writes the findings for a person.

    Heard, Heard, ... --judging--> Diagnosis --table--> lines
                                       '------------> JSON
"""

from headrace.views.doctor.judging import judge
from headrace.views.doctor.table import lines
from headrace.views.doctor.values import (
    Diagnosis,
    Finding,
    Heard,
    HeardCall,
    Numbers,
    Question,
    Subject,
    Verdict,
)

__all__ = [
    "Diagnosis",
    "Finding",
    "Heard",
    "HeardCall",
    "Numbers",
    "Question",
    "Subject",
    "Verdict",
    "judge",
    "lines",
]
