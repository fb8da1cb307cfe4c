"""Scripts by name, for a server in another process: `X-Script: NAME`, model `script:NAME`, `--scenario NAME`.

Besides the fixed names there are `long:N` (N tokens as fast as they can be written), `paced:N:MS` (one token
every MS milliseconds) and `status:CODE` (an HTTP error). A name followed by `*N` befalls the first N requests
that use it and is flawless afterwards: `close-mid-text*2`.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final, get_args

from headrace.testing.modelserver.script import (
    AnswerWhole,
    Close,
    Drip,
    ErrorShape,
    Fault,
    Malformed,
    Omit,
    Place,
    RefuseParameter,
    RefuseStreaming,
    Script,
    SendError,
    Stall,
    Status,
)
from headrace.testing.scripts import HELLO, CallTool, Refuse, Reply, Say, Think, Usage

# Tokens in a scenario that anybody can ask for by name; the answer is held in memory.
LONG_MAX_TOKENS: Final = 1_000_000
STATUSES: Final = (400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529)

_WEATHER: Final = CallTool("weather", {"city": "Kinlochleven", "days": 3})
_TOOLS: Final = Reply((Say("Let me look."), _WEATHER, CallTool("clock", {})))
_REASONING: Final = Reply(
    (Think("They greet me, so I greet them."), Say("Hello after some thought.")),
    usage=Usage(reasoning_tokens=9),
)
_EVERYTHING: Final = Reply((Think("Weather is asked."), Say("Let me look."), _WEATHER))
_HYPHENED: Final[dict[Place, str]] = {place: place.replace("_", "-") for place in get_args(Place)}


class ScenarioError(ValueError):
    """No scenario has this name."""


def _placed() -> dict[str, Fault]:
    """Every way to break off at every place."""
    faults: dict[str, Fault] = {}
    for place, name in _HYPHENED.items():
        faults[f"close-{name}"] = Close(place)
        faults[f"reset-{name}"] = Close(place, how="rst")
        faults[f"stall-{name}"] = Stall(place)
        if place != "before_headers":
            faults[f"eof-{name}"] = Close(place, how="eof")
            faults[f"malformed-{name}"] = Malformed(place)
            faults[f"error-{name}"] = SendError(place)
    for shape in get_args(ErrorShape):
        faults[f"error-shape-{shape.replace('_', '-')}"] = SendError(shape=shape)
    return faults


def _scenarios() -> dict[str, Script]:
    scripts = {name: Script(_EVERYTHING, fault) for name, fault in _placed().items()}
    scripts |= {f"status:{status}": Script(fault=Status(status)) for status in STATUSES}
    scripts |= {
        f"refuse-{name.replace('_', '-')}": Script(fault=RefuseParameter(name))
        for name in ("stream_options", "temperature", "max_tokens")
    }
    return scripts | {
        "hello": Script(HELLO),
        "tools": Script(_TOOLS),
        "reasoning": Script(_REASONING),
        "refusal": Script(Reply((Refuse("I would rather not."),))),
        "everything": Script(_EVERYTHING),
        "length": Script(Reply((Say("This goes on and"),), finish="length")),
        "content-filter": Script(Reply((Say("This was"),), finish="content_filter")),
        "hang": Script(fault=Stall("before_headers")),
        "drip": Script(fault=Drip()),
        "slow-drip": Script(fault=Drip(pause_s=0.005)),
        "zero-content": Script(Reply()),
        "empty-stream": Script(fault=Close("after_headers", how="eof")),
        "no-terminal": Script(fault=Omit("terminal")),
        "no-done": Script(fault=Omit("done")),
        "no-finish": Script(fault=Omit("finish")),
        "error-then-done": Script(fault=SendError(shape="int_code", then_done=True)),
        "rate-limited": Script(fault=Status(429, retry_after="1")),
        "no-quota": Script(fault=Status(429, "You exceeded your current quota.", "insufficient_quota")),
        "refuse-streaming": Script(fault=RefuseStreaming()),
        "answer-whole": Script(fault=AnswerWhole()),
    }


SCENARIOS: Final[Mapping[str, Script]] = _scenarios()


def scenario(name: str, scenarios: Mapping[str, Script] = SCENARIOS) -> Script:
    """The script of this name; raises ScenarioError."""
    base, _, times = name.partition("*")
    if times:
        if not times.isdecimal():
            raise ScenarioError(f"`{name}`: what follows `*` is how many requests the fault befalls")
        script = scenario(base, scenarios)
        if script.fault is None:
            raise ScenarioError(f"`{name}`: `{base}` has no fault that could befall a number of requests")
        return replace(script, times=int(times))
    if base in scenarios:
        return scenarios[base]
    match base.split(":"):
        case ["long", tokens] if tokens.isdecimal():
            return _tokens(int(tokens))
        case ["paced", tokens, pace_ms] if tokens.isdecimal() and pace_ms.isdecimal():
            return replace(_tokens(int(tokens)), pace_s=int(pace_ms) / 1000)
        case _:
            names = ", ".join(sorted({*scenarios, "long:N", "paced:N:MS"}))
            raise ScenarioError(f"no scenario is called `{name}`; there are: {names}")


@lru_cache(maxsize=8)
def _tokens(count: int) -> Script:
    if not 0 < count <= LONG_MAX_TOKENS:
        raise ScenarioError(f"a scenario may have 1 to {LONG_MAX_TOKENS} tokens, not {count}")
    text = "".join(f"{n % 1000:03d} " for n in range(count))
    return Script(Reply((Say(text),), usage=Usage(output_tokens=count)))
