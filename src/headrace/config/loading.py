"""From a home folder and an environment to a `Config`, or one ConfigError that says everything that is wrong.

Theory of operation. Four steps, each on the last one's result: the file's bytes (`_text`), its tree (`document`),
its values (`checking`), and here what they mean together: entries laid over the ready-made providers, models
looked up, the environment's overrides applied. Problems of the last two steps are collected and told together; a
section that is already known to be wrong is not judged any further. A missing file is an empty configuration.

The environment is a value; nothing here looks at the process's own.
"""

import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from headrace.config import tree
from headrace.config.checking import Problems, build, expectation, nearest
from headrace.config.known import READY_MADE, SIGN_IN
from headrace.config.resolved import (
    LOCAL,
    MOA,
    Config,
    ModelRef,
    Preset,
    ProviderConfig,
    parse_model,
    references_fit,
    unknown_provider,
)
from headrace.config.schema import Auth, FileConfig, Moa, PresetEntry, ProviderEntry, Retries, Slot, ToolRule
from headrace.config.showing import shown_value
from headrace.errors import ConfigError
from headrace.limits import CONFIG_MAX_BYTES, REFERENCES_MOST, STREAM_RETRIES_MAX

FILE_NAME: Final = "config.yaml"
API_KEY_FILE: Final = "api_key"
"""Beside it: the key of the API, where no variable has one."""
HOME: Final = "HEADRACE_HOME"
STREAM_RETRIES: Final = "HEADRACE_STREAM_RETRIES"

_ENDPOINTS: Final = ("/chat/completions", "/responses", "/messages")

T = TypeVar("T")


def home_dir(env: Mapping[str, str]) -> Path:
    """Where headrace keeps what is a person's own: `HEADRACE_HOME`, or else `~/.headrace`."""
    chosen = env.get(HOME) or "~/.headrace"
    if chosen != "~" and not chosen.startswith("~/"):
        return Path(chosen)
    user = env.get("HOME") or env.get("USERPROFILE")
    if not user:
        raise ConfigError(f"No home folder is known; export {HOME}=/a/folder/for/headrace")
    return Path(user, chosen[2:])


def load(home: Path, env: Mapping[str, str]) -> Config:
    """The configuration in `home`. Raises ConfigError."""
    path = home / FILE_NAME
    source = str(path)
    text = _text(path, source)
    root = tree.EMPTY
    if text is not None:
        from headrace.config import document  # noqa: PLC0415 - PyYAML costs more than this whole room

        root = document.parse(text, source)
    problems = Problems(source, root)
    config = _resolved(build(FileConfig, root, (), problems), problems)
    problems.raise_any()
    return _overridden(config, env)


