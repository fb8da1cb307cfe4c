"""A project's page on a package index, in either form of the simple API: what files there are, and their hashes."""

import posixpath
from html.parser import HTMLParser
from typing import Final, NamedTuple
from urllib.parse import parse_qs, unquote, urldefrag, urljoin, urlsplit

import msgspec
from yarl import URL

from headrace.providers.embedded.weights.failures import SourceFailed
from headrace.providers.embedded.weights.transfer import Page

ACCEPT: Final = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
)


class Link(NamedTuple):
    file: str
    url: str
    sha256: str
    """Empty where the index gives none."""


class _File(msgspec.Struct):
    filename: str
    url: str
    hashes: dict[str, str] = {}


class _Project(msgspec.Struct):
    files: list[_File]


def links(page: Page) -> list[Link]:
    """Raises SourceFailed if it is no such page."""
    if page.kind.endswith("json"):
        try:
            project = msgspec.json.decode(page.data, type=_Project)
        except msgspec.MsgspecError as error:
            raise SourceFailed(f"its page cannot be read ({error})") from error
        return [
            Link(file.filename, url, file.hashes.get("sha256", ""))
            for file in project.files
            if (url := _joined(page.url, file.url))
        ]
    anchors = _Anchors(page.url)
    anchors.feed(page.data.decode(errors="replace"))
    anchors.close()
    return anchors.found


class _Anchors(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._base = url
        self.found: list[Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = dict(attrs).get("href")
        if not target:
            return
        if tag == "base":
            self._base = _joined(self._base, target) or self._base
        if tag == "a":
            url, fragment = urldefrag(_joined(self._base, target))
            file = unquote(posixpath.basename(urlsplit(url).path))
            self.found.append(Link(file, url, parse_qs(fragment).get("sha256", [""])[0]))


def _joined(base: str, target: str) -> str:
    """Where a link leads; empty if it is no address."""
    try:
        return str(URL(urljoin(base, target), encoded=True))
    except ValueError:
        return ""
