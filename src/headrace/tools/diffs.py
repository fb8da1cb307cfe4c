"""What a change to a text looks like to people: a unified diff, bounded in size and in time.

Theory of operation. What both texts begin and end with is set aside in one pass; only the lines between are compared,
and only as long as they are few, because comparing is quadratic. Beyond that the whole stretch is shown as replaced.
"""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from headrace.limits import DIFF_MAX_CHARS, DIFF_MAX_LINES

_CONTEXT: Final = 3


class _Change(NamedTuple):
    """Lines of the old text, and the lines of the new one that take their place."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def unified(before: str, after: str, name: str) -> str:
    """The diff from `before` to `after`, of the file `name`; "" if they are the same."""
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    lines = [f"--- {name}", f"+++ {name}"]
    for hunk in _hunks(_changes(old, new)):
        lines += _shown(hunk, old, new)
    return _bounded(lines)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ no line end at the end of the file"
    else:
        lines.pop()
    return lines


def _common(one: Iterable[str], other: Iterable[str]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _changes(old: list[str], new: list[str]) -> Iterator[_Change]:
    head = _common(old, new)
    tail = _common(reversed(old[head:]), reversed(new[head:]))
    one, other = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(one) + len(other) > DIFF_MAX_LINES:
        yield _Change(head, head + len(one), head, head + len(other))
        return
    for tag, i, j, k, m in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag != "equal":
            yield _Change(head + i, head + j, head + k, head + m)


def _hunks(changes: Iterable[_Change]) -> Iterator[list[_Change]]:
    """Changes whose surroundings meet are shown together."""
    hunk: list[_Change] = []
    for change in changes:
        if hunk and change.old_from - hunk[-1].old_to > 2 * _CONTEXT:
            yield hunk
            hunk = []
        hunk.append(change)
    if hunk:
        yield hunk


def _shown(hunk: Sequence[_Change], old: list[str], new: list[str]) -> Iterator[str]:
    before = min(_CONTEXT, hunk[0].old_from)
    after = min(_CONTEXT, len(old) - hunk[-1].old_to)
    at = hunk[0].old_from - before
    old_span = _span(at, hunk[-1].old_to + after)
    yield f"@@ -{old_span} +{_span(hunk[0].new_from - before, hunk[-1].new_to + after)} @@"
    for change in hunk:
        yield from (f" {line}" for line in old[at : change.old_from])
        yield from (f"-{line}" for line in old[change.old_from : change.old_to])
        yield from (f"+{line}" for line in new[change.new_from : change.new_to])
        at = change.old_to
    yield from (f" {line}" for line in old[at : at + after])


def _span(first: int, last: int) -> str:
    return f"{first + (first != last)},{last - first}"


def _bounded(lines: list[str]) -> str:
    text = "\n".join(lines) + "\n"
    if len(text) <= DIFF_MAX_CHARS:
        return text
    cut = text.rfind("\n", 0, DIFF_MAX_CHARS) + 1 or DIFF_MAX_CHARS
    return f"{text[:cut]}[... {len(text) - cut:,} characters of the diff are not shown]\n"
