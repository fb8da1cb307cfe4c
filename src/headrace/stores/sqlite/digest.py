"""What the database knows of a closed turn beside its events."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.events import (
    InputAdded,
    Message,
    Recorded,
    TextContent,
    TurnClosed,
    TurnOpened,
    UserMessage,
)
from headrace.limits import TITLE_MAX_CHARS
from headrace.stores.sqlite.packing import Row, packed
from headrace.turn.folds import Folded, fold
from headrace.turn.sizes import lean, size


class Digest(NamedTuple):
    """A turn as it goes into its tables."""

    turn: str
    opened_at: float
    closed_at: float
    outcome: str
    cause: str
    model: str
    chars: int
    bytes: int
    input: str
    answer: str
    rows: list[Row]


def title(asked: str) -> str:
    """What a session is called whose first question this was."""
    line = " ".join(asked[: TITLE_MAX_CHARS * 4].split())
    return line if len(line) <= TITLE_MAX_CHARS else line[: TITLE_MAX_CHARS - 1] + "…"


def digest(entries: Sequence[Recorded]) -> Digest:
    """Raises KeyError or AssertionError for what is no log of a closed turn."""
    turn = fold(entries)
    assert isinstance(turn.closed, TurnClosed)
    rows = packed(entries)
    asked = asked_text(entries)
    answer = turn.answer_text() or turn.refusal_text()
    return Digest(
        turn=entries[0].turn,
        opened_at=entries[0].at,
        closed_at=entries[-1].at,
        outcome=turn.closed.outcome,
        cause=turn.closed.cause.code,
        model=_model(turn),
        chars=context_chars(turn),
        bytes=sum(row.size for row in rows) + len(asked.encode()) + len(answer.encode()),
        input=asked,
        answer=answer,
        rows=rows,
    )


def context_chars(turn: Folded) -> int:
    """What the turn takes of a model's context at the least."""
    return size(lean(turn.messages()))


def asked_text(entries: Iterable[Recorded]) -> str:
    """What people wrote in it."""
    return "\n\n".join(text for message in _input(entries) for text in _texts(message) if text)


def _input(entries: Iterable[Recorded]) -> Iterator[Message]:
    for recorded in entries:
        if isinstance(recorded.event, TurnOpened | InputAdded):
            yield from recorded.event.input


def _texts(message: Message) -> list[str]:
    if not isinstance(message, UserMessage):
        return []
    return [content.text for content in message.content if isinstance(content, TextContent)]


def _model(turn: Folded) -> str:
    asked = [reply.model for reply in turn.replies.values() if reply.purpose == "reply"]
    return asked[-1] if asked else turn.opened.model if turn.opened else ""
