"""The configuration as the rest of headrace sees it: providers with everything filled in, models by reference.

Theory of operation. A `Config` is a value: it holds no secret, reads no file and no environment. What is secret
is named in it and read when a request is made, out of an environment the caller passes in, so a printed or logged
configuration shows none. Every refusal is a ConfigError whose sentence says what to write instead.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headrace.agent.mixture import Fanout
from headrace.config.checking import nearest
from headrace.config.known import SIGN_IN
from headrace.config.schema import ENV_NAME, Api, Auth, ModelConfig, Sessions, Streaming, Tools
from headrace.config.showing import shown_value
from headrace.errors import ConfigError
from headrace.events import AdviceShown
from headrace.ports import ProtocolName

LOCAL: Final = "local"
MOA: Final = "moa"

_FORM: Final = (
    "a model is written <provider>:<model>, such as openai:gpt-5.5, or local, local:<file>, moa:<preset>"
)
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_KEY = re.compile(r"[!-~]+")
_HEADER = re.compile(r"[ -~]+")


class ModelRef(msgspec.Struct, frozen=True):
    """A model by name. `local` has an empty model where none is chosen; `moa` has its preset as the model."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}" if self.model else self.provider


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint, as it is called."""

    name: str
    protocol: ProtocolName
    base_url: str
    """Without a slash at the end."""
    auth: Auth
    key_names: tuple[str, ...] = ()
    """The environment variables that hold its keys, in the order they are tried."""
    headers: Mapping[str, str] = {}
    """As written, `${NAME}` included. A person may have put a secret here, so the repr leaves it out."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        return list((shown | {"headers": f"<{len(self.headers)} not shown>"}).items())

    def __repr__(self) -> str:
        return f"ProviderConfig({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    @property
    def variables(self) -> frozenset[str]:
        """The environment variables it is made from: its keys, and what its headers name."""
        named = (name for value in self.headers.values() for name in _REFERENCE.findall(value))
        return frozenset((*self.key_names, *named))

    def keys(self, env: Mapping[str, str]) -> tuple[str, ...]:
        """The secrets, in the order they are tried; none where none is sent."""
        if self.auth == "none":
            return ()
        return tuple(_sendable(name, self._variable(name, env), _KEY) for name in self.key_names)

    def sent_headers(self, env: Mapping[str, str]) -> dict[str, str]:
        """The headers with each `${NAME}` replaced. They may hold secrets."""

        def replaced(found: re.Match[str]) -> str:
            return _sendable(found[1], self._variable(found[1], env), _HEADER)

        return {name: _REFERENCE.sub(replaced, value) for name, value in self.headers.items()}

    def _variable(self, name: str, env: Mapping[str, str]) -> str:
        if value := env.get(name, "").strip():
            return value
        raise ConfigError(f"The provider {self.name} needs {name}, which is not set: export {name}=...")


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """A mixture whose models are known."""

    references: tuple[ModelRef, ...]
    aggregator: ModelRef
    deadline_s: float
    quorum: int
    fanout: Fanout
    show_advice: AdviceShown


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a person decided, checked and filled in."""

    model: ModelRef | None = None
    """None where nothing was configured."""
    fallback_models: tuple[ModelRef, ...] = ()
    providers: Mapping[str, ProviderConfig] = {}
    """Ready-made and configured ones."""
    models: Mapping[ModelRef, ModelConfig] = {}
    streaming: Streaming = Streaming()
    tools: Tools = Tools()
    sessions: Sessions = Sessions()
    skip_context_files: bool = False
    skip_memory: bool = False
    presets: Mapping[str, Preset] = {}
    default_preset: str | None = None
    traces: bool = False
    api: Api = Api()

    def provider(self, name: str) -> ProviderConfig:
        found = self.providers.get(name)
        if found is None:
            raise ConfigError(unknown_provider(name, self.providers))
        return found

    def asked(self, ref: ModelRef) -> tuple[ModelRef, ...]:
        """The models that are asked where `ref` is: of a mixture all of its own, the one that answers first."""
        if ref.provider != MOA:
            return (ref,)
        preset = self.presets[ref.model]
        return tuple(dict.fromkeys((preset.aggregator, *preset.references)))

    def model_settings(self, ref: ModelRef) -> ModelConfig:
        return self.models.get(ref, ModelConfig())


def parse_model(text: str, config: Config) -> ModelRef:
    """The model that `text` names; its provider must be one of the configuration's. Raises ConfigError."""
    provider, colon, model = text.partition(":")
    if text == LOCAL:
        return ModelRef(LOCAL, "")
    if provider == MOA and colon:
        return ModelRef(MOA, _preset(model, config))
    if not colon or not model or model != model.strip() or not model.isprintable():
        raise ConfigError(f"{_FORM}; found {shown_value(text)}{_bare_meant(text, config)}")
    if provider != LOCAL and provider not in config.providers:
        raise ConfigError(unknown_provider(provider, config.providers, model))
    return ModelRef(provider, model)


def _preset(name: str, config: Config) -> str:
    """The name of a preset; an empty one means the default."""
    wanted = name or config.default_preset
    if wanted is not None and wanted in config.presets:
        return wanted
    known = ", ".join(f"moa:{preset}" for preset in config.presets)
    if not known:
        raise ConfigError(f"{shown_value(f'moa:{name}')}: no mixture is configured; see moa.presets")
    if not wanted:
        raise ConfigError(f'"moa:" names no mixture, for there is no moa.default_preset; there are {known}')
    meant = nearest(wanted, config.presets)
    hint = f"; did you mean moa:{meant}?" if meant else f"; there are {known}"
    raise ConfigError(f"no mixture is named {shown_value(wanted)}{hint}")


def unknown_provider(name: str, known: Mapping[str, ProviderConfig], model: str = "") -> str:
    """Why there is no such provider, and what may have been meant."""
    if name in SIGN_IN:
        return f"{name} {SIGN_IN[name]} (headrace has no sign-in)"
    if name in (LOCAL, MOA):
        return f"{name} is a kind of model and no provider with an address"
    words = f"no provider is named {shown_value(name)}"
    if meant := nearest(name, known):
        return f"{words}; did you mean {shown_value(f'{meant}:{model}' if model else meant)}?"
    return f"{words}; known are {', '.join(known)}" + (f" ({_FORM})" if model else "")


def references_fit(value: str) -> bool:
    """Whether every `${...}` in `value` is closed and names a variable."""
    names = [found[1] for found in _REFERENCE.finditer(value)]
    return all(re.fullmatch(ENV_NAME, name) for name in names) and "${" not in _REFERENCE.sub("", value)


def _bare_meant(text: str, config: Config) -> str:
    provider, slash, model = text.partition("/")
    if slash and model and provider in config.providers:
        return f"; did you mean {shown_value(f'{provider}:{model}')}?"
    if text.rstrip(":") in config.providers:
        return "; the model's name is missing"
    return ""


def _sendable(name: str, value: str, form: re.Pattern[str]) -> str:
    """The value of the variable `name`, if a request can carry it."""
    if form.fullmatch(value):
        return value
    raise ConfigError(
        f"{name} holds characters that cannot be sent (a space, a line break, a typographic quote?);"
        f" set it again: export {name}=..."
    )
