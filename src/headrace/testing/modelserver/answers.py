"""From a script and what was asked to the exact bytes of the answer: a pure function, computed once.

Theory of operation. A protocol turns the reply into frames (a stream) or one body (a whole answer); the
fault cuts or changes them; pacing says which of them share a write. What is left is an `Answer`: pieces of
bytes and the way they end, which the connection sends without knowing a protocol. Answers are kept, so that
a reply of a hundred thousand tokens is encoded once and then costs a few hundred large writes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, assert_never

from headrace.limits import KIB
from headrace.ports import ProtocolName
from headrace.testing.modelserver import chat_completions, messages, responses
from headrace.testing.modelserver.errors import BAD_GATEWAY, envelope, error_body, error_frame
from headrace.testing.modelserver.frames import DONE, Frame, Role, to_json
from headrace.testing.modelserver.script import (
    MID,
    AnswerWhole,
    Close,
    Drip,
    End,
    Malformed,
    Omit,
    PlacedFault,
    Raw,
    RefuseParameter,
    RefuseStreaming,
    Script,
    SendError,
    Stall,
    Status,
)
from headrace.testing.scripts import Reply

# Large enough that a write costs nothing per token, small enough to stay below a socket's buffers.
WRITE_BYTES: Final = 128 * KIB
# Answers kept encoded. Tests use a handful of scripts, a benchmark one.
ANSWERS_MAX: Final = 64

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream; charset=utf-8"
_DELTAS: Final[frozenset[Role]] = frozenset({"reasoning", "text", "arguments"})


@dataclass(frozen=True, slots=True)
class Ask:
    """As much of a request as its answer depends on."""

    protocol: ProtocolName
    model: str
    stream: bool
    include_usage: bool
    parameters: frozenset[str]

    @classmethod
    def of(cls, protocol: ProtocolName, body: dict[str, Any]) -> "Ask":
        options = body.get("stream_options")
        return cls(
            protocol=protocol,
            model=str(body.get("model", "")),
            stream=body.get("stream") is True,
            include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
            parameters=frozenset(body),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    pieces: tuple[bytes, ...] = ()
    """One write each."""
    content_type: str = JSON
    content_length: int | None = None
    """None sends the body in chunks."""
    status: int = 200
    retry_after: str = ""
    pause_s: float = 0.0
    """Between two pieces."""
    end: End = "eof"
    headless: bool = False
    """It ends before the headers."""


@lru_cache(maxsize=ANSWERS_MAX)
def answer(script: Script, ask: Ask) -> Answer:
    if isinstance(script.reply, Raw):
        raw = script.reply
        return Answer(raw.chunks, raw.content_type, None, raw.status, pause_s=script.pace_s, end=raw.end)
    if refused := _refused(script, ask):
        return refused
    if isinstance(script.fault, Close | Stall) and script.fault.at == "before_headers":
        return Answer(end=_end(script.fault), headless=True)
    if ask.stream and not isinstance(script.fault, AnswerWhole):
        return _streamed(script, script.reply, ask)
    return _whole(script, script.reply, ask)


# --- refusals -----------------------------------------------------------------------------------------


def _refused(script: Script, ask: Ask) -> Answer | None:
    match script.fault:
        case Status(status=502):
            body = BAD_GATEWAY
            return Answer((body,), "text/html", len(body), 502, script.fault.retry_after)
        case Status() as fault:
            return _error(ask, fault)
        case RefuseStreaming() if ask.stream:
            message = "Streaming is not supported for this model."
            return _error(ask, Status(400, message, "unsupported_value"), "stream")
        case RefuseParameter(name) if name in ask.parameters:
            message = f"Unsupported parameter: '{name}' is not supported with this model."
            return _error(ask, Status(400, message, "unsupported_parameter"), name)
        case _:
            return None


def _error(ask: Ask, fault: Status, parameter: str | None = None) -> Answer:
    body = envelope(ask.protocol, fault, parameter)
    return Answer((body,), JSON, len(body), fault.status, fault.retry_after)


# --- streams ------------------------------------------------------------------------------------------


def _streamed(script: Script, reply: Reply, ask: Ask) -> Answer:
    frames, end = _befallen(script, list(_frames(reply, ask)), ask)
    if isinstance(script.fault, Drip):
        data = b"".join(frame.data for frame in frames)
        return Answer(_bytes_of(data), EVENT_STREAM, pause_s=script.fault.pause_s)
    pieces = _paced(frames) if script.pace_s else _bulk(frames)
    return Answer(tuple(pieces), EVENT_STREAM, pause_s=script.pace_s, end=end)


def _frames(reply: Reply, ask: Ask) -> Iterable[Frame]:
    model = reply.model or ask.model
    match ask.protocol:
        case "chat_completions":
            return chat_completions.stream(reply, model, include_usage=ask.include_usage)
        case "responses":
            return responses.stream(reply, model)
        case "messages":
            return messages.stream(reply, model)
        case _:
            assert_never(ask.protocol)


def _befallen(script: Script, frames: list[Frame], ask: Ask) -> tuple[list[Frame], End]:
    """What the fault leaves of a stream, and how that ends."""
    match script.fault:
        case Close() | Stall() as fault:
            return frames[: _cut(frames, fault)], _end(fault)
        case SendError() as fault:
            at = _cut(frames, fault)
            error = error_frame(fault.shape, ask.protocol, ask.model, at)
            return [*frames[:at], error, *([DONE] if fault.then_done else [])], "eof"
        case Malformed() as fault:
            at = min(_cut(frames, fault), len(frames) - 1)
            return [*frames[:at], _halved(frames[at]), *frames[at + 1 :]], "eof"
        case Omit(what):
            gone = {"finish", "done"} if what == "terminal" else {what}
            return [frame for frame in frames if frame.role not in gone], "eof"
        case _:
            return frames, "eof"


def _cut(frames: Sequence[Frame], fault: PlacedFault) -> int:
    """How many frames come before the fault's place."""
    roles = [frame.role for frame in frames]
    if kind := MID.get(fault.at):
        return [at for at, role in enumerate(roles) if role == kind][fault.deltas - 1] + 1
    if fault.at == "before_first_token":
        return roles.count("open")
    if fault.at == "after_finish":
        return roles.index("finish") + 1
    return 0


