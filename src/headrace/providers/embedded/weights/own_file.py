"""A model in a file of the user's own: used where it lies, after a look at its first bytes."""

import os
import stat
from pathlib import Path
from typing import Final

from headrace.providers.embedded.weights.failures import Denied, NotAModel
from headrace.providers.embedded.weights.shelf import FOLDER

_MAGIC: Final = b"GGUF"
_SUFFIX: Final = ".gguf"


def own_file(text: str, home: Path) -> Path | None:
    """The file a text names, checked; None if the text is no path. A bare file name is looked for in the folder one
    is in, then among the models."""
    text = text.strip()
    if not _is_path(text):
        return None
    path = _expanded(text)
    if not path.is_absolute() and not path.exists() and (home / FOLDER / path).exists():
        path = home / FOLDER / path
    path = path.absolute()
    _check(path)
    return path


def _is_path(text: str) -> bool:
    separators = {os.sep, os.altsep or os.sep, "/"}
    return text.lower().endswith(_SUFFIX) or text.startswith("~") or any(each in text for each in separators)


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise NotAModel(f"{text}: no home folder is known for it; write the whole path.") from error


def _check(path: Path) -> None:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise NotAModel(f"{path}: it is not a file. Name a GGUF file: local:/path/to/model.gguf")
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError as error:
        raise NotAModel(f"{path}: there is no such file. Check the path after local:") from error
    except PermissionError as error:
        raise Denied(f"{path}: it may not be read; check its permissions and those of its folder.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path is not one the system takes"
        raise NotAModel(f"{path}: it cannot be read ({reason}).") from error
    if magic != _MAGIC:
        raise NotAModel(
            f"{path}: it is not a GGUF model (it does not begin with the letters GGUF). Files in other formats have to "
            "be converted first."
        )
