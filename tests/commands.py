"""The real command as a process of its own, in a home of its own, plain or in a pseudo-terminal."""

import asyncio
import os
import pty
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

COMMAND = (sys.executable, "-m", "headrace")

CONFIG = """
model: lab:model-1
providers:
  lab: {{protocol: {protocol}, base_url: "{url}/v1", auth: none}}
streaming: {{retries: {retries}}}
"""


def write_config(home: Path, url: str, protocol: str = "chat_completions", retries: int = 0) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(CONFIG.format(url=url, protocol=protocol, retries=retries))


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Nothing left over from whoever runs the tests."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HEADRACE_HOME": str(home),
        "TERM": "xterm",
        **(extra or {}),
    }


class Ran(NamedTuple):
    status: int
    out: str
    err: str


async def run(
    home: Path,
    *arguments: str,
    stdin: str = "",
    extra: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Ran:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(home, extra),
        cwd=folder or home,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 30)
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


class Terminal:
    """The command in a pseudo-terminal; `seen` is everything it has written."""

    def __init__(
        self,
        home: Path,
        *arguments: str,
        folder: Path | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        self._home = home
        self._extra = extra
        self._folder = folder or home
        self._arguments = arguments
        self.seen = ""
        self._more = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._mine, theirs = pty.openpty()
        self.process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *self._arguments,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(self._home, self._extra),
            cwd=self._folder,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        asyncio.get_running_loop().add_reader(self._mine, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._mine)
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        os.close(self._mine)

    def _read(self) -> None:
        try:
            data = os.read(self._mine, 65536)
        except OSError:  # the other end is closed
            asyncio.get_running_loop().remove_reader(self._mine)
            data = b""
        self.seen += data.decode(errors="replace")
        self._more.set()

    def type(self, text: str) -> None:
        os.write(self._mine, text.encode())

    async def until(self, text: str, times: int = 1) -> None:
        """Wait until `text` has been written so many times."""
        async with asyncio.timeout(20):
            while self.seen.count(text) < times:
                self._more.clear()
                await self._more.wait()

    async def press_until(self, key: str, text: str) -> None:
        """Press a key until it has had its effect: at a prompt that is still being drawn, Python may miss Ctrl-C."""
        async with asyncio.timeout(20):
            while text not in self.seen:
                self.type(key)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await self.until(text)

    async def left(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 20)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