def _end(fault: Close | Stall) -> End:
    return fault.how if isinstance(fault, Close) else "stall"


def _halved(frame: Frame) -> Frame:
    """The event line stays; half of the data goes."""
    start = frame.data.index(b"data: ") + len(b"data: ")
    return Frame(frame.role, frame.data[: (start + len(frame.data)) // 2] + b"\n\n")


def _bulk(frames: Iterable[Frame]) -> Iterable[bytes]:
    piece = bytearray()
    for frame in frames:
        piece += frame.data
        if len(piece) >= WRITE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _paced(frames: Iterable[Frame]) -> Iterable[bytes]:
    """A piece ends with each delta; structure travels with the delta that follows it."""
    piece = bytearray()
    for frame in frames:
        piece += frame.data
        if frame.role in _DELTAS:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _bytes_of(data: bytes) -> tuple[bytes, ...]:
    return tuple(data[at : at + 1] for at in range(len(data)))


# --- whole answers ------------------------------------------------------------------------------------


def _whole(script: Script, reply: Reply, ask: Ask) -> Answer:
    body = to_json(_body(reply, ask, finished=_finished(script)))
    match script.fault:
        case Close() | Stall() as fault:
            sent = body[: _cut_body(body, fault)]
            length = len(sent) if _end(fault) == "eof" else len(body)
            return Answer((sent,) if sent else (), JSON, length, end=_end(fault))
        case SendError() as fault:
            error = error_body(fault.shape, ask.protocol, ask.model)
            return Answer((error,), JSON, len(error))
        case Malformed():
            half = body[: len(body) // 2]
            return Answer((half,), JSON, len(half))
        case Drip(pause_s):
            return Answer(_bytes_of(body), JSON, len(body), pause_s=pause_s)
        case _:
            return Answer((body,), JSON, len(body))


def _body(reply: Reply, ask: Ask, *, finished: bool) -> dict[str, Any]:
    model = reply.model or ask.model
    match ask.protocol:
        case "chat_completions":
            return chat_completions.answer(reply, model, finished=finished)
        case "responses":
            return responses.answer(reply, model, finished=finished)
        case "messages":
            return messages.answer(reply, model, finished=finished)
        case _:
            assert_never(ask.protocol)


def _finished(script: Script) -> bool:
    return not (isinstance(script.fault, Omit) and script.fault.what != "done")


def _cut_body(body: bytes, fault: PlacedFault) -> int:
    if fault.at in MID:
        return len(body) // 2
    return len(body) - 1 if fault.at == "after_finish" else 0
