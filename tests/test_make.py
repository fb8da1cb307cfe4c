"""The first command on a machine: what `make` says where it cannot go on, and that it can go on afterwards."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SAYS_TOO_OLD = "#!/bin/sh\nexit 1\n"
pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="there is no make")


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make(folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    env = {"PATH": f"{folder}/programs:/usr/bin:/bin", "HOME": str(folder)}
    command = ["make", "-f", ROOT / "Makefile", *more, "chat"]
    return subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True, check=False)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with a Python that is too old, a uv that tells what it was asked, and an environment made before."""
    program(tmp_path / "programs/python3", SAYS_TOO_OLD)
    program(tmp_path / "programs/uv", '#!/bin/sh\necho "$@" >> asked\n')
    program(tmp_path / ".venv/bin/python", SAYS_TOO_OLD)
    program(tmp_path / ".venv/bin/headrace", "#!/bin/sh\necho Hello.\n")
    for name in ("locks/run.txt", "pyproject.toml"):
        program(tmp_path / name, "")
    return tmp_path


@pytest.mark.parametrize("with_uv", [True, False])
def test_a_python_that_is_too_old_is_told_before_anything_is_made(clone: Path, *, with_uv: bool) -> None:
    if not with_uv:
        (clone / "programs/uv").unlink()
    made = make(clone)
    assert made.returncode
    assert "needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11 chat" in made.stdout
    assert not (clone / "asked").exists()


def test_an_environment_of_an_old_python_is_made_anew(clone: Path) -> None:
    assert make(clone, f"PYTHON={sys.executable}").stdout.endswith("Hello.\n")
    asked = (clone / "asked").read_text().splitlines()
    assert asked[0] == f"venv --quiet --clear --python {sys.executable} .venv"
    assert len(asked) == 3


def test_an_environment_that_fits_is_kept(clone: Path) -> None:
    program(clone / ".venv/bin/python", "#!/bin/sh\nexit 0\n")
    assert make(clone).stdout.endswith("Hello.\n")
    assert "venv --quiet" not in (clone / "asked").read_text()