def _text(path: Path, source: str) -> str | None:
    """What the file holds; None if there is none."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "something that is no file"
            raise ConfigError(f"{source}: expected a text file; found {kind}.")
        with path.open("rb") as file:
            data = file.read(CONFIG_MAX_BYTES + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise ConfigError(f"{source}: it is a link to a file that is not there.") from None
        return None
    except PermissionError:
        raise ConfigError(
            f"{source}: it may not be read; check its permissions and those of its folder."
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path is not one the system takes"
        raise ConfigError(f"{source}: it cannot be read: {reason}.") from None
    if len(data) > CONFIG_MAX_BYTES:
        raise ConfigError(f"{source}: larger than {CONFIG_MAX_BYTES // 1024} KiB, which no configuration is.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{source}, line {line}: this is not UTF-8 text; save the file as UTF-8.") from None


def _overridden(config: Config, env: Mapping[str, str]) -> Config:
    text = env.get(STREAM_RETRIES, "")
    if not text:
        return config
    if not re.fullmatch(r"[0-9]{1,4}", text) or int(text) > STREAM_RETRIES_MAX:
        raise ConfigError(
            f"The environment variable {STREAM_RETRIES}: expected {expectation(Retries)}; found {shown_value(text)}."
        )
    streaming = msgspec.structs.replace(config.streaming, retries=int(text))
    return msgspec.structs.replace(config, streaming=streaming)


def _resolved(written: FileConfig, problems: Problems) -> Config:
    providers = {name: _provider(name, entry) for name, entry in READY_MADE.items()}
    for name, entry in written.providers.items():
        _check_provider(name, entry, problems)
        providers[name] = _provider(name, _laid_over(READY_MADE.get(name, ProviderEntry()), entry))
    _check_rules(written.tools.rules, problems)
    config = Config(
        providers=providers,
        streaming=written.streaming,
        tools=written.tools,
        sessions=written.sessions,
        skip_context_files=written.skip_context_files,
        skip_memory=written.skip_memory,
    )
    config = msgspec.structs.replace(
        config,
        presets=_presets(written.moa, config, problems),
        default_preset=written.moa.default_preset,
        traces=written.moa.traces,
        api=written.api,
    )
    _check_default_preset(written.moa, problems)
    model = _model(written.model, ("model",), config, problems)
    fallbacks = [
        _model(text, ("fallback_models", place), config, problems)
        for place, text in enumerate(written.fallback_models)
    ]
    for place, ref in enumerate(fallbacks):
        if ref is not None and ref.provider == MOA:
            problems.add(("fallback_models", place), "a mixture cannot be a fallback; name one model")
    models = [
        (_model(text, ("models", text), config, problems), settings)
        for text, settings in written.models.items()
    ]
    for ref, _ in models:
        if ref is not None and ref.provider == MOA:
            problems.add(("models", str(ref)), "a mixture has no settings of its own; its models have theirs")
    return msgspec.structs.replace(
        config,
        model=model,
        fallback_models=tuple(ref for ref in fallbacks if ref is not None),
        models={ref: settings for ref, settings in models if ref is not None},
    )


def _model(text: Any, path: tree.Path, config: Config, problems: Problems) -> ModelRef | None:
    if not isinstance(text, str) or problems.within(path):
        return None
    if text.startswith(f"{MOA}:") and problems.within((MOA,)):
        return None  # what is wrong with the mixture has been said
    try:
        return parse_model(text, config)
    except ConfigError as error:
        problems.add(path, str(error))
        return None


def _presets(moa: Moa, config: Config, problems: Problems) -> dict[str, Preset]:
    found = {name: _preset(name, entry, config, problems) for name, entry in moa.presets.items()}
    return {name: preset for name, preset in found.items() if preset is not None}


def _preset(name: str, entry: PresetEntry, config: Config, problems: Problems) -> Preset | None:
    path = ("moa", "presets", name)
    if problems.within(path):
        return None
    count = len(entry.reference_models)
    if not 1 <= count <= REFERENCES_MOST:
        words = f"expected a list of 1 to {REFERENCES_MOST} models ({{provider: ..., model: ...}})"
        problems.add((*path, "reference_models"), words)
    if isinstance(entry.quorum, int) and entry.quorum > count:
        problems.add((*path, "quorum"), f"expected at most {count}, the number of references; or all")
    if entry.aggregator is None:
        problems.add(path, "aggregator is missing (the model that answers: {provider: ..., model: ...})")
        return None
    references = [
        _slot(slot, (*path, "reference_models", place), config, problems)
        for place, slot in enumerate(entry.reference_models)
    ]
    aggregator = _slot(entry.aggregator, (*path, "aggregator"), config, problems)
    known = tuple(ref for ref in references if ref is not None)
    if aggregator is None or not known or len(known) < count:
        return None
    return Preset(
        references=known,
        aggregator=aggregator,
        deadline_s=entry.deadline_s,
        quorum=count if entry.quorum == "all" else entry.quorum,
        fanout=entry.fanout,
        show_advice=entry.show_advice,
    )


def _slot(slot: Slot, path: tree.Path, config: Config, problems: Problems) -> ModelRef | None:
    """The model that answers in this place of a mixture."""
    if slot.provider == MOA:
        problems.add(path, "a mixture cannot be part of a mixture; name one model")
        return None
    for key in ("provider", "model"):
        if not getattr(slot, key) and slot.provider != LOCAL:
            problems.add(path, f"{key} is missing (as in {{provider: openai, model: gpt-5.5}})")
            return None
    return _model(f"{slot.provider}:{slot.model}".removesuffix(":"), path, config, problems)


def _check_default_preset(moa: Moa, problems: Problems) -> None:
    name = moa.default_preset
    if name is not None and name not in moa.presets:
        known = ", ".join(moa.presets) or "none"
        problems.add(("moa", "default_preset"), f"there is no preset {shown_value(name)}; there are: {known}")


def _check_provider(name: str, entry: ProviderEntry, problems: Problems) -> None:
    """Note what does not fit together within one entry."""
    path = ("providers", name)
    if problems.within(path):
        return
    complete = _laid_over(READY_MADE.get(name, ProviderEntry()), entry)
    if name in (LOCAL, MOA):
        problems.add(path, f"the name {name} is taken; call the provider something else")
    elif complete.base_url is UNSET and name in SIGN_IN:
        problems.add(path, unknown_provider(name, {}))
    elif complete.base_url is UNSET:
        meant = nearest(name, READY_MADE)
        words = "base_url is missing (an address such as https://host/v1)"
        problems.add(path, f"{words}; or did you mean `{meant}`?" if meant else words)
    if isinstance(entry.base_url, str) and (words := _address_fault(entry.base_url)):
        problems.add((*path, "base_url"), words)
    if entry.api_key_env not in (UNSET, None) and entry.api_keys_env is not UNSET:
        problems.add((*path, "api_keys_env"), "give either api_key_env or api_keys_env")
    if entry.api_keys_env == ():
        problems.add((*path, "api_keys_env"), "expected at least one name (api_key_env: null is for no key)")
    if entry.auth in ("bearer", "x-api-key") and not _key_names(complete):
        problems.add((*path, "auth"), "a key is to be sent, but no api_key_env names it")
    for header, value in entry.headers.items():
        if not references_fit(value):
            words = "expected `${NAME}` with the name of an environment variable in capitals"
            problems.add((*path, "headers", header), words)


def _check_rules(rules: Sequence[ToolRule], problems: Problems) -> None:
    """A rule that fits no call, or another than was meant, must not look as if it did something."""
    for place, rule in enumerate(rules):
        path = ("tools", "rules", place)
        if problems.within(path):
            continue
        if not rule.tool:
            problems.add(path, "tool is missing (the name of the tool the rule is about, such as terminal)")
        if rule.command and not rule.command.strip():
            problems.add(path, "command is blank; give the words it begins with")
        if rule.path and rule.command:
            problems.add(path, "give either path or command; a call has one of them")


def _address_fault(address: str) -> str:
    for ending in _ENDPOINTS:
        if address.rstrip("/").endswith(ending):
            return f"give the address without {ending}, which headrace adds"
    try:
        _ = urlsplit(address).port
    except ValueError:
        return "there is no such host and port (a port is a number up to 65535)"
    return ""


def _laid_over(base: ProviderEntry, entry: ProviderEntry) -> ProviderEntry:
    """`base` with the keys that `entry` gives; headers are laid over one by one."""
    keys = entry if entry.api_key_env is not UNSET or entry.api_keys_env is not UNSET else base
    protocol = _given(entry.protocol, base.protocol)
    # How a key is sent belongs to the protocol and the key it was written for.
    inherited = base.auth if protocol == base.protocol and keys is base else UNSET
    theirs = {name.lower() for name in entry.headers}
    kept = {name: value for name, value in base.headers.items() if name.lower() not in theirs}
    return ProviderEntry(
        protocol=protocol,
        base_url=_given(entry.base_url, base.base_url),
        api_key_env=keys.api_key_env,
        api_keys_env=keys.api_keys_env,
        auth=_given(entry.auth, inherited),
        headers={**kept, **entry.headers},
    )


def _provider(name: str, entry: ProviderEntry) -> ProviderConfig:
    """A complete entry as it is called."""
    protocol = _given(entry.protocol, "chat_completions")
    names = _key_names(entry)
    by_protocol: Auth = "x-api-key" if protocol == "messages" else "bearer"
    return ProviderConfig(
        name=name,
        protocol=protocol,
        base_url=_given(entry.base_url, "").rstrip("/"),
        auth=_given(entry.auth, by_protocol if names else "none"),
        key_names=names,
        headers=entry.headers,
    )


def _key_names(entry: ProviderEntry) -> tuple[str, ...]:
    if isinstance(entry.api_keys_env, tuple):
        return entry.api_keys_env
    return (entry.api_key_env,) if isinstance(entry.api_key_env, str) else ()


def _given(value: T | UnsetType, otherwise: T | UnsetType) -> Any:
    return otherwise if value is UNSET else value
