"""Rows: does it stream, how fast, what does it report, does it think, and how does an answer end?"""

from typing import Final, Literal

from headrace.views.doctor.evidence import Evidence
from headrace.views.doctor.values import Finding, Heard
from headrace.views.doctor.wording import (
    REASONING,
    REPORT,
    SET_UNSTREAMED,
    USAGE,
    WITH_REASON,
    count,
    seconds,
)

# Reads closer together than this left the server together.
_TOGETHER_S: Final = 0.005
# So many moments at which something came make a stream; a block sent over a slow network comes in two or three.
_MOMENTS: Final = 4
# A block after a wait shorter than this may be the work of a model that is very fast.
_HELD_BACK_S: Final = 1.0
# Shorter answers show nothing about streaming.
_TELLING_CHARS: Final = 40
# Speed over a shorter time than this is noise.
_MEASURABLE_S: Final = 0.1
# What a token is about, where the provider does not count them.
_CHARS_PER_TOKEN: Final = 4

_Pace = Literal["stream", "block", "too_fast", "too_short"]


def streams(evidence: Evidence) -> Finding | None:
    stream = evidence.stream
    if stream is None:
        return None
    if stream.cause is not None:
        lasting = stream.cause.code == "streaming_unsupported"
        return _unstreamed(
            evidence, stream.cause.message, "" if lasting else "If it stays so when run again: "
        )
    if stream.traits is not None and stream.traits.form == "document":
        return _unstreamed(evidence, "It was asked to stream and answered in one piece.")
    match pace(stream):
        case "stream":
            return _streamed(evidence, stream)
        case "block":
            seen = f"All of it came at once, {seconds(stream.growths[0])} after the question."
            advice = (
                "Something between the model and here holds the stream back: in a proxy turn buffering off "
            )
            advice += "(nginx: proxy_buffering off). If the server itself does it: " + SET_UNSTREAMED
            return Finding(name="streams", verdict="problem", seen=seen, advice=evidence.advice(advice))
        case "too_fast":
            seen = f"as events, but all came within {seconds(stream.growths[-1])}: too fast to tell"
            return Finding(name="streams", verdict="note", seen=seen)
        case "too_short":
            return Finding(name="streams", verdict="note", seen="as events; the answer was too short to tell")


def _unstreamed(evidence: Evidence, why: str, only: str = "") -> Finding:
    if not evidence.subject.streams:
        return Finding(
            name="streams", verdict="note", seen=f"{why} (The configuration says so: streams: false.)"
        )
    advice = only + evidence.advice(SET_UNSTREAMED)
    return Finding(name="streams", verdict="problem", seen=why, advice=advice)


def _streamed(evidence: Evidence, stream: Heard) -> Finding:
    spread_s = stream.growths[-1] - stream.growths[0]
    seen = f"{count(len(stream.growths), 'read')} over {seconds(spread_s)}"
    if evidence.subject.streams:
        return Finding(name="streams", verdict="ok", seen=seen)
    advice = evidence.advice("Take models.{model_id}.streams: false out, and answers are shown as they grow.")
    return Finding(name="streams", verdict="note", seen=seen, advice=advice)


def pace(heard: Heard) -> _Pace:
    """Whether the answer came bit by bit."""
    if not heard.growths or len(heard.text) < _TELLING_CHARS:
        return "too_short"
    moments, last = 0, float("-inf")
    for moment in heard.growths:
        if moment - last >= _TOGETHER_S:
            moments, last = moments + 1, moment
    if moments >= _MOMENTS:
        return "stream"
    return "block" if heard.growths[0] - (heard.connected_s or 0.0) >= _HELD_BACK_S else "too_fast"


def first_token(evidence: Evidence) -> Finding | None:
    stream = evidence.stream
    if stream is None or not stream.growths:
        return None
    what = " (it begins with thinking)" if stream.reasoned else ""
    return Finding(name="first_token", verdict="ok", seen=f"after {seconds(stream.growths[0])}{what}")


def speed(evidence: Evidence) -> Finding | None:
    stream = evidence.stream
    if stream is None or not stream.answered:
        return None
    rate = tokens_per_s(stream)
    if rate is None:
        return Finding(name="speed", verdict="note", seen="too little came, or too fast, to measure")
    about = "" if _counted(stream) else "about "
    return Finding(name="speed", verdict="ok", seen=f"{about}{rate:.0f} tokens/s")


