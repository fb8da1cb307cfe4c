"""The terminal door: writes what `views.terminal` says, and turns Ctrl-C into Stop.

Theory of operation. The answer goes to standard output and nothing else does, so it can be piped; a spinner, notices
and failures go to standard error. The exit status of a one-shot question says how the turn ended (`EXIT`).
"""

from typing import Final

from headrace.errors import Outcome

EXIT: Final[dict[Outcome, int]] = {
    "stop": 0,
    "error": 1,
    # 2 is a wrong command line or configuration
    "cut": 3,
    "length": 4,
    "limit": 5,
    "content_filter": 6,
    "refused": 7,
    "tool_calls": 8,
    "cancelled": 130,
}
