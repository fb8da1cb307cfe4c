"""The terminal tool, with real shells: what is kept, how it ends, and that nothing of it is left."""

import asyncio
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.agent.approvals import Rule, Rules, judge
from headrace.limits import (
    BACKGROUND_MOST,
    SHOWN_MAX_CHARS,
    TERMINAL_COMMAND_MAX_BYTES,
    TERMINAL_HEAD_CHARS,
    TERMINAL_TAIL_CHARS,
)
from headrace.ports import ToolResult, Touch
from headrace.tools.background import Background, TerminalKill, TerminalRead
from headrace.tools.environment import child_environment, looks_secret
from headrace.tools.keeping import Kept
from headrace.tools.terminal import Terminal
from tests.tooling import ENV, bare, call, gone, marked, said_no, there, until

BASH = shutil.which("bash")


class Tools:
    def __init__(self) -> None:
        background = Background()
        self.terminal = Terminal(background)
        self.read = TerminalRead(background)
        self.kill = TerminalKill(background)


@pytest.fixture
async def tools() -> AsyncIterator[Tools]:
    made = Tools()
    yield made
    await made.terminal.close()


@pytest.fixture
def mark() -> str:
    return f"mark-{secrets.token_hex(8)}"


def long(mark: str) -> str:
    """A command that would run for long, and can be found by its mark."""
    return f"{sys.executable} -c 'import time; time.sleep(300)' {mark}"


def itself(mark: str) -> str:
    """What that command is found by, and the shell above it is not."""
    return f"time.sleep(300)\0{mark}\0"


# --- what comes back


@pytest.mark.parametrize(
    ("command", "ok", "text"),
    [
        ("echo hello", True, "hello\n[exit status 0]"),
        ("printf hello", True, "hello\n[exit status 0]"),
        ("true", True, "[exit status 0]"),
        ("echo out; echo err >&2; exit 3", False, "out\nerr\n[exit status 3]"),
        ("kill -9 $$", False, "[ended by SIGKILL]"),
        (r"printf '\xff\xc3\xa4\xe2\x82'", True, "\ufffdä\ufffd\n[exit status 0]"),
        ("nosuchcommand 2>/dev/null", False, "[exit status 127]"),
    ],
)
async def test_output_and_status(tmp_path: Path, tools: Tools, command: str, ok: bool, text: str) -> None:
    result = await call(tools.terminal, tmp_path, command=command)
    assert (result.ok, result.text) == (ok, text)


async def test_it_runs_in_the_folder_with_no_input_and_no_terminal(tmp_path: Path, tools: Tools) -> None:
    command = "pwd; read x; echo $?; test -t 0 -o -t 1 || echo no tty; (: </dev/tty) 2>/dev/null || echo none"
    result = await call(tools.terminal, tmp_path, command=command)
    assert result.text == f"{tmp_path.resolve()}\n1\nno tty\nnone\n[exit status 0]"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo a\0b", "no zero byte"),
        ("echo \ud800", "half a character"),
        ("x" * (TERMINAL_COMMAND_MAX_BYTES + 1), "too long"),
    ],
)
async def test_commands_no_shell_can_be_given(tmp_path: Path, tools: Tools, command: str, said: str) -> None:
    assert said in await said_no(tools.terminal, tmp_path, command=command)


async def test_a_folder_that_is_gone(tmp_path: Path, tools: Tools) -> None:
    assert "is gone" in await said_no(tools.terminal, tmp_path / "nowhere", command="true")


async def test_the_longest_command_that_is_taken_runs(tmp_path: Path, tools: Tools) -> None:
    command = "true " + "x" * (TERMINAL_COMMAND_MAX_BYTES - 5)
    assert (await call(tools.terminal, tmp_path, command=command)).ok


async def test_output_is_shown_while_it_comes(tmp_path: Path, tools: Tools) -> None:
    arguments = {"command": "echo first; while [ ! -e go ]; do sleep 0.01; done; echo second"}
    run = bare(tmp_path, tools.terminal, arguments)
    running = asyncio.create_task(tools.terminal.run(arguments, run))
    await until(lambda: run.shown)
    assert run.shown == ["first\n"]
    (tmp_path / "go").touch()
    assert (await running).text == "first\nsecond\n[exit status 0]"
    assert "".join(run.shown) == "first\nsecond\n"


