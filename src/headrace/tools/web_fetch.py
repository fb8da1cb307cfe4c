"""Fetching one page of the web as text.

Theory of operation. The address is looked at, then requested through a session of its own whose sockets pass the
`Gate` (`addresses`); a redirect is not followed by aiohttp but comes back here and is looked at like the first address.
The body is read up to a bound of bytes, unpacked up to the same bound, and the whole has a bound of time: a page that
is not whole by then is given as far as it came. HTML becomes Markdown (`pages`), other text stays as it is, anything
else is only named. No cookies, no credentials, no proxy: through a proxy nobody could see what address is connected to.
"""

import asyncio
import codecs
import contextlib
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import aiohttp
from yarl import URL

from headrace.limits import (
    FETCH_MAX_BYTES,
    FETCH_READING_S,
    FETCH_REDIRECTS_MOST,
    FETCH_S,
    FETCH_TEXT_MAX_CHARS,
    FETCH_URL_MAX_CHARS,
)
from headrace.ports import Clock, ToolResult, ToolRun, Touch
from headrace.tools import pages
from headrace.tools.addresses import Gate
from headrace.tools.answers import Refused, Stateless, answering, described
from headrace.tools.workers import PYTHON, output
from headrace.version import __version__

_HEADERS: Final = {
    "User-Agent": f"headrace/{__version__}",
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}
_TEXT: Final = re.compile(r"text/|application/([\w.-]+\+)?(json|xml|yaml|javascript|toml|x-ndjson)$")
_META_CHARSET: Final = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_SLOW_CODECS: Final = frozenset({"punycode", "idna"})
"""No page is written in these, and decoding them takes quadratic time."""


class _Page(NamedTuple):
    url: URL
    status: int
    kind: str
    """Its media type."""
    charset: str
    data: bytes
    note: str
    """Why it is not whole; "" if it is."""


class WebFetch(Stateless):
    spec = described(
        "web_fetch",
        "Fetch one page of the public web by its http or https address, as text: HTML as Markdown with its links.",
        url={"type": "string", "description": "The whole address."},
    )
    only_reads = True

    def __init__(self, *, private: bool = False) -> None:
        """`private`: whether addresses that are not public may be fetched: this machine, this network."""
        self._private = private

    def touches(self, arguments: Mapping[str, Any]) -> Touch:
        return Touch("fetch", arguments["url"])

    @answering
    async def run(self, arguments: Mapping[str, Any], run: ToolRun) -> ToolResult:
        page = await _fetched(_looked_at(arguments["url"]), Gate(private=self._private), run.clock)
        text = await _text(page, run.clock)
        head = str(page.url) if page.status == 200 else f"{page.url} (status {page.status})"
        notes = [page.note] if page.note else []
        if len(text) > FETCH_TEXT_MAX_CHARS:
            notes.append(f"[{len(text) - FETCH_TEXT_MAX_CHARS:,} more characters of the page are left out]")
        shown = "\n".join([head, "", text[:FETCH_TEXT_MAX_CHARS], *notes])
        return ToolResult(shown, page.status < 400, f"{head}: {len(page.data):,} bytes")


# --- the address


def _looked_at(text: str) -> URL:
    """An address that may be requested; what it resolves to is looked at later."""
    if len(text) > FETCH_URL_MAX_CHARS:
        raise Refused(f"The address is longer than {FETCH_URL_MAX_CHARS} characters.")
    try:
        url = URL(text.strip())
        port = url.port
    except ValueError as error:
        raise Refused(
            f"That is not a web address ({error}). Give one such as https://example.org/page"
        ) from error
    if url.scheme not in ("http", "https"):
        raise Refused("Only http and https addresses are fetched, such as https://example.org/page")
    if not url.host or not port:
        raise Refused("The address names no host. Give one such as https://example.org/page")
    if url.user is not None or url.password is not None:
        raise Refused("An address with a user name or a password in it is not fetched.")
    return url.with_fragment(None)


# --- the request


