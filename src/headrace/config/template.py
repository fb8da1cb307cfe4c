"""A first configuration file: a few answers become the text of a commented `config.yaml`.

Theory of operation. Pure: answers in, text out. The answers are the only live lines; everything else is a comment, so
a new file means what was answered and nothing more, and follows headrace's defaults when those change. A comment line
with no space behind its `#` is an example: with the `#` taken away it is right, and every default in it comes from the
schema. A name is written plain where YAML reads it as it stands, and in single quotes otherwise; a name that
`parse_model` takes holds nothing single quotes could not carry.
"""

import re
from typing import Any, Final, NamedTuple

import msgspec

from headrace.config.resolved import Config, ModelRef, parse_model
from headrace.config.schema import Stall, Streaming
from headrace.errors import ConfigError

# The longest name of a model that is written: YAML ends a key after 1,024 characters, and the name is one in `models`.
MODEL_NAME_MAX_CHARS: Final = 500

# Text that YAML reads as it stands, in a list and as a key too. It begins with a letter, so it is no number.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*(:[A-Za-z0-9._/-]+)*")

_TEMPLATE: Final = """\
# What headrace asks, and how. `headrace config check` says whether this file is right; docs/configuration.md explains
# every key. Lines that begin with `#` and no space are examples: take the `#` away to use them.
#
# Keys (secrets) do not belong in here: the file names environment variables, and headrace reads those when it asks.

# The model that answers, as <provider>:<model>, or `local` for the embedded one, which needs no key.{needs}
model: {model}

# Models asked in this order when the first one cannot answer.
fallback_models: [{fallbacks}]

# Settings of a model, by its full name.
#models:
#  {model}:
#    max_tokens: 16000               # the longest answer
#    temperature: 0.7
#    reasoning_effort: high          # a word the provider knows

# An endpoint of your own; its models are then written house:<model>.
#providers:
#  house:
#    protocol: chat_completions      # or responses, or messages
#    base_url: https://models.example.org/v1
#    api_key_env: HOUSE_KEY          # the name of the variable, never the key

# How answers stream. These are the defaults.
#streaming:
#  retries: {retries}                      # further attempts at a call that broke before anything was shown
#  continue_cut: {continue_cut}             # `never`: an answer that breaks off in the middle stays as it is
#  stall: {stall}
"""


class Answers(NamedTuple):
    """What a person wants of a first configuration."""

    model: ModelRef
    fallbacks: tuple[ModelRef, ...] = ()


def answers(model: str, fallbacks: tuple[str, ...], known: Config) -> Answers:
    """The answers as written by a person; their providers must be known. Raises ConfigError."""
    first = _parsed(model, known)
    others = tuple(dict.fromkeys(_parsed(text, known) for text in fallbacks))
    if first in others:
        raise ConfigError("the model cannot be its own fallback; name another, or none")
    return Answers(first, others)


def render(wanted: Answers, known: Config) -> str:
    """The text of the file; loading it gives `wanted` and the defaults."""
    defaults = Streaming()
    return _TEMPLATE.format(
        needs=_needs(wanted, known),
        model=_written(str(wanted.model)),
        fallbacks=", ".join(_written(str(ref)) for ref in wanted.fallbacks),
        retries=defaults.retries,
        continue_cut=defaults.continue_cut,
        stall=_stall(defaults.stall),
    )


def _parsed(text: str, known: Config) -> ModelRef:
    if len(text) > MODEL_NAME_MAX_CHARS:
        raise ConfigError(f"a model's name has at most {MODEL_NAME_MAX_CHARS} characters")
    return parse_model(text, known)


def _needs(wanted: Answers, known: Config) -> str:
    """Which variables the answers need, as further comment lines."""
    used = dict.fromkeys(ref.provider for ref in (wanted.model, *wanted.fallbacks))
    providers = [known.providers[name] for name in used if name in known.providers]
    return "".join(
        f"\n# {provider.name} takes its key from the environment: export {name}=..."
        for provider in providers
        for name in provider.key_names
    )


def _written(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "''") + "'"


def _stall(stall: Stall) -> str:
    pairs: dict[str, Any] = msgspec.structs.asdict(stall)
    return "{" + ", ".join(f"{name}: {value:g}" for name, value in pairs.items()) + "}"
