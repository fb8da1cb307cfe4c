"""Streamed answers before they are bytes on a socket: one `Frame` for each event, marked with its role.

The roles are all that faults and pacing need to know of a protocol:

    open                 what comes before anything of the reply
    reasoning, text, arguments
                         a delta
    inner                structure around the deltas
    finish               the terminal evidence
    done                 what may follow it
"""

from typing import Any, Literal, NamedTuple

import msgspec

from headrace.testing.scripts import DeltaKind

Role = Literal["open", "inner", "finish", "done"] | DeltaKind
CREATED = 1_760_000_000

to_json = msgspec.json.Encoder().encode


class Frame(NamedTuple):
    role: Role
    data: bytes


def sse(data: Any, event: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + to_json(data) + b"\n\n"


DONE = Frame("done", b"data: [DONE]\n\n")
