"""The clients, started once; what cannot run here is skipped and says so, but never in CI."""

import os
from collections.abc import Iterator

import pytest

from tests.clients.clients import NAMES, Client, missing
from tests.clients.servers import Server, canned_server, headrace_missing, headrace_server


def skip(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and in CI nothing may be missing")
    pytest.skip(reason)


@pytest.fixture(scope="session", params=NAMES)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    if reason := missing(request.param):
        skip(reason)
    client = Client(request.param)
    client.start()
    yield client
    client.stop()


@pytest.fixture(scope="session")
def canned() -> Iterator[Server]:
    with canned_server() as server:
        yield server


@pytest.fixture(scope="session", params=["canned", "headrace"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """What the clients are tried against; `canned` answers each fault as a door should."""
    if request.param == "headrace":
        if reason := headrace_missing():
            pytest.skip(reason)
        with headrace_server() as server:
            yield server
    else:
        yield request.getfixturevalue("canned")
