"""What is told about an answer beside it: who advises, which tools run, what is asked, what went wrong on the way.

Theory of operation. Events go in, pieces come out, each a line for people, in order. Surfaces differ in where they
put these lines; what they say is the same everywhere. Advice is gathered while it grows and told when it is whole.
Text from models and tools has lost everything a terminal would obey before it leaves this module.
"""

import re
from typing import Final, Literal, NamedTuple

from headrace.events import (
    AdviceShown,
    AdviceSought,
    ApprovalAsked,
    ApprovalGiven,
    CallStarted,
    Event,
    InputAdded,
    Message,
    NoticeShown,
    PartGrew,
    PartStarted,
    Purpose,
    QuestionAnswered,
    QuestionAsked,
    ReplyEnded,
    TextContent,
    ToolFinished,
    ToolStarted,
    TurnOpened,
    UserMessage,
)


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
    how: str = ""
    """Who has answered, and what: a line for those who did not. Empty where nobody has."""


Told = Aside | Asking | Settled

# What a tool is called with may be a whole file; a line about it is a line.
LINE_CHARS: Final = 200

# C0 but for tab and line feed, DEL, C1, and the marks that turn the direction of text around.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """`text` without anything a terminal would obey."""
    return _CONTROL.sub(_picture, text.replace("\r\n", "\n"))


def harmless_json(text: str) -> str:
    """JSON that means the same, with everything a terminal would obey written as an escape."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def asked(event: Event) -> list[str]:
    """What people say with it, each message as one text."""
    return [
        text
        for message in (event.input if isinstance(event, TurnOpened | InputAdded) else ())
        if (text := _words(message))
    ]


def _words(message: Message) -> str:
    if not isinstance(message, UserMessage):
        return ""
    return "\n".join(
        content.text if isinstance(content, TextContent) else "(attachment)" for content in message.content
    )


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


class Asides:
    """Feed events, get what is told of them."""

    def __init__(self) -> None:
        self.calls: set[int] = set()
        """Advice and summaries: nothing of theirs is the answer."""
        self._advisers: dict[int, str] = {}
        self._texts: set[tuple[int, int]] = set()
        self._advice: dict[int, list[str]] = {}
        self._show: AdviceShown = "summary"

    def feed(self, event: Event) -> list[Told]:
        match event:
            case PartGrew(call, part, text):
                if (call, part) in self._texts:
                    self._advice.setdefault(call, []).append(text)
            case PartStarted(call, part, kind):
                if kind == "text" and call in self._advisers:
                    self._texts.add((call, part))
            case CallStarted(call, purpose, model) if purpose != "reply":
                self.calls.add(call)
                return self._begun(call, purpose, model)
            case ReplyEnded(call, reason) if call in self.calls:
                if reason in ("stop", "length"):  # of any other a notice tells
                    return self._advised(call)
            case AdviceSought(show=show):
                self._show = show
            case NoticeShown(text=text):
                return [Aside(harmless(text))]
            case ToolStarted(name=name, arguments=arguments):
                return [Aside(_short(f"{name} {arguments}"))]
            case ToolFinished():
                return _finished(event)
            case ApprovalAsked(approval, summary=summary):
                return [Asking("approval", approval, harmless(" ".join(summary.splitlines())))]
            case QuestionAsked(question, text=text, choices=choices):
                return [Asking("question", question, harmless(text), tuple(map(harmless, choices)))]
            case ApprovalGiven(approval, verdict, by):
                settled = Settled(approval, _short(f"{verdict} by {by}") if by else "")
                return [settled, *([] if verdict == "allowed" else [Aside(f"not run: {verdict}")])]
            case QuestionAnswered(question, text, by):
                return [Settled(question, _short(f"answered by {by}: {text}") if by else "")]
            case _:
                pass
        return []

    def _begun(self, call: int, purpose: Purpose, model: str) -> list[Told]:
        if purpose == "summary":
            return [Aside("The conversation is long: its beginning is being summarised.")]
        self._advisers[call] = model
        return [Aside(harmless(f"{model} is asked for advice"))] if self._show != "off" else []

    def _advised(self, call: int) -> list[Told]:
        """An adviser's answer is whole; one that failed is told of in a notice."""
        text = "".join(self._advice.pop(call, ())).strip()
        if call not in self._advisers or self._show == "off" or not text:
            return []
        out: list[Told] = [Aside(harmless(f"{self._advisers[call]} has advised ({len(text.split())} words)"))]
        if self._show == "full":
            out += [Aside(harmless(f"  {line}")) for line in text.splitlines()]
        return out


def _finished(event: ToolFinished) -> list[Told]:
    out: list[Told] = [Aside(harmless(line)) for line in event.detail.splitlines()]
    if event.status != "ok":
        said = event.result.lower().startswith(event.status)
        out.append(Aside(_short(event.result if said else f"{event.status}: {event.result}")))
    return out


def _short(text: str) -> str:
    """One harmless line."""
    return cut(harmless(" ".join(text.split())))


def cut(text: str) -> str:
    return text if len(text) <= LINE_CHARS else f"{text[: LINE_CHARS - 1]}…"
