"""Joining a continuation to the text it continues, without repeating what both have.

Theory of operation. A model that is asked to go on often begins with the last words it had said. The first text of
the new reply is held while it agrees with some place near the end of the old one; once no agreement can grow, the
longest that reached the end is taken off, and everything after passes untouched. What is held comes out at the end of
the reply at the latest, so nothing is lost.
"""

from headrace.events import Event, PartClosed, PartGrew, PartStarted, ReplyEnded
from headrace.limits import SEAM_LEAST_CHARS


class Seam:
    """Feed a reply's events, get them with the repetition taken off."""

    def __init__(self, before: str) -> None:
        self._before = before
        self._held = ""
        self._place: tuple[int, int] | None = None
        self._starts: set[tuple[int, int]] = set()
        self._open = bool(before)

    def feed(self, events: list[Event]) -> list[Event]:
        if not self._open:
            return events
        out: list[Event] = []
        for event in events:
            self._one(event, out)
        return out

    @property
    def heard(self) -> bool:
        """Whether the new reply has said anything, a repetition or not."""
        return self._place is not None

    def flush(self) -> list[Event]:
        """The reply broke off: what is held is decided with what there is."""
        out: list[Event] = []
        self._decide(out, final=True)
        return out

    def _one(self, event: Event, out: list[Event]) -> None:
        if not self._open:
            out.append(event)
            return
        match event:
            case PartStarted(call, part, "text"):
                self._starts.add((call, part))
                out.append(event)
            case PartGrew(call, part, text) if (call, part) in self._starts:
                if self._place not in (None, (call, part)):  # the first text is over
                    self._decide(out, final=True)
                    out.append(event)
                    return
                self._place = (call, part)
                self._held += text
                self._decide(out, final=False)
            case PartClosed(call, part) if (call, part) == self._place:
                self._decide(out, final=True)
                out.append(event)
            case ReplyEnded():
                self._decide(out, final=True)
                out.append(event)
            case _:
                out.append(event)

    def _decide(self, out: list[Event], *, final: bool) -> None:
        if not self._open or self._place is None:
            return
        if not final and self._may_grow():
            return
        rest = self._held[self._repeated() :]
        if rest:
            out.append(PartGrew(*self._place, rest))
        self._held = ""
        self._open = False

    def _may_grow(self) -> bool:
        """Whether what is held agrees with the old text somewhere, all the way, before its end."""
        at = self._before.find(self._held)
        return (at >= 0 and at + len(self._held) < len(self._before)) or self._before.endswith(self._held)

    def _repeated(self) -> int:
        """How much at the start of what is held stands at the end of the old text."""
        longest = min(len(self._held), len(self._before))
        for size in range(longest, SEAM_LEAST_CHARS - 1, -1):
            if self._before.endswith(self._held[:size]):
                return size
        return 0
