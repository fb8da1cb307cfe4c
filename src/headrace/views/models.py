"""What is configured and known of models, as a terminal and a program show it.

Theory of operation. Rows go in, lines or JSON values come out; who reads the configuration, the environment and the
disk makes the rows. A row has room for a variable's name and whether it is set, and none for a key; for a host, and
none for an address that may carry one. What a name was given by somebody else cannot control the terminal.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace.views.asides import harmless


class EmbeddedModel(NamedTuple):
    """A model that headrace runs itself."""

    name: str
    size_bytes: int
    installed: bool
    about: str


class ModelRow(NamedTuple):
    """A model the configuration names."""

    name: str
    role: str
    """`model`, `fallback 1` and so on; empty for one that merely has settings."""
    settings: Mapping[str, Any]
    """Those that differ from the defaults."""


class ProviderRow(NamedTuple):
    name: str
    ready_made: bool
    in_use: bool
    protocol: str
    host: str
    variables: Sequence[tuple[str, bool]]
    """Where its keys come from, and whether each is set; none where no key is sent."""


class Known(NamedTuple):
    """All there is to list."""

    models: Sequence[ModelRow]
    providers: Sequence[ProviderRow]
    embedded: Sequence[EmbeddedModel]


def known_lines(known: Known) -> list[str]:
    """Three tables; `*` marks what is in use."""
    out = ["Configured"]
    if not known.models:
        out.append("  nothing, so the embedded model answers; `headrace config init` changes that")
    out += _table([(_mark(row.role), row.name, row.role, _settings(row.settings)) for row in known.models])
    out += ["", "Providers"]
    out += _table(
        [(_mark(row.in_use), row.name, row.host, row.protocol, _key(row)) for row in known.providers]
    )
    if known.embedded:
        out += ["", "Embedded"]
        out += _table(
            [(" ", e.name, _size(e.size_bytes), _installed(e.installed), e.about) for e in known.embedded]
        )
    return out


def known_value(known: Known) -> dict[str, Any]:
    """The same for a program."""
    return {
        "models": [{**row._asdict(), "settings": dict(row.settings)} for row in known.models],
        "providers": [{**row._asdict(), "variables": dict(row.variables)} for row in known.providers],
        "embedded": [row._asdict() for row in known.embedded],
    }


def served_lines(provider: str, names: Sequence[str]) -> list[str]:
    """The models a provider lists, as they are written in a configuration."""
    return [_cell(f"{provider}:{name}") for name in names]


def _mark(used: object) -> str:
    return "*" if used else " "


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {_setting(value)}" for name, value in settings.items())


def _setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key(row: ProviderRow) -> str:
    words = [f"{name} is {'set' if is_set else 'not set'}" for name, is_set in row.variables]
    return ", ".join(words) or "no key needed"


def _installed(installed: bool) -> str:  # noqa: FBT001 - a row's own field
    return "installed" if installed else "not installed"


def _size(size_bytes: int) -> str:
    if size_bytes >= 1_000_000_000:
        return f"{size_bytes / 1_000_000_000:.1f} GB"
    return f"{size_bytes / 1_000_000:.0f} MB"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with each column as wide as its widest cell."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        " ".join(
            [row[0], "  ".join(f"{cell:<{w}}" for cell, w in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in cells
    ]


def _cell(text: str) -> str:
    return harmless(text).replace("\n", " ").replace("\t", " ")
