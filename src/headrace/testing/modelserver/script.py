"""What the server does with one request: a reply, the way it is delivered, and the fault that befalls it.

A `Script` says what is answered and at most one fault. Faults that happen within a stream name a place, the
same in all protocols:

    before_headers       the request was read; not a byte is answered
    after_headers        status and headers, no body
    before_first_token   what a protocol opens with (a role, `response.created`, `message_start`), no part yet
    mid_reasoning, mid_text, mid_arguments
                         right after the `deltas`-th delta of that kind
    after_finish         the terminal evidence went out, what should follow it did not (`[DONE]`, usage,
                         `message_stop`, the end of the body)

A whole (not streamed) answer has the same places; "mid" is then in the middle of the body, and `after_finish`
one byte before its end. A place that the script's reply does not have is refused when the script is made.
"""

from dataclasses import dataclass, replace
from typing import Literal

from headrace.testing.scripts import HELLO, DeltaKind, Reply

Place = Literal[
    "before_headers",
    "after_headers",
    "before_first_token",
    "mid_reasoning",
    "mid_text",
    "mid_arguments",
    "after_finish",
]
MID: dict[Place, DeltaKind] = {
    "mid_reasoning": "reasoning",
    "mid_text": "text",
    "mid_arguments": "arguments",
}

End = Literal["eof", "fin", "rst", "stall"]
"""How an answer ends: `eof` finishes the HTTP body properly; `fin` and `rst` close the connection under it,
leaving the body unterminated; `stall` sends nothing more until the client leaves or the server closes."""

ErrorShape = Literal[
    "native",  # what the protocol that was asked would send
    "code",  # {"error": {message, type, code: "a_string"}}
    "int_code",  # the same with a number
    "event",  # the first, under an `event: error` line
    "bare",  # {"error": {"message": "Network connection lost."}}
    "overloaded",  # messages: event: error, overloaded_error
    "flat",  # responses: {"type": "error", code, message, param}
    "nested",  # responses: {"type": "error", "error": {...}}
    "failed",  # responses: response.failed
]


@dataclass(frozen=True, slots=True)
class Close:
    """The answer breaks off. `how="eof"` is the treacherous one: the HTTP body ends as it should."""

    at: Place = "mid_text"
    deltas: int = 1
    how: Literal["fin", "rst", "eof"] = "fin"


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing more is sent and the connection stays open; at `before_headers` the request just hangs."""

    at: Place = "mid_text"
    deltas: int = 1


@dataclass(frozen=True, slots=True)
class SendError:
    """An error object in an answer with status 200, and then the end of the body."""

    at: Place = "mid_text"
    deltas: int = 1
    shape: ErrorShape = "native"
    then_done: bool = False
    """`data: [DONE]` follows, as some servers do."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """The JSON of the next event is cut in half; the rest follows as if nothing had happened.

    Where no event comes next, it is the last one.
    """

    at: Place = "mid_text"
    deltas: int = 1


@dataclass(frozen=True, slots=True)
class Omit:
    """The whole reply without the finish reason, without what follows it (`[DONE]`), or without both."""

    what: Literal["finish", "done", "terminal"] = "terminal"


@dataclass(frozen=True, slots=True)
class Drip:
    """One byte per write."""

    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Status:
    """An HTTP error in the envelope of the protocol; 502 is a proxy's page of HTML."""

    status: int
    message: str = ""
    code: str = ""
    """Another error code than the usual one of this status, such as `insufficient_quota`."""
    retry_after: str = ""


@dataclass(frozen=True, slots=True)
class RefuseStreaming:
    """400 to a request to stream; one that asks for a whole answer gets it."""


@dataclass(frozen=True, slots=True)
class RefuseParameter:
    """400 that names a parameter, to requests that have it."""

    name: str


@dataclass(frozen=True, slots=True)
class AnswerWhole:
    """application/json, although a stream was asked for."""


Fault = (
    Close
    | Stall
    | SendError
    | Malformed
    | Omit
    | Drip
    | Status
    | RefuseStreaming
    | RefuseParameter
    | AnswerWhole
)
PlacedFault = Close | Stall | SendError | Malformed


@dataclass(frozen=True, slots=True)
class Raw:
    """These bytes, one write for each chunk, whatever was asked."""

    chunks: tuple[bytes, ...]
    content_type: str = "text/event-stream"
    status: int = 200
    end: End = "eof"


@dataclass(frozen=True, slots=True)
class Script:
    reply: Reply | Raw = HELLO
    fault: Fault | None = None
    times: int | None = None
    """The fault befalls the first so many requests that get this script; later ones get the reply whole."""
    pace_s: float = 0.0
    """Between two deltas, or two chunks of a raw script; 0 writes as much at once as it can."""

    def __post_init__(self) -> None:
        if isinstance(self.reply, Raw) and self.fault is not None:
            raise ValueError("a raw script is sent as it is; it cannot have a fault (see Raw.end)")
        if self.times is not None and self.fault is None:
            raise ValueError("`times` counts faults, and this script has none")
        if isinstance(self.reply, Reply) and isinstance(self.fault, PlacedFault):
            kind = MID.get(self.fault.at)
            if kind is not None and not 0 < self.fault.deltas <= self.reply.count(kind):
                raise ValueError(
                    f"the reply has {self.reply.count(kind)} {kind} deltas, "
                    f"so nothing can happen after number {self.fault.deltas}"
                )

    @property
    def flawless(self) -> "Script":
        return replace(self, fault=None, times=None)
