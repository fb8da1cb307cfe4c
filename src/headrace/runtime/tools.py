"""Running the tools a reply asks for: checked, judged, asked about, run, written down.

Theory of operation. One call goes through these stages, and every way out is a result the model is told:

    known? --> arguments whole and of the schema? --> judged --allow--> ToolStarted --> run --> ToolFinished
                                                        '--ask--> ApprovalAsked --> ApprovalGiven --allowed--'
                                                        '--deny--> ToolFinished(denied)

Calls that only read run side by side when the model asked for several; as soon as one of them does more, all run one
after the other, in their order. `ToolStarted` is in the log, and so in the journal, before anything runs: a tool that
had started when the process died is never run again. Cancelling cancels the tools, each of which ends what it started;
what a run has left going on purpose (a server in the background) ends with `stopped`.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import fastjsonschema
import msgspec

from headrace.agent.approvals import Judged, Rules, judge
from headrace.errors import HeadraceError, MalformedStream
from headrace.events import (
    ApprovalAsked,
    ApprovalGiven,
    Event,
    QuestionAnswered,
    QuestionAsked,
    ToolFinished,
    ToolPrinted,
    ToolStarted,
    ToolStatus,
    Verdict,
)
from headrace.limits import APPROVAL_S, QUESTION_S, TOOL_PRINTED_MAX_CHARS, TOOL_RESULT_MAX_CHARS
from headrace.ports import Clock, Tool, ToolResult, ToolSpec
from headrace.runtime.recorder import Recorder
from headrace.turn.folds import Part
from headrace.wire import jsontext

_log = logging.getLogger(__name__)

NOBODY: Final = "Nobody is there to be asked, so it was denied."


class Toolbox(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn's tools are given, as values."""

    tools: Mapping[str, Tool]
    folder: Path
    """The working folder, resolved."""
    home: Path
    env: Mapping[str, str]
    """For child processes; holds no key."""
    clock: Clock
    rules: Rules = Rules()
    attended: bool = False
    """Whether somebody sees the turn who can be asked."""
    approval_s: float = APPROVAL_S
    question_s: float = QUESTION_S

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self.tools.values())


