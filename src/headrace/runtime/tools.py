"""Running the tools a reply asks for: checked, judged, asked about, run, written down.

Theory of operation. One call goes through these stages, and every way out is a result the model is told:

    known? --> arguments whole and of the schema? --> judged --allow--> ToolStarted --> run --> ToolFinished
                                                        '--ask--> ApprovalAsked --> ApprovalGiven --allowed--'
                                                        '--deny--> ToolFinished(denied)

Calls that only read run side by side when the model asked for several; as soon as one of them does more, all run one
after the other, in their order. `ToolStarted` is in the log, and so in the journal, before anything runs: a tool that
had started when the process died is never run again. Cancelling cancels the tools, each of which ends what it started;
what a tool has left running on purpose ends with `end_what_runs_on`.

A path is resolved once, before it is judged, and the tool is given what was judged: whatever is put in its place while
a person thinks about it, nothing else is opened.
"""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastjsonschema
import msgspec

from headrace.agent.approvals import Judged, Rule, Rules, judge, on_disk
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
from headrace.limits import (
    APPROVAL_S,
    APPROVAL_SUMMARY_MAX_CHARS,
    QUESTION_S,
    TOOL_PRINTED_MAX_CHARS,
    TOOL_RESULT_MAX_CHARS,
    TOOLS_AT_ONCE,
)
from headrace.ports import Clock, Tool, ToolResult, ToolSpec, Touch
from headrace.runtime.recorder import Recorder
from headrace.turn.folds import Part
from headrace.wire import jsontext


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
    owner: Hashable = ""
    """Whose turn it is, a session's above all: what outlives a run belongs to it."""
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
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[key] = future
        self._recorder.record([asked])
        try:
            async with clock.timeout(patience_s):
                return await asyncio.shield(future)
        except TimeoutError:
            self.give(key, silence, "")
            return future.result()  # a word that came in the same moment counts
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
        self._places = asyncio.Semaphore(TOOLS_AT_ONCE)
        self._checks: dict[str, Callable[[Any], Any]] = {}
        self._run_on: list[Callable[[], Awaitable[None]]] = []
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
        async with self._places:
            tool = self._box.tools.get(part.name)
            if tool is None:
                known = ", ".join(self._box.tools)
                self._finish(
                    call, part, "error", f"There is no tool called {part.name!r}. There are: {known}."
                )
                return
            try:
                arguments = self._arguments(tool.spec, part.text)
                touch = _touch(tool, arguments)
                target = self._target(touch)
            except _Unfit as unfit:
                self._finish(
                    call, part, "error", f"{unfit} Correct the arguments and call {part.name} again."
                )
                return
            refusal = await self._refusal(call, part, touch, target)
            if refusal is not None:
                self._finish(call, part, "denied", refusal)
                return
            await self._run(part, tool, arguments, _Run(self._box, self, call, part, target))

    async def _run(self, part: Part, tool: Tool, arguments: Mapping[str, Any], run: "_Run") -> None:
        self._recorder.record([ToolStarted(run.call, part.number, part.name, part.text)])
        try:
            result = await tool.run(arguments, run)
        except asyncio.CancelledError:
            run.raise_failure()
            raise
        except HeadraceError as error:
            result = ToolResult(str(error), ok=False)
        except OSError as error:
            result = ToolResult(f"{part.name} failed: {error.strerror or error}.", ok=False)
        except Exception as error:  # noqa: BLE001 - a tool of somebody else's must not end the turn
            result = ToolResult(f"{part.name} failed: {type(error).__name__}: {error}", ok=False)
        await run.ended()
        self._finish(run.call, part, "ok" if result.ok else "error", result.text, result.detail)

    def ends_with_the_turn(self, end: Callable[[], Awaitable[None]]) -> None:
        self._run_on.append(end)

    async def end_what_runs_on(self) -> None:
        """End what tools of this turn have left running; also when cancelled meanwhile."""
        ending = asyncio.gather(*(end() for end in self._run_on), return_exceptions=True)
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([ending])

    def _finish(self, call: int, part: Part, status: ToolStatus, text: str, detail: str = "") -> None:
        if len(text) > TOOL_RESULT_MAX_CHARS:
            left_out = len(text) - TOOL_RESULT_MAX_CHARS
            text = f"{text[:TOOL_RESULT_MAX_CHARS]}\n[{left_out} more characters were left out]"
        text, detail = jsontext.repair(text), jsontext.repair(detail[:TOOL_RESULT_MAX_CHARS])
        self._recorder.record([ToolFinished(call, part.number, status, text, detail)])

    # --- may it?

    async def _refusal(self, call: int, part: Part, touch: Touch, target: str) -> str | None:
        """Why it may not run; None if it may."""
        judged = self._judged(part.name, touch, target)
        if judged.mode == "deny":
            return f"Denied: {judged.why}."
        if judged.mode == "ask":
            return await self._asked(call, part, self._summary(part, touch, target))
        return None

    def _judged(self, name: str, touch: Touch, target: str) -> Judged:
        rules = msgspec.structs.replace(self._box.rules, rules=tuple(map(self._seen, self._box.rules.rules)))
        return judge(name, touch, real_path=target, folder=str(self._box.folder), rules=rules)

    def _seen(self, rule: Rule) -> Rule:
        """The rule with its path as it is on this disk now."""
        return msgspec.structs.replace(rule, path=self._real(rule.path)) if rule.path else rule

    def _target(self, touch: Touch) -> str:
        if not on_disk(touch):
            return str(self._box.folder)
        if not touch.target:
            raise _Unfit("The path is empty.")
        try:
            return self._real(touch.target)
        except ValueError:
            raise _Unfit("The path has a character that no path can have.") from None

    def _real(self, path: str) -> str:
        """What a path means, seen from the working folder: absolute, no link and no `..` in it."""
        return os.path.realpath(os.path.join(self._box.folder, os.path.expanduser(path)))  # noqa: PTH111, PTH118

    def _summary(self, part: Part, touch: Touch, target: str) -> str:
        """What a person decides about: the call as it was made, and where its path leads if that is elsewhere."""
        text = f"{part.name} {part.text}"
        if on_disk(touch) and target != os.path.normpath(os.path.join(self._box.folder, touch.target)):  # noqa: PTH118
            text = f"{text} (which is {target})"
        if len(text) <= APPROVAL_SUMMARY_MAX_CHARS:
            return jsontext.repair(text)
        half = APPROVAL_SUMMARY_MAX_CHARS // 2
        left_out = len(text) - 2 * half
        return jsontext.repair(f"{text[:half]} [... {left_out:,} characters not shown ...] {text[-half:]}")

    async def _asked(self, call: int, part: Part, summary: str) -> str | None:
        if not self._box.attended:
            return "Denied: nobody is there to be asked."
        key = f"approval_{next(self._numbers)}"
        clock, patience_s = self._box.clock, self._box.approval_s
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
        text, choices = jsontext.repair(text), tuple(map(jsontext.repair, choices))
        asked = QuestionAsked(key, call, part.number, text, choices, clock.now() + patience_s)
        return await self.questions.wait(key, asked, clock, patience_s, "") or None

    def printed(self, call: int, part: Part, text: str) -> None:
        self._recorder.record([ToolPrinted(call, part.number, jsontext.repair(text))])

    def _arguments(self, spec: ToolSpec, text: str) -> dict[str, Any]:
        """What the model gave, as the tool's schema has it."""
        try:
            value = jsontext.parse(text or "{}")
        except MalformedStream:
            raise _Unfit(f"The arguments of {spec.name} are not valid JSON.") from None
        if not isinstance(value, dict):
            raise _Unfit(f"The arguments of {spec.name} are no JSON object.")
        try:
            self._check(spec)(value)
        except fastjsonschema.JsonSchemaValueException as error:
            raise _Unfit(f"The arguments of {spec.name} do not fit: {error.message}.") from None
        return value

    def _check(self, spec: ToolSpec) -> Callable[[Any], Any]:
        if spec.name not in self._checks:
            self._checks[spec.name] = fastjsonschema.compile(dict(spec.parameters))
        return self._checks[spec.name]


