"""Which providers a new configuration may begin with, in the order a person is asked.

Theory of operation. What works without another step comes first: providers whose key is already exported, then the
embedded model, then the rest. So the first offer is always a good default. An example is a model its provider serves
under a name that lasts as long as such names do; where a provider has one that follows its models, that is taken.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.config.resolved import LOCAL, Config, ProviderConfig
from headrace.config.summary import host, variables

EXAMPLES: Final[Mapping[str, str]] = {
    "openai": "gpt-5.5",
    "anthropic": "claude-sonnet-5",
    "openrouter": "openrouter/auto",
    "gemini": "gemini-flash-latest",
    "deepseek": "deepseek-v4-flash",
    "mistral": "mistral-large-latest",
    "groq": "openai/gpt-oss-120b",
    "xai": "grok-4.3",
    "ollama": "llama3.2:3b",
    "lmstudio": "openai/gpt-oss-20b",
    "llamacpp": "default",
    "vllm": "Qwen/Qwen3-8B",
}


class Offer(NamedTuple):
    """A provider as it is offered."""

    name: str
    about: str
    example: str
    """A model of it; empty for the embedded one, which needs no name."""


def offers(known: Config, env: Mapping[str, str]) -> list[Offer]:
    """Every provider that can be chosen, best first."""
    ready = [provider for provider in known.providers.values() if _exported(provider, env)]
    rest = [provider for provider in known.providers.values() if provider not in ready]
    local = Offer(LOCAL, "a small model on this machine; no key, no account", "")
    return [*(_offer(p, env) for p in ready), local, *(_offer(p, env) for p in rest)]


def _exported(provider: ProviderConfig, env: Mapping[str, str]) -> bool:
    states = variables(provider, env)
    return bool(states) and all(state.is_set for state in states)


def _offer(provider: ProviderConfig, env: Mapping[str, str]) -> Offer:
    states = variables(provider, env)
    missing = [state.name for state in states if not state.is_set]
    if missing:
        about = f"needs {', '.join(missing)}"
    elif states:
        about = f"{', '.join(state.name for state in states)} is set"
    else:
        about = f"a server of yours at {host(provider)}"
    return Offer(provider.name, about, EXAMPLES.get(provider.name, ""))
