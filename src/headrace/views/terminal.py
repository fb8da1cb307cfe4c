"""A turn as a terminal shows it: the answer as text to print, everything else as lines beside it.

Theory of operation. Events go in, pieces come out, in order and only ever appended: `Answer` belongs on standard
output, `Aside` on standard error. What a model wrote can never control the terminal: every control character but line
feeds and tabs is replaced by a picture of itself before it leaves this module. Newlines that lead an answer are taken
off. Replies are joined as in `turn.folds`: a paragraph apart, unless one goes on where another was cut.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from headrace.events import (
    AdviceShown,
    AdviceSought,
    ApprovalAsked,
    ApprovalGiven,
    CallStarted,
    Event,
    NoticeShown,
    PartGrew,
    PartKind,
    PartStarted,
    Purpose,
    QuestionAnswered,
    QuestionAsked,
    ReplyCut,
    ReplyEnded,
    ToolFinished,
    ToolStarted,
    TurnClosed,
)
from headrace.turn.folds import goes_on


class Answer(NamedTuple):
    """Text of the answer, as it grew."""

    text: str


class Aside(NamedTuple):
    """One line about the answer."""

    text: str


class Asking(NamedTuple):
    """Something the person is asked; the door answers it by its key."""

    kind: Literal["approval", "question"]
    key: str
    text: str
    choices: tuple[str, ...] = ()


class Settled(NamedTuple):
    """What was asked has been answered, here or elsewhere."""

    key: str


class Thought(NamedTuple):
    """Reasoning, for those who want to see it."""

    text: str


Piece = Answer | Aside | Asking | Settled | Thought

# What a tool is called with may be a whole file; a line about it is a line.
_LINE_CHARS: Final = 200

# C0 but for tab and line feed, DEL, C1, and the marks that turn the direction of text around.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """`text` without anything a terminal would obey."""
    return _CONTROL.sub(_picture, text.replace("\r\n", "\n"))


def harmless_json(text: str) -> str:
    """JSON that means the same, with everything a terminal would obey written as an escape."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _short(text: str) -> str:
    """One harmless line."""
    text = harmless(" ".join(text.split()))
    return text if len(text) <= _LINE_CHARS else f"{text[: _LINE_CHARS - 1]}…"


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


class TerminalView:
    """Feed events, get pieces to write."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[int, int], PartKind] = {}
        self._advisers: dict[int, str] = {}
        self._advice: dict[int, list[str]] = {}
        self._aside_calls: set[int] = set()  # advice and summaries: nothing of theirs is the answer
        self._show: AdviceShown = "summary"
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
            case PartGrew(call, part, text):
                self._grew(call, self._kinds[call, part], text, out)
            case PartStarted(call, part, kind):
                self._kinds[call, part] = kind
            case CallStarted(call, purpose, model) if purpose != "reply":
                self._aside_calls.add(call)
                self._begun_aside(call, purpose, model, out)
            case ReplyEnded(call, reason) if call in self._aside_calls:
                if reason in ("stop", "length"):  # of any other a notice tells
                    self._advised(call, out)
            case ReplyCut(call) | ReplyEnded(call) if call not in self._aside_calls:
                self._goes_on = goes_on(event)
            case AdviceSought(show=show):
                self._show = show
            case NoticeShown(text=text):
                out.append(Aside(harmless(text)))
            case ToolStarted(name=name, arguments=arguments):
                out.append(Aside(_short(f"{name} {arguments}")))
            case ToolFinished(status=status, result=result, detail=detail):
                out += [Aside(harmless(line)) for line in detail.splitlines()]
                if status != "ok":
                    out.append(Aside(_short(f"{status}: {result}")))
            case ApprovalAsked(approval, summary=summary):
                out.append(Asking("approval", approval, harmless(" ".join(summary.split()))))
            case QuestionAsked(question, text=text, choices=choices):
                out.append(Asking("question", question, harmless(text), tuple(map(harmless, choices))))
            case ApprovalGiven(approval, verdict):
                out += [Settled(approval), *([] if verdict == "allowed" else [Aside(f"not run: {verdict}")])]
            case QuestionAnswered(question):
                out.append(Settled(question))
            case TurnClosed(outcome, cause) if outcome != "stop":
                out.append(Aside(harmless(f"{outcome}: {cause.message}")))
            case _:
                pass

    def _begun_aside(self, call: int, purpose: Purpose, model: str, out: list[Piece]) -> None:
        if purpose == "summary":
            out.append(Aside("The conversation is long: its beginning is being summarised."))
            return
        self._advisers[call] = model
        if self._show != "off":
            out.append(Aside(harmless(f"{model} is asked for advice")))

    def _advised(self, call: int, out: list[Piece]) -> None:
        """An adviser's answer is whole; one that failed is told of in a notice."""
        text = "".join(self._advice.pop(call, ())).strip()
        if call not in self._advisers or self._show == "off" or not text:
            return
        out.append(Aside(harmless(f"{self._advisers[call]} has advised ({len(text.split())} words)")))
        if self._show == "full":
            out += [Aside(harmless(f"  {line}")) for line in text.splitlines()]

    def _grew(self, call: int, kind: PartKind, text: str, out: list[Piece]) -> None:
        if call in self._aside_calls:
            if kind == "text":
                self._advice.setdefault(call, []).append(text)
        elif kind == "reasoning":
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
