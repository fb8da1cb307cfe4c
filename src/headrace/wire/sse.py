"""Server-sent events after the WHATWG grammar, bytes in and events out.

Theory of operation. Bytes are cut into lines at LF, CRLF or CR; `data:` lines gather until an empty line sends
the event off. Nothing is decoded to text here: JSON parsers take bytes, and a UTF-8 sequence that a read has split
is whole again once its line is. A CR at the end of a read may be half of a CRLF, so the line ends there and a LF
that opens the next read is swallowed.

The common stream (LF, one `data:` line an event) costs one `split` a read and one slice a line.

Bounds: a line and an event have limits. Past them the decoder raises MalformedStream, and the stream is over.
"""

from typing import Final

import msgspec

from headrace.errors import MalformedStream
from headrace.limits import SSE_EVENT_MAX_BYTES, SSE_LINE_MAX_BYTES

_BOM: Final = b"\xef\xbb\xbf"


class ServerSentEvent(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event; `last_id` is the stream's, as the grammar wants it."""

    data: bytes
    name: bytes = b""
    last_id: bytes = b""


class Decoder:
    """Feed reads, get the events that became whole, oldest first."""

    def __init__(
        self, line_max_bytes: int = SSE_LINE_MAX_BYTES, event_max_bytes: int = SSE_EVENT_MAX_BYTES
    ) -> None:
        self.retry_ms: int | None = None
        self._line_max = line_max_bytes
        self._event_max = event_max_bytes
        self._line = bytearray()  # that has begun
        self._started = False  # the place of a BOM has been passed
        self._swallow_lf = False
        self._data: list[bytes] = []
        self._data_size = 0
        self._name = b""
        self._last_id = b""

    def feed(self, data: bytes, into: list[ServerSentEvent]) -> None:
        """Append to `into` what became whole. Raises MalformedStream; what was whole before is in `into`."""
        if not self._started:
            data = self._skip_bom(data)
        if self._swallow_lf and data:
            self._swallow_lf = False
            if data.startswith(b"\n"):
                data = data[1:]
        if b"\r" in data:
            self._swallow_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and self._line:
            self._line += lines[0]
            lines[0] = bytes(self._line)
            self._line.clear()
        self._take(lines, into)
        if rest:
            self._line += rest
            if len(self._line) > self._line_max:
                raise MalformedStream(f"a line is longer than {self._line_max} bytes")

    def _skip_bom(self, data: bytes) -> bytes:
        """Hold back a possible start of a BOM; the stream has started once it cannot be one."""
        data = bytes(self._line) + data
        self._line.clear()
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._line += data
            return b""
        self._started = True
        return data.removeprefix(_BOM)

    def _take(self, lines: list[bytes], into: list[ServerSentEvent]) -> None:
        for line in lines:
            if not line:
                self._dispatch(into)
            elif len(line) > self._line_max:
                raise MalformedStream(f"a line is longer than {self._line_max} bytes")
            elif line.startswith(b"data:"):
                self._add(line[6:] if line[5:6] == b" " else line[5:])
            else:
                self._field(line)

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._data_size += len(value) + 1
        if self._data_size > self._event_max:
            raise MalformedStream(f"an event is larger than {self._event_max} bytes")

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":  # a line of nothing but the name
                self._add(b"")
            case b"event":
                self._name = value
            case b"id" if b"\0" not in value:
                self._last_id = value
            case b"retry" if value.isdigit() and len(value) < 10:
                self.retry_ms = int(value)
            case _:  # a comment, or a field nobody knows
                pass

    def _dispatch(self, into: list[ServerSentEvent]) -> None:
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            into.append(ServerSentEvent(data, self._name, self._last_id))
            self._data.clear()
            self._data_size = 0
        self._name = b""


def encode(data: bytes, name: bytes = b"", event_id: bytes = b"") -> bytes:
    """One event as bytes. `name` and `event_id` hold no line breaks; breaks in `data` become data lines."""
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    head = (b"id: " + event_id + b"\n" if event_id else b"") + (b"event: " + name + b"\n" if name else b"")
    return head + b"data: " + data + b"\n\n"


def comment(text: bytes) -> bytes:
    """A line every client ignores, to keep a connection alive."""
    return b": " + text + b"\n\n"
