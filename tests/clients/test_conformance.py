"""What checks an API rather than uses it: llm-comply, and schemathesis with the description the server gives of itself.

llm-comply has no strict switch. Strict here: nothing is ignored, nothing skipped, and a warning is a failure. The one
endpoint it checks that there need not be, compaction, draws warnings about the body of a 404.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.servers import Server

BIN = Path(sys.executable).parent
WITHIN_S = 170
COMPACTION = {"compact-response"}


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A program that may leave files where it runs."""
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=WITHIN_S, check=False)


@pytest.mark.parametrize(("api", "count"), [("openai-chat", 9), ("open-responses", 13)])
def test_llm_comply_finds_nothing(server: Server, api: str, count: int, tmp_path: Path) -> None:
    address = ["--base-url", server.base_url, "--api-key", server.key, "--model", server.behaves]
    done = run(
        BIN / "llm-comply", "run", "--format", api, *address, "--json", "--timeout", "20", cwd=tmp_path
    )
    results = json.loads(done.stdout[done.stdout.index("{") :])["results"]
    found = [
        r for r in results if r["status"] != "passed" or (r.get("warnings") and r["id"] not in COMPACTION)
    ]
    assert found == [], done.stdout
    assert len(results) == count


def test_schemathesis_finds_no_violation(server: Server, tmp_path: Path) -> None:
    if server.name == "canned":
        pytest.skip("the canned server does not describe itself")
    done = run(
        BIN / "schemathesis",
        *("--config-file", Path(__file__).with_name("schemathesis.toml")),
        "run",
        f"{server.base_url.removesuffix('/v1')}/openapi.json",
        *("--header", f"Authorization: Bearer {server.key}"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