async def _fetched(url: URL, gate: Gate, clock: Clock) -> _Page:
    connector = aiohttp.TCPConnector(socket_factory=gate, force_close=True, use_dns_cache=False)
    session = aiohttp.ClientSession(
        connector=connector,
        headers=_HEADERS,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        trust_env=False,
    )
    try:
        return await _followed(session, url, clock)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if gate.refused:
            message = (
                f"{gate.refused} is not a public address; pages of this machine or network are not fetched."
            )
            raise Refused(message) from error
        raise Refused(f"It could not be fetched: {str(error) or type(error).__name__}") from error
    finally:
        await session.close()
        await asyncio.sleep(0)  # sockets close in the loop's next step


async def _followed(session: aiohttp.ClientSession, url: URL, clock: Clock) -> _Page:
    until = clock.monotonic() + FETCH_S
    for _ in range(FETCH_REDIRECTS_MOST + 1):
        try:
            async with clock.timeout(max(0.0, until - clock.monotonic())):
                response = await session.get(url, allow_redirects=False)
        except TimeoutError:
            raise Refused(f"{url.host} did not answer within {FETCH_S:.0f} s.") from None
        try:
            target = response.headers.get("Location", "")
            if response.status not in _REDIRECTS or not target:
                return await _page(response, url, clock, until)
        finally:
            response.close()
        url = _looked_at(str(url.join(URL(target))))
    raise Refused(f"It redirects more than {FETCH_REDIRECTS_MOST} times, last to {url}")


async def _page(response: aiohttp.ClientResponse, url: URL, clock: Clock, until: float) -> _Page:
    kind = response.content_type.lower()
    note = ""
    body = _Body(response.headers.get("Content-Encoding", "").lower())
    if "html" in kind or _TEXT.match(kind):
        try:
            async with clock.timeout(max(0.0, until - clock.monotonic())):
                await body.read(response.content)
        except TimeoutError:
            note = f"[the page had not come whole after {FETCH_S:.0f} s]"
        if body.full:
            note = f"[the page is longer than {FETCH_MAX_BYTES:,} bytes; the rest was not read]"
    return _Page(url, response.status, kind, response.charset or "", bytes(body.data), note)


class _Body:
    """What of a body has come, unpacked, up to the bound."""

    def __init__(self, encoding: str) -> None:
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise Refused(f"The page came packed as {encoding[:40]!r}, which was not asked for.")
        self._packed = encoding not in ("", "identity")
        self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, whichever it is
        self.data = bytearray()

    @property
    def full(self) -> bool:
        return len(self.data) > FETCH_MAX_BYTES

    async def read(self, content: aiohttp.StreamReader) -> None:
        while not self.full and (piece := await content.readany()):
            if not self._packed:
                self.data += piece
                continue
            try:
                self.data += self._unpack.decompress(piece, FETCH_MAX_BYTES + 1 - len(self.data))
            except zlib.error as error:
                raise Refused(f"The page cannot be unpacked: {error}") from error


# --- the text


async def _text(page: _Page, clock: Clock) -> str:
    if not ("html" in page.kind or _TEXT.match(page.kind)):
        return f"[it is {page.kind}, not text]"
    text = _decoded(page)
    if "html" not in page.kind:
        return text
    given = f"{page.url}\0{text}".encode(errors="replace")
    made = await output(
        [*PYTHON, pages.__file__], given, clock=clock, within_s=FETCH_READING_S, most_bytes=FETCH_MAX_BYTES
    )
    if made.late or made.status not in (0, None):
        raise Refused("The page is made so that it cannot be read in a reasonable time.")
    return made.data.decode(errors="replace").strip() or "[the page holds no text]"


def _decoded(page: _Page) -> str:
    data = page.data[:FETCH_MAX_BYTES]
    found = _META_CHARSET.search(data[:2048]) if "html" in page.kind else None
    for name in (page.charset, found[1].decode() if found else ""):
        with contextlib.suppress(LookupError, UnicodeError):
            if name and codecs.lookup(name).name not in _SLOW_CODECS:
                return data.decode(name, errors="replace")
    return data.decode("utf-8-sig", errors="replace")
