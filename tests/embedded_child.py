"""A child without a model: it speaks the real one's line protocol and answers from scripts.

`python embedded_child.py MODE FOLDER MODEL ...`; each start adds its pid to FOLDER/starts.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from headrace.testing.modelserver import ModelServer


def say(**line: str) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def serve() -> None:
    async with ModelServer() as server:
        say(url=server.url)
        await asyncio.to_thread(sys.stdin.read)
        os._exit(0)


def main() -> None:
    mode, folder = sys.argv[1], Path(sys.argv[2])
    with (folder / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    match mode:
        case "serve":
            asyncio.run(serve())
        case "slow":
            time.sleep(0.5)
            asyncio.run(serve())
        case "silent":
            time.sleep(60)
        case "stubborn":
            say(url="http://127.0.0.1:9")
            time.sleep(60)
        case "crash":
            sys.exit("it crashed")
        case "out-of-memory":
            sys.exit("ggml: failed to allocate CPU buffer")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "illegal":
            os.kill(os.getpid(), signal.SIGILL)
        case "chatter":
            sys.stdout.write("Hello, I am no JSON\n")
            sys.stdout.flush()
            time.sleep(60)
        case "refuse":
            say(error="dependency_missing", message="Something is missing.")
        case "unheard-of":
            say(error="no such code", message="Something is odd.")


if __name__ == "__main__":
    main()
