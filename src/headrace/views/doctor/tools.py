"""Rows: does it call a tool that it is asked to use, how do calls arrive, and can it call two at once?"""

from headrace.views.doctor.evidence import Evidence
from headrace.views.doctor.values import Finding, Heard
from headrace.views.doctor.wording import NO_TOOLS, count


def tool_calls(evidence: Evidence) -> Finding | None:
    heard = evidence.one_call
    if heard is None:
        return None
    if heard.cause is not None:
        refused = heard.cause.trait.who == "caller" or heard.cause.code == "provider_error"
        return evidence.failed("tool_calls", heard.cause, NO_TOOLS if refused else "")
    if not heard.calls:
        return _none(evidence, heard)
    call = heard.calls[0]
    if not call.offered:
        return _problem(evidence, "It called a tool that was not offered.", NO_TOOLS)
    if not call.whole:
        return _problem(evidence, "It called the tool with arguments that are no JSON object.", NO_TOOLS)
    return Finding(name="tool_calls", verdict="ok", seen=_arrived(heard))


def _none(evidence: Evidence, heard: Heard) -> Finding:
    if markup := _markup(heard.text):
        seen = "It wrote the call into its text instead of sending it as a call."
        return _problem(evidence, seen, f"Set models.{{model_id}}.tool_markup: {markup}.")
    assert heard.end is not None
    if heard.end.reason == "length":
        seen = "none came before the length this test allows: cannot be told"
        return Finding(name="tool_calls", verdict="note", seen=seen)
    return _problem(evidence, "It was asked to use a tool and did not.", NO_TOOLS)


def _problem(evidence: Evidence, seen: str, advice: str) -> Finding:
    return Finding(name="tool_calls", verdict="problem", seen=seen, advice=evidence.advice(advice))


def _markup(text: str) -> str:
    """Which markup a call in this text is written in; "" where there is none."""
    openings = {"<function=": "qwen", "<tool_call>": "hermes", "[TOOL_CALLS]": "mistral"}
    return next((markup for opening, markup in openings.items() if opening in text), "")


def _arrived(heard: Heard) -> str:
    if not heard.streamed:
        return "arrive whole (not streamed)"
    pieces = max(call.pieces for call in heard.calls)
    return f"stream: arguments in {count(pieces, 'piece')}" if pieces > 1 else "arrive whole, in one piece"


def parallel_calls(evidence: Evidence) -> Finding | None:
    heard = evidence.two_calls
    if heard is None:
        return None
    calls = len(heard.calls)
    if heard.cause is not None:
        return Finding(name="parallel_calls", verdict="note", seen=f"do not work: {heard.cause.message}")
    if calls < 2:
        seen = f"asked for two calls, it made {'one' if calls else 'none'}: work with tools takes more rounds"
        return Finding(name="parallel_calls", verdict="note", seen=seen)
    return Finding(name="parallel_calls", verdict="ok", seen=f"{calls} at once")
