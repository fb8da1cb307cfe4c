"""`headrace doctor`: examine a model's endpoint and print what was found.

Theory of operation. The examination itself is `runtime.doctor`; this door tells it who is to be examined, shows on a
terminal what it is doing, and prints the findings, as a table or as JSON. The exit status says how it went (`STATUS`).
Ctrl-C cancels the examination, which closes its connection, and prints nothing.
"""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Final, Protocol, TextIO

import msgspec

from headrace.agent.mixture import Mixture
from headrace.config import Config
from headrace.errors import ConfigError
from headrace.runtime.clock import SystemClock
from headrace.runtime.doctor import PATIENCE, diagnose
from headrace.runtime.question import Candidate
from headrace.runtime.stalls import Patience
from headrace.views.asides import harmless_json
from headrace.views.doctor import Diagnosis, Subject, lines

DESCRIPTION: Final = """Ask a model a few small questions and say what its endpoint can do: whether it can be reached,
takes the key, really streams, calls tools, says when an answer is complete, and what to do about what is wrong.
It makes at most 6 requests, which cost a few hundred tokens, and each of them ends within two minutes."""

STATUS: Final = """exit status:
  0  no problem was found
  1  a problem keeps the model from answering
  2  wrong command or configuration
  3  the model answers, with problems
130  stopped
"""

_CLEAR: Final = "\r\x1b[K"
# Lines longer than this are hard to read, however wide the terminal is.
_WIDTH: Final = 110


class Wired(Protocol):
    """As much of an App as an examination needs."""

    @property
    def config(self) -> Config: ...

    def candidates(self, model: str | None = None) -> list[Candidate]: ...

    def mixture(self, model: str | None = None) -> tuple[Mixture | None, list[Candidate]]: ...


async def doctor(
    app: Wired, model: str | None, out: TextIO, *, as_json: bool = False, patience: Patience = PATIENCE
) -> int:
    """Examine `model`, or the configured one; returns the exit status. Raises ConfigError before anything is asked."""
    candidate = app.candidates(model)[0]
    mixture, references = app.mixture(model)
    if mixture is not None:
        models = " or ".join(dict.fromkeys(each.model_id for each in (candidate, *references)))
        raise ConfigError(f"{mixture.name} is a mixture; examine one of its models: {models}")
    with _progress(out, lively=out.isatty() and not as_json) as say:
        diagnosis = await diagnose(
            candidate, _subject(app.config, candidate), SystemClock(), patience=patience, progress=say
        )
    if as_json:
        out.write(_json(diagnosis) + "\n")
    else:
        width = min(_WIDTH, shutil.get_terminal_size().columns) if out.isatty() else _WIDTH
        out.write("".join(f"{line}\n" for line in lines(diagnosis, width)))
    out.flush()
    return diagnosis.exit_status


def _subject(config: Config, candidate: Candidate) -> Subject:
    name = candidate.provider.name
    provider = config.providers.get(name)
    sends_key = provider is not None and provider.auth != "none"
    return Subject(
        model_id=candidate.model_id,
        provider=name,
        model=candidate.model,
        protocol=provider.protocol if provider else "",
        base_url=provider.base_url if provider else "",
        key_names=provider.key_names if provider and sends_key else (),
        streams=candidate.streams and config.streaming.enabled,
        cumulative=candidate.dialect.cumulative,
    )


def _json(diagnosis: Diagnosis) -> str:
    value = {"exit_status": diagnosis.exit_status, **msgspec.structs.asdict(diagnosis)}
    return harmless_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


@contextlib.contextmanager
def _progress(out: TextIO, *, lively: bool) -> "Iterator[_Say]":
    """While within, what is being done stands on a terminal's line and goes with the next."""

    def say(what: str) -> None:
        if lively:
            out.write(f"{_CLEAR}{what} ...")
            out.flush()

    try:
        yield say
    finally:
        if lively:
            out.write(_CLEAR)
            out.flush()


class _Say(Protocol):
    def __call__(self, what: str, /) -> None: ...
