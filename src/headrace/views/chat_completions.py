"""A turn as OpenAI's chat completions: chunks as it grows, or one answer when it has ended.

Theory of operation. The view is fed the log and returns frames, the bytes of one server-sent event each; the same log
gives the same frames however it is fed. The role comes with the turn's opening, the finish reason from its outcome and
from nothing else. A failure is two frames: the bare error object, which every client raises or shows, and a terminal
chunk that cannot be taken for a success. Nothing of either is on the happy path.

Of an agent's turn callers see the text of its replies, joined as in `turn.folds`, and what it thinks; its tools are run
here and never appear as calls. Its progress is lines of reasoning, which clients fold away, or chunks of their own.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from headrace.events import (
    AttemptReplaced,
    Event,
    PartClosed,
    PartGrew,
    PartKind,
    PartStarted,
    Recorded,
    ReplyCut,
    ReplyEnded,
    TurnClosed,
    TurnOpened,
    UsageReported,
)
from headrace.turn.folds import Folded, Part, Usage, total
from headrace.views import failing
from headrace.views.asides import Asides
from headrace.views.joining import Joining
from headrace.views.progress import Progress, lines
from headrace.wire import jsontext, sse
from headrace.wire.chat_chunks import DONE, Chunks

KEPT_OF_CALLS: Final = ("extra_content",)
"""What a provider puts beside a call and wants back with it."""

_TRUNCATED: Final = "output_truncated"


_UNOPENED: Final = Chunks("", 0, "")


class ChatView:
    """Feed entries of one turn from its first, get frames."""

    def __init__(
        self, model: str, *, acts: bool = False, progress: Progress = "off", include_usage: bool = False
    ) -> None:
        self._model = model
        self._acts = acts
        self._progress: Progress = progress
        self._include_usage = include_usage
        self._chunks = _UNOPENED
        self._asides = Asides()
        self._kinds: dict[tuple[int, int], PartKind] = {}
        self._calls: dict[tuple[int, int], int] = {}
        self._usage: dict[int, UsageReported] = {}
        self._joining = Joining()
        self._visible = False
        self._begun = False
        self._mid_thought = False  # whether the last line of reasoning is unfinished

    @property
    def begun(self) -> bool:
        """Whether more than the role has been told."""
        return self._begun

    def feed(self, entries: Iterable[Recorded]) -> list[bytes]:
        out: list[bytes] = []
        opening = 0
        for recorded in entries:
            event = recorded.event
            if type(event) is PartGrew:
                self._grew(event, out)
            elif type(event) is TurnOpened:
                answer = answer_id(recorded.turn)
                self._chunks = Chunks(answer, int(recorded.at), self._model)
                out.append(self._chunks.role())
                opening = 1
            else:
                self._one(event, out)
        self._begun = self._begun or len(out) > opening
        return out

    def _one(self, event: Event, out: list[bytes]) -> None:
        match event:
            case PartStarted() if event.call not in self._asides.calls:
                self._started(event, out)
            case PartClosed(call, part, item):
                if (call, part) in self._calls and (kept := kept_of_call(item)):
                    out.append(self._chunks.call_kept(self._calls[call, part], kept))
            case UsageReported(call):
                self._usage[call] = event
            case AttemptReplaced(call):
                self._usage.pop(call, None)
            case ReplyCut(call) | ReplyEnded(call) if call not in self._asides.calls:
                self._joining.ended(event)
            case TurnClosed():
                self._closed(event, out)
            case _:
                self._aside(event, out)

    def _started(self, event: PartStarted, out: list[bytes]) -> None:
        place = event.call, event.part
        self._kinds[place] = event.kind
        if event.kind != "tool_call" or self._acts:
            return
        self._visible = True
        index = self._calls[place] = len(self._calls)
        out.append(self._chunks.call_started(index, event.tool_id, event.name))

    def _grew(self, event: PartGrew, out: list[bytes]) -> None:
        kind = self._kinds.get((event.call, event.part))
        if kind == "text":
            self._visible = True
            out.append(self._chunks.content(self._joining.text(event)))
        elif kind == "reasoning":
            self._mid_thought = not event.text.endswith("\n")
            out.append(self._chunks.reasoning(event.text))
        elif kind == "refusal":
            self._visible = True
            out.append(self._chunks.refusal(event.text))
        elif kind == "tool_call" and not self._acts:
            out.append(self._chunks.call_grew(self._calls[event.call, event.part], event.text))
        elif kind is None:
            self._asides.feed(event)

    def _aside(self, event: Event, out: list[bytes]) -> None:
        pieces = self._asides.feed(event)
        if self._acts:
            shown, told = lines(self._progress, event, pieces)
            out += [self._line(line, shown) for line in told]

    def _line(self, text: str, shown: Progress) -> bytes:
        if shown == "chunks":
            return self._chunks.bare({"headrace": {"progress": text}})
        before = "\n" if self._mid_thought else ""
        self._mid_thought = False
        return self._chunks.reasoning(f"{before}{text}\n")

    def _closed(self, closed: TurnClosed, out: list[bytes]) -> None:
        if failing.failed(closed):
            error = failing.error(closed.cause)
            out.append(sse.encode(jsontext.dump({"error": error}).encode()))
            fate = failing.fate(closed, partial=self._visible)
            out.append(self._chunks.finish("error", {"error": error, "headrace": fate}))
        else:
            out.append(self._chunks.finish(finish_reason(closed), _beside(closed)))
            usage = usage_of(total([*self._usage.values()]))
            if self._include_usage and usage is not None:
                out.append(self._chunks.bare({"usage": usage}))
        out.append(DONE)


def answer_id(turn: str) -> str:
    return f"chatcmpl-{turn.removeprefix('turn_')}"


def finish_reason(closed: TurnClosed) -> str:
    match closed.outcome:
        case "limit":
            return "length"
        case "refused":
            return "content_filter"
        case outcome:
            return outcome


def kept_of_call(item: str) -> dict[str, Any]:
    """What of a call's item its caller has to bring back."""
    if not any(name in item for name in KEPT_OF_CALLS):
        return {}
    value = jsontext.parse(item, "a stored item")
    return {name: value[name] for name in KEPT_OF_CALLS if name in value}


