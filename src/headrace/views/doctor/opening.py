"""Rows: can it be reached, does it take the key, does it answer, and also in one piece?"""

from typing import Final

import msgspec

from headrace.errors import Cause, CauseCode
from headrace.views.doctor.evidence import Evidence
from headrace.views.doctor.values import Finding, Heard
from headrace.views.doctor.wording import BROKEN, seconds

_UNREACHABLE: Final[frozenset[CauseCode]] = frozenset(
    {"connect_failed", "tls_failed", "stalled_connect", "config_invalid"}
)
_KEY: Final[frozenset[CauseCode]] = frozenset({"key_missing", "key_rejected", "forbidden"})


def reachable(evidence: Evidence) -> Finding | None:
    first = evidence.first
    cause = first.cause
    if cause is not None and _unreachable(first, cause):
        return evidence.failed("reachable", cause)
    if first.connected_s is None:
        return None
    return Finding(name="reachable", verdict="ok", seen=f"connected in {seconds(first.connected_s)}")


def _unreachable(heard: Heard, cause: Cause) -> bool:
    lost = cause.code == "connection_lost" and heard.connected_s is None
    return cause.code in _UNREACHABLE or lost


def key(evidence: Evidence) -> Finding | None:
    cause = evidence.first.cause
    if cause is not None and cause.code in _KEY:
        return evidence.failed("key", cause)
    if not evidence.works:
        return None  # whether a key is looked at before or after what failed, nobody can know
    names = evidence.subject.key_names
    seen = f"{names[0]} is accepted" if names else "none is sent, and none is asked for"
    return Finding(name="key", verdict="ok", seen=seen)


def answers(evidence: Evidence) -> Finding | None:
    answered = next((heard for heard in evidence.heard if heard.answered), None)
    if answered is not None:
        return _answered(answered)
    stream, whole = evidence.stream, evidence.whole
    assert stream is not None
    assert stream.cause is not None
    cause = stream.cause
    if _unreachable(stream, cause) or cause.code in _KEY:
        return None  # said above
    if whole is not None and whole.cause is not None and whole.cause.code != cause.code:
        both = f"As a stream: {cause.message} In one piece: {whole.cause.message}"
        cause = msgspec.structs.replace(cause, message=both)
    return evidence.failed("answers", cause, BROKEN if _broken_off(stream, cause) else "")


def _broken_off(heard: Heard, cause: Cause) -> bool:
    """Whether what came was an answer, as far as it came."""
    readable = heard.traits is not None and heard.traits.form in ("events", "document")
    return readable and cause.code in ("malformed_stream", "no_terminal", "connection_lost")


def _answered(heard: Heard) -> Finding:
    assert heard.end is not None
    took = f"in {seconds(heard.ended_s)}"
    if heard.text or heard.calls:
        return Finding(name="answers", verdict="ok", seen=took)
    if heard.end.reason == "length":
        thought = " It used all its tokens for thinking, which is no fault." if heard.reasoned else ""
        seen = f"{took}, cut at the length this test allows before it said anything.{thought}"
    else:
        seen = f"{took}, with nothing to say (it ended with {heard.end.reason})"
    return Finding(name="answers", verdict="note", seen=seen)


def whole_answer(evidence: Evidence) -> Finding | None:
    """An endpoint that only streams serves well; that a broken stream has no last resort there is worth knowing."""
    whole = evidence.whole
    if whole is None:
        return None
    if whole.answered:
        return Finding(name="whole_answer", verdict="ok", seen=f"in {seconds(whole.ended_s)}")
    assert whole.cause is not None
    return Finding(name="whole_answer", verdict="note", seen=f"does not work: {whole.cause.message}")
