"""How the texts of several replies become one answer, delta by delta.

Replies are paragraphs, but one that goes on where another was cut continues its sentence; `turn.folds` joins the same
way when the turn is over.
"""

from headrace.events import PartGrew, ReplyCut, ReplyEnded
from headrace.turn.folds import goes_on


class Joining:
    """Feed text in the order it grows, get what is shown of it."""

    def __init__(self) -> None:
        self._said = 0  # the call whose text was shown last
        self._goes_on = False

    def text(self, grew: PartGrew) -> str:
        before, self._said = self._said, grew.call
        apart = before not in (0, grew.call) and not self._goes_on
        return f"\n\n{grew.text}" if apart else grew.text

    def ended(self, end: ReplyEnded | ReplyCut) -> None:
        self._goes_on = goes_on(end)
