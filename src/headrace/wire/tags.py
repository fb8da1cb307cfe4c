"""Finding tags in text that arrives in pieces."""

import re


class Tags:
    """A few tags that begin with the same character, none of them the beginning of another."""

    def __init__(self, *tags: str) -> None:
        self._tags = tags
        self._first = tags[0][0]
        self._longest = max(map(len, tags))
        pattern = re.compile("|".join(map(re.escape, tags)))
        self.search = pattern.search
        """Called as `search(text, start)`."""
        self.match = pattern.match

    def held(self, text: str, start: int = 0) -> int:
        """How many characters at the end of `text`, from `start` on, may be the beginning of a tag."""
        at = text.find(self._first, max(start, len(text) - self._longest + 1))
        while at >= 0:
            tail = text[at:]
            if any(tag.startswith(tail) for tag in self._tags):
                return len(tail)
            at = text.find(self._first, at + 1)
        return 0
