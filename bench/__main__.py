"""`python -m bench [NAME ...]`: run the named benchmarks, or all."""

import sys
from collections.abc import Callable

from bench import agent, api, calls, decoders, embedded, first_use, mixtures, path, sessions

BENCHMARKS: dict[str, Callable[[], None]] = {
    "decoders": decoders.run,
    "curve": decoders.curve,
    "path": path.run,
    "calls": calls.run,
    "cancelling": calls.cancelling,
    "mixtures": mixtures.run,
    "api": api.run,
    "leaving": api.leaving,
    "sessions": sessions.run,
    "agent": agent.run,
    "first_use": first_use.run,
    "embedded": embedded.run,
}


def main() -> None:
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"no benchmark is called {unknown[0]}; there are: {', '.join(BENCHMARKS)}")
    for name in names:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
