"""`headrace config`: where the file is, whether it is right, and a first one.

Theory of operation. `path` and `check` only look. `init` finds out what is wanted, from flags or by asking, before it
touches the disk; then the file is written whole (`config.saving`) and loaded again, so that what is reported as written
is known to work. Whoever leaves while being asked leaves everything as it was. No function here ever has a key in its
hands: of a variable only whether it is set is looked at.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from headrace.config import Config, load
from headrace.config.loading import FILE_NAME
from headrace.config.offers import offers
from headrace.config.resolved import LOCAL
from headrace.config.saving import check_free, save
from headrace.config.showing import looks_secret
from headrace.config.summary import missing, models_in_use, providers_in_use, summary
from headrace.config.template import Answers, answers, render
from headrace.doors.terminal import EXIT
from headrace.doors.terminal.questions import NoAnswers, ask
from headrace.errors import Bug, ConfigError

WRONG: Final = 2
"""The exit status for a command line or a configuration that has to change."""

_NOTHING_WRITTEN: Final = "Nothing was written."

# A folder that is not there has no file in it, and what is known without a file is what ready-made providers give.
_EMPTY: Final = "no-such-folder"


def show_path(home: Path, stdout: TextIO, stderr: TextIO) -> int:
    """Print where the configuration is, or would be."""
    path = home / FILE_NAME
    stdout.write(f"{path}\n")
    if not _there(path):
        stderr.write("There is no such file yet; `headrace config init` writes one.\n")
    return 0


def check(home: Path, env: Mapping[str, str], stdout: TextIO, stderr: TextIO) -> int:
    """Load the configuration and say in short what it comes to, or what is wrong with it."""
    path = home / FILE_NAME
    try:
        config = load(home, env)
    except ConfigError as error:
        stderr.write(f"{error}\n")
        return WRONG
    told = summary(config, env)
    first = f"{path} is right." if _there(path) else f"There is no {path}; everything has its default."
    stdout.write("".join(f"{line}\n" for line in (first, *told.lines)))
    stderr.write("".join(f"warning: {text}\n" for text in (*told.warnings, *_unknown_embedded(config, home))))
    return 0


def _unknown_embedded(config: Config, home: Path) -> list[str]:
    """What is wrong with embedded models that are named; the default one needs no look."""
    named = [ref.model for ref in models_in_use(config) if ref.provider == LOCAL and ref.model]
    return [text for name in dict.fromkeys(named) if (text := _unusable(name, home))]


def _unusable(name: str, home: Path) -> str:
    from headrace.providers.embedded import weights  # noqa: PLC0415 - costs more than all of the rest

    try:
        weights.resolve(name, home)
    except weights.WeightsError as error:
        return error.cause.message
    return ""


def init(
    home: Path,
    env: Mapping[str, str],
    stdin: TextIO,
    stdout: TextIO,
    stderr: TextIO,
    *,
    model: str | None = None,
    fallbacks: Sequence[str] = (),
    force: bool = False,
) -> int:
    """Write a first configuration, asking for what it holds unless `model` says so. Raises ConfigError."""
    if fallbacks and model is None:
        raise ConfigError("--fallback needs --model; without both, headrace asks")
    check_free(home, replace=force)
    known = load(home / _EMPTY, env)
    try:
        wanted = _wanted(known, env, stdin, stdout, stderr, model, fallbacks)
    except NoAnswers as reason:
        stderr.write(f"\n{_NOTHING_WRITTEN} ({reason})\n")
        return EXIT["error"]
    except KeyboardInterrupt:
        stderr.write(f"\n{_NOTHING_WRITTEN}\n")
        return EXIT["cancelled"]
    kept = save(home, render(wanted, known), replace=force)
    config = _proven(home, env, wanted)
    stdout.write(f"{home / FILE_NAME} is written.\n")
    if kept is not None:
        stdout.write(f"The old one is kept as {kept}.\n")
    _say_what_is_next(config, env, stdout)
    return 0


def _wanted(
    known: Config,
    env: Mapping[str, str],
    stdin: TextIO,
    stdout: TextIO,
    stderr: TextIO,
    model: str | None,
    fallbacks: Sequence[str],
) -> Answers:
    if model is None:
        return ask(offers(known, env), known, stdin, stdout)
    wanted = answers(model, tuple(fallbacks), known)
    if any(looks_secret(text) for text in (model, *fallbacks)):
        stderr.write("warning: a name given here looks like a key; if it is one, take it out of the file.\n")
    return wanted


def _proven(home: Path, env: Mapping[str, str], wanted: Answers) -> Config:
    """The configuration as it was written, read again."""
    config = load(home, env)
    if (config.model, config.fallback_models) != (wanted.model, wanted.fallbacks):
        raise Bug(f"{home / FILE_NAME} does not say what was answered")
    return config


def _say_what_is_next(config: Config, env: Mapping[str, str], stdout: TextIO) -> None:
    needed = [text for provider in providers_in_use(config) for text in missing(provider, env)]
    stdout.writelines(f"{text}\n" for text in needed)
    stdout.write(f'{"Then try" if needed else "Try"}: headrace ask "Hi"\n')


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
