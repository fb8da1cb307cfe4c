"""What a change to a text looks like to people: a unified diff, bounded in size and in time.

Theory of operation. What both texts begin and end with is set aside in one pass; only the lines between are compared,
and only as long as they are few, because comparing is quadratic. Beyond that the whole stretch is shown as replaced.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from headrace.limits import DIFF_MAX_CHARS, DIFF_MAX_LINES

_CONTEXT: Final = 3
_Group = list[tuple[str, int, int, int, int]]


def unified(before: str, after: str, name: str) -> str:
    """The diff from `before` to `after`, of the file `name`; "" if they are the same."""
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    head = _common(old, new)
    tail = _common(old[: head - 1 if head else None : -1], new[: head - 1 if head else None : -1])
    start = max(0, head - _CONTEXT)
    keep = max(0, tail - _CONTEXT)
    old, new = old[start : len(old) - keep], new[start : len(new) - keep]
    lines = [f"--- {name}", f"+++ {name}", *_hunks(old, new, start)]
    return _bounded(lines)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ no line end at the end of the file"
    else:
        lines.pop()
    return lines


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _hunks(old: list[str], new: list[str], start: int) -> Iterator[str]:
    for group in _groups(old, new):
        (_, first_old, _, first_new, _), (_, _, last_old, _, last_new) = group[0], group[-1]
        yield f"@@ -{_span(start, first_old, last_old)} +{_span(start, first_new, last_new)} @@"
        for tag, i, j, k, m in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[i:j])
            else:
                yield from (f"-{line}" for line in old[i:j])
                yield from (f"+{line}" for line in new[k:m])


def _groups(old: list[str], new: list[str]) -> Iterator[_Group]:
    if len(old) + len(new) <= DIFF_MAX_LINES:
        matcher = SequenceMatcher(None, old, new, autojunk=False)
        yield from (list(group) for group in matcher.get_grouped_opcodes(_CONTEXT))
    else:
        yield [("replace", 0, len(old), 0, len(new))]


def _span(start: int, first: int, last: int) -> str:
    return f"{start + first + (first != last)},{last - first}"


def _bounded(lines: list[str]) -> str:
    text = "\n".join(lines) + "\n"
    if len(text) <= DIFF_MAX_CHARS:
        return text
    cut = text.rfind("\n", 0, DIFF_MAX_CHARS) + 1 or DIFF_MAX_CHARS
    return f"{text[:cut]}[... {len(text) - cut:,} characters of the diff are not shown]\n"
