"""The process that runs the model: `python -m headrace.providers.embedded.child MODEL`.

Theory of operation. It serves OpenAI's chat completions on a free port of the loopback interface, to whoever has the
key in its environment. To whoever started it, it says one line of JSON on standard output:

    loading --{"url": "http://127.0.0.1:40809"}--> serving --standard input closes--> gone
      '-----{"error": CODE, "message": "..."}----> gone

Standard input is a pipe that its parent holds open, so it leaves with its parent, however that ended. While the model
is loading the library holds the interpreter, and nothing can watch the pipe; on Linux the kernel ends it then. A parent
that was gone before the kernel was told is found out by a look at the pipe.
"""

import argparse
import contextlib
import ctypes
import http.client
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from headrace.providers.embedded import bounds

KEY_VARIABLE: Final = "HEADRACE_CHILD_KEY"

_GGUF: Final = b"GGUF"
_PR_SET_PDEATHSIG: Final = 1


class _Unable(Exception):
    """It cannot serve; says why, as a cause's code and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def main() -> None:
    given = _arguments()
    out = _own_stdout()
    _leave_with_parent()
    _bound_log()
    try:
        # The server lives as long as it is referred to.
        server = _serve(_library(), given)
        url = server.listening_address
        _wait_until_ready(url)
        _say(out, url=url)
    except _Unable as why:
        _say(out, error=why.code, message=str(why))
        os._exit(1)
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(0)  # the library's own way out waits for requests under way


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m headrace.providers.embedded.child")
    parser.add_argument("model", type=Path)
    parser.add_argument("--context", type=int, default=bounds.CONTEXT_TOKENS, help="tokens")
    parser.add_argument("--threads", type=int, default=0, help="0 leaves it to the library")
    return parser.parse_args()


def _own_stdout() -> int:
    """Keep standard output for the one line; whatever native code prints goes to the log."""
    out = os.dup(1)
    os.dup2(2, 1)
    return out


def _say(out: int, **line: str) -> None:
    os.write(out, json.dumps(line).encode() + b"\n")


def _leave_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is meant for the parent
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent never writes: what can be read is the end.
    if sys.platform != "win32" and select.select([0], [], [], 0)[0]:
        os._exit(0)


def _bound_log() -> None:
    """The log is the only file it writes; past the bound, writes to it fail and nothing else does."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - Unix only

        resource.setrlimit(resource.RLIMIT_FSIZE, (bounds.LOG_MAX_BYTES, bounds.LOG_MAX_BYTES))


def _library() -> Any:
    os.environ["GOMP_SPINCOUNT"] = str(bounds.SPIN_COUNT)  # read while it is loaded
    try:
        import xllamacpp  # noqa: PLC0415 - where it cannot be imported, that is said in the one line
    except ModuleNotFoundError as error:
        raise _Unable(
            "dependency_missing",
            "The package xllamacpp, which runs the local model, is not installed. There are wheels for Linux, "
            "macOS and 64-bit Windows: pip install xllamacpp",
        ) from error
    except ImportError as error:
        if "libgomp" in str(error):
            raise _Unable(
                "dependency_missing",
                "The local model needs the library libgomp.so.1, which is not on this system. Install it: "
                "apt-get install libgomp1 (Fedora: dnf install libgomp; Alpine has no wheels that fit).",
            ) from error
        raise _Unable(
            "dependency_missing", f"The library that runs the local model cannot be loaded ({error})."
        ) from error
    return xllamacpp


def _serve(library: Any, given: argparse.Namespace) -> Any:
    _check_file(given.model)
    try:
        return library.Server(_parameters(library, given))
    except MemoryError as error:
        raise _Unable("resources_short", f"Memory ran out while {given.model} was loaded.") from error
    except Exception as error:  # the library raises RuntimeError for everything; the reason is in the log
        raise _Unable("config_invalid", f"{given.model} could not be loaded ({error})") from error


def _check_file(model: Path) -> None:
    try:
        with model.open("rb") as file:
            start = file.read(len(_GGUF))
    except OSError as error:
        raise _Unable("config_invalid", f"{model} cannot be read ({error.strerror}).") from error
    if start != _GGUF:
        raise _Unable("config_invalid", f"{model} is not a GGUF file.")


def _parameters(library: Any, given: argparse.Namespace) -> Any:
    chosen = library.CommonParams()
    chosen.model.path = str(given.model)
    chosen.model_alias = {"local"}
    chosen.hostnames = ["127.0.0.1"]
    chosen.port = 0
    chosen.api_keys = [os.environ.pop(KEY_VARIABLE)]
    chosen.n_ctx = given.context
    chosen.n_parallel = bounds.SLOTS
    chosen.kv_unified = True
    chosen.n_batch = chosen.n_ubatch = bounds.BATCH_TOKENS
    chosen.cache_ram_mib = bounds.PROMPT_CACHE_MIB
    chosen.sse_ping_interval = bounds.PING_S
    chosen.ui = False
    chosen.endpoint_slots = False
    chosen.fit_params = False  # the parent has looked at the memory; fitting loads the model twice
    chosen.verbosity = 1  # errors: prompts are nobody's business
    if given.threads:
        chosen.cpuparams.n_threads = chosen.cpuparams_batch.n_threads = given.threads
    return chosen


def _wait_until_ready(url: str) -> None:
    """The port may answer 503 until the model is loaded. The parent's patience is the bound."""
    address = urlsplit(url)
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5)
            connection.request("GET", "/health")
            with connection.getresponse() as response:
                if response.status == 200:
                    return
        time.sleep(0.05)


if __name__ == "__main__":
    main()
