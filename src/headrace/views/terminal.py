"""A turn as a terminal shows it: the answer as text to print, everything else as lines beside it.

Theory of operation. Events go in, pieces come out, in order and only ever appended: `Answer` belongs on standard
output, what `views.asides` tells on standard error. What a model wrote can never control the terminal: every control
character but line feeds and tabs is replaced by a picture of itself before it leaves this module. Newlines that lead
an answer are taken off. Replies are joined as in `turn.folds`: a paragraph apart, unless one goes on where another was
cut. What a tool prints is shown a line at a time, the first lines of it. What was asked, and that whoever asked has
left, is told to those who watch somebody else's turn.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace.events import (
    AttemptStarted,
    Event,
    InputAdded,
    PartGrew,
    PartKind,
    PartStarted,
    ReplyCut,
    ReplyEnded,
    ToolFinished,
    ToolPrinted,
    TurnClosed,
    TurnOpened,
)
from headrace.limits import TOOL_SHOWN_MAX_LINES
from headrace.turn.folds import goes_on
from headrace.views.asides import LINE_CHARS, Aside, Asides, Asking, Settled, asked, cut, harmless


class Answer(NamedTuple):
    """Text of the answer, as it grew."""

    text: str


class Thought(NamedTuple):
    """Reasoning, for those who want to see it."""

    text: str


class Quote(NamedTuple):
    """What somebody has asked."""

    text: str


Piece = Answer | Aside | Asking | Quote | Settled | Thought


class _Output:
    """What one run of a tool prints."""

    def __init__(self) -> None:
        self._line = ""
        self._count = 0

    def feed(self, text: str) -> list[Piece]:
        *whole, self._line = (self._line + text).split("\n")
        self._line = _left(self._line)[: LINE_CHARS + 1]
        return [piece for line in whole for piece in self._shown(line)]

    def end(self) -> list[Piece]:
        last = self._shown(self._line) if self._line else []
        more = self._count - TOOL_SHOWN_MAX_LINES
        return [*last, Aside(f"  [{more} more lines]")] if more > 0 else last

    def _shown(self, line: str) -> list[Piece]:
        self._count += 1
        if self._count > TOOL_SHOWN_MAX_LINES:
            return []
        return [Aside(f"  {cut(harmless(_left(line).rstrip(_RETURN)))}")]


def _left(line: str) -> str:
    """What a program has not written over, as its own terminal would show it."""
    return line[:-1].rpartition(_RETURN)[2] + line[-1:]


_RETURN: Final = "\r"


# What is to be changed here, and cannot be told from the provider's words alone.
_REFUSED: Final = frozenset(
    {"tls_failed", "key_rejected", "forbidden", "payment_required", "quota_exhausted", "model_not_found"}
    | {"bad_request", "parameter_rejected"}
)


class TerminalView:
    """Feed events, get pieces to write."""

    def __init__(self, *, elsewhere: bool = False) -> None:
        """Of a turn that was started here, or elsewhere."""
        self._elsewhere = elsewhere
        self._asides = Asides()
        self._kinds: dict[tuple[int, int], PartKind] = {}
        self._begun = False
        self._reply = 0  # the call whose text was shown last
        self._goes_on = False
        self._printed: dict[tuple[int, int], _Output] = {}
        self._asked = ""  # the model that was asked last
        self._closed: TurnClosed | None = None

    def advice(self) -> list[Piece]:
        """What to do next about a turn that its provider or the network has ended, or that a provider refuses."""
        closed = self._closed
        if closed is None or not self._asked:
            return []
        if closed.cause.trait.who not in ("provider", "network") and closed.cause.code not in _REFUSED:
            return []
        return [Aside(harmless(f"To see what is wrong there: headrace doctor {self._asked}"))]

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
                told = self._elsewhere or cause.code != "client_disconnected"  # who left is told nothing
                if outcome != "stop" and told:
                    out.append(Aside(harmless(f"{outcome}: {cause.message}")))
                self._closed = event
            case AttemptStarted(model=model):
                self._asked = model
            case TurnOpened():  # a client that keeps the conversation itself sends all of it
                self._quote(asked(event)[-1:], out)
            case InputAdded():
                self._quote(asked(event), out)
            case ToolPrinted(call, part, text):
                out += self._printed.setdefault((call, part), _Output()).feed(text)
            case ToolFinished(call, part):
                if (call, part) in self._printed:
                    out += self._printed.pop((call, part)).end()
                out += self._asides.feed(event)
            case _:
                out += self._asides.feed(event)

    def _quote(self, texts: Iterable[str], out: list[Piece]) -> None:
        if self._elsewhere:
            out += [Quote(harmless(text)) for text in texts]

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