class _Run:
    """Implements the ToolRun port for one run."""

    def __init__(self, box: Toolbox, runner: ToolRunner, call: int, part: Part, target: str) -> None:
        self.folder = box.folder
        self.target = Path(target)
        self.owner = box.owner
        self.home = box.home
        self.env = box.env
        self.clock = box.clock
        self.call = call
        self._runner = runner
        self._part = part
        self._room = TOOL_PRINTED_MAX_CHARS
        self._task = asyncio.current_task()
        self._failure: HeadraceError | None = None

    def printed(self, text: str) -> None:
        """Shown up to a bound: a tool that prints forever must not fill the log.

        A log that cannot be written ends the run. It is not raised here, where a callback of the loop may be printing.
        """
        text = text[: self._room]
        self._room -= len(text)
        if not text or self._failure is not None:
            return
        try:
            self._runner.printed(self.call, self._part, text)
        except HeadraceError as failure:
            self._failure = failure
            if self._task is not None:
                self._task.cancel()

    async def ended(self) -> None:
        """The run came to its end, perhaps before it was told that it is cancelled; nothing is printed any more."""
        self._room = 0
        if self._failure is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            self.raise_failure()

    def raise_failure(self) -> None:
        """Why the run was cancelled, if it was for this; nothing is printed any more."""
        self._room = 0
        if self._failure is not None:
            if self._task is not None:
                self._task.uncancel()
            raise self._failure

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str | None:
        return await self._runner.question(self.call, self._part, question, choices)

    def when_stopped(self, end: Callable[[], Awaitable[None]]) -> None:
        self._runner.ends_with_the_turn(end)


class _Unfit(HeadraceError):
    """Arguments that the tool cannot be called with, said so that the model can correct them."""


def _touch(tool: Tool, arguments: Mapping[str, Any]) -> Touch:
    try:
        return tool.touches(arguments)
    except Exception as error:  # a tool of somebody else's must not end the turn
        raise _Unfit(f"{tool.spec.name} cannot say what it would touch ({type(error).__name__}).") from error
