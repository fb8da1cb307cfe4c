"""The child process of one model: started once for many, watched, and never left behind.

Theory of operation. `starting` hands everybody the same task, whose result is the address of a child that is ready:

    none --starting()--> loading --it says its address--> serving --it dies--> none
                            '--it says why not, dies, takes too long--> none, and a CallError for whoever waits

Whoever stops waiting leaves the start to the others; it goes on, and the next question finds the model loaded. Only
`close` ends it. The child gets an environment of its own with nothing in it that is anybody's secret, and its standard
error goes to a log, whose end tells what a child did not live to say.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, get_args

import msgspec

from headrace.errors import CallError, Cause, CauseCode
from headrace.ports import Clock
from headrace.providers.embedded import bounds, machine
from headrace.providers.embedded.child import KEY_VARIABLE

_log = logging.getLogger(__name__)

CHILD: Final = (sys.executable, "-m", "headrace.providers.embedded.child")

# What Python and the system's loader need, and nothing that a program keeps secrets in.
_PASSED_ON: Final = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "WINDIR", "COMSPEC",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME",
)  # fmt: skip
_CODES: Final = frozenset(get_args(CauseCode))
_SMALLER: Final = (
    "Choose a smaller model (local:default needs 0.8 GB, local:tiny 0.3 GB), or close other programs."
)


class Address(NamedTuple):
    url: str
    key: str


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What every child is started with."""

    home: Path
    clock: Clock
    command: Sequence[str] = CHILD
    context_tokens: int = bounds.CONTEXT_TOKENS
    root: Path = machine.ROOT
    """Where the system tells of itself."""

    @property
    def log(self) -> Path:
        return self.home / "logs" / "embedded.log"


class _Line(msgspec.Struct):
    """What a child says of itself."""

    url: str = ""
    error: str = ""
    message: str = ""


