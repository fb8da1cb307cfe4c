"""Traces of mixtures: one line a turn, appended to a file that never grows beyond a bound."""

import os
from pathlib import Path
from typing import Final

from headrace.errors import StoreError
from headrace.limits import TRACES_MAX_BYTES

NAME: Final = "mixtures.jsonl"


def append_trace(home: Path, line: bytes) -> None:
    """Add a line; a file that is full becomes `mixtures.jsonl.old` in place of the one before. Raises StoreError."""
    path = home / "traces" / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists() and path.stat().st_size + len(line) > TRACES_MAX_BYTES:
            path.replace(path.with_name(f"{NAME}.old"))
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line + b"\n")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(str(path), error) from error
