"""What a log adds up to.

Theory of operation. `Folded` applies events one after the other and keeps, per call, the parts of the attempt that
counts. It never looks back, so reading a log bit by bit costs what reading it once does; deltas are kept as they are
and joined when somebody asks. A replaced attempt leaves nothing behind but its usage in `spent`, because it was paid.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, assert_never

import msgspec

from headrace.errors import Cause, Outcome
from headrace.events import (
    VISIBLE_KINDS,
    AdviceSought,
    ApprovalAsked,
    ApprovalGiven,
    AssistantMessage,
    AttemptReplaced,
    AttemptStarted,
    CallFailed,
    CallStarted,
    Event,
    HistoryCompacted,
    InputAdded,
    Message,
    NoticeShown,
    PartClosed,
    PartGrew,
    PartKind,
    PartStarted,
    Purpose,
    QuestionAnswered,
    QuestionAsked,
    Recorded,
    ReplyCut,
    ReplyEnded,
    ReplyPart,
    TextContent,
    ToolFinished,
    ToolMessage,
    ToolPrinted,
    ToolStarted,
    TurnClosed,
    TurnOpened,
    UsageReported,
    user_message,
)

NOT_RUN: Final = "This tool was not run: the turn ended before."
INTERRUPTED: Final = "[Here the next message came, and the answer was not gone on with.]"


Advised = Callable[[AdviceSought], Sequence[Message]]
"""How a model is told what a round of advice has brought."""


def unadvised(_: AdviceSought) -> Sequence[Message]:
    """What an adviser said is for the reply it was sought for, and no part of the history."""
    return ()


class Part:
    """One part as far as it has come."""

    __slots__ = ("item", "kind", "name", "number", "pieces", "state", "tool_id")

    def __init__(self, started: PartStarted) -> None:
        self.number = started.part
        self.kind: PartKind = started.kind
        self.tool_id = started.tool_id
        self.name = started.name
        self.pieces: list[str] = []
        self.item = ""
        self.state: Literal["open", "closed"] = "open"

    @property
    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    def for_replay(self) -> ReplyPart:
        return ReplyPart(self.kind, self.text, self.tool_id, self.name, self.item)


class Reply:
    """What a call has answered."""

    def __init__(self, started: CallStarted) -> None:
        self.call = started.call
        self.purpose: Purpose = started.purpose
        self.model = started.model
        """Of the latest attempt, as "<provider>:<model>"."""
        self.parts: dict[int, Part] = {}
        self.last_part = 0
        self.usage: UsageReported | None = None
        self.trouble: Cause | None = None
        """What broke the attempt that was replaced last."""
        self._replaced: list[tuple[str, UsageReported | None]] = []
        self.attempts = 0
        self.end: ReplyEnded | ReplyCut | CallFailed | None = None

    @property
    def visible(self) -> bool:
        return any(
            p.kind == "tool_call" or (p.kind in VISIBLE_KINDS and p.pieces) for p in self.parts.values()
        )

    def text(self, kind: PartKind = "text") -> str:
        return "".join(part.text for part in self.parts.values() if part.kind == kind)

    def tool_calls(self) -> list[Part]:
        """Whole calls of a reply that ended by asking for them; of any other reply, none."""
        if not isinstance(self.end, ReplyEnded) or self.end.reason != "tool_calls":
            return []
        return [part for part in self.parts.values() if part.kind == "tool_call"]

    def attempted(self) -> list[tuple[str, UsageReported | None]]:
        """The model each attempt asked, and its tokens; None where it generated something and did not say."""
        return [*self._replaced, (self.model, self.usage)]

    def replaced(self, cause: Cause) -> None:
        self.trouble = cause
        if self.usage is not None or self.parts:
            self._replaced.append((self.model, self.usage))
        self.usage = None
        self.parts.clear()


def goes_on(end: ReplyEnded | ReplyCut | CallFailed | None) -> bool:
    """Whether what is said next continues the sentence: a cut text, or a provider that paused."""
    match end:
        case ReplyCut(dropped=dropped):
            return not dropped
        case ReplyEnded(reason=reason):
            return reason == "pause"
        case _:
            return False


class Usage(msgspec.Struct, frozen=True):
    """Tokens of several calls. None is unknown; `unreported` counts those of which nothing was told."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    unreported: int = 0


