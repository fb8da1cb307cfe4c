"""The readable text of a web page: headings, paragraphs, links, lists, tables and code, as plain Markdown.

Theory of operation. This file is a program too (it imports nothing but the standard library): a base address, a zero
byte and the page come in, the text goes out. It is run as one because the parser can be made slow by a page that is
made for it. The parser's events drive a small writer, which knows three things: the block it is in, how deep the lists
are, and whether white space counts. What is not for reading is passed over: scripts, styles, forms' controls, and also
navigation and footers, unless without them next to nothing is left.
"""

import re
import sys
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin

_NEVER: Final = frozenset(
    "script style noscript template svg math canvas iframe object select textarea button".split()  # noqa: SIM905
)
_AROUND: Final = frozenset({"nav", "footer", "aside"})
_BLOCKS: Final = frozenset(
    [
        "address",
        "article",
        "blockquote",
        "center",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hr",
        "main",
        "nav",
        "aside",
        "p",
        "section",
        "summary",
        "table",
        "tbody",
        "tfoot",
        "thead",
    ]
)
_HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
_VOID: Final = frozenset("area base br col embed hr img input link meta source track wbr".split())  # noqa: SIM905
_NEXT_TO_NOTHING_CHARS: Final = 200


class Writer(HTMLParser):
    """Turns one page into text."""

    def __init__(self, base: str, passed_over: frozenset[str]) -> None:
        super().__init__(convert_charrefs=True)
        self._base = base
        self._passed_over = passed_over
        self._passing: list[str] = []
        self._out: list[str] = []
        self._line = ""
        self._lists: list[int | None] = []
        self._pre = 0
        self._link = ""
        self._link_from = 0
        self._in_title = False
        self.title = ""

    def text(self) -> str:
        self._break()
        return re.sub(r"\n{3,}", "\n\n", "".join(self._out)).strip()

    # --- events

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self.title:
            self._in_title = True
        if tag == "body":
            self._passing.clear()  # a head that was never closed
        if tag in self._passed_over and tag not in _VOID:
            self._passing.append(tag)
        if not self._passing:
            self._open(tag, dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if tag in self._passing:
            del self._passing[self._passing.index(tag) :]
        elif not self._passing:
            self._close(tag)

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title = " ".join(f"{self.title}{data}".split())
        elif self._passing:
            return
        elif self._pre:
            self._out.append(data)
        else:
            self._say(data)

    # --- writing

    def _open(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag in _HEADINGS:
            self._paragraph()
            self._line = f"{_HEADINGS[tag]} "
        elif tag == "li":
            self._item()
        elif tag in ("ul", "ol"):
            self._break() if self._lists else self._paragraph()
            self._lists.append(1 if tag == "ol" else None)
        elif tag == "pre":
            self._paragraph()
            self._pre += 1
            self._out.append("```\n")
        elif tag in ("code", "kbd", "samp") and not self._pre:
            self._line += "`"
        elif tag in ("br", "tr"):
            self._break()
        elif tag in ("td", "th"):
            self._line += " | " if self._line.strip() else ""
        elif tag == "a":
            self._link = self._address(attributes.get("href") or "")
            self._link_from = len(self._line)
        elif tag in _BLOCKS:
            self._paragraph()

    def _close(self, tag: str) -> None:
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
            self._break() if self._lists else self._paragraph()
        elif tag == "pre" and self._pre:
            self._pre -= 1
            self._out.append("\n```\n\n")
        elif tag in ("code", "kbd", "samp") and not self._pre:
            self._line += "`"
        elif tag == "a":
            self._close_link()
        elif tag in _HEADINGS or tag in _BLOCKS:
            self._paragraph()

    def _say(self, data: str) -> None:
        words = re.sub(r"\s+", " ", data)
        if not self._line or self._line.endswith(" "):
            words = words.lstrip()
        self._line += words

    def _item(self) -> None:
        self._break()
        indent = "  " * max(0, len(self._lists) - 1)
        number = self._lists[-1] if self._lists else None
        if number is not None:
            self._lists[-1] = number + 1
        self._line = f"{indent}- " if number is None else f"{indent}{number}. "

    def _close_link(self) -> None:
        text = self._line[self._link_from :].strip()
        if self._link and text and text != self._link:
            self._line = f"{self._line[: self._link_from]}[{text}]({self._link})"
        self._link = ""

    def _break(self) -> None:
        self._close_link()
        self._link_from = 0
        if self._line.strip() and self._line.strip() not in ("-", "`", "``"):
            self._out.append(f"{self._line.rstrip()}\n")
        self._line = ""

    def _paragraph(self) -> None:
        self._break()
        self._out.append("\n")

    def _address(self, href: str) -> str:
        try:
            address = urljoin(self._base, href.strip())
        except ValueError:
            return ""
        return address if address.startswith(("http://", "https://")) and not href.startswith("#") else ""


def readable(page: str, base: str = "") -> tuple[str, str]:
    """The title and the text of a page."""
    writer = _written(page, base, _NEVER | _AROUND)
    text = writer.text()
    if len(text) < _NEXT_TO_NOTHING_CHARS:
        text = max(text, _written(page, base, _NEVER).text(), key=len)
    return writer.title, text


def _written(page: str, base: str, passed_over: frozenset[str]) -> Writer:
    writer = Writer(base, passed_over)
    writer.feed(page)
    writer.close()
    return writer


def main() -> None:
    base, _, page = sys.stdin.buffer.read().decode(errors="replace").partition("\0")
    title, text = readable(page, base)
    sys.stdout.buffer.write(f"{title}\n{text}".encode(errors="replace"))


if __name__ == "__main__":
    main()