def tokens_per_s(heard: Heard) -> float | None:
    """Tokens from the first to the last; None where that is not a stream."""
    if pace(heard) != "stream":
        return None
    spread_s = heard.growths[-1] - heard.growths[0]
    if spread_s < _MEASURABLE_S:
        return None
    return (_counted(heard) or len(heard.text) / _CHARS_PER_TOKEN) / spread_s


def _counted(heard: Heard) -> int | None:
    """Tokens as the provider counts them, without those of thinking that was not sent."""
    if heard.usage is None or not heard.usage.output_tokens:
        return None
    hidden = 0 if heard.reasoned else heard.usage.reasoning_tokens or 0
    return heard.usage.output_tokens - hidden or None


def usage(evidence: Evidence) -> Finding | None:
    answered = [h for h in (evidence.stream, evidence.whole) if h is not None and h.answered]
    for heard in answered:
        if heard.usage is None:
            continue
        places = heard.traits.usage if heard.traits else ()
        where = " and ".join(USAGE[place] for place in places)
        shown = f"{_tokens(heard.usage.input_tokens)} in, {_tokens(heard.usage.output_tokens)} out"
        only = " (not in streams)" if heard is evidence.whole and len(answered) == 2 else ""
        seen = f"{shown}, {where}{only}" if where else f"{shown}{only}"
        return Finding(name="usage", verdict="note" if only else "ok", seen=seen)
    seen = "not reported: nobody can say what an answer cost"
    return Finding(name="usage", verdict="note", seen=seen) if answered else None


def _tokens(number: int | None) -> str:
    return "?" if number is None else str(number)


def reasoning(evidence: Evidence) -> Finding | None:
    text = " ".join(heard.text for heard in evidence.heard)
    if setting := _unread_tags(text):
        seen = "Its thinking stands in the text, between <think> tags."
        advice = evidence.advice(f"Set models.{{model_id}}.think: {setting}.")
        return Finding(name="reasoning", verdict="problem", seen=seen, advice=advice)
    forms = dict.fromkeys(form for h in evidence.heard if h.traits for form in h.traits.reasoning)
    if forms:
        return Finding(name="reasoning", verdict="ok", seen="as " + " and ".join(REASONING[f] for f in forms))
    if any(heard.reasoned for heard in evidence.heard):
        return Finding(name="reasoning", verdict="ok", seen="seen")
    hidden = sum((heard.usage.reasoning_tokens or 0) for heard in evidence.heard if heard.usage)
    if hidden:
        seen = f"none shown, though it thought: {count(hidden, 'token')}"
        return Finding(name="reasoning", verdict="note", seen=seen)
    return Finding(name="reasoning", verdict="ok", seen="none seen")


def _unread_tags(text: str) -> str:
    """How to set `think` so that the tags in this text are read; "" where there are none."""
    names = ("think", "thinking", "mm:think")
    opened = min((at for name in names if (at := text.find(f"<{name}>")) >= 0), default=-1)
    closed = min((at for name in names if (at := text.find(f"</{name}>")) >= 0), default=-1)
    if closed >= 0 and (opened < 0 or closed < opened):
        return "prefilled"
    return "anywhere" if opened >= 0 and closed >= 0 else ""


def ending(evidence: Evidence) -> Finding | None:
    """How the answer said that it is complete."""
    heard = evidence.stream
    if heard is not None and heard.cause is not None and heard.cause.code == "no_terminal":
        seen = "missing: the stream ended without saying that the answer is complete"
        advice = f"An answer that was cut off looks the same. {REPORT}"
        return Finding(name="ending", verdict="problem", seen=seen, advice=advice)
    if heard is None or heard.end is None:
        heard = next(one for one in evidence.heard if one.answered)
    assert heard.end is not None
    reason = heard.end.provider_reason or heard.end.reason
    markers = heard.traits.markers if heard.traits else ()
    words = [f"{marker} {reason}" if marker in WITH_REASON else marker for marker in markers]
    return Finding(name="ending", verdict="ok", seen=", then ".join(words) or reason)