class Folded:
    """A turn, as far as its log has been applied."""

    def __init__(self) -> None:
        self.seq = 0
        self.opened: TurnOpened | None = None
        self.replies: dict[int, Reply] = {}
        self.results: dict[tuple[int, int], ToolFinished] = {}
        self.notices: list[NoticeShown] = []
        self.compaction: HistoryCompacted | None = None
        self.closed: TurnClosed | None = None
        self.rounds: list[AdviceSought] = []
        self._steps: list[
            int | InputAdded | AdviceSought
        ] = []  # replies, and what comes between them, in order

    def catch_up(self, entries: Iterable[Recorded]) -> "Folded":
        for recorded in entries:
            event = recorded.event
            if type(event) is PartGrew:  # most are, and a long answer is folded in one step of the loop
                self.replies[event.call].parts[event.part].pieces.append(event.text)
            else:
                self.apply(event)
            self.seq = recorded.seq
        return self

    def apply(self, event: Event) -> None:
        match event:
            case PartGrew(call, part, text):
                self.replies[call].parts[part].pieces.append(text)
            case PartStarted(call, part):
                reply = self.replies[call]
                reply.parts[part] = Part(event)
                reply.last_part = part
            case PartClosed(call, part, item):
                closed = self.replies[call].parts[part]
                closed.item, closed.state = item, "closed"
            case CallStarted(call):
                self.replies[call] = Reply(event)
                if event.purpose == "reply":
                    self._steps.append(call)
            case AttemptStarted(call, attempt, model):
                self.replies[call].model = model
                self.replies[call].attempts = attempt
            case AttemptReplaced(call, _, cause):
                self.replies[call].replaced(cause)
            case UsageReported(call):
                self.replies[call].usage = event
            case ReplyEnded(call) | ReplyCut(call) | CallFailed(call):
                self.replies[call].end = event
            case ToolFinished(call, part):
                self.results[call, part] = event
            case InputAdded():
                self._steps.append(event)
            case AdviceSought():
                self.rounds.append(event)
                self._steps.append(event)
            case NoticeShown():
                self.notices.append(event)
            case HistoryCompacted():
                self.compaction = event
            case TurnOpened():
                self.opened = event
            case TurnClosed():
                self.closed = event
            case (
                ToolStarted()
                | ToolPrinted()
                | ApprovalAsked()
                | ApprovalGiven()
                | QuestionAsked()
                | QuestionAnswered()
            ):
                pass
            case _:
                assert_never(event)

    # --- what people see

    @property
    def visible(self) -> bool:
        """Whether anything of the answer can be seen."""
        return any(reply.visible for reply in self._answers())

    @property
    def outcome(self) -> Outcome | None:
        """None while the turn is open."""
        return self.closed.outcome if self.closed else None

    @property
    def cause(self) -> Cause | None:
        return self.closed.cause if self.closed else None

    def answer_text(self) -> str:
        return self._join("text")

    def refusal_text(self) -> str:
        return self._join("refusal")

    def reasoning_text(self) -> str:
        return self._join("reasoning")

    def tool_calls(self) -> list[Part]:
        """The calls the last reply ended with: for a relayed call, the caller's to run."""
        answers = self._answers()
        return answers[-1].tool_calls() if answers else []

    def open_tool_names(self, call: int) -> tuple[str, ...]:
        """Tool calls that are lost if the call's reply is cut now."""
        parts = self.replies[call].parts.values()
        return tuple(part.name for part in parts if part.kind == "tool_call")

    def _answers(self) -> list[Reply]:
        return [reply for reply in self.replies.values() if reply.purpose == "reply"]

    def _join(self, kind: PartKind) -> str:
        """Replies are paragraphs, but one that goes on where another was cut continues its sentence."""
        out: list[str] = []
        cut = False
        for reply in self._answers():
            text = reply.text(kind)
            if text:
                out += [text] if not out or cut else ["\n\n", text]
            cut = goes_on(reply.end)
        return "".join(out)

    # --- what it cost

    def usage(self, purpose: Purpose | None = None) -> Usage:
        """Tokens of the replies, of one purpose or of all."""
        replies = [r for r in self.replies.values() if purpose in (None, r.purpose)]
        return total([r.usage for r in replies])

    def spent(self, purpose: Purpose | None = None) -> Usage:
        """Tokens of the replies and of attempts that were replaced."""
        replies = [r for r in self.replies.values() if purpose in (None, r.purpose)]
        return total([usage for reply in replies for _, usage in reply.attempted()])

    # --- what the next call is told

    def messages(self, advised: "Advised" = unadvised) -> tuple[Message, ...]:
        """The turn as messages: its input, what was replied, and what the tools said.

        What a closed turn has not heard belongs to the next one, which a crash does not let happen. Advice is told
        where it was sought, in the words of `advised`. Calls that the caller runs are without results here: those
        come with the next turn.
        """
        out: list[Message] = list(self.opened.input) if self.opened else []
        left_to_next = self.closed is not None and self.closed.cause.code != "crashed"
        last = self._last_asked() if left_to_next else len(self._steps)
        for place, step in enumerate(self._steps):
            if isinstance(step, AdviceSought):
                out += advised(step)
            elif isinstance(step, int):
                out += self._as_messages(self.replies[step])
            elif place < last:
                out += step.input
        if self.closed is not None and self.closed.cause.code == "interrupted":
            out.append(user_message(INTERRUPTED))
        return tuple(out)

    def unheard(self) -> tuple[Message, ...]:
        """Input that was added after the last reply was asked for."""
        late = self._steps[self._last_asked() + 1 :]
        return tuple(message for step in late if isinstance(step, InputAdded) for message in step.input)

    def _last_asked(self) -> int:
        """The place of the last reply that was asked for."""
        return max((place for place, step in enumerate(self._steps) if isinstance(step, int)), default=-1)

    def _as_messages(self, reply: Reply) -> list[Message]:
        match reply.end:
            case ReplyEnded():
                calls = reply.tool_calls()
                kept = [p for p in reply.parts.values() if p.kind != "tool_call" or p in calls]
                said: list[Message] = [AssistantMessage(tuple(p.for_replay() for p in kept), reply.model)]
                if self.outcome != "tool_calls":
                    said += [self._result(reply.call, part) for part in calls]
                return said if kept else []
            case ReplyCut(dropped=dropped):
                return _cut_messages(reply, dropped)
            case _:
                return []

    def _result(self, call: int, part: Part) -> ToolMessage:
        finished = self.results.get((call, part.number))
        text = finished.result if finished else NOT_RUN
        return ToolMessage(part.tool_id, (TextContent(text),), part.name)


