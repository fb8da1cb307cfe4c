"""`headrace models`: what is configured and known here, and what a provider says it serves.

Theory of operation. `list_known` reads the configuration and asks nobody. `list_served` asks one provider, once, and
prints names as they are written in a configuration, one a line, so that they can be searched and pasted. Names go to
standard output, remarks to standard error; what fails is raised, and the command line says it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from headrace.config import Config, ModelConfig, ModelRef, ProviderConfig, load
from headrace.config.known import READY_MADE
from headrace.config.resolved import MOA
from headrace.config.summary import host, providers_in_use, variables
from headrace.providers.http import Endpoint, HttpClient
from headrace.providers.model_list import ModelList, Served
from headrace.runtime.clock import SystemClock
from headrace.views.asides import harmless_json
from headrace.views.models import (
    EmbeddedModel,
    Known,
    ModelRow,
    ProviderRow,
    known_lines,
    known_value,
    served_lines,
)


def list_known(
    home: Path,
    env: Mapping[str, str],
    embedded: Sequence[EmbeddedModel],
    stdout: TextIO,
    *,
    as_json: bool = False,
) -> int:
    """Print what is configured and known. Raises ConfigError."""
    known = _known(load(home, env), env, embedded)
    if as_json:
        _print_json(known_value(known), stdout)
    else:
        _print(known_lines(known), stdout)
    return 0


async def list_served(
    home: Path,
    env: Mapping[str, str],
    provider: str,
    stdout: TextIO,
    stderr: TextIO,
    *,
    as_json: bool = False,
) -> int:
    """Ask a provider what it serves and print it. Raises ConfigError and CallError."""
    served = await _served(load(home, env).provider(provider), env)
    if as_json:
        _print_json({"provider": provider, "models": served.names, "more": served.more}, stdout)
        return 0
    _print(served_lines(provider, served.names), stdout)
    if served.more:
        stderr.write(f"{provider} has more models than these.\n")
    elif not served.names:
        stderr.write(f"{provider} lists no models.\n")
    return 0


async def _served(provider: ProviderConfig, env: Mapping[str, str]) -> Served:
    keys = provider.keys(env)
    endpoint = Endpoint(
        name=provider.name,
        protocol=provider.protocol,
        base_url=provider.base_url,
        auth=provider.auth,
        headers=provider.sent_headers(env),
    )
    client = HttpClient(SystemClock())
    try:
        return await ModelList(endpoint, client, lambda: keys).served()
    finally:
        await client.close()


def _known(config: Config, env: Mapping[str, str], embedded: Sequence[EmbeddedModel]) -> Known:
    used = providers_in_use(config)
    return Known(
        models=_models(config),
        providers=[
            ProviderRow(
                name=provider.name,
                ready_made=provider.name in READY_MADE,
                in_use=provider in used,
                protocol=provider.protocol,
                host=host(provider),
                variables=variables(provider, env),
            )
            for provider in config.providers.values()
        ],
        embedded=embedded,
    )


def _models(config: Config) -> list[ModelRow]:
    """The model, its fallbacks in order, and then those that merely have settings."""
    roles: dict[ModelRef, str] = {}
    if config.model is not None:
        roles[config.model] = "model"
    for place, ref in enumerate(config.fallback_models, start=1):
        roles.setdefault(ref, f"fallback {place}")
    mixtures = [ModelRef(MOA, name) for name in config.presets]
    refs = dict.fromkeys((*roles, *mixtures, *config.models))
    return [ModelRow(str(ref), roles.get(ref, ""), _told(ref, config)) for ref in refs]


def _told(ref: ModelRef, config: Config) -> dict[str, Any]:
    """What there is to say of a model: its settings, or who is in the mixture."""
    if ref.provider != MOA:
        return _settings(config.model_settings(ref))
    preset = config.presets[ref.model]
    return {"aggregator": str(preset.aggregator), "references": " + ".join(map(str, preset.references))}


def _settings(given: ModelConfig) -> dict[str, Any]:
    usual = msgspec.structs.asdict(ModelConfig())
    return {name: value for name, value in msgspec.structs.asdict(given).items() if value != usual[name]}


def _print(lines: Sequence[str], out: TextIO) -> None:
    out.write("".join(f"{line}\n" for line in lines))


def _print_json(value: Any, out: TextIO) -> None:
    out.write(harmless_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n")
