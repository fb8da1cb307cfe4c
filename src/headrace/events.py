"""Every fact a turn can hold: one closed union of frozen events, and the messages a turn is made from.

Theory of operation. A turn's log is a list of `Recorded(turn, seq, at, event)`; `seq` starts at 1 and has no
gaps. Events are named in the past tense because they have happened. They are written once, read by everybody
and never changed, so they are frozen, hold plain values, and round-trip through JSON:

    encode(recorded) -> one JSON line        decode(line) -> the same Recorded

Identities within a turn are numbers, so that a pure function can make them: `call` counts the questions put
to models from 1; `part` counts the parts of a call's reply from 1, across its attempts; a tool run is named by
the (call, part) that asked for it, because providers repeat their own tool ids.

`item` in `PartClosed` is what the provider wants back, verbatim, as JSON text: signatures, encrypted reasoning,
fields we do not know. "" means: rebuild it from the displayed text. "{}" means: send nothing, an earlier
part's item covers this one. Text stays text (JSON within a JSON string) so that not one byte of it changes.

A log written today must be readable by the next release: `TurnOpened.log_version` says which shape it has,
`tests/golden/` holds a log of every shape, and new fields get defaults that mean "as before".
"""

from typing import Final, Literal, get_args

import msgspec

from headrace.errors import Cause, Outcome

LOG_VERSION: Final = 1

PartKind = Literal["text", "refusal", "reasoning", "tool_call", "opaque"]
"""`opaque` is shown to nobody and kept only to be sent back: a hosted tool's item, markup nobody offered."""

VISIBLE_KINDS: Final[frozenset[PartKind]] = frozenset({"text", "refusal", "tool_call"})
"""Reasoning is not visible: an attempt that only thought may still be replaced."""

EndReason = Literal["stop", "tool_calls", "length", "content_filter", "refused", "pause"]
"""What a provider's terminal evidence can mean. `pause`: the provider wants to be called again to go on."""

Purpose = Literal["reply", "advice", "summary"]

ToolStatus = Literal["ok", "error", "denied", "cancelled", "unknown"]
"""`unknown`: it had started when the process died; nobody knows what it did, and it is never run again."""

AdviceShown = Literal["off", "summary", "full"]
"""How much of a mixture's advice people are shown: its failures alone, who has advised, or what they said."""

Verdict = Literal["allowed", "denied", "timed_out", "withdrawn"]


# --- messages: what goes into a call ------------------------------------------------------------------