class ModelProcess:
    """The child that serves one file of weights."""

    def __init__(self, weights: Path, around: Surroundings) -> None:
        self._weights = weights
        self._around = around
        self._task: asyncio.Task[Address] | None = None
        self._child: asyncio.subprocess.Process | None = None
        self._log_start = 0  # where in the log this child's words begin
        self._closed = False

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def starting(self) -> asyncio.Task[Address]:
        """The start under way, or the one that led to the child that is alive; wait for it, and never cancel it."""
        if self._closed:
            raise CallError(Cause("shutdown", "The local model has been closed."))
        if self._task is None or (self._task.done() and not self._serving()):
            self._task = asyncio.create_task(self._start(), name="start the local model")
            self._task.add_done_callback(_retrieved)
        return self._task

    def death(self) -> Cause | None:
        """Why the child ended, if it has."""
        if self._child is None or self._child.returncode is None:
            return None
        return _death(self._child.returncode, self._tail(), self._around.log)

    async def close(self) -> None:
        self._closed = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._child is not None:
            await self._stop(self._child)

    def _serving(self) -> bool:
        assert self._task is not None
        started = not self._task.cancelled() and self._task.exception() is None
        return started and self._child is not None and self._child.returncode is None

    # --- start

    async def _start(self) -> Address:
        if self._child is not None:
            await _kill(self._child)  # it is dead; what is left is to close our ends of its pipes
            self._child = None
        self._check_memory()
        key = secrets.token_urlsafe(24)
        self._child = child = await self._spawn(key)
        try:
            url = await self._said(child)
        except BaseException:
            await _kill(child)
            raise
        return Address(url, key)

    async def _spawn(self, key: str) -> asyncio.subprocess.Process:
        threads = machine.processors(self._around.root) or 0
        numbers = ("--context", str(self._around.context_tokens), "--threads", str(threads))
        try:
            with self._open_log() as log:
                return await asyncio.create_subprocess_exec(
                    *self._around.command, str(self._weights.absolute()), *numbers,
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                    env=_environment(os.environ, key), start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            what = f"The local model's process could not be started ({error})."
            raise CallError(Cause("resources_short", what)) from error

    async def _said(self, child: asyncio.subprocess.Process) -> str:
        """The address the child says it serves at; CallError for everything else that can come of it."""
        assert child.stdout is not None
        text = b""
        try:
            async with self._around.clock.timeout(bounds.START_S):
                text = await child.stdout.readline()
            line = msgspec.json.decode(text, type=_Line)
        except TimeoutError:
            what = f"The local model was not loaded within {bounds.START_S:g} s. {_SMALLER}"
            raise CallError(Cause("resources_short", what)) from None
        except ValueError:
            await self._stop(child)
            raise CallError(self._no_line(child, text)) from None
        if line.url:
            return line.url
        raise CallError(_refusal(line, self._tail(), self._around.log))

    def _no_line(self, child: asyncio.subprocess.Process, text: bytes) -> Cause:
        assert child.returncode is not None
        if not text:
            return _death(child.returncode, self._tail(), self._around.log)
        return Cause(
            "connection_lost",
            f"The local model's process said what it should not. More is in {self._around.log}",
        )

    def _check_memory(self) -> None:
        free = machine.free_memory_bytes(self._around.root)
        try:
            size = self._weights.stat().st_size
        except OSError:
            return  # the child says what is wrong with the file
        needed = round(size * bounds.MEMORY_FACTOR) + bounds.MEMORY_EXTRA_BYTES
        if free is not None and free < needed:
            what = f"The local model needs {_gigabytes(needed)} of memory and {_gigabytes(free)} is free. {_SMALLER}"
            raise CallError(Cause("resources_short", what))

    # --- the log

    def _open_log(self) -> BinaryIO:
        """A home that cannot be written may hold weights all the same; they are used, and nothing is logged."""
        try:
            return self._log_with_room()
        except OSError as error:
            _log.warning("%s cannot be written (%s).", self._around.log, error.strerror)
            return Path(os.devnull).open("wb")

    def _log_with_room(self) -> BinaryIO:
        """At its end, or anew where it is full by half, so that a child always has room to say something."""
        path = self._around.log
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        size = path.stat().st_size if path.exists() else 0
        self._log_start = size if size <= bounds.LOG_MAX_BYTES // 2 else 0
        return path.open("ab" if self._log_start else "wb")

    def _tail(self) -> str:
        try:
            with self._around.log.open("rb") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - bounds.LOG_TAIL_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    # --- stop

    async def _stop(self, child: asyncio.subprocess.Process) -> None:
        """Ask it to leave by closing its input, and end it if it does not."""
        assert child.stdin is not None
        child.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with self._around.clock.timeout(bounds.STOP_S):
                await child.wait()
        await _kill(child)


async def _kill(child: asyncio.subprocess.Process) -> None:
    """End it if it is alive, and close our ends of its pipes."""
    assert child.stdin is not None
    assert child.stdout is not None
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    child.stdin.close()
    await child.wait()
    while await child.stdout.read(65536):
        pass
    with contextlib.suppress(OSError):
        await child.stdin.wait_closed()


def _environment(env: Mapping[str, str], key: str) -> dict[str, str]:
    return {name: env[name] for name in _PASSED_ON if name in env} | {KEY_VARIABLE: key}


def _retrieved(task: asyncio.Task[Address]) -> None:
    """Nobody may be left to hear of a failed start."""
    if not task.cancelled():
        task.exception()


# --- what a child's end means


def _refusal(line: _Line, tail: str, log: Path) -> Cause:
    if line.error == "config_invalid" and _ran_out_of_memory(tail):
        return _out_of_memory(log)
    code: CauseCode = line.error if line.error in _CODES else "dependency_missing"  # type: ignore[assignment]
    return Cause(code, f"{line.message} More is in {log}")


def _death(status: int, tail: str, log: Path) -> Cause:
    if _ran_out_of_memory(tail):
        return _out_of_memory(log)
    match -status:
        case signal.SIGILL:
            what = "This processor cannot run the local model: its library needs AVX2 and FMA instructions."
            return Cause("dependency_missing", what)
        case signal.SIGKILL:
            what = f"The system ended the local model's process, most likely for want of memory. {_SMALLER}"
            return Cause("resources_short", what)
        case _:
            what = f"The local model's process ended unexpectedly (status {status}). More is in {log}"
            return Cause("connection_lost", what)


def _ran_out_of_memory(tail: str) -> bool:
    return "failed to allocate" in tail or "bad_alloc" in tail


def _out_of_memory(log: Path) -> Cause:
    return Cause(
        "resources_short", f"There is too little memory for the local model. {_SMALLER} More is in {log}"
    )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