def usage_of(usage: Usage) -> dict[str, Any] | None:
    """None where a count is unknown: unknown is not zero."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    out: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
    if usage.cache_read_tokens is not None:
        out["prompt_tokens_details"] = {"cached_tokens": usage.cache_read_tokens}
    if usage.reasoning_tokens is not None:
        out["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return out


def whole(turn: str, at: float, model: str, folded: Folded, *, acts: bool) -> dict[str, Any]:
    """The answer in one piece; of a turn that has ended, and not failed."""
    closed = folded.closed
    assert closed is not None
    refusal = folded.refusal_text() or None
    message: dict[str, Any] = {"role": "assistant", "content": folded.answer_text() or None}
    message |= {"refusal": refusal, "annotations": []}
    if thought := folded.reasoning_text():
        message["reasoning_content"] = thought
    if calls := [] if acts else folded.tool_calls():
        message["tool_calls"] = [_call(call) for call in calls]
    elif message["content"] is None and not refusal:
        message["content"] = ""
    reason = finish_reason(closed)
    usage = usage_of(folded.usage())
    return {
        "id": answer_id(turn),
        "object": "chat.completion",
        "created": int(at),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        **({"usage": usage} if usage else {}),
        **_beside(closed),
    }


def whole_failure(folded: Folded) -> dict[str, Any]:
    """The same of a turn that has failed: the error, what of the answer there is, and what it cost."""
    closed = folded.closed
    assert closed is not None
    text = folded.answer_text()
    fate = failing.fate(closed, partial=folded.visible)
    return {
        "error": failing.error(closed.cause),
        "headrace": {**fate, "partial_text": text} if text else fate,
        "usage": usage_of(folded.usage()),
    }


def _call(part: Part) -> dict[str, Any]:
    function = {"name": part.name, "arguments": part.text}
    return {"id": part.tool_id, "type": "function", "function": function, **kept_of_call(part.item)}


def _beside(closed: TurnClosed) -> Mapping[str, Any]:
    """What is told beside an answer that was ended by a bound."""
    match closed.outcome:
        case "length":
            return {"headrace": {"error_code": _TRUNCATED}}
        case "limit":
            return {"headrace": {"error_code": _TRUNCATED, "limit": closed.cause.code}}
        case _:
            return {}