class _Value(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    pass


class TextContent(_Value, frozen=True, tag="text"):
    text: str


class ImageContent(_Value, frozen=True, tag="image"):
    url: str
    """An https or a data: URL."""
    detail: str = ""


class OtherContent(_Value, frozen=True, tag="other"):
    """A content part we do not model, kept as it came; it can be sent to the same protocol only."""

    protocol: str
    item: str


Content = TextContent | ImageContent | OtherContent


class SystemMessage(_Value, frozen=True, tag="system"):
    text: str


class UserMessage(_Value, frozen=True, tag="user"):
    content: tuple[Content, ...]


class ReplyPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a reply as the next call needs it."""

    kind: PartKind
    text: str = ""
    """For a tool call: its arguments, as JSON text."""
    tool_id: str = ""
    name: str = ""
    item: str = ""


class AssistantMessage(_Value, frozen=True, tag="assistant"):
    parts: tuple[ReplyPart, ...]
    model: str = ""
    """Which model said it, as "<provider>:<model>". Items are sent back to this model and no other."""


class ToolMessage(_Value, frozen=True, tag="tool"):
    tool_id: str
    content: tuple[Content, ...]
    name: str = ""


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage


def user_message(text: str) -> UserMessage:
    return UserMessage((TextContent(text),))


# --- events -------------------------------------------------------------------------------------------


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    """Frozen values hold no circles, and there are many of them: the collector need not look at any."""


class TurnOpened(_Event, frozen=True, tag="turn_opened"):
    log_version: int
    """Required, so that it is always written."""
    input: tuple[Message, ...]
    session: str = ""
    model: str = ""
    request: str = ""
    """How its door was asked, as JSON text: what the view needs to show the turn again."""


class InputAdded(_Event, frozen=True, tag="input_added"):
    """A message that came while the turn ran, delivered at the next tool boundary."""

    input: tuple[Message, ...]


class CallStarted(_Event, frozen=True, tag="call_started"):
    call: int
    purpose: Purpose
    model: str


class AdviceSought(_Event, frozen=True, tag="advice_sought"):
    """Models are asked side by side what they would answer, before the next reply; these are their calls."""

    calls: tuple[int, ...]
    show: AdviceShown = "summary"


class AttemptStarted(_Event, frozen=True, tag="attempt_started"):
    call: int
    attempt: int
    model: str
    """The model this attempt asks; a fallback differs from the call's."""
    streamed: bool = True


class AttemptReplaced(_Event, frozen=True, tag="attempt_replaced"):
    """Nothing visible came from the attempt and another follows; its parts are in no fold."""

    call: int
    attempt: int
    cause: Cause


class PartStarted(_Event, frozen=True, tag="part_started"):
    call: int
    part: int
    kind: PartKind
    tool_id: str = ""
    name: str = ""


class PartGrew(_Event, frozen=True, tag="part_grew"):
    call: int
    part: int
    text: str


class PartClosed(_Event, frozen=True, tag="part_closed"):
    call: int
    part: int
    item: str = ""


class UsageReported(_Event, frozen=True, tag="usage_reported"):
    """Tokens of one attempt as the provider counts them; a later report of the same attempt replaces it.

    None is unknown and never zero.
    """

    call: int
    input_tokens: int | None = None
    """Everything sent, cached or not."""
    output_tokens: int | None = None
    """Everything generated, reasoning included."""
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


class ReplyEnded(_Event, frozen=True, tag="reply_ended"):
    """The provider's own terminal evidence arrived."""

    call: int
    reason: EndReason
    model: str = ""
    """The model as the provider names it, where it does."""
    provider_reason: str = ""


class ReplyCut(_Event, frozen=True, tag="reply_cut"):
    """Something visible had come, and then the stream broke or was stopped. What was shown stays."""

    call: int
    cause: Cause
    dropped: tuple[str, ...] = ()
    """Names of the tool calls that were under way; they never run."""


class CallFailed(_Event, frozen=True, tag="call_failed"):
    """The call ended with nothing visible, and no attempt is left."""

    call: int
    cause: Cause
    """What went wrong first."""
    lasts: tuple[tuple[str, Cause], ...] = ()
    """Each model that was asked, and what went wrong with it last."""


class ToolStarted(_Event, frozen=True, tag="tool_started"):
    call: int
    part: int
    name: str
    arguments: str


class ToolPrinted(_Event, frozen=True, tag="tool_printed"):
    call: int
    part: int
    text: str


class ToolFinished(_Event, frozen=True, tag="tool_finished"):
    call: int
    part: int
    status: ToolStatus
    result: str
    """What the model is told."""
    detail: str = ""
    """What people are shown beside it: a diff, a summary."""


class ApprovalAsked(_Event, frozen=True, tag="approval_asked"):
    approval: str
    call: int
    part: int
    summary: str
    expires_at: float | None = None


class ApprovalGiven(_Event, frozen=True, tag="approval_given"):
    approval: str
    verdict: Verdict
    by: str = ""


class QuestionAsked(_Event, frozen=True, tag="question_asked"):
    question: str
    call: int
    part: int
    text: str
    choices: tuple[str, ...] = ()
    expires_at: float | None = None


class QuestionAnswered(_Event, frozen=True, tag="question_answered"):
    question: str
    text: str = ""
    """"" where nobody answered in time."""
    by: str = ""


class NoticeShown(_Event, frozen=True, tag="notice_shown"):
    """Something the people watching have to know and the model did not say."""

    code: str
    text: str
    call: int | None = None


class HistoryCompacted(_Event, frozen=True, tag="history_compacted"):
    """From here on the turns up to and including `through` are sent to models as this summary."""

    through: str
    summary: str
    call: int | None = None


class TurnClosed(_Event, frozen=True, tag="turn_closed"):
    outcome: Outcome
    cause: Cause


Event = (
    TurnOpened
    | InputAdded
    | AdviceSought
    | CallStarted
    | AttemptStarted
    | AttemptReplaced
    | PartStarted
    | PartGrew
    | PartClosed
    | UsageReported
    | ReplyEnded
    | ReplyCut
    | CallFailed
    | ToolStarted
    | ToolPrinted
    | ToolFinished
    | ApprovalAsked
    | ApprovalGiven
    | QuestionAsked
    | QuestionAnswered
    | NoticeShown
    | HistoryCompacted
    | TurnClosed
)
EVENTS: Final[tuple[type[Event], ...]] = get_args(Event)


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A fact and its place: the `seq`-th event of `turn`, known since `at` (seconds since 1970)."""

    turn: str
    seq: int
    at: float
    event: Event


encode = msgspec.json.Encoder().encode
"""Recorded -> one line of JSON, without the newline."""

decode = msgspec.json.Decoder(Recorded).decode
"""One line of JSON -> Recorded; raises msgspec.DecodeError."""
