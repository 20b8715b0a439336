"""TianGong-ST: sessions of a Chinese search engine (Chen et al. 2019), an XML file.

A `session` has `interaction`s: a `query_id`, `results` with a `result rank="1"` each that has a `docid`, and `clicked`
with a `click` each that has a `rank`. There are no users: a session is one person's, and stands for one.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any
from xml.parsers import expat

from fultr.clicks.file_tables import FileTable
from fultr.clicks.published.pages import PagesRead
from fultr.core.errors import FultrError

_BLOCK_BYTES = 1 << 20
_LONGEST = 1000  # characters of an id


def is_xml(text: mmap.mmap) -> bool:
    """Does a file begin as XML does?"""
    return text[:64].removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<")


def read_tiangong(path: Path, text: mmap.mmap) -> FileTable:
    """The pages of such a log."""
    reader = _Reader(path)
    try:
        for begin in range(0, len(text), _BLOCK_BYTES):
            block = text[begin : begin + _BLOCK_BYTES]
            reader.parser.Parse(block, begin + len(block) == len(text))
    except (expat.ExpatError, ValueError) as error:
        line = reader.parser.CurrentLineNumber
        raise FultrError(f"{path}, line {line}: expected XML of TianGong-ST: {str(error)[:80]}") from None
    return reader.pages.table()


class _Reader:
    """What is known of the session and the page under way; expat calls the methods."""

    def __init__(self, path: Path) -> None:
        self.pages = PagesRead(path)
        self.parser: Any = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._data
        self.parser.StartDoctypeDeclHandler = self._refuse  # no entities: they can grow without bound
        self._path, self._session, self._text = path, "", ""
        self._place: list[str] = []
        self._clear()

    def _clear(self) -> None:
        self._query, self._rank, self._line = "", "", 0
        self._shown: dict[int, str] = {}
        self._clicked: list[int] = []

    def _refuse(self, *_: object) -> None:
        raise ValueError("a document type, which such files have not")

    def _start(self, name: str, given: dict[str, str]) -> None:
        if len(self._place) > 50:
            raise ValueError("elements nested too deeply")
        self._place.append(name)
        self._text = ""
        if name == "session":
            self._session = given.get("num", "") or str(self.parser.CurrentLineNumber)
        elif name == "interaction":
            self._clear()
            self._line = self.parser.CurrentLineNumber
        elif name == "result":
            self._rank = given.get("rank", "")

    def _data(self, text: str) -> None:
        if len(self._text) <= _LONGEST:
            self._text += text

    def _end(self, name: str) -> None:
        self._place.pop()
        said = self._text.strip()[:_LONGEST]
        match name:
            case "query_id":
                self._query = said
            case "docid" if self._rank.strip().isdecimal() and said:
                self._shown.setdefault(min(int(self._rank[:9]), 10**6), said)
            case "rank" if "clicked" in self._place and said.isdecimal():
                self._clicked.append(int(said[:9]))
            case "interaction":
                self._page()
        self._text = ""

    def _page(self) -> None:
        last = next(rank for rank in range(1, len(self._shown) + 2) if rank not in self._shown) - 1
        if not self._query or not last:
            self.pages.leave_out("interactions without a query or a first result")
            return
        if last < len(self._shown):
            self.pages.leave_out("pages' results after a rank that is missing")
        begin = self.pages.add(self._line, self._query, self._session, [self._shown[r] for r in range(1, last + 1)])
        for rank in self._clicked:
            if 1 <= rank <= last:
                self.pages.clicks[begin + rank - 1] = 1
            else:
                self.pages.leave_out("clicks on ranks that the page did not show")
