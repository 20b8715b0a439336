"""Plain text: notes, Markdown, source code, tables, settings."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO

from fultr.app.readers import MOST_TEXT, Part, Unreadable, format_of

_HEADING = re.compile(r"^(?:#{1,3}\s+(\S.*?)\s*#*|(\S.*)\n(?:={3,}|-{3,}))\s*$", re.MULTILINE)
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def read(file: BinaryIO, name: str) -> Iterator[Part]:
    """One document; its title is its first heading, if it is a note that has one."""
    text = decoded(file.read(MOST_TEXT * 4))
    kind = format_of(name).kind
    yield Part(kind, heading(text) if kind == "note" else "", text)


def decoded(data: bytes) -> str:
    """Text of unknown encoding: marked, else UTF-8, else Windows-1252; refuses what is no text."""
    encoding = next((name for mark, name in _BOMS.items() if data.startswith(mark)), None)
    if encoding is None and b"\0" in data[:8192]:
        raise Unreadable("holds no text")
    if encoding is None:
        try:
            cut = len(data) >= MOST_TEXT  # perhaps within a character
            return codecs.getincrementaldecoder("utf-8")().decode(data, final=not cut)[:MOST_TEXT]
        except UnicodeDecodeError:
            encoding = "cp1252"
    return data.decode(encoding, "replace")[:MOST_TEXT]


def heading(text: str) -> str:
    r"""The first heading among the first lines, in Markdown or underlined.

    >>> heading("a\n## Plans for May ##\nb"), heading("Plans\n=====\n"), heading("no heading")
    ('Plans for May', 'Plans', '')
    """
    found = _HEADING.search(text[:2000])
    return (found[1] or found[2] or "")[:200] if found else ""
