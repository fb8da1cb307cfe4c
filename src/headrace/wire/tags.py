"""Finding tags in text that arrives in pieces."""

from collections.abc import Iterable


def first_of(text: str, tags: Iterable[str], start: int = 0) -> tuple[int, str] | None:
    """Where the first of `tags` stands in `text`, and which it is; the longest if several start there."""
    best: tuple[int, str] | None = None
    for tag in tags:
        at = text.find(tag, start)
        if at >= 0 and (best is None or at < best[0] or (at == best[0] and len(tag) > len(best[1]))):
            best = (at, tag)
    return best


def held(text: str, tags: Iterable[str]) -> int:
    """How many characters at the end of `text` may be the beginning of a tag."""
    return max((_overlap(text, tag) for tag in tags), default=0)


def _overlap(text: str, tag: str) -> int:
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return size
    return 0
