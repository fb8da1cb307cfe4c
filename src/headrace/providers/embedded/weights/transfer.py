"""One body over HTTP, however often the connection breaks.

Theory of operation. A `Line` leads to one source. `pull` asks for a body from where its target stands; when the
connection breaks it asks again from where the target stands then. Nobody is waited for who never answered: the next
source may be there at once. Who has answered before is asked again while new bytes come, and a few times when none
do. A server that ignores Range sends everything; what is there already is then read and dropped.

Its errors are SourceFailed; what a target raises passes through.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp

from headrace.ports import Clock
from headrace.providers.embedded.weights.bounds import (
    BACKOFF_FIRST_S,
    CONNECTIONS_MOST,
    FRUITLESS_MOST,
    INDEX_PAGE_MAX_BYTES,
    WRITE_BYTES,
)
from headrace.providers.embedded.weights.failures import Broken, SourceFailed, megabytes, network_error

T = TypeVar("T")

_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_MAY_PASS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class Target(Protocol):
    """Where a body goes."""

    @property
    def position(self) -> int:
        """The next byte wanted."""

    @property
    def end(self) -> int | None:
        """Past the last byte wanted; None is all there are."""

    @property
    def total(self) -> int | None:
        """How long the whole body is, where that is known."""

    async def write(self, data: bytes) -> None: ...


class Page(NamedTuple):
    url: str
    """Where it came from in the end."""
    kind: str
    """Its content type."""
    data: bytes


class Line:
    def __init__(
        self,
        session: aiohttp.ClientSession,
        clock: Clock,
        proxy: str | None = None,
        trusted_hosts: frozenset[str] = frozenset(),
    ) -> None:
        self._session = session
        self._clock = clock
        self._proxy = proxy
        self._trusted_hosts = trusted_hosts
        self._answered = False

    async def pull(self, url: str, target: Target) -> None:
        """The body, into its target. Raises SourceFailed."""
        await self._patiently(lambda: self._pull_once(url, target), lambda: target.position)

    async def page(self, url: str, accept: str) -> Page:
        """A page that is small. Raises SourceFailed."""
        return await self._patiently(lambda: self._page_once(url, accept), lambda: 0)

    async def _patiently(self, ask: Callable[[], Awaitable[T]], position: Callable[[], int]) -> T:
        fruitless = 0
        for _ in range(CONNECTIONS_MOST):
            before = position()
            try:
                return await ask()
            except Broken:
                fruitless = 0 if position() > before else fruitless + 1
                if not self._answered or fruitless == FRUITLESS_MOST:
                    raise
            if fruitless:
                await self._clock.sleep(BACKOFF_FIRST_S * 2 ** (fruitless - 1))
        raise SourceFailed(f"the connection broke {CONNECTIONS_MOST} times")

    async def _pull_once(self, url: str, target: Target) -> None:
        headers = {}
        if target.position or target.end != target.total:
            last = "" if target.end is None else target.end - 1
            headers["Range"] = f"bytes={target.position}-{last}"
        try:
            async with self._session.get(url, headers=headers, **self._way(url)) as response:
                if response.status == 416 and target.position:
                    return  # nothing is left to send; whether it is right, a hash will tell
                skip = _skipped(response, target)
                self._answered = True
                await _copy(response.content, target, skip)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise network_error(error) from error
        if target.end is not None and target.position < target.end:
            raise Broken("the connection ended early")

    async def _page_once(self, url: str, accept: str) -> Page:
        try:
            async with self._session.get(url, headers={"Accept": accept}, **self._way(url)) as response:
                _check_status(response)
                data = bytearray()
                async for chunk in response.content.iter_chunked(WRITE_BYTES):
                    data += chunk
                    if len(data) > INDEX_PAGE_MAX_BYTES:
                        raise SourceFailed(f"its page is larger than {megabytes(INDEX_PAGE_MAX_BYTES)}")
                self._answered = True
                return Page(str(response.url), response.content_type, bytes(data))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise network_error(error) from error

    def _way(self, url: str) -> Mapping[str, Any]:
        trusted = urlsplit(url).hostname in self._trusted_hosts
        return {"proxy": self._proxy, "ssl": not trusted}


async def _copy(content: aiohttp.StreamReader, target: Target, skip: int) -> None:
    async for data in content.iter_chunked(WRITE_BYTES):
        if skip >= len(data):
            skip -= len(data)
            continue
        wanted = data[skip:]
        skip = 0
        if target.end is not None:
            wanted = wanted[: target.end - target.position]
        await target.write(wanted)
        if target.position == target.end:
            return


def _skipped(response: aiohttp.ClientResponse, target: Target) -> int:
    """How many bytes of this answer are there already."""
    _check_status(response)
    if response.status != 206:
        _check_total(response.content_length, target)
        if target.total is not None and response.content_type == "text/html":
            raise SourceFailed("it answered with a web page")
        return target.position
    found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != target.position:
        raise SourceFailed("it sent another part than the one asked for")
    if found[3] != "*":
        _check_total(int(found[3]), target)
    return 0


def _check_status(response: aiohttp.ClientResponse) -> None:
    if response.status in (200, 206):
        return
    words = f"it answered HTTP {response.status} {response.reason or ''}".rstrip()
    raise Broken(words) if response.status in _MAY_PASS else SourceFailed(words)


def _check_total(length: int | None, target: Target) -> None:
    if target.total is not None and length is not None and length != target.total:
        raise SourceFailed(f"it has another file there, of {megabytes(length)}")
