"""The text of a YAML file as a tree of plain values, each with the line it stands on.

Theory of operation. PyYAML splits the text into parse events; everything after that happens here, because what
YAML 1.1 makes of values is what people trip over: `off` becomes false and `1:30` becomes 90. This reader knows
the core schema of YAML 1.2 (`true`, `false`, `null`, numbers; all else is text), keeps lines for messages, and
refuses what a configuration has no use for and a reader could be hurt by:

* a key that is there twice, a key that is not text, a tag (`!!python/...`), a second document;
* nesting deeper, or values more than the bounds. An alias counts for all that it repeats, so a few lines that
  double each other a hundred times are refused before anything is copied. (Nothing is: an alias shares its node.)

Keys are always text as written: `on:` is the key `on`.

The pure Python scanner is used even where the C one is installed: a file is read once, in a few milliseconds,
and there is one set of error messages to put into plain words. Nothing of the file's text is quoted in them except
single characters, because a line may hold a secret.
"""

import re
from collections.abc import Iterator
from typing import Final, NoReturn

import yaml

from headrace.config.showing import shown_key
from headrace.config.tree import EMPTY, Node, Scalar
from headrace.errors import ConfigError
from headrace.limits import CONFIG_MAX_DEPTH, CONFIG_MAX_VALUES

# Longer numbers than these stay text, so that none overflows; no setting needs one.
_INT = re.compile(r"[-+]?[0-9]{1,18}|0o[0-7]{1,20}|0x[0-9a-fA-F]{1,15}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,30}|[0-9]{1,30}(?:\.[0-9]{0,30})?)(?:[eE][-+]?[0-9]{1,2})?")
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NOT_OF_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# What the scanner and the parser complain of (a part of their words) -> what a person can do about it.
_PLAIN_WORDS: Final = (
    (
        "mapping values are not allowed",
        'a `key:` stands where none may; indent it like its neighbours, and put text with ": " or a last ":" in quotes',
    ),
    ("entries are not allowed", "a list entry (`- `) stands where none may; begin it on a line of its own"),
    ("unexpected end of stream", "the quote that opens here is never closed"),
    ("but got '<stream end>'", "a bracket or brace is opened and never closed"),
    ("node content, but found '<stream end>'", "a bracket or brace is opened and never closed"),
    ("expected ',' or", "a `,` or the closing bracket is missing here"),
    ("could not find expected ':'", "the line above has no `key: value` form"),
    ("unknown escape", "an unknown `\\` escape in double quotes; single quotes take `\\` as it is"),
    ("escape sequence", "a broken `\\` escape in double quotes; single quotes take `\\` as it is"),
    ("<block end>", "this does not fit what stands above; check the indentation and the quotes"),
    ("tag", "tags (`!...`) are not supported; put text that begins with `!` in quotes"),
    ("alphabetic or numeric", "text that begins with `&` or `*` must be in quotes"),
    ("chomping or indentation", "text that begins with `|` or `>` must be in quotes"),
    ("incompatible YAML document", "a `%YAML` line asks for a version that is not 1.x; leave the line out"),
)


def parse(text: str, source: str) -> Node:
    """The tree of `text`; an empty text is an empty mapping. Raises ConfigError that begins with `source`."""
    if found := _NOT_OF_YAML.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ConfigError(f"{source}, line {line}: a control character (U+{ord(found[0]):04X}); delete it.")
    return _Reader(text, source).document()


class _Reader:
    """Builds the tree of one text, an event at a time."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._events = _events(text, source)
        self._anchors: dict[str, Node] = {}
        self._count = 0

    def document(self) -> Node:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, yaml.NodeEvent):
                root = self._node(event, depth=1)
            elif isinstance(event, yaml.DocumentStartEvent) and root is not None:
                self._fail(event, "a second document begins here (`---`); a file holds one")
        return EMPTY if root is None or root.value is None else root

    def _node(self, event: yaml.Event, depth: int, key_line: int = 0) -> Node:
        """The value that `event` begins; it takes the events up to its end."""
        line = key_line or _place(event)[0]
        if depth > CONFIG_MAX_DEPTH:
            self._fail(event, f"nested more than {CONFIG_MAX_DEPTH} levels deep")
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event, line)
        assert isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)), event
        self._add(1, event)
        if event.tag is not None:
            self._fail(event, "tags (`!...`) are not supported; quotes make a value text")
        if isinstance(event, yaml.ScalarEvent):
            node = Node(self._scalar(event), line)
        elif isinstance(event, yaml.SequenceStartEvent):
            items = [self._node(inner, depth + 1) for inner in self._until(yaml.SequenceEndEvent)]
            node = Node(items, line, 1 + sum(item.size for item in items))
        else:
            pairs = self._pairs(depth)
            node = Node(pairs, line, 1 + sum(item.size for item in pairs.values()))
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _pairs(self, depth: int) -> dict[str, Node]:
        pairs: dict[str, Node] = {}
        for event in self._until(yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
                self._fail(event, "a key must be plain text")
            key = self._text(event)
            if key in pairs:
                self._fail(
                    event,
                    f"the key {shown_key(key)} is there twice, first on line {pairs[key].line}; keep one",
                )
            pairs[key] = self._node(next(self._events), depth + 1, _place(event)[0])
        return pairs

    def _until(self, end: type[yaml.Event]) -> Iterator[yaml.Event]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield event

    def _aliased(self, event: yaml.AliasEvent, line: int) -> Node:
        target = self._anchors.get(event.anchor or "")
        if target is None:
            self._fail(event, "no anchor of this name above; put text that begins with `*` in quotes")
        self._add(target.size, event)
        return Node(target.value, line, target.size)

    def _add(self, size: int, event: yaml.Event) -> None:
        self._count += size
        if self._count > CONFIG_MAX_VALUES:
            self._fail(event, f"more than {CONFIG_MAX_VALUES:,} values, counting what aliases repeat")

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        text = self._text(event)
        if not event.implicit[0]:  # in quotes, or a block of text
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
        return float(text) if _FLOAT.fullmatch(text) else text

    def _text(self, event: yaml.ScalarEvent) -> str:
        if any("\ud800" <= character <= "\udfff" for character in event.value):
            self._fail(event, "half a character (a lone surrogate escape)")
        return event.value

    def _fail(self, event: yaml.Event, words: str) -> NoReturn:
        line, column = _place(event)
        raise ConfigError(f"{self._source}, line {line}, column {column}: {words}.")


def _place(event: yaml.Event) -> tuple[int, int]:
    """Line and column, counted from 1."""
    mark = event.start_mark
    assert mark is not None, event
    return mark.line + 1, mark.column + 1


def _events(text: str, source: str) -> Iterator[yaml.Event]:
    """PyYAML's parse events; the one place where its errors are read."""
    try:
        yield from yaml.parse(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        words = _in_plain_words(error.problem or "", text[mark.index : mark.index + 1] if mark else "")
        raise ConfigError(f"{source}{where}: {words}.") from None
    except (yaml.YAMLError, ValueError, OverflowError):
        # An escape or version number that is no number a machine can hold; PyYAML lets these through.
        raise ConfigError(
            f"{source}: this is not YAML: it holds a number or escape no reader takes."
        ) from None


def _in_plain_words(problem: str, character: str) -> str:
    if "cannot start any token" in problem:
        if character == "\t":
            return "a tab stands here; YAML is indented with spaces"
        return f"text that begins with `{character}` must be in quotes"
    for complaint, words in _PLAIN_WORDS:
        if complaint in problem:
            return words
    return "this is not YAML; look for a missing quote, colon or space"
