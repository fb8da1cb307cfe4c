"""The proxy a request goes through, as the environment names it.

aiohttp could read the environment itself, but would read `~/.netrc` along with it and send what stands there in the
place of a key.
"""

import contextlib
import functools
import ipaddress
from typing import Any
from urllib.request import getproxies, proxy_bypass

from yarl import URL


def proxy_of(url: str) -> dict[str, Any]:
    """What a request to `url` is given beside its address; no proxy can reach this machine's loopback addresses."""
    target = URL(url)
    if target.host is None or _is_loopback(target.host) or proxy_bypass(target.host):
        return {}
    named = getproxies().get(target.scheme)
    if not named:
        return {}
    return {"proxy": URL(named if "://" in named else f"http://{named}")}


@functools.lru_cache(maxsize=256)
def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")
