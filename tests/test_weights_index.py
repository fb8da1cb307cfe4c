"""Which package index is asked: what people tell pip and uv, and what these two would use untold."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.providers.embedded.weights import default_index, settings
from headrace.runtime.clock import SystemClock

ONE, TWO, THREE = "https://one.invalid/simple", "http://two.invalid/s/", "https://u:p@three.invalid/x"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "UV_NO_CONFIG": "1"}


@pytest.mark.parametrize("name", ["PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_the_environment(env: dict[str, str], name: str) -> None:
    assert settings.read(env | {name: ONE}).index == ONE
    assert settings.read(env | {name: f"mirror={ONE}"}).index == ONE
    for address in ("file:///opt/simple", "http://host:99999999/", "http://", "mirror"):
        assert settings.read(env | {name: address}).index == ""


def test_more_of_the_environment(env: dict[str, str]) -> None:
    read = settings.read(
        env
        | {
            "PIP_EXTRA_INDEX_URL": f"file:///x {TWO}",
            "UV_INDEX": f"{THREE} own={TWO}",
            "PIP_TRUSTED_HOST": "a.invalid b.invalid:8080",
            "UV_INSECURE_HOST": "c.invalid",
            "PIP_PROXY": "http://proxy.invalid:3128",
            "SSL_CERT_FILE": "/a.pem",
            "REQUESTS_CA_BUNDLE": "/a.pem",
            "PIP_CERT": "/b.pem",
        }
    )
    assert read.more == (TWO, THREE)
    assert read.trusted_hosts == {"a.invalid", "b.invalid", "c.invalid"}
    assert read.proxy == "http://proxy.invalid:3128"
    assert read.authorities == ("/b.pem", "/a.pem")
    assert not read.refused
    assert settings.read(env | {"PIP_NO_INDEX": "true"}).refused


def test_pips_file(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        f"[global]\nindex-url = {ONE}\ncert = /c.pem\nextra_index_url =\n    {TWO}\n    {THREE}\n"
        "no-index = false\n[install]\nindex-url = http://not.invalid\n"
    )
    read = settings.read(env)
    assert (read.index, read.more, read.refused) == (ONE, (TWO, THREE), False)
    assert read.authorities == ("/c.pem",)
    file.write_text(f"[global]\nindex-url = {ONE}\n[download]\nindex-url = {TWO}\n")
    assert settings.read(env).index == TWO
    assert settings.read(env | {"PIP_INDEX_URL": THREE}).index == THREE
    assert settings.read(env | {"PIP_CONFIG_FILE": os.devnull}).index == ""
    file.write_bytes(b"index-url = x\n\xff[")
    assert settings.read(env).index == ""


def test_a_users_own_pip_file(env: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "pip"
    folder.mkdir(parents=True)
    (folder / "pip.conf").write_text(f"[global]\nindex-url = {TWO}\n")
    assert settings.read(env).index == TWO


@pytest.mark.parametrize(
    ("text", "index", "more"),
    [
        (f'index-url = "{ONE}"\nextra-index-url = ["{TWO}"]', ONE, (TWO,)),
        (f'[[index]]\nurl = "{TWO}"\n[[index]]\nurl = "{ONE}"\ndefault = true', ONE, (TWO,)),
        (f'[pip]\nindex-url = "{ONE}"', ONE, ()),
        ("index-url = [", "", ()),
    ],
)
def test_uvs_file(env: dict[str, str], tmp_path: Path, text: str, index: str, more: tuple[str, ...]) -> None:
    folder = tmp_path / ".config" / "uv"
    folder.mkdir(parents=True)
    (folder / "uv.toml").write_text(text)
    env |= {"UV_NO_CONFIG": "0"}
    read = settings.read(env)
    assert (read.index, read.more) == (index, more)
    assert settings.read(env | {"UV_NO_CONFIG": "1"}).index == ""


def test_pips_default_is_found_without_a_pip(tmp_path: Path) -> None:
    """An environment as uv makes it: nothing in it but Python."""
    made = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    python = made / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    script = "from headrace.providers.embedded.weights import default_index as d; print(d.pips())"
    path = os.pathsep.join(place for place in sys.path if place)
    said = subprocess.run(
        [python, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == default_index.pips()
    assert said.stdout.startswith("https://")
    assert said.stdout.strip().endswith("/simple/")


@pytest.mark.skipif(shutil.which("uv", path=str(Path(sys.executable).parent)) is None, reason="no uv here")
async def test_uv_says_the_same() -> None:
    path = str(Path(sys.executable).parent)
    env = {"PATH": path, "HOME": os.environ.get("HOME", "/"), "UV_NO_CONFIG": "1"}
    assert (await default_index.uvs(env, SystemClock())).rstrip("/") == default_index.pips().rstrip("/")


async def test_no_uv(tmp_path: Path) -> None:
    assert await default_index.uvs({"PATH": str(tmp_path)}, SystemClock()) == ""
    fake = tmp_path / "uv"
    fake.write_text("#!/bin/sh\nexit 2\n")
    fake.chmod(0o755)
    assert await default_index.uvs({"PATH": str(tmp_path)}, SystemClock()) == ""
