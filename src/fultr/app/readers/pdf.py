"""PDF documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from pypdf import PdfReader

from fultr.app.readers import MOST_TEXT, Part, Unreadable

_MOST_PAGES = 500


def read(file: BinaryIO, name: str) -> Iterator[Part]:
    """One document: the text of its first pages, and the title that it gives itself."""
    document = PdfReader(file, strict=False)
    if document.is_encrypted and not document.decrypt(""):
        raise Unreadable("needs a password")
    pages, length = [], 0
    for number, page in enumerate(document.pages):
        if number == _MOST_PAGES or length > MOST_TEXT:
            break
        pages.append(page.extract_text())
        length += len(pages[-1])
    title = document.metadata.title if document.metadata else None
    yield Part("document", " ".join((title or "").split())[:200], "\n".join(pages)[:MOST_TEXT])
