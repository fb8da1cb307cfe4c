"""The HTTP session to the child: straight to the loopback interface, never through a proxy of the environment.

A proxy could not reach the child, and it would be handed the child's key.
"""

import aiohttp

from headrace.errors import CallError, Cause
from headrace.limits import READ_BYTES
from headrace.ports import Clock
from headrace.providers.http import HttpClient


class LoopbackClient(HttpClient):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._direct: aiohttp.ClientSession | None = None
        self._closed = False

    def session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise CallError(Cause("shutdown", "The local model has been closed."))
        if self._direct is None:
            self._direct = aiohttp.ClientSession(
                # A kept connection would outlive the child, and the next question would find it broken.
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                timeout=aiohttp.ClientTimeout(total=None),
                read_bufsize=READ_BYTES,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._direct

    async def close(self) -> None:
        """For good: a question that is still on its way finds nothing to ask."""
        self._closed = True
        if self._direct is not None:
            await self._direct.close()
            self._direct = None
