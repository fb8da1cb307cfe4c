"""The embedded model as a provider: its weights, its process, and chat completions spoken to that.

Theory of operation. An attempt has three stages:

    weights there? --no: fetched, shared by all who wait--> process serving? --no: started, shared--> asked over HTTP

While it waits it tells its sink once a second that it is alive, so that the clocks of an attempt do not run out over
a first start. Then `HttpProvider` does the rest; where tools are offered, `_StepSink` stands between it and the
caller's sink and turns the text of one JSON object into a reply or a tool call (`forms`, `wire.step`).

Only one model is kept in memory: another one's process ends when nobody uses it and a different file is asked for.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from headrace.errors import CallError, Cause
from headrace.events import EndReason, Event, PartGrew, PartKind, PartStarted, ReplyEnded, UsageReported
from headrace.ports import AttemptIds, Clock, Request, Sink
from headrace.providers.embedded import bounds, forms
from headrace.providers.embedded.loopback import LoopbackClient
from headrace.providers.embedded.process import Address, ModelProcess, Surroundings
from headrace.providers.http import Endpoint, HttpProvider
from headrace.wire.parts import Parts
from headrace.wire.step import Step

NAME: Final = "local"

T = TypeVar("T")

EnsureWeights = Callable[[str], Coroutine[Any, Any, Path]]
"""From a reference's local part to the file, fetched first if it is not there; raises CallError."""


class EmbeddedProvider:
    """Implements the Provider port."""

    def __init__(self, ensure_weights: EnsureWeights, around: Surroundings) -> None:
        self._ensure_weights = ensure_weights
        self._around = around
        self._client = LoopbackClient(around.clock)
        self._fetches: dict[str, _Fetch] = {}
        self._processes: dict[Path, _Used] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def name(self) -> str:
        return NAME

    @property
    def key_count(self) -> int:
        return 0

    async def attempt(self, request: Request, ids: AttemptIds, sink: Sink) -> None:
        weights = await self._weights(request.model, sink)
        async with self._process(weights) as process:
            address = await _result(process.starting(), self._around.clock, sink)
            choices = forms.choices(request, _after_call(weights))
            try:
                await self._ask(address, request, choices, ids, sink)
            except CallError as failure:
                tokens = self._around.context_tokens
                raise _explained(failure, process.death(), tokens) from failure

    async def close(self) -> None:
        self._closed = True
        for fetch in self._fetches.values():
            await fetch.close()
        self._close_processes(list(self._processes))
        if self._closing:
            await asyncio.wait(self._closing)
        await self._client.close()

    async def _ask(
        self, address: Address, request: Request, choices: forms.Choices, ids: AttemptIds, sink: Sink
    ) -> None:
        endpoint = Endpoint(name=NAME, protocol="chat_completions", base_url=f"{address.url}/v1")
        http = HttpProvider(endpoint, self._client, lambda: (address.key,))
        if choices.tools:
            step_sink = _StepSink(sink, ids, [tool.name for tool in request.tools])
            await http.attempt(forms.step(request, choices), ids, step_sink)
        else:
            await http.attempt(forms.plain(request), ids, sink)

    # --- weights

    async def _weights(self, model: str, sink: Sink) -> Path:
        fetch = self._fetches.get(model)
        if fetch is None or fetch.over:
            fetch = self._fetches[model] = _Fetch(self._ensure_weights(model))
        return await fetch.wait(self._around.clock, sink)

    # --- processes

    @contextlib.asynccontextmanager
    async def _process(self, weights: Path) -> AsyncIterator[ModelProcess]:
        """The process for these weights, held for as long as somebody uses it."""
        if self._closed:
            raise _shut_down()
        used = self._processes.get(weights)
        if used is None:
            used = self._processes[weights] = _Used(ModelProcess(weights, self._around))
        used.users += 1
        try:
            self._close_processes([path for path, other in self._processes.items() if not other.users])
            if self._closing:
                await asyncio.wait(self._closing)  # their memory is needed
            yield used.process
        finally:
            used.users -= 1

    def _close_processes(self, paths: Iterable[Path]) -> None:
        """Whoever waits for that may be cancelled; the closing goes on."""
        for path in paths:
            task = asyncio.create_task(self._processes.pop(path).process.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


class _Used:
    def __init__(self, process: ModelProcess) -> None:
        self.process = process
        self.users = 0


class _Fetch:
    """Getting the weights, once for all who wait; when the last of them leaves, it ends."""

    def __init__(self, weights: Coroutine[Any, Any, Path]) -> None:
        self._task = asyncio.create_task(weights)
        self._waiting = 0

    @property
    def over(self) -> bool:
        """Whoever asks from now on has to look again."""
        return self._task.done()

    async def wait(self, clock: Clock, sink: Sink) -> Path:
        self._waiting += 1
        try:
            return await _result(self._task, clock, sink)
        finally:
            self._waiting -= 1
            if not self._waiting:
                await self.close()

    async def close(self) -> None:
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})


