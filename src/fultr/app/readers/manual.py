"""Manual pages: their text without the formatting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from fultr.app.readers import MOST_TEXT, Part
from fultr.app.readers.plain import decoded

_COMMENT = re.compile(r"^[.']\\\".*$", re.MULTILINE)
_REQUEST = re.compile(r"^[.']\s*[A-Za-z]{1,3}\b ?", re.MULTILINE)
_ESCAPE = re.compile(r"\\(?:f(?:\[[^\]]*\]|\(..|.)|s[-+]?\d|\[[^\]]*\]|\(..|[&|^cd%:])")
_NAME = re.compile(r"^\.(?:SH|Sh)\s+\"?NAME\"?\s*\n((?:.*\n){1,4}?)(?=\.(?:SH|Sh)\b)", re.MULTILINE)


def read(file: BinaryIO, name: str) -> Iterator[Part]:
    """One document; its title is the line of the section "NAME"."""
    source = _COMMENT.sub("", decoded(file.read(MOST_TEXT * 4)))
    found = _NAME.search(source)
    yield Part("note", " ".join(_plain(found[1]).split())[:200] if found else "", _plain(source)[:MOST_TEXT])


def _plain(source: str) -> str:
    return _ESCAPE.sub("", _REQUEST.sub("", source)).replace("\\-", "-").replace("\\e", "\\")
