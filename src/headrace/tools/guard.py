"""The guard of one command: a small process above it that lets nothing of it outlive its time.

Theory of operation. headrace starts this file as a program of its own (it imports nothing but the standard library)
and writes the request to its standard input, which it then keeps open:

    headrace --stdin: request, then silence until the end--> guard --fork, setsid--> shell --> whatever it starts
             <--stdout: what all of them print-----------------------------------------'
             <--stderr: what the guard says----------- guard

The guard is a *subreaper* (Linux): whoever loses a parent below it becomes its child, so a daemon that forked twice
into a session of its own is still found by walking down from here. It ends everything when its standard input does,
which is also what happens when headrace is killed, and when the shell has exited but left something behind (unless
asked to `linger`). Ending is: SIGTERM to all, a moment, then SIGSTOP until a look around finds nobody new, so that
nobody forks faster than we kill, and SIGKILL. It says, a line each:

    started PID              the shell, which is also the number of its session
    failed REASON            it could not be started
    flood COUNT              too many processes; they are being ended
    ended STATUS LEFT STUCK  the shell's status as `waitpid` has it, or -1; how many it had left behind; how many would
                             not die (they belong to another user, or hang in the system)

Elsewhere than on Linux a process that detaches itself twice into a session of its own is not found.
"""

# It starts quickly because it imports little.
# ruff: noqa: PTH110, PTH123, PTH208, S606

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

_SUBREAPER, _PARENT_DEATH = 36, 1  # of prctl(2)
_LOOK_EVERY_S = 0.02
_LEFT_BEHIND_S = 0.15  # for a pipeline's last process to follow its shell
_FLOOD_LOOK_S = 0.25
_DIED_BEFORE_EXEC = 127


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    session: int
    alive: bool


class Order(NamedTuple):
    """What is to be run, and how."""

    shell: str
    command: str
    folder: str
    linger: bool
    term_s: float
    kill_s: float
    most: int
    env: dict[str, str]

    def packed(self) -> bytes:
        numbers = ("1" if self.linger else "", str(self.term_s), str(self.kill_s), str(self.most))
        variables = (f"{name}={value}" for name, value in self.env.items())
        fields = (self.shell, self.command, self.folder, *numbers, *variables)
        data = "\0".join(fields).encode(errors="surrogateescape")
        return f"{len(data):08}".encode() + data


def _unpacked(data: bytes) -> Order:
    shell, command, folder, linger, term_s, kill_s, most, *env = data.decode(errors="surrogateescape").split(
        "\0"
    )
    pairs = (pair.partition("=") for pair in env)
    variables = {name: value for name, _, value in pairs}
    return Order(shell, command, folder, bool(linger), float(term_s), float(kill_s), int(most), variables)


# --- who there is


def processes() -> Iterator[Process]:
    """Every process of this machine that can be seen."""
    if not os.path.exists("/proc/self/stat"):
        yield from _listed()
        return
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The name in parentheses may hold anything, parentheses too; then: state ppid pgrp session ...
                fields = file.read().rpartition(b")")[2].split()
                alive = (
                    fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
                )  # a zombie may still have threads
                yield Process(int(name), int(fields[1]), int(fields[2]), int(fields[3]), alive)


def _listed() -> Iterator[Process]:
    listing = subprocess.run(
        ["/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,stat="], capture_output=True, check=False, text=True
    )
    for line in listing.stdout.splitlines():
        pid, parent, group, state = line.split()[:4]
        yield Process(int(pid), int(parent), int(group), int(group), not state.startswith("Z"))


def descendants(root: int | None, session: int | None = None) -> set[int]:
    """The living below `root`, and those of the session and below them, without `root` itself.

    Never the caller, never the system's first processes: everything lives below those.
    """
    spared = {root, os.getpid(), 0, 1}
    everybody = list(processes())
    children: dict[int, list[Process]] = {}
    for process in everybody:
        children.setdefault(process.parent, []).append(process)
    found = {p.pid: p for p in everybody if session is not None and session in (p.group, p.session)}
    todo = [*([] if root is None else [root]), *found]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child
                todo.append(child.pid)
    return {p.pid for p in found.values() if p.alive} - spared


