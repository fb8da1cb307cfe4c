"""How bytes reach a reply: as a stream of events, or as one body. The contract is in `headrace.wire`.

Theory of operation. A protocol implements `Reply`: what an event, a body and the end of a stream mean to it. It
writes to `parts`, sets `done` on terminal evidence and raises CallError when it cannot go on. The decoders here do
what is the same for every protocol: cut the stream, keep the first failure, ignore what comes after an end.
"""

import contextlib
from typing import Protocol

from headrace.errors import CallError, Cause, MalformedStream
from headrace.events import Event
from headrace.limits import BODY_MAX_BYTES
from headrace.wire import sse
from headrace.wire.parts import Parts


class Reply(Protocol):
    parts: Parts
    done: bool
    """Terminal evidence has been read and everything is closed."""

    @property
    def finished(self) -> bool:
        """Terminal evidence has been read; nothing but bookkeeping can follow."""

    def event(self, data: bytes, name: bytes) -> None: ...
    def end_of_stream(self) -> None: ...
    def body(self, data: bytes) -> None: ...
    def usage(self) -> list[Event]: ...


def no_terminal(what: str) -> CallError:
    return CallError(Cause("no_terminal", f"The answer is incomplete: {what}."))


class StreamDecoder:
    """A stream of server-sent events to events of a reply."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._sse = sse.Decoder()
        self.failure: CallError | None = None

    @property
    def done(self) -> bool:
        return self._reply.done

    @property
    def finished(self) -> bool:
        """A finish reason has come; only usage and the end of the stream can follow."""
        return self._reply.finished

    def feed(self, data: bytes) -> list[Event]:
        if self._reply.done or self.failure is not None:
            return []
        whole: list[sse.ServerSentEvent] = []
        try:
            try:
                self._sse.feed(data, whole)
            finally:
                self._read(whole)
        except CallError as failure:
            self._fail(failure)
        return self._reply.parts.take()

    def close(self) -> list[Event]:
        if self._reply.done or self.failure is not None:
            return []
        try:
            self._end()
        except CallError as failure:
            self._fail(failure)
        return self._reply.parts.take()

    def _end(self) -> None:
        """Nothing more will be read."""
        self._reply.end_of_stream()

    def _read(self, whole: list[sse.ServerSentEvent]) -> None:
        reply = self._reply
        for event in whole:
            data = event.data.strip()
            if reply.done:
                return
            if data == b"[DONE]":
                reply.end_of_stream()
            elif data:
                reply.event(data, event.name)

    def _fail(self, failure: CallError) -> None:
        if isinstance(failure, MalformedStream) and self._reply.finished:
            # The answer has its terminal evidence; rubbish behind it is an end like a connection that breaks there.
            with contextlib.suppress(CallError):
                self._end()
        if self._reply.done:
            return  # what followed the end was no part of the answer
        self.failure = failure
        self._reply.parts.out += self._reply.usage()


class BodyDecoder:
    """A whole, non-streaming answer to the same events."""

    finished = False

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._pieces: list[bytes] = []
        self._size = 0
        self.failure: CallError | None = None

    @property
    def done(self) -> bool:
        return self._reply.done

    def feed(self, data: bytes) -> list[Event]:
        if self.failure is not None or self._reply.done:
            return []
        self._size += len(data)
        if self._size > BODY_MAX_BYTES:
            self._pieces.clear()
            self.failure = MalformedStream(f"an answer is larger than {BODY_MAX_BYTES} bytes")
        else:
            self._pieces.append(data)
        return []

    def close(self) -> list[Event]:
        if self.failure is not None or self._reply.done:
            return []
        try:
            self._reply.body(b"".join(self._pieces))
        except CallError as failure:
            self.failure = failure
            self._reply.parts.out += self._reply.usage()
        self._pieces.clear()
        return self._reply.parts.take()
