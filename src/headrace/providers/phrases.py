"""What providers say in words because they send no code for it: the only place where an error's text is read.

Each row is a pattern, the cause it means, and the parameter it speaks of. Rows are looked at only for causes that say
little by themselves, so a code always goes before a phrase.
"""

import re
from typing import Final

import msgspec

from headrace.errors import Cause, CauseCode

_VAGUE: Final[frozenset[CauseCode]] = frozenset(
    {"bad_request", "provider_error", "parameter_rejected", "forbidden"}
)

_PARAMETER: Final = (
    r"\b(?P<parameter>stream_options|max_completion_tokens|max_output_tokens|max_tokens|temperature|top_p"
    r"|reasoning_effort)\b"
)
_UNKNOWN: Final = r"(unsupported|unrecogni[sz]ed|unknown|unexpected|extra|invalid)"
_REFUSED: Final = r"(not (supported|permitted|allowed)|deprecated|unsupported|extra)"

_ROWS: Final[tuple[tuple[str, CauseCode], ...]] = (
    (r"network connection lost", "connection_lost"),
    (r"upstream (connect error|request timeout)|error reading from upstream", "connection_lost"),
    (r"\boverloaded\b|temporarily unavailable|server is busy", "overloaded"),
    (r"stream(ing)?\b.{0,40}\b(is not|isn't|not) (supported|available|allowed)", "streaming_unsupported"),
    (r"(does not|doesn't) support stream(ing)?\b", "streaming_unsupported"),
    (r"unsupported (value|parameter): '?stream'?(?!_)", "streaming_unsupported"),
    # The first parameter is the one that is refused; another one after it is what to use instead.
    (rf"{_UNKNOWN}.{{0,60}}?{_PARAMETER}", "parameter_rejected"),
    (rf"{_PARAMETER}.{{0,60}}?{_REFUSED}", "parameter_rejected"),
    (rf"{_PARAMETER}(: \d+ > \d+|\W{{0,3}} (is too (large|high)|must be|should be)\b)", "parameter_rejected"),
    (r"insufficient (balance|credits?|quota|funds)|exceeded your current quota", "quota_exhausted"),
    (
        r"(maximum|max) context length|prompt is too long|context (window|length) exceeded",
        "request_too_large",
    ),
)
_PATTERNS: Final = tuple((re.compile(pattern, re.IGNORECASE), code) for pattern, code in _ROWS)


def refine(cause: Cause) -> Cause:
    """The same cause, or a more precise one that its words give away."""
    if cause.code == "parameter_rejected" and cause.parameter == "stream":
        return msgspec.structs.replace(cause, code="streaming_unsupported")
    if cause.code not in _VAGUE and not (cause.code == "rate_limited" and cause.status == 429):
        return cause
    for pattern, code in _PATTERNS:
        found = pattern.search(cause.message)
        if found is None or (cause.code == "rate_limited" and code != "quota_exhausted"):
            continue
        parameter = cause.parameter or found.groupdict().get("parameter") or ""
        return msgspec.structs.replace(cause, code=code, parameter=parameter)
    return cause
