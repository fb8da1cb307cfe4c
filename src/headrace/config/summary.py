"""A configuration in a few plain words, and what it still needs.

Theory of operation. Pure: a `Config` and an environment in, lines out. Of a variable only its name and whether it is
set are told; of an address only the host, because a path may hold a secret; of a header nothing. What is missing for
the model or a fallback is a warning, not an error: another shell may have it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from headrace.config.resolved import Config, ModelRef, ProviderConfig
from headrace.config.schema import Stall, Streaming
from headrace.errors import ConfigError


class Variable(NamedTuple):
    """An environment variable that holds a key."""

    name: str
    is_set: bool


class Summary(NamedTuple):
    lines: tuple[str, ...]
    warnings: tuple[str, ...]


def summary(config: Config, env: Mapping[str, str]) -> Summary:
    """What is configured, and what is missing for it."""
    lines = [
        f"model: {config.model or 'local (nothing is configured; `headrace config init` changes that)'}",
        f"fallbacks: {', '.join(map(str, config.fallback_models)) or 'none'}",
    ]
    used = providers_in_use(config)
    if used:
        width = max(len(provider.name) for provider in used)
        lines.append("providers in use:")
        lines += [f"  {p.name:<{width}}  {host(p)}, {key_words(p, env)}" for p in used]
    lines.append(f"streaming: {', '.join(_differences(config.streaming)) or 'as by default'}")
    return Summary(tuple(lines), tuple(text for provider in used for text in missing(provider, env)))


def providers_in_use(config: Config) -> list[ProviderConfig]:
    """The providers of the models in use, in their order."""
    names = dict.fromkeys(ref.provider for ref in models_in_use(config))
    return [config.providers[name] for name in names if name in config.providers]


def models_in_use(config: Config) -> list[ModelRef]:
    """The model and its fallbacks, in that order; of a mixture, its models."""
    return [each for ref in (config.model, *config.fallback_models) if ref for each in config.asked(ref)]


def variables(provider: ProviderConfig, env: Mapping[str, str]) -> tuple[Variable, ...]:
    """The variables its keys come from; none where no key is sent."""
    if provider.auth == "none":
        return ()
    return tuple(Variable(name, bool(env.get(name, "").strip())) for name in provider.key_names)


def key_words(provider: ProviderConfig, env: Mapping[str, str]) -> str:
    states = variables(provider, env)
    words = [f"{state.name} is {'set' if state.is_set else 'not set'}" for state in states]
    return ", ".join(words) or "no key needed"


def missing(provider: ProviderConfig, env: Mapping[str, str]) -> list[str]:
    """What has to be exported before it can be asked; empty if nothing."""
    return list(dict.fromkeys(_missing(provider, env)))


def host(provider: ProviderConfig) -> str:
    """The host of its address, and the port if one is written."""
    return urlsplit(provider.base_url).netloc


def _missing(provider: ProviderConfig, env: Mapping[str, str]) -> Iterator[str]:
    for read in (provider.keys, provider.sent_headers):
        try:
            read(env)
        except ConfigError as error:
            yield str(error)


def _differences(streaming: Streaming) -> Iterator[str]:
    given, usual = _flat(streaming), _flat(Streaming())
    for name, value in given.items():
        if value != usual[name]:
            yield f"{name} is {_shown(value)} (default {_shown(usual[name])})"


def _flat(section: Streaming | Stall, within: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(section).items():
        out |= _flat(value, f"{name}.") if isinstance(value, Stall) else {within + name: value}
    return out


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str) and not value.isalnum():
        return f'"{value}"'
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