async def test_a_long_output_keeps_its_head_and_its_tail(tmp_path: Path, tools: Tools) -> None:
    arguments = {"command": "seq 1 200000"}
    run = bare(tmp_path, tools.terminal, arguments)
    text = (await tools.terminal.run(arguments, run)).text
    head, note, tail = re.split(r"\n(\[\.\.\. [^\n]* left out here \.\.\.\])\n", text)
    whole = "".join(f"{n}\n" for n in range(1, 200001))
    assert head == whole[:TERMINAL_HEAD_CHARS]
    assert tail.removesuffix("[exit status 0]") == whole[-TERMINAL_TAIL_CHARS:]
    middle = whole[TERMINAL_HEAD_CHARS:-TERMINAL_TAIL_CHARS]
    counts = f"{len(middle):,} characters ({middle.count(chr(10)):,} line ends)"
    assert note == f"[... {counts} left out here ...]"
    assert sum(map(len, run.shown)) <= SHOWN_MAX_CHARS + 100


async def test_a_command_that_prints_for_ever_ends_at_its_timeout(
    tmp_path: Path, tools: Tools, mark: str
) -> None:
    began = time.monotonic()
    result = await call(tools.terminal, tmp_path, command=f"yes {mark}", timeout_s=0.5)
    assert time.monotonic() - began < 0.5 + 2
    assert not result.ok
    assert result.text.endswith("[timed out after 0.5 s; ended by SIGTERM]")
    assert len(result.text) < TERMINAL_HEAD_CHARS + TERMINAL_TAIL_CHARS + 300
    assert not marked(mark)


@given(st.lists(st.text(alphabet="ab\n", max_size=30), max_size=20), st.integers(0, 20), st.integers(0, 20))
def test_what_is_kept_is_the_beginning_and_the_end(pieces: list[str], head: int, tail: int) -> None:
    whole = "".join(pieces)
    kept = Kept(head, tail)
    for piece in pieces:
        kept.add(piece)
    assert bool(kept) == bool(kept.text())
    if len(whole) <= head + tail:
        assert kept.text() == whole
        return
    left_out = whole[head : len(whole) - tail]
    note = f"[... {len(left_out):,} characters ({left_out.count(chr(10)):,} line ends) left out here ...]"
    assert kept.text() == f"{whole[:head]}\n{note}\n{whole[len(whole) - tail :]}"


# --- nothing is left

ESCAPES = {
    "plain": "{}",
    "background": "{} &",
    "nohup": "nohup {} >/dev/null 2>&1 &",
    "setsid": "setsid {} >/dev/null 2>&1 &",
    "deaf": "trap '' TERM HUP INT; {} & wait",
    "disowned": "({} & disown) 2>/dev/null; sleep 300",
    "grandchild": "sh -c 'sh -c \"{} & sleep 300\" & sleep 300'",
}


@pytest.mark.parametrize("how", [*ESCAPES, "double fork", "forking on", "stopped"])
async def test_no_descendant_is_alive_after_stop(tmp_path: Path, tools: Tools, mark: str, how: str) -> None:
    command = _escaping(how, tmp_path, mark)
    arguments = {"command": command}
    running = asyncio.create_task(tools.terminal.run(arguments, bare(tmp_path, tools.terminal, arguments)))
    if how in ("background", "nohup", "setsid"):  # its shell is done with it; what it leaves ends with it
        result = await running
        assert "left in the background ended with it" in result.text
    else:
        await there(mark)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert await gone(mark, 2) < 2


def _escaping(how: str, folder: Path, mark: str) -> str:
    if how in ESCAPES:
        return ESCAPES[how].format(long(mark).replace("'", "'\\''") if how == "grandchild" else long(mark))
    script = folder / "escape.py"
    script.write_text(SCRIPTS[how])
    return f"{sys.executable} {script} {mark}"


