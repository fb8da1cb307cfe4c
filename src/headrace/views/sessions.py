"""Sessions as lists, as text to read, and as Markdown to keep.

Theory of operation. Rows and logs go in, lines and text come out; who reads the store makes the rows and says what a
moment is called. A turn is read with the terminal's own view, so a session shows what was shown: the question, the
answer as its pieces were joined, and beside it in one line each what tools did and how it ended, if not as it should.
Nothing that a person or a model wrote can control the terminal.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from headrace.events import (
    Event,
    NoticeShown,
    Recorded,
    ToolFinished,
    ToolStarted,
    TurnClosed,
)
from headrace.views.asides import Aside, asked, harmless
from headrace.views.terminal import Answer, TerminalView

When = Callable[[float], str]
"""What a moment is called."""

UNFINISHED: Final = "not finished"
_LINE_CHARS: Final = 120
_FENCES: Final = re.compile(r"`{3,}")


class SessionRow(NamedTuple):
    name: str
    title: str
    updated: str
    turns: int
    bytes: int
    running: bool


class FoundRow(NamedTuple):
    session: str
    when: str
    quote: str


def session_lines(rows: Sequence[SessionRow]) -> list[str]:
    """A table; `*` marks a session whose latest turn is not finished."""
    cells = [
        (_line(row.name), row.updated, _turns(row.turns), _size(row.bytes), _line(row.title)) for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        f"{'*' if row.running else ' '} {name:<{widths[0]}}  {when:<{widths[1]}}  {turns:>{widths[2]}}  "
        f"{size:>{widths[3]}}  {title}".rstrip()
        for row, (name, when, turns, size, title) in zip(rows, cells, strict=True)
    ]


def found_lines(rows: Sequence[FoundRow]) -> list[str]:
    return [line for row in rows for line in (f"{_line(row.session)}  {row.when}", f"    {_line(row.quote)}")]


def turn_text(entries: Sequence[Recorded]) -> str:
    """A turn as it is read again in a terminal, ending in a line feed."""
    view = TerminalView()
    out: list[str] = []
    for recorded in entries:
        out += [f"> {line}\n" for text in asked(recorded.event) for line in harmless(text).split("\n")]
        for piece in view.feed([recorded.event]):
            match piece:
                case Answer(text):
                    out.append(text.removeprefix("\n") if _break(out) == "" else text)
                case Aside(text):
                    out.append(f"{_break(out)}[{_short(text)}]\n")
                case _:
                    pass
    if not _closed(entries):
        out.append(f"{_break(out)}[{UNFINISHED}]\n")
    return "".join([*out, _break(out)])


def markdown(name: str, turns: Iterable[Sequence[Recorded]], when: When) -> Iterator[str]:
    """A session as a document, turn by turn. Answers are Markdown already and stay as they are."""
    yield f"# {_line(name)}\n"
    for entries in turns:
        yield f"\n## {when(entries[0].at)}\n\n" + "\n\n".join(_paragraphs(entries)) + "\n"


def _paragraphs(entries: Sequence[Recorded]) -> Iterator[str]:
    view = TerminalView()
    answer: list[str] = []
    runs: dict[tuple[int, int], ToolStarted] = {}
    for event in (recorded.event for recorded in entries):
        answer += [piece.text for piece in view.feed([event]) if isinstance(piece, Answer)]
        if isinstance(event, ToolStarted):
            runs[event.call, event.part] = event
        beside = list(_beside(event, runs))
        if beside and answer:
            yield "".join(answer).strip("\n")
            answer.clear()
        yield from beside
    if answer:
        yield "".join(answer).strip("\n")
    if (closed := _closed(entries)) is None:
        yield f"*({UNFINISHED})*"
    elif closed.outcome != "stop":
        yield f"*({closed.outcome}: {_line(closed.cause.message)})*"


def _beside(event: Event, runs: dict[tuple[int, int], ToolStarted]) -> Iterator[str]:
    """What stands between the paragraphs of an answer."""
    for text in asked(event):
        yield "\n".join(f"> {line}".rstrip() for line in harmless(text).split("\n"))
    match event:
        case NoticeShown(text=text):
            yield f"*{_line(text)}*"
        case ToolFinished(call, part, status, result):
            started = runs.get((call, part))
            if started is not None:
                yield _folded(f"{_line(started.name)}: {status}", started.arguments, result)
        case _:
            pass


def _folded(summary: str, arguments: str, result: str) -> str:
    blocks = "\n\n".join(_fenced(harmless(text)) for text in (arguments, result) if text.strip())
    plain = summary.replace("&", "&amp;").replace("<", "&lt;")
    return f"<details><summary>{plain}</summary>\n\n{blocks}\n\n</details>"


def _fenced(text: str) -> str:
    longest = max((len(found) for found in _FENCES.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.rstrip(chr(10))}\n{fence}"


def _closed(entries: Sequence[Recorded]) -> TurnClosed | None:
    last = entries[-1].event
    return last if isinstance(last, TurnClosed) else None


def _break(out: Sequence[str]) -> str:
    """What brings the text to the start of a line."""
    return "" if not out or out[-1].endswith("\n") else "\n"


def _line(text: str) -> str:
    return " ".join(harmless(text).split())


def _short(text: str) -> str:
    line = _line(text)
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "…"


def _turns(count: int) -> str:
    return "1 turn" if count == 1 else f"{count:,} turns"


def _size(size_bytes: int) -> str:
    if size_bytes >= 1_000_000:
        return f"{size_bytes / 1_000_000:.1f} MB"
    return f"{size_bytes / 1_000:.0f} kB"
