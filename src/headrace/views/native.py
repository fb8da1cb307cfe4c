"""A turn as its own log: every entry a frame, with its number as the frame's id."""

from collections.abc import Iterable

from headrace import events
from headrace.events import Recorded
from headrace.wire import sse


class NativeView:
    """Feed entries, get frames."""

    def feed(self, entries: Iterable[Recorded]) -> list[bytes]:
        return [sse.encode(events.encode(entry), event_id=str(entry.seq).encode()) for entry in entries]
