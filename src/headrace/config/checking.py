"""A tree of values against the schema: either a struct, or every problem found, each with its line.

Theory of operation. `build` walks the tree and the type together. At a leaf msgspec decides whether the value
fits and the type's own words say what was expected; the walk around it exists because one error at a time,
without the key's name, sends a person back to the editor five times. Where a value does not fit, a problem is
noted and the default takes its place, so that the walk goes on; a result is used only if no problem was noted.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from headrace.config.showing import shown_key, shown_path, shown_value
from headrace.config.tree import Node, Path
from headrace.errors import ConfigError
from headrace.limits import CONFIG_MAX_PROBLEMS

_WORDS_FOR: Final[Mapping[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    type(None): "null",
}

_NOT_HERE = re.compile(r"(api[-_]?)?(key|token|secret)s?|password", re.IGNORECASE)
_KEYS_ARE_EXPORTED: Final = (
    "a key is not written into this file; export it as an environment variable and name that: "
    "`api_key_env: OPENROUTER_API_KEY`"
)


class Problems:
    """What is wrong with one file."""

    def __init__(self, source: str, root: Node) -> None:
        self._source = source
        self._root = root
        self._found: dict[tuple[Path, str], int] = {}
        self._touched: set[Path] = set()

    def add(self, path: Path, words: str) -> None:
        self._found.setdefault((path, words), _line(self._root, path))
        self._touched.update(path[:depth] for depth in range(len(path) + 1))

    def within(self, path: Path) -> bool:
        """Whether something at `path` or below it is wrong."""
        return path in self._touched

    def raise_any(self) -> None:
        """Raise ConfigError with all of them, in the order of the file, if there are any."""
        told = [
            f"line {line}: " + (f"{shown_path(path)}: " if path else "") + words
            for (path, words), line in sorted(self._found.items(), key=lambda item: item[1])
        ]
        if len(told) == 1:
            raise ConfigError(f"{self._source}, {_ended(told[0])}")
        if told:
            kept = told[:CONFIG_MAX_PROBLEMS]
            if more := len(told) - len(kept):
                kept.append(f"and {more} more")
            raise ConfigError(
                f"{self._source}: {len(told)} problems.\n" + "\n".join(f"  {_ended(one)}" for one in kept)
            )


def build(kind: Any, node: Node, path: Path, problems: Problems) -> Any:
    """The value of type `kind` that `node` holds, or UNSET if a problem was noted instead."""
    kind = _without_unset(kind)
    section = _optional_section(kind)
    if section is not None:
        return None if node.value is None else _struct(section, node, path, problems)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind, node, path, problems)
    if get_origin(kind) is Mapping:
        return _mapping(kind, node, path, problems)
    if get_origin(kind) is tuple:
        return _tuple(kind, node, path, problems)
    return _leaf(kind, node, path, problems)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    names = list(known)
    plain = word[:64].lower().replace("-", "_")
    found = difflib.get_close_matches(plain, [name.replace("-", "_") for name in names], n=1, cutoff=0.65)
    return next((name for name in names if name.replace("-", "_") == found[0]), None) if found else None


def _struct(kind: type[msgspec.Struct], node: Node, path: Path, problems: Problems) -> Any:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    pairs = _pairs(node, path, problems)
    values = {}
    for key, inner in pairs.items():
        if key in fields:
            values[key] = build(fields[key], inner, (*path, key), problems)
        else:
            problems.add((*path, key), _unknown(key, fields))
    return kind(**{key: value for key, value in values.items() if value is not msgspec.UNSET})


def _unknown(key: str, fields: Iterable[str]) -> str:
    if "api_key_env" in fields and _NOT_HERE.fullmatch(key):
        return _KEYS_ARE_EXPORTED
    if found := nearest(key, fields):
        return f"unknown key; did you mean `{found}`?"
    return "unknown key; known here are " + ", ".join(fields)


def _mapping(kind: Any, node: Node, path: Path, problems: Problems) -> dict[str, Any]:
    key_kind, value_kind = get_args(kind)
    built: dict[str, Any] = {}
    for key, inner in _pairs(node, path, problems).items():
        if not _fits(key_kind, key):
            words = f"expected {expectation(key_kind)} as the key; found {shown_key(key)}"
            problems.add((*path, key), words)
        built[key] = build(value_kind, inner, (*path, key), problems)
    return built


def _tuple(kind: Any, node: Node, path: Path, problems: Problems) -> Any:
    if not isinstance(node.value, list):
        problems.add(path, f"expected {expectation(kind)}; found {shown_value(node.value, path)}")
        return msgspec.UNSET
    (inner_kind, _) = get_args(kind)
    return tuple(build(inner_kind, inner, (*path, i), problems) for i, inner in enumerate(node.value))


def _leaf(kind: Any, node: Node, path: Path, problems: Problems) -> Any:
    try:
        return msgspec.convert(node.value, kind)
    except msgspec.ValidationError:
        problems.add(path, f"expected {expectation(kind)}; found {shown_value(node.value, path)}")
        return msgspec.UNSET


def _pairs(node: Node, path: Path, problems: Problems) -> dict[str, Node]:
    """The keys of a section; one with all its lines commented out is an empty one."""
    if isinstance(node.value, dict):
        return node.value
    if node.value is not None:
        expected = "keys with values (`key: value`)"
        problems.add(path, f"expected {expected}; found {shown_value(node.value, path)}")
    return {}


def _fits(kind: Any, value: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def expectation(kind: Any) -> str:
    """What a value of this type is, in words."""
    if get_origin(kind) is Annotated:
        metas = [meta for meta in kind.__metadata__ if isinstance(meta, msgspec.Meta)]
        return next(meta.description for meta in metas if meta.description)
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(expectation(member) for member in get_args(kind))
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return f"a list (`[one, two]`), each {expectation(get_args(kind)[0])}"
    return _WORDS_FOR[kind]


def _without_unset(kind: Any) -> Any:
    """The type of a key that may be left out, once it is there."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return Union[tuple(member for member in get_args(kind) if member is not msgspec.UnsetType)]  # noqa: UP007


def _optional_section(kind: Any) -> type[msgspec.Struct] | None:
    """The section of a key that may be null."""
    sections = [m for m in get_args(kind) if isinstance(m, type) and issubclass(m, msgspec.Struct)]
    return sections[0] if get_origin(kind) in (Union, UnionType) and sections else None


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith("?") else sentence + "."


def _line(root: Node, path: Path) -> int:
    node = root
    for step in path:
        match node.value:
            case dict() as pairs if step in pairs:
                node = pairs[str(step)]
            case list() as items if isinstance(step, int):
                node = items[step]
            case _:
                break
    return node.line