SCRIPTS = {
    "double fork": """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        time.sleep(300)
    os._exit(0)
time.sleep(300)
""",
    "forking on": """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
until = time.monotonic() + 60
while time.monotonic() < until:  # whoever it was a moment ago is gone
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.002)
""",
    "stopped": """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(300)
time.sleep(300)
""",
}


@pytest.mark.parametrize("number", ["KILL", "STOP"])
async def test_a_command_that_attacks_its_guard_ends_all_the_same(
    tmp_path: Path, tools: Tools, mark: str, number: str
) -> None:
    command = f"setsid {long(mark)} & kill -{number} $PPID; {long(mark)}"
    arguments = {"command": command}
    running = asyncio.create_task(tools.terminal.run(arguments, bare(tmp_path, tools.terminal, arguments)))
    if number == "KILL":  # nobody is left to tell how it ended
        assert (await running).text == "[ended]"
    else:
        await there(itself(mark), 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert await gone(mark, 2) < 2


async def test_it_ends_with_headrace_itself(tmp_path: Path, mark: str) -> None:
    script = f"""
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {str(Path.cwd())!r})
from headrace.tools.background import Background
from headrace.tools.terminal import Terminal
from tests.tooling import call

asyncio.run(call(Terminal(Background()), Path({str(tmp_path)!r}), command={f"setsid {long(mark)}"!r}))
"""
    host = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    await there(itself(mark))
    host.kill()
    await host.wait()
    assert await gone(itself(mark), 3) < 3


async def test_cancelled_again_and_again_it_still_ends_whole(tmp_path: Path, tools: Tools, mark: str) -> None:
    arguments = {"command": f"trap '' TERM; {long(mark)} & wait"}
    running = asyncio.create_task(tools.terminal.run(arguments, bare(tmp_path, tools.terminal, arguments)))
    await there(mark)
    while not running.done():
        running.cancel()
        await asyncio.sleep(0.05)
    assert running.cancelled()
    assert not marked(mark)


async def test_cancelled_at_any_moment_nothing_is_left(tmp_path: Path, tools: Tools, mark: str) -> None:
    for moment in range(6):
        arguments = {"command": long(mark)}
        running = asyncio.create_task(
            tools.terminal.run(arguments, bare(tmp_path, tools.terminal, arguments))
        )
        await asyncio.sleep(moment * 0.012)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    await gone(mark, 2)


async def test_a_flood_of_processes_is_ended(tmp_path: Path, tools: Tools, mark: str) -> None:
    script = tmp_path / "flood.py"
    script.write_text(
        "import os, time\nfor _ in range(1100):\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\ntime.sleep(60)\n"
    )
    result = await call(tools.terminal, tmp_path, command=f"{sys.executable} {script} {mark}", timeout_s=40)
    assert "processes running at once" in result.text
    assert not marked(mark)


# --- in the background


async def over(tools: Tools, folder: Path) -> ToolResult:
    """What is said of the first background command once it is over."""
    async with asyncio.timeout(5):
        while True:
            result = await call(tools.read, folder, id="bg-1")
            if result.text != "[bg-1 is running]":
                return result
            await asyncio.sleep(0.02)


async def test_a_background_command_is_read_and_ended(tmp_path: Path, tools: Tools, mark: str) -> None:
    command = f"echo one; while [ ! -e go ]; do sleep 0.01; done; echo two; {long(mark)}"
    started = await call(tools.terminal, tmp_path, command=command, background=True)
    assert started.text == "[bg-1 is running]"
    assert (await call(tools.read, tmp_path, id="bg-1")).text == "one\n[bg-1 is running]"
    assert (await call(tools.read, tmp_path, id="bg-1")).text == "[bg-1 is running]"
    (tmp_path / "go").touch()
    await there(itself(mark))
    ended = await call(tools.kill, tmp_path, id="bg-1")
    assert (ended.ok, ended.text) == (True, "two\n[bg-1: ended by SIGTERM]")
    assert not marked(mark)
    assert "There is no background command 'bg-1'. None." in await said_no(tools.read, tmp_path, id="bg-1")
    assert "no background command" in await said_no(tools.kill, tmp_path, id="bg-1")


async def test_one_that_fails_at_once_says_so(tmp_path: Path, tools: Tools) -> None:
    result = await call(tools.terminal, tmp_path, command="echo taken >&2; exit 7", background=True)
    assert (result.ok, result.text) == (False, "taken\n[bg-1: exit status 7]")


async def test_it_lasts_as_long_as_any_of_its_processes(tmp_path: Path, tools: Tools, mark: str) -> None:
    await call(tools.terminal, tmp_path, command=f"setsid {long(mark)} & exit 0", background=True)
    (left,) = await there(itself(mark))
    assert (await call(tools.read, tmp_path, id="bg-1")).text == "[bg-1 is running]"
    os.kill(left, signal.SIGKILL)
    assert (await over(tools, tmp_path)).text == "[bg-1: exit status 0]"


async def test_its_timeout_ends_it(tmp_path: Path, tools: Tools, mark: str) -> None:
    await call(tools.terminal, tmp_path, command=long(mark), background=True, timeout_s=0.6)
    await gone(mark, 5)
    assert (await over(tools, tmp_path)).text == "[bg-1: timed out after 0.6 s; ended by SIGTERM]"


async def test_there_are_only_so_many_and_those_of_others_do_not_count(tmp_path: Path, tools: Tools) -> None:
    command = {"command": "sleep 300", "background": True}
    mine, other = (bare(tmp_path, tools.terminal, command, owner=who) for who in ("mine", "other"))
    await asyncio.gather(*(tools.terminal.run(command, mine) for _ in range(BACKGROUND_MOST)))
    full = await tools.terminal.run(command, mine)
    assert f"{BACKGROUND_MOST} commands run in the background" in full.text
    assert (await tools.terminal.run(command, other)).text == "[bg-1 is running]"
    await tools.terminal.close()


async def test_nobody_reads_or_ends_what_is_another_owners(tmp_path: Path, tools: Tools, mark: str) -> None:
    command = {"command": f"echo canary; {long(mark)}", "background": True}
    await tools.terminal.run(command, bare(tmp_path, tools.terminal, command, owner="mine"))
    name = {"id": "bg-1"}
    for tool in (tools.read, tools.kill):
        result = await tool.run(name, bare(tmp_path, tool, name, owner="other"))
        assert result.text == "There is no background command 'bg-1'. None."
    assert "canary" in (await tools.read.run(name, bare(tmp_path, tools.read, name, owner="mine"))).text
    assert marked(mark)


async def test_a_stop_of_the_turn_ends_what_it_left_running(tmp_path: Path, tools: Tools, mark: str) -> None:
    command = {"command": f"echo said; trap '' TERM; {long(mark)} & wait", "background": True}
    run = bare(tmp_path, tools.terminal, command)
    await tools.terminal.run(command, run)
    await there(mark)
    await run.stop()
    assert not marked(mark)
    told = (await call(tools.read, tmp_path, id="bg-1")).text
    assert told.startswith("said\n[bg-1: ended because the turn that started it was stopped")


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path, tools: Tools, mark: str) -> None:
    command = {"command": long(mark), "background": True}
    running = asyncio.create_task(tools.terminal.run(command, bare(tmp_path, tools.terminal, command)))
    await there(mark)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not marked(mark)


