"""A turn as a terminal shows it: the answer as text to print, everything else as lines beside it.

Theory of operation. Events go in, pieces come out, in order and only ever appended: `Answer` belongs on standard
output, what `views.asides` tells on standard error. What a model wrote can never control the terminal: every control
character but line feeds and tabs is replaced by a picture of itself before it leaves this module. Newlines that lead
an answer are taken off. Replies are joined as in `turn.folds`: a paragraph apart, unless one goes on where another was
cut.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.events import Event, PartGrew, PartKind, PartStarted, ReplyCut, ReplyEnded, TurnClosed
from headrace.turn.folds import goes_on
from headrace.views.asides import Aside, Asides, Asking, Settled, harmless


class Answer(NamedTuple):
    """Text of the answer, as it grew."""

    text: str


class Thought(NamedTuple):
    """Reasoning, for those who want to see it."""

    text: str


Piece = Answer | Aside | Asking | Settled | Thought


class TerminalView:
    """Feed events, get pieces to write."""

    def __init__(self) -> None:
        self._asides = Asides()
        self._kinds: dict[tuple[int, int], PartKind] = {}
        self._begun = False
        self._reply = 0  # the call whose text was shown last
        self._goes_on = False

    def feed(self, events: Iterable[Event]) -> list[Piece]:
        out: list[Piece] = []
        for event in events:
            self._one(event, out)
        return out

    def _one(self, event: Event, out: list[Piece]) -> None:
        match event:
            case PartGrew(call, part, text) if call not in self._asides.calls:
                self._grew(call, self._kinds[call, part], text, out)
            case PartStarted(call, part, kind) if call not in self._asides.calls:
                self._kinds[call, part] = kind
            case ReplyCut(call) | ReplyEnded(call) if call not in self._asides.calls:
                self._goes_on = goes_on(event)
            case TurnClosed(outcome, cause):
                if outcome != "stop" and cause.code != "client_disconnected":  # who left is told nothing
                    out.append(Aside(harmless(f"{outcome}: {cause.message}")))
            case _:
                out += self._asides.feed(event)

    def _grew(self, call: int, kind: PartKind, text: str, out: list[Piece]) -> None:
        if kind == "reasoning":
            out.append(Thought(harmless(text)))
        elif kind in ("text", "refusal"):
            self._answer(call, harmless(text), out)

    def _answer(self, call: int, text: str, out: list[Piece]) -> None:
        if not self._begun:
            text = text.lstrip("\n")
        elif call != self._reply and not self._goes_on:
            text = "\n\n" + text.lstrip("\n")
        if text:
            self._begun = True
            self._reply = call
            out.append(Answer(text))
