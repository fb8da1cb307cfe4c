"""A model server that answers from a script, in three protocols, with faults: the other end in every test.

A script (`script`) holds a reply (`headrace.testing.scripts`), a pace and at most one fault. The reply is
encoded by the module of its protocol into frames, which the fault cuts or changes (`answers`), and the
connection sends what is left, byte for byte (`connection`). The server (`server`) chooses scripts and records
requests, above all the moment each client left. Scripts have names in `scenarios`, for
`python -m headrace.testing.modelserver`.
"""

from headrace.testing.modelserver.records import Ending, RecordedRequest
from headrace.testing.modelserver.scenarios import SCENARIOS, ScenarioError, scenario
from headrace.testing.modelserver.script import (
    AnswerWhole,
    Close,
    Drip,
    End,
    ErrorShape,
    Fault,
    Malformed,
    Omit,
    Place,
    Raw,
    RefuseParameter,
    RefuseStreaming,
    Script,
    SendError,
    Stall,
    Status,
)
from headrace.testing.modelserver.server import ModelServer
from headrace.testing.scripts import CallTool, Refuse, Reply, Say, Think, Usage

__all__ = [
    "SCENARIOS",
    "AnswerWhole",
    "CallTool",
    "Close",
    "Drip",
    "End",
    "Ending",
    "ErrorShape",
    "Fault",
    "Malformed",
    "ModelServer",
    "Omit",
    "Place",
    "Raw",
    "RecordedRequest",
    "Refuse",
    "RefuseParameter",
    "RefuseStreaming",
    "Reply",
    "Say",
    "ScenarioError",
    "Script",
    "SendError",
    "Stall",
    "Status",
    "Think",
    "Usage",
    "scenario",
]