class _Open:
    """What is asked and not answered yet: whoever answers first settles it."""

    def __init__(self, record: Callable[[str, str, str], Event], recorder: Recorder) -> None:
        self._record = record
        self._recorder = recorder
        self._waiting: dict[str, asyncio.Future[str]] = {}

    def give(self, key: str, word: str, by: str) -> bool:
        """Whether it was still open."""
        future = self._waiting.pop(key, None)
        if future is None or future.done():
            return False
        self._recorder.record([self._record(key, word, by)])
        future.set_result(word)
        return True

    async def wait(self, key: str, asked: Event, clock: Clock, patience_s: float, silence: str) -> str:
        """Ask, and wait for a word; `silence` is what no word means."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[key] = future
        self._recorder.record([asked])
        try:
            async with clock.timeout(patience_s):
                return await asyncio.shield(future)
        except TimeoutError:
            self.give(key, silence, "")
            return silence
        finally:
            self._waiting.pop(key, None)


def _approval_given(key: str, word: str, by: str) -> Event:
    verdict: Verdict = msgspec.convert(word, Verdict)
    return ApprovalGiven(key, verdict, by)


def _question_answered(key: str, word: str, by: str) -> Event:
    return QuestionAnswered(key, word, by)


class ToolRunner:
    """Runs the tools of one turn."""

    def __init__(self, box: Toolbox, recorder: Recorder) -> None:
        self._box = box
        self._recorder = recorder
        self._numbers = itertools.count(1)
        self._ends: list[Callable[[], Awaitable[None]]] = []
        self.approvals = _Open(_approval_given, recorder)
        self.questions = _Open(_question_answered, recorder)

    async def run(self, call: int, parts: Sequence[int]) -> None:
        """Until every one of the calls has a result in the log."""
        reply = self._recorder.folded().replies[call]
        asked = [reply.parts[number] for number in parts]
        if all(self._only_reads(part) for part in asked):
            await self._side_by_side(call, asked)
        else:
            for part in asked:
                await self._one(call, part)

    async def _side_by_side(self, call: int, asked: Sequence[Part]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for part in asked:
                    group.create_task(self._one(call, part))
        except ExceptionGroup as several:
            raise several.exceptions[0] from several  # whoever ends the turn tells failures by their type

    def _only_reads(self, part: Part) -> bool:
        tool = self._box.tools.get(part.name)
        return tool is None or tool.only_reads

    async def _one(self, call: int, part: Part) -> None:
        tool = self._box.tools.get(part.name)
        if tool is None:
            known = ", ".join(self._box.tools)
            self._finish(call, part, "error", f"There is no tool called {part.name!r}. There are: {known}.")
            return
        try:
            arguments = _arguments(tool.spec, part.text)
        except _Unfit as unfit:
            self._finish(call, part, "error", f"{unfit} Correct the arguments and call {part.name} again.")
            return
        refusal = await self._refusal(call, part, tool, arguments)
        if refusal is not None:
            self._finish(call, part, "denied", refusal)
            return
        await self._run(call, part, tool, arguments)

    async def _run(self, call: int, part: Part, tool: Tool, arguments: Mapping[str, Any]) -> None:
        self._recorder.record([ToolStarted(call, part.number, part.name, part.text)])
        run = _Run(self._box, self, call, part)
        try:
            result = await tool.run(arguments, run)
        except HeadraceError as error:
            result = ToolResult(str(error), ok=False)
        except OSError as error:
            result = ToolResult(f"{part.name} failed: {error.strerror or error}.", ok=False)
        except Exception as error:  # noqa: BLE001 - a tool of somebody else's must not end the turn
            result = ToolResult(f"{part.name} failed: {type(error).__name__}: {error}", ok=False)
        self._finish(call, part, "ok" if result.ok else "error", result.text, result.detail)

    def _finish(self, call: int, part: Part, status: ToolStatus, text: str, detail: str = "") -> None:
        if len(text) > TOOL_RESULT_MAX_CHARS:
            left_out = len(text) - TOOL_RESULT_MAX_CHARS
            text = f"{text[:TOOL_RESULT_MAX_CHARS]}\n[{left_out} more characters were left out]"
        self._recorder.record([ToolFinished(call, part.number, status, text, detail[:TOOL_RESULT_MAX_CHARS])])

    # --- may it?

    async def _refusal(self, call: int, part: Part, tool: Tool, arguments: Mapping[str, Any]) -> str | None:
        """Why it may not run; None if it may."""
        judged = self._judged(part.name, tool, arguments)
        if judged.mode == "deny":
            return f"Denied: {judged.why}."
        if judged.mode == "ask":
            return await self._asked(call, part)
        return None

    def _judged(self, name: str, tool: Tool, arguments: Mapping[str, Any]) -> Judged:
        touch = tool.touches(arguments)
        folder = str(self._box.folder)
        real = os.path.realpath(os.path.join(folder, os.path.expanduser(touch.target)))  # noqa: PTH111, PTH118
        return judge(name, touch, real_path=real, folder=folder, rules=self._box.rules)

    async def _asked(self, call: int, part: Part) -> str | None:
        if not self._box.attended:
            return f"Denied: {NOBODY}"
        key = f"approval_{next(self._numbers)}"
        clock, patience_s = self._box.clock, self._box.approval_s
        summary = f"{part.name} {part.text}"
        asked = ApprovalAsked(key, call, part.number, summary, clock.now() + patience_s)
        verdict = await self.approvals.wait(key, asked, clock, patience_s, "timed_out")
        match verdict:
            case "allowed":
                return None
            case "timed_out":
                return f"Denied: nobody answered within {patience_s:g} s."
            case _:
                return "Denied by the person. Do not try it in another way; ask what they want instead."

    async def question(self, call: int, part: Part, text: str, choices: Sequence[str]) -> str | None:
        """The person's answer, or None."""
        if not self._box.attended:
            return None
        key = f"question_{next(self._numbers)}"
        clock, patience_s = self._box.clock, self._box.question_s
        asked = QuestionAsked(key, call, part.number, text, tuple(choices), clock.now() + patience_s)
        return await self.questions.wait(key, asked, clock, patience_s, "") or None

    def on_stop(self, end: Callable[[], Awaitable[None]]) -> None:
        self._ends.append(end)

    async def stopped(self) -> None:
        """The turn is stopped: end what its tools have left running."""
        ends, self._ends = self._ends, []
        for failure in await asyncio.gather(*(end() for end in ends), return_exceptions=True):
            if failure is not None:
                _log.error("what a tool had left running could not be ended", exc_info=failure)

    def printed(self, call: int, part: Part, text: str) -> None:
        self._recorder.record([ToolPrinted(call, part.number, text)])


class _Run:
    """Implements the ToolRun port for one run."""

    def __init__(self, box: Toolbox, runner: ToolRunner, call: int, part: Part) -> None:
        self.folder = box.folder
        self.home = box.home
        self.env = box.env
        self.clock = box.clock
        self._runner = runner
        self._call = call
        self._part = part
        self._room = TOOL_PRINTED_MAX_CHARS

    def printed(self, text: str) -> None:
        """Shown up to a bound: a tool that prints forever must not fill the log."""
        text = text[: self._room]
        self._room -= len(text)
        if text:
            self._runner.printed(self._call, self._part, text)

    def on_stop(self, end: Callable[[], Awaitable[None]]) -> None:
        self._runner.on_stop(end)

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str | None:
        return await self._runner.question(self._call, self._part, question, choices)


class _Unfit(HeadraceError):
    """Arguments that the tool cannot be called with, said so that the model can correct them."""


def _arguments(spec: ToolSpec, text: str) -> dict[str, Any]:
    try:
        value = jsontext.parse(text or "{}")
    except MalformedStream:
        raise _Unfit(f"The arguments of {spec.name} are not valid JSON.") from None
    if not isinstance(value, dict):
        raise _Unfit(f"The arguments of {spec.name} are no JSON object.")
    try:
        fastjsonschema.validate(dict(spec.parameters), value)
    except fastjsonschema.JsonSchemaValueException as error:
        raise _Unfit(f"The arguments of {spec.name} do not fit: {error.message}.") from None
    return value
