"""SQL from its own files: named queries, numbered migrations, and statements one by one."""

import re
import sqlite3
from functools import cache
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_MIGRATION: Final = re.compile(r"(\d{4})_\w+\.sql")


@cache
def _queries() -> dict[str, str]:
    text = (files(__package__) / "queries.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def query(name: str) -> str:
    return _queries()[name]


@cache
def migrations() -> dict[int, str]:
    """Each schema's number, and what makes it from the one before."""
    folder = files(__package__) / "migrations"
    found = {file.name: file for file in folder.iterdir()}
    numbered = {int(match[1]): found[name] for name in sorted(found) if (match := _MIGRATION.fullmatch(name))}
    assert list(numbered) == list(range(1, len(numbered) + 1))
    return {number: file.read_text(encoding="utf-8") for number, file in numbered.items()}


def statements(script: str) -> list[str]:
    """`script` taken apart, so that it can run within a transaction."""
    out, begun = [], ""
    for line in script.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun):
            out.append(begun.strip())
            begun = ""
    assert not begun.strip()
    return out
