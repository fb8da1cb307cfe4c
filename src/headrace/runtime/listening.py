"""The sink of one question of a diagnosis: notes when what came, and keeps the bytes to be looked at.

Theory of operation. A turn's sink writes events down; this one only counts and times them. Text is kept as far as a
diagnosis reads it. Bytes come from the adapter's tap, before the events they decode to; they are kept up to a bound,
and an answer beyond it is looked at as far as it was kept.
"""

from collections.abc import Collection
from typing import Final

from headrace.errors import Cause
from headrace.events import Event, PartGrew, PartKind, PartStarted, ReplyEnded, UsageReported
from headrace.limits import DOCTOR_KEPT_BYTES, DOCTOR_NAME_MAX_CHARS
from headrace.ports import Clock
from headrace.runtime.stalls import StallWatch
from headrace.views.doctor import Heard, HeardCall, Question
from headrace.wire import jsontext, traits
from headrace.wire.failures import clip

_EMPTY: Final = Cause("empty_reply", "The model's answer was empty.")


class _Part:
    def __init__(self, kind: PartKind, name: str) -> None:
        self.kind = kind
        self.name = name
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Listener:
    """Implements Sink, and `raw` for a tap."""

    def __init__(self, clock: Clock, watch: StallWatch, offered: Collection[str]) -> None:
        self._clock = clock
        self._watch = watch
        self._offered = offered
        self._started = clock.monotonic()
        self._connected_s: float | None = None
        self._reads = 0
        self._growths: list[float] = []
        self._parts: dict[int, _Part] = {}
        self._usage: UsageReported | None = None
        self._bytes: bytearray | None = None
        self.end: ReplyEnded | None = None

    def connected(self) -> None:
        if self._connected_s is None:
            self._connected_s = self._since()
        self._watch.connected()

    def raw(self, data: bytes) -> None:
        if self._bytes is None:
            self._bytes = bytearray()
        self._bytes += data[: DOCTOR_KEPT_BYTES - len(self._bytes)]

    def received(self, events: list[Event]) -> None:
        self._watch.received(self._clock.monotonic(), progress=bool(events))
        self._reads += 1
        grew = False
        for event in events:
            match event:
                case PartStarted(_, part, kind, _, name):
                    self._parts[part] = _Part(kind, name)
                case PartGrew(_, part, text):
                    self._parts[part].pieces.append(text)
                    grew = True
                case UsageReported():
                    self._usage = event
                case ReplyEnded():
                    self.end = event
                case _:
                    pass
        if grew:
            self._growths.append(self._since())

    def heard(
        self, question: Question, *, streamed: bool, dropped: Collection[str], cause: Cause | None
    ) -> Heard:
        """All of it, once the request is over."""
        seen = None if self._bytes is None else traits.read(bytes(self._bytes))
        parts = self._parts.values()
        text = "".join(part.text for part in parts if part.kind in ("text", "refusal"))
        calls = tuple(self._call(part) for part in parts if part.kind == "tool_call")
        model = (seen.model if seen else "") or (self.end.model if self.end else "")
        if cause is None and self.end is not None and self.end.reason == "stop" and not text and not calls:
            cause = _EMPTY
        return Heard(
            question=question,
            streamed=streamed,
            dropped=tuple(sorted(dropped)),
            cause=cause,
            connected_s=self._connected_s,
            reads=self._reads,
            growths=tuple(self._growths),
            ended_s=self._since(),
            text=text,
            reasoned=any(part.kind == "reasoning" for part in parts),
            calls=calls,
            usage=self._usage,
            end=self.end,
            traits=seen,
            model=clip(model, DOCTOR_NAME_MAX_CHARS),
        )

    def _call(self, part: _Part) -> HeardCall:
        return HeardCall(
            offered=part.name in self._offered,
            whole=jsontext.is_whole_object(part.text),
            pieces=len(part.pieces),
        )

    def _since(self) -> float:
        return self._clock.monotonic() - self._started
