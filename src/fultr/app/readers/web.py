"""Web pages: what a reader would see, as text. Nothing in a page is run or fetched."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import BinaryIO

from fultr.app.readers import MOST_TEXT, Part
from fultr.app.readers.plain import decoded

_HIDDEN = {"script", "style", "template", "noscript", "svg", "head"}
_INLINE = {
    "a",
    "abbr",
    "b",
    "code",
    "em",
    "i",
    "kbd",
    "mark",
    "q",
    "s",
    "small",
    "span",
    "strong",
    "sub",
    "sup",
    "u",
    "tt",
}


def read(file: BinaryIO, name: str) -> Iterator[Part]:
    """One document with the page's title."""
    text, title = text_of_html(decoded(file.read(MOST_TEXT * 8)[: MOST_TEXT * 4]))
    yield Part("page", title, text)


def text_of_html(source: str) -> tuple[str, str]:
    r"""The visible text of a page, and its title.

    >>> text_of_html("<title>Plans</title><script>run()</script><p>For <b>May</b></p><p>and June")
    ('For May\nand June', 'Plans')
    """
    page = _Page()
    page.feed(source)
    page.close()
    lines = (" ".join(line.split()) for line in "".join(page.text).split("\n"))
    return "\n".join(line for line in lines if line)[:MOST_TEXT], " ".join("".join(page.title).split())[:200]


class _Page(HTMLParser):
    """Collects the text outside of what is hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.title: list[str] = []
        self._hidden = ""  # the element that hides what is within it
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = True
        elif tag == "body":
            self._hidden = ""
        elif tag in _HIDDEN and not self._hidden:
            self._hidden = tag
        if tag not in _INLINE:
            self.text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if tag == self._hidden:
            self._hidden = ""
        if tag not in _INLINE:
            self.text.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._hidden:
            self.text.append(data.replace("\n", " "))
