"""Office documents (docx, xlsx, pptx and OpenDocument): zipped XML, of which only the text is taken."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl

from defusedxml.sax import parse  # refuses entities, which can grow without end

from fultr.app.readers import MOST_TEXT, Part, Unreadable

_CONTENT = re.compile(
    r"word/(?:document|footnotes|endnotes|comments)\.xml|xl/sharedStrings\.xml|xl/worksheets/sheet\d+\.xml"
    r"|ppt/(?:slides|notesSlides)/\w+\.xml|content\.xml"
)
_HOLDS_TEXT = {"w:t", "a:t", "t", "v", "text:p", "text:h"}
_ENDS_LINE = {"w:p", "a:p", "si", "row", "text:p", "text:h", "w:br", "w:tab", "text:line-break", "text:tab"}
_ENDS_WORD = {"v", "text:s"}
_TITLES = {"docProps/core.xml": "dc:title", "meta.xml": "dc:title"}
_MOST_MEMBERS, _MOST_XML = 2000, 64 * 1024**2


def read(file: BinaryIO, name: str) -> Iterator[Part]:
    """One document: all paragraphs, cells, slides and notes, and the title that it gives itself."""
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile:
        raise Unreadable("is damaged: not an Office document") from None
    with archive:
        members = archive.infolist()
        if len(members) > _MOST_MEMBERS:
            raise Unreadable(f"has {len(members):,} members")
        content = sorted((member for member in members if _CONTENT.fullmatch(member.filename)), key=_order)
        if not content:
            raise Unreadable("is damaged: holds no document")
        text = _Text(_HOLDS_TEXT)
        for member in content:
            _parse(archive, member, text)
        title = _Text(set(_TITLES.values()))
        for member in members:
            if member.filename in _TITLES:
                _parse(archive, member, title)
        yield Part("document", " ".join(str(title).split())[:200], str(text))


def _order(member: zipfile.ZipInfo) -> tuple[str, int]:
    """slide2 before slide10."""
    number = re.search(r"(\d+)\.xml$", member.filename)
    return re.sub(r"\d+", "", member.filename), int(number[1]) if number else 0


def _parse(archive: zipfile.ZipFile, member: zipfile.ZipInfo, handler: _Text) -> None:
    if member.file_size > _MOST_XML:
        raise Unreadable(f"holds {member.filename} of {member.file_size / 1e6:.0f} MB")
    with suppress(_Enough), archive.open(member) as stream:
        parse(stream, handler)


class _Enough(Exception):  # noqa: N818
    """There is as much text as is indexed."""


class _Text(ContentHandler):
    """Collects what stands within some elements."""

    def __init__(self, holds_text: set[str]) -> None:
        super().__init__()
        self._holds_text = holds_text
        self._pieces: list[str] = []
        self._length = 0
        self._within = 0
        self._shared = False  # a cell with the number of a string that stands elsewhere

    def __str__(self) -> str:
        return re.sub(r"[ \t]*\n\s*", "\n", "".join(self._pieces)).strip()[:MOST_TEXT]

    def startElement(self, name: str, attrs: AttributesImpl) -> None:  # noqa: N802
        self._within += name in self._holds_text
        if name == "c":
            self._shared = attrs.get("t") == "s"

    def endElement(self, name: str) -> None:  # noqa: N802
        self._within -= name in self._holds_text
        if name in _ENDS_LINE:
            self._pieces.append("\n")
        elif name in _ENDS_WORD:
            self._pieces.append(" ")

    def characters(self, content: str) -> None:
        if not self._within or self._shared:
            return
        self._pieces.append(content)
        self._length += len(content)
        if self._length > MOST_TEXT:
            raise _Enough
