"""The model server as a process of its own: `python -m headrace.testing.modelserver --help`."""

import argparse
import asyncio
import signal
import sys

from headrace.testing.modelserver import SCENARIOS, ModelServer, ScenarioError, Script, scenario

_EXAMPLE = """\
example:
  python -m headrace.testing.modelserver --port 8901 --scenario 'stall-mid-text*1'
  curl -N http://127.0.0.1:8901/v1/chat/completions -H 'X-Script: paced:20:100' \\
       -d '{"model": "any", "stream": true, "messages": [{"role": "user", "content": "Hello"}]}'

A request chooses its own scenario by the header `X-Script: NAME` or the model `script:NAME`.
GET /server tells which requests came and when their clients left.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m headrace.testing.modelserver",
        description="A model server on 127.0.0.1 that answers from scripts, in the protocols of OpenAI's "
        "chat completions and Responses and Anthropic's messages, with every fault a stream can have.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes any free port")
    parser.add_argument("--scenario", default="hello", metavar="NAME", help="for requests that name none")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios and end")
    given = parser.parse_args()
    if given.list:
        sys.stdout.write("\n".join([*sorted(SCENARIOS), "long:N", "paced:N:MS"]) + "\n")
        return 0
    try:
        default = scenario(given.scenario)
    except ScenarioError as error:
        parser.error(str(error))
    try:
        asyncio.run(_serve(given.port, default))
    except OSError as error:
        parser.error(f"cannot listen on port {given.port}: {error.strerror}")
    return 0


async def _serve(port: int, default: Script) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with ModelServer(default=default, port=port) as server:
        sys.stdout.write(f"ready {server.url}\n")
        sys.stdout.flush()
        await stopped.wait()


if __name__ == "__main__":
    sys.exit(main())