async def _result(task: asyncio.Task[T], clock: Clock, sink: Sink) -> T:
    """Wait for what others may wait for too, with signs of life if it takes long; being cancelled leaves it alone."""
    if not task.done():
        sink.connected()
    while not task.done():
        with contextlib.suppress(TimeoutError):
            async with clock.timeout(bounds.LIFE_S):
                await asyncio.wait({task})
        if not task.done():
            sink.received([])
    if task.cancelled():
        raise _shut_down()
    return task.result()


def _shut_down() -> CallError:
    return CallError(Cause("shutdown", "The local model has been closed."))


def _after_call(weights: Path) -> forms.AfterCall:
    """By the size of the file: nothing else says how much a model can be trusted with."""
    size = weights.stat().st_size
    if size < bounds.ANSWERS_BELOW_BYTES:
        return "answer"
    return "another" if size < bounds.REPEATS_BELOW_BYTES else "any"


def _explained(failure: CallError, death: Cause | None, context_tokens: int) -> CallError:
    """What the child's own words leave open."""
    cause = failure.cause
    if cause.provider_code == "exceed_context_size_error":
        what = f"{NAME}: This is more than the {context_tokens:,} tokens that the model can read at once. "
        todo = "Ask with less, or choose another model."
        return CallError(msgspec.structs.replace(cause, code="request_too_large", message=what + todo))
    if death is not None and cause.trait.cuts:  # the next attempt starts it anew
        return CallError(msgspec.structs.replace(cause, message=f"{NAME}: {death.message}"))
    return failure


class _StepSink:
    """Takes the text of one JSON object and passes on the reply or the tool call that it is."""

    def __init__(self, sink: Sink, ids: AttemptIds, tools: Collection[str]) -> None:
        self._sink = sink
        self._parts = Parts(ids.call, ids.first_part)
        self._step = Step(self._parts, tools)
        self._kinds: dict[int, PartKind] = {}

    def connected(self) -> None:
        self._sink.connected()

    def received(self, events: list[Event]) -> None:
        try:
            for event in events:
                self._take(event)
        finally:
            self._sink.received(self._parts.take())

    def _take(self, event: Event) -> None:
        match event:
            case PartStarted(_, part, kind):
                self._kinds[part] = kind
            case PartGrew(_, part, text) if self._kinds[part] == "text":
                self._step.feed(text)
            case PartGrew(_, part, text):
                self._parts.grow(self._kinds[part], text)
            case UsageReported():
                self._parts.out.append(event)
            case ReplyEnded():
                self._end(event)
            case _:
                pass  # parts close where the step does

    def _end(self, event: ReplyEnded) -> None:
        """An object that is whole has ended, whatever the server calls it; half of one may only have met a bound."""
        if event.reason == "length" and not self._step.whole:
            self._step.cut()
            self._parts.close_prose()
            self._parts.out.append(event)
            return
        self._step.end()
        self._parts.close_prose()
        reason: EndReason = "tool_calls" if self._parts.calls else "stop"
        self._parts.out.append(msgspec.structs.replace(event, reason=reason))
