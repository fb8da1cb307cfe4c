"""Writing the configuration file: whole or not at all.

Theory of operation. The text goes into a new file beside the old one, down to the disk, and then takes its name; until
that moment the old file is untouched, and whatever goes wrong leaves nothing behind. A file that is to be replaced is
copied first, in the same way, to `config.yaml.bak`. Only the owner may read what is written. If `config.yaml` is a
link, what it points to is written and the link stays. Everything the system may refuse becomes a ConfigError.
"""

import io
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO, Final

from headrace.config.loading import FILE_NAME
from headrace.errors import ConfigError

BACKUP_NAME: Final = FILE_NAME + ".bak"


def check_free(home: Path, *, replace: bool) -> None:
    """Raises ConfigError if no file can be written in `home`, or one is there and must stay."""
    try:
        if home.exists() and not home.is_dir():
            raise ConfigError(f"{home}: expected headrace's home folder; found something that is no folder.")
        _old(home, replace=replace)
    except (OSError, ValueError) as error:
        raise _refused(home / FILE_NAME, error) from None


def save(home: Path, text: str, *, replace: bool = False) -> Path | None:
    """Write the configuration of `home`; says where the old one is kept, if there was one. Raises ConfigError."""
    check_free(home, replace=replace)
    path = home / FILE_NAME
    kept: Path | None = None
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if old := _old(home, replace=replace):
            kept = home / BACKUP_NAME
            with old.open("rb") as content:
                _put(kept, content)
        _put(Path(os.path.realpath(path)), io.BytesIO(text.encode()))
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None
    return kept


def _old(home: Path, *, replace: bool) -> Path | None:
    """The file that is there, if it may be replaced."""
    path = home / FILE_NAME
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "something that is no file"
        raise ConfigError(f"{path}: expected a text file; found {kind}.")
    if not replace:
        raise ConfigError(
            f"{path} is already there and was left as it is. Edit it, or give --force to write a new one"
            f" (the old one is then kept as {BACKUP_NAME})."
        )
    return path


def _put(path: Path, content: BinaryIO) -> None:
    """Give `path` this content in one step."""
    descriptor, name = tempfile.mkstemp(prefix=f".{FILE_NAME}-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(content, file)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _refused(path: Path, error: OSError | ValueError) -> ConfigError:
    reason = getattr(error, "strerror", None) or "the path is not one the system takes"
    return ConfigError(f"{path}: it cannot be written: {reason}. What was there is as it was.")