def _cut_messages(reply: Reply, dropped: tuple[str, ...]) -> list[Message]:
    """The text that was shown, and word of the calls that never ran."""
    shown = tuple(ReplyPart(p.kind, p.text) for p in reply.parts.values() if p.kind == "text" and p.pieces)
    out: list[Message] = [AssistantMessage(shown, reply.model)] if shown else []
    if dropped:
        names = ", ".join(dropped)
        out.append(
            user_message(f"[The stream broke while you were calling {names}. Nothing of that was run.]")
        )
    return out


_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
)


def total(reports: Sequence[UsageReported | None]) -> Usage:
    """Add up what is known."""
    known = [report for report in reports if report is not None]
    sums: dict[str, int | None] = {}
    for name in _COUNTS:
        values = [value for report in known if (value := getattr(report, name)) is not None]
        sums[name] = sum(values) if values else None
    return Usage(**sums, unreported=len(reports) - len(known))


def fold(entries: Iterable[Recorded]) -> Folded:
    """Read a log from its start."""
    return Folded().catch_up(entries)


def joined(events: Iterable[Event]) -> list[Event]:
    """The same events with adjacent growth of one part made one: how the bytes were cut no longer shows."""
    out: list[Event] = []
    grown: list[str] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, PartGrew):
            if isinstance(last, PartGrew) and (last.call, last.part) == (event.call, event.part):
                grown.append(event.text)
                continue
            grown = _flush(out, grown)
            grown.append(event.text)
        else:
            grown = _flush(out, grown)
        out.append(event)
    _flush(out, grown)
    return out


def _flush(out: list[Event], grown: list[str]) -> list[str]:
    if len(grown) > 1:
        last = out[-1]
        assert isinstance(last, PartGrew)
        out[-1] = PartGrew(last.call, last.part, "".join(grown))
    return []
