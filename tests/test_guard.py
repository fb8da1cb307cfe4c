"""The guard ends what it started and nothing else."""

import os
import subprocess
import sys

from headrace.tools import guard


def test_a_session_that_nobody_is_in_has_nobody() -> None:
    assert guard.descendants(None, 2**22 - 1) == set()
    assert guard.descendants(None) == set()


def test_the_caller_and_the_first_processes_are_spared() -> None:
    """A guard that was killed early once left a sweep that began at the root of all processes."""
    for root in (0, 1, os.getppid(), None):
        assert not guard.descendants(root, os.getsid(0)) & {0, 1, os.getpid()}


def test_a_session_is_found_with_what_detached_its_group_but_not_a_stranger() -> None:
    script = "import subprocess, sys; p = subprocess.Popen(['sleep', '60'], process_group=0); print(p.pid, flush=True); p.wait()"
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    inner = subprocess.Popen(
        [sys.executable, "-c", script], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    try:
        assert inner.stdout is not None
        child = int(inner.stdout.readline())
        found = guard.descendants(None, inner.pid)
        assert found == {inner.pid, child}
        assert guard.end_all(lambda: guard.descendants(None, inner.pid), 0, 2) == 0
        assert stranger.poll() is None
    finally:
        for process in (stranger, inner):
            process.kill()
            process.wait()
        assert inner.stdout is not None
        inner.stdout.close()
