"""The key of the API: from the environment, or a random one that is made once and kept in the home folder."""

import contextlib
import ipaddress
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headrace.config.loading import API_KEY_FILE
from headrace.config.schema import Api
from headrace.errors import ConfigError, StoreError
from headrace.limits import API_KEY_LEAST_CHARS


class Key(NamedTuple):
    secret: str
    """Empty where none is asked for."""
    made: Path | None = None
    """Where it was written just now."""


def key_of(api: Api, host: str, home: Path, env: Mapping[str, str]) -> Key:
    """Raises ConfigError where the server must not be started like that."""
    given = env.get(api.key_env, "").strip()
    if not is_loopback(host):
        _check_exposed(api, host, given)
    if api.auth == "none":
        return Key("")
    return Key(given) if given else _kept(home)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


def _check_exposed(api: Api, host: str, given: str) -> None:
    if api.auth == "none":
        raise ConfigError(
            f"api.auth is `none`, and {host} can be reached from other machines: set api.auth to `key`, or listen on "
            "127.0.0.1."
        )
    if len(given) < API_KEY_LEAST_CHARS:
        raise ConfigError(
            f"{host} can be reached from other machines, so the API needs a key of your own: export {api.key_env} with "
            f"{API_KEY_LEAST_CHARS} characters or more, or listen on 127.0.0.1."
        )


def _kept(home: Path) -> Key:
    """The key of the home folder, made on the first start; nobody else on this machine may read it."""
    path = home / API_KEY_FILE
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            if secret := path.read_text(encoding="ascii", errors="replace").strip():
                return Key(secret)
            path.unlink()  # a full disk has left it empty
        secret = secrets.token_urlsafe(32)
        draft = home / f".{API_KEY_FILE}.{secrets.token_hex(4)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{secret}\n")
            os.link(draft, path)  # of two servers that start at once, one makes it
        finally:
            draft.unlink()
    except FileExistsError:
        return Key(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise StoreError(str(path), error) from error
    return Key(secret, path)