def marked(mark: str) -> set[int]:
    """The living who were started with `mark`, a variable with its value, in their environment."""
    wanted, found = f"\0{mark}\0".encode(), set()
    for process in processes():
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/environ", "rb") as file:
            if process.alive and process.pid != os.getpid() and wanted in b"\0" + file.read():
                found.add(process.pid)
    return found


def end_all(find: Callable[[], set[int]], term_s: float, kill_s: float) -> int:
    """End everybody `find` finds, politely first; how many are left."""
    if term_s:
        send(find(), signal.SIGTERM, signal.SIGCONT)
        wait_while(find, term_s)
    until = time.monotonic() + kill_s
    while found := find():
        stopped: set[int] = set()
        while new := found - stopped:
            send(new, signal.SIGSTOP)
            stopped |= new
            found = find()
        send(stopped | found, signal.SIGKILL)
        wait_while(find, _LOOK_EVERY_S)
        if time.monotonic() > until:
            break
    return len(find())


def send(pids: set[int], *signals: signal.Signals) -> None:
    for pid in pids:
        for number in signals:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def wait_while(find: Callable[[], set[int]], most_s: float) -> set[int]:
    until = time.monotonic() + most_s
    while (found := find()) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S / 2)
    return found


# --- the guard


class Guard:
    def __init__(self, order: Order, report: int) -> None:
        self._order = order
        self._report = report
        self._status = -1
        self._shell = 0
        self._session = 0
        self._stop = False
        self._base = _tasks()

    def run(self) -> None:
        wakeup, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        self._session = self._shell = self._start()
        self._say(f"started {self._shell}")
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (1, 2):
            os.dup2(null, descriptor)  # the output ends with those who write to it
        self._watch(wakeup)
        left = wait_while(self._living, _LEFT_BEHIND_S) if not self._stop else set()
        stuck = end_all(self._living, self._order.term_s, self._order.kill_s)
        self._say(f"ended {self._status} {len(left)} {stuck}")

    def _start(self) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            self._become_the_shell()
        except OSError as error:
            self._say(f"failed {error.strerror}: {error.filename or self._order.shell}")
        finally:
            os._exit(_DIED_BEFORE_EXEC)

    def _become_the_shell(self) -> None:
        _prctl(_PARENT_DEATH, signal.SIGKILL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(1, 2)
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        os.chdir(self._order.folder)
        os.execve(self._order.shell, [self._order.shell, "-c", self._order.command], self._order.env)

    def _watch(self, wakeup: int) -> None:
        """Until the shell has exited, with `linger` everybody, or it is time to stop."""
        waiting = select.poll()
        waiting.register(0, select.POLLIN)
        waiting.register(wakeup, select.POLLIN)
        while not self._stop and (self._shell or (self._order.linger and self._living())):
            for descriptor, _ in waiting.poll(_FLOOD_LOOK_S * 1000):
                if descriptor == 0:
                    self._stop = True
                else:
                    os.read(wakeup, 4096)
            self._reap()
            self._look_for_a_flood()

    def _living(self) -> set[int]:
        self._reap()
        # Where there is no subreaper, its session is what still tells an orphan.
        return descendants(os.getpid(), None if sys.platform == "linux" else self._session)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._shell:
                    self._status = ended[1]
                    self._shell = 0

    def _look_for_a_flood(self) -> None:
        if _tasks() - self._base > self._order.most and (count := len(self._living())) > self._order.most:
            self._say(f"flood {count}")
            self._stop = True

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # headrace may be gone; what is to be done is done all the same
            os.write(self._report, f"{line}\n".encode(errors="replace"))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _tasks() -> int:
    """How many processes and threads there are, which costs nearly nothing to ask."""
    with contextlib.suppress(OSError), open("/proc/loadavg", "rb") as file:
        return int(file.read().split()[3].partition(b"/")[2])
    return 0


def _read_exactly(count: int) -> bytes:
    data = b""
    while len(data) < count and (more := os.read(0, count - len(data))):
        data += more
    if len(data) < count:
        sys.exit(0)  # nobody is there any more, and nothing has been started
    return data


def main() -> None:
    # Stop comes through standard input; a signal meant for others (`pkill python`) must not open the cage.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    order = _unpacked(_read_exactly(int(_read_exactly(8))))
    _prctl(_SUBREAPER, 1)
    Guard(order, os.dup(2)).run()


if __name__ == "__main__":
    main()