async def test_commands_that_end_by_themselves_leave_no_riddle(
    tmp_path: Path, tools: Tools, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever signals a child must not take its end away from the one who waits for it."""
    results = await asyncio.gather(*(call(tools.terminal, tmp_path, command="exit 3") for _ in range(60)))
    assert {result.text for result in results} == {"[exit status 3]"}
    assert "Unknown child process" not in caplog.text


# --- the environment


async def test_commands_get_the_environment_they_are_given_and_no_more(tmp_path: Path, tools: Tools) -> None:
    arguments = {"command": "env"}
    env = {**ENV, "SEEN": "yes", "LINES_OF": "a\nb"}
    text = (await tools.terminal.run(arguments, bare(tmp_path, tools.terminal, arguments, env=env))).text
    assert "SEEN=yes\n" in text
    assert "LINES_OF=a\nb\n" in text
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert not names & set(os.environ) - set(env) - {"PWD", "SHLVL", "_"}


SECRETS = {
    "OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x", "GITHUB_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_ACCESS_KEY_ID": "x", "PGPASSWORD": "x", "TELEGRAM_BOT_TOKEN": "x", "npm_config__auth": "x", "DB_PASS": "x",
    "MY_CREDS": "x", "SENTRY_DSN": "x", "STRIPE": "sk-live-0123456789abcdef01", "INNOCENT": "ghp_0123456789abcdef0123",
    "DATABASE_URL": "postgres://me:secret@host/db", "HTTPS_PROXY": "http://me:secret@proxy:8080", "HOUSE": "named",
    "JWT": "x", "SESSION_COOKIE": "x", "SLACK": "xoxb-12345-abc", "PEM": "-----BEGIN RSA PRIVATE KEY-----",
}  # fmt: skip
PLAIN = {
    "PATH": "/bin", "HOME": "/root", "LANG": "C", "PWD": "/", "EDITOR": "vi", "SSH_AUTH_SOCK": "/tmp/agent",
    "KEYBOARD": "us", "MONKEY_PATCHED": "1", "COMPASS": "north", "AUTHOR": "me", "HTTP_PROXY": "http://proxy:8080",
    "DATABASE_HOST": "db", "VIRTUAL_ENV": "/v",
}  # fmt: skip


def test_secrets_are_left_out_and_the_rest_is_there() -> None:
    made = child_environment({**SECRETS, **PLAIN}, ["HOUSE"])
    assert not SECRETS.keys() & made.keys()
    assert {name: made[name] for name in PLAIN} == PLAIN


@given(st.sampled_from(sorted(SECRETS.keys() - {"STRIPE", "INNOCENT", "DATABASE_URL", "HTTPS_PROXY", "HOUSE", "SLACK", "PEM"})),
       st.sampled_from(["", "MY_", "X1_"]), st.sampled_from(["", "_2", "_FILE"]), st.booleans())  # fmt: skip
def test_a_secret_is_known_by_its_name_however_it_is_written(
    name: str, before: str, after: str, lower: bool
) -> None:
    written = f"{before}{name}{after}"
    assert looks_secret(written.lower() if lower else written, "x")


async def test_the_guard_says_nothing_of_headraces_own_environment(tmp_path: Path, tools: Tools) -> None:
    """The process above the shell is the guard, and it was given nothing."""
    result = await call(tools.terminal, tmp_path, command="cat /proc/$PPID/environ")
    assert result.text == "[exit status 0]"


# --- rules, against a real shell

FRAGMENTS = st.sampled_from(
    ["git status", " ", "-s", "canary", ";", "&&", "|", "&", "\n", "$(", ")", "`", "'", '"', "\\", ">", "<(", "{", "}", "#",
     "!", "~", "*", "\t", "\r", "\u00a0", "=", "x=1", "$IFS", "--", "exec", "eval", "[", "]"]
)  # fmt: skip


@pytest.mark.skipif(BASH is None, reason="the shell is bash where there is one")
@given(st.lists(FRAGMENTS, max_size=6), st.booleans())
def test_what_a_command_rule_allows_runs_nothing_else(fragments: list[str], spaced: bool) -> None:
    command = "git status" + (" " if spaced else "") + "".join(fragments)
    rules = Rules(rules=(Rule(tool="terminal", command="git status", then="allow"),))
    if judge("terminal", Touch("run", command), real_path="/", folder="/", rules=rules).mode != "allow":
        return
    assert BASH is not None
    spy = 'command_not_found_handle() { echo "ran $1" >&2; }; git() { echo "ran git" >&2; }; PATH=/nowhere; '
    ran = subprocess.run([BASH, "-c", spy + command], capture_output=True, text=True, check=False, cwd="/")
    assert re.findall(r"^ran (.*)$", ran.stderr, re.MULTILINE) in ([], ["git"])
