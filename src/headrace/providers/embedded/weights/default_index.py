"""Which package index pip and uv use where nobody has configured one.

Theory of operation. The answer belongs to those tools, so it is taken from them: read out of pip's source text (as
an installed package of this interpreter or of the one its environment was made from, or as the wheel that every
Python carries to make environments with), or else asked of uv. pip is never imported nor run. Between them they
cover environments made by venv, uv, pipx and `uv tool`, with and without pip inside.
"""

import asyncio
import contextlib
import importlib.util
import re
import shutil
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

from headrace.ports import Clock
from headrace.providers.embedded.weights.blocking import in_thread
from headrace.providers.embedded.weights.bounds import PIP_SOURCE_MAX_BYTES, UV_S

_SOURCE: Final = "_internal/models/index.py"
_INDEX: Final = re.compile(r"""^PyPI\s*=\s*PackageIndex\(\s*["'](https://[^"'\s]+)["']""", re.MULTILINE)
_UV_SAYS: Final = re.compile(r"^--index-url (https?://\S+)$", re.MULTILINE)


async def default_index(env: Mapping[str, str], clock: Clock) -> str:
    """The simple API's address; empty if neither pip nor uv is there."""
    return await in_thread(pips) or await uvs(env, clock)


def pips() -> str:
    """pip's default."""
    for text in _sources():
        if found := _INDEX.search(text):
            return urljoin(found[1], "simple/")
    return ""


def _sources() -> Iterator[str]:
    """pip's source text, from wherever there is a pip."""
    for folder in _packages():
        with contextlib.suppress(OSError), (folder / _SOURCE).open("rb") as file:
            yield file.read(PIP_SOURCE_MAX_BYTES).decode(errors="replace")
    for wheel in _bundled():
        with (
            contextlib.suppress(OSError, KeyError, zipfile.BadZipFile),
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"pip/{_SOURCE}") as member,
        ):
            yield member.read(PIP_SOURCE_MAX_BYTES).decode(errors="replace")


def _packages() -> Iterator[Path]:
    """Folders that may be the package pip."""
    spec = importlib.util.find_spec("pip")
    yield from map(Path, (spec and spec.submodule_search_locations) or ())
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    for scheme in sysconfig.get_scheme_names():
        with contextlib.suppress(KeyError):
            yield Path(sysconfig.get_path("purelib", scheme, base), "pip")


def _bundled() -> Iterator[Path]:
    """Wheels of pip that a Python carries."""
    folders = [sysconfig.get_config_var("WHEEL_PKG_DIR")]
    spec = importlib.util.find_spec("ensurepip")
    folders += [f"{place}/_bundled" for place in (spec and spec.submodule_search_locations) or ()]
    for folder in filter(None, folders):
        yield from sorted(Path(folder).glob("pip-*.whl"))


async def uvs(env: Mapping[str, str], clock: Clock) -> str:
    """uv's default, as it writes it above an empty list of requirements."""
    program = shutil.which("uv", path=env.get("PATH"))
    if program is None:
        return ""
    uv = await asyncio.create_subprocess_exec(
        program, "pip", "compile", "--quiet", "--no-header", "--emit-index-url", "-",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(env),
    )  # fmt: skip
    try:
        async with clock.timeout(UV_S):
            said, _ = await uv.communicate()
    except TimeoutError:
        return ""
    finally:
        if uv.returncode is None:
            uv.kill()
            await uv.wait()
    found = _UV_SAYS.search(said.decode(errors="replace"))
    return found[1] if found else ""
