"""Where a person's wheels come from: what pip and uv are told in the environment and in their files.

Theory of operation. `read` looks at the environment first, then at pip's files, then at uv's, and takes the first
that names an index; further indexes are added behind it, whoever names them. Only addresses of the web count. No
index is named here: where a person has named none, `default_index` asks pip and uv which one they would use.
"""

import configparser
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from yarl import URL

from headrace.providers.embedded.weights.bounds import TOOL_CONFIG_MAX_BYTES

_SECTIONS: Final = ("download", "global")
_NAMED: Final = re.compile(r"[A-Za-z0-9_.-]+=(?=https?://)")
_TRUE: Final = frozenset({"1", "true", "yes", "on"})


class Settings(msgspec.Struct, frozen=True):
    index: str = ""
    """The simple API's address; empty where none is configured."""
    more: tuple[str, ...] = ()
    refused: bool = False
    """No index is to be used."""
    authorities: tuple[str, ...] = ()
    """Files and folders of certificates to believe besides the system's."""
    proxy: str | None = None
    trusted_hosts: frozenset[str] = frozenset()
    """Hosts whose certificates are not looked at."""


def read(env: Mapping[str, str]) -> Settings:
    pip = _pip(env)
    uv = _uv(env)

    def told(name: str) -> str:
        """What pip is told: by its environment variable, or in its files."""
        return env.get(f"PIP_{name.upper().replace('-', '_')}") or pip.get(name, "")

    chosen = [
        *(env.get(name, "") for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")),
        pip.get("index-url", ""),
        uv.get("default", ""),
    ]
    more = [
        told("extra-index-url"),
        *(env.get(name, "") for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL")),
        uv.get("more", ""),
    ]
    authorities = [
        told("cert"),
        *(env.get(name, "") for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")),
    ]
    trusted = f"{told('trusted-host')} {env.get('UV_INSECURE_HOST', '')}"
    return Settings(
        index=next(_addresses(chosen), ""),
        more=tuple(dict.fromkeys(_addresses(more))),
        refused=told("no-index").lower() in _TRUE or env.get("UV_NO_INDEX", "").lower() in _TRUE,
        authorities=tuple(dict.fromkeys(path for path in authorities if path)),
        proxy=told("proxy") or None,
        trusted_hosts=frozenset(host.partition(":")[0] for host in trusted.split()),
    )


def _addresses(values: list[str]) -> Iterator[str]:
    for value in values:
        for word in value.split():
            address = _NAMED.sub("", word, count=1) if _NAMED.match(word) else word
            if address.startswith(("http://", "https://")) and _well_formed(address):
                yield address


def _well_formed(address: str) -> bool:
    try:
        return bool(URL(address).host)
    except ValueError:
        return False


# --- pip


def _pip(env: Mapping[str, str]) -> dict[str, str]:
    """The keys of pip's files; later files and the command's own section count for more."""
    values: dict[str, str] = {}
    for path in _pip_files(env):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(_text(path))
        except configparser.Error:
            continue  # pip itself will complain of it
        for section in reversed(_SECTIONS):
            if parser.has_section(section):
                values |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    return values


def _pip_files(env: Mapping[str, str]) -> list[Path]:
    chosen = env.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return []
    home = Path(env.get("HOME") or env.get("USERPROFILE") or "/")
    if sys.platform == "win32":
        files = [
            Path(env.get("PROGRAMDATA", "C:/ProgramData"), "pip", "pip.ini"),
            home / "pip" / "pip.ini",
            Path(env.get("APPDATA", home), "pip", "pip.ini"),
            Path(sys.prefix, "pip.ini"),
        ]
    else:
        system = [Path(folder, "pip", "pip.conf") for folder in _xdg(env, "XDG_CONFIG_DIRS", "/etc/xdg")]
        files = [
            *system,
            Path("/Library/Application Support/pip/pip.conf"),
            Path("/etc/pip.conf"),
            home / ".pip" / "pip.conf",
            *(Path(folder, "pip", "pip.conf") for folder in _xdg(env, "XDG_CONFIG_HOME", f"{home}/.config")),
            home / "Library" / "Application Support" / "pip" / "pip.conf",
            Path(sys.prefix, "pip.conf"),
        ]
    return [*files, Path(chosen)] if chosen else files


def _xdg(env: Mapping[str, str], name: str, otherwise: str) -> list[str]:
    return [folder for folder in (env.get(name) or otherwise).split(os.pathsep) if folder]


# --- uv


def _uv(env: Mapping[str, str]) -> dict[str, str]:
    """Of uv's files the first that says anything: its `default` index and `more` of them."""
    for path in _uv_files(env):
        try:
            table = tomllib.loads(_text(path))
        except tomllib.TOMLDecodeError:
            continue  # uv itself will complain of it
        if table:
            return _uv_indexes(table)
    return {}


def _uv_indexes(table: dict[str, Any]) -> dict[str, str]:
    pip = table.get("pip")
    tables = [table, pip] if isinstance(pip, dict) else [table]
    default = [str(each["index-url"]) for each in tables if "index-url" in each]
    more: list[str] = []
    entries = table.get("index")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and "url" in entry:
            (default if entry.get("default") is True else more).append(str(entry["url"]))
    for each in tables:
        extra = each.get("extra-index-url")
        more += [str(url) for url in extra] if isinstance(extra, list) else []
    return {"default": default[0] if default else "", "more": " ".join(more)}


def _uv_files(env: Mapping[str, str]) -> list[Path]:
    if env.get("UV_NO_CONFIG", "").lower() in _TRUE:
        return []
    if chosen := env.get("UV_CONFIG_FILE"):
        return [Path(chosen)]
    if sys.platform == "win32":
        return [
            Path(env.get("APPDATA", ""), "uv", "uv.toml"),
            Path(env.get("PROGRAMDATA", "C:/ProgramData"), "uv", "uv.toml"),
        ]
    user = _xdg(env, "XDG_CONFIG_HOME", f"{env.get('HOME', '')}/.config")
    system = _xdg(env, "XDG_CONFIG_DIRS", "/etc/xdg")
    return [*(Path(folder, "uv", "uv.toml") for folder in [*user, *system]), Path("/etc/uv/uv.toml")]


def _text(path: Path) -> str:
    """What a file holds; nothing if it is not there, may not be read or is no text."""
    try:
        with path.open("rb") as file:
            return file.read(TOOL_CONFIG_MAX_BYTES).decode("utf-8-sig", errors="replace")
    except OSError:
        return ""
