"""Rows: what else is unlike other endpoints. headrace copes with nearly all of it."""

from collections.abc import Mapping
from typing import Final

from headrace.views.doctor.evidence import Evidence
from headrace.views.doctor.values import Finding
from headrace.views.doctor.wording import QUIRK_ADVICE, QUIRKS
from headrace.wire.traits import Quirk

# Parameters that a person may have configured; the others are headrace's own.
_SETTINGS: Final[Mapping[str, str]] = {
    "temperature": "Take temperature out of models.{model_id}.",
    "reasoning_effort": "Take reasoning_effort out of models.{model_id}.",
}


def quirks(evidence: Evidence) -> list[Finding]:
    return [*_framing(evidence), *_refused(evidence), *_name(evidence)]


def _framing(evidence: Evidence) -> list[Finding]:
    seen = dict.fromkeys(quirk for h in evidence.heard if h.traits for quirk in h.traits.quirks)
    return [_habit(evidence, quirk) for quirk in seen]


def _habit(evidence: Evidence, quirk: Quirk) -> Finding:
    advice = evidence.advice(QUIRK_ADVICE.get(quirk, ""))
    if not advice or (quirk == "cumulative" and evidence.subject.cumulative):
        return Finding(name="quirk", verdict="note", seen=QUIRKS[quirk])
    return Finding(name="quirk", verdict="problem", seen=QUIRKS[quirk], advice=advice)


def _refused(evidence: Evidence) -> list[Finding]:
    refused = dict.fromkeys(parameter for heard in evidence.heard for parameter in heard.dropped)
    return [_without(evidence, parameter) for parameter in refused]


def _without(evidence: Evidence, parameter: str) -> Finding:
    seen = f"refuses {parameter}; headrace asks again without it"
    setting = _SETTINGS.get(parameter, "")
    return Finding(name="quirk", verdict="note", seen=seen, advice=evidence.advice(setting))


def _name(evidence: Evidence) -> list[Finding]:
    if not evidence.subject.base_url:
        return []  # headrace's own models are called as it pleases
    asked = evidence.subject.model
    names = dict.fromkeys(heard.model for heard in evidence.heard if heard.model not in ("", asked))
    return [
        Finding(name="quirk", verdict="note", seen=f"was asked for {asked} and calls itself {name}")
        for name in names
    ]
