"""Readers: one file a format, each a function from an open file to its documents.

A reader gets the open file and its name, and yields `Part`s: one for most formats, one a message for mailboxes. It
reads no more than it needs, and raises `Unreadable`, or whatever its library raises, for a damaged file: the process
that it runs in (`fultr.app.worker`) has limits of memory and time, and turns that into one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import PurePath
from typing import BinaryIO, NamedTuple, TypeAlias

MOST_TEXT = 200_000
"""Characters of a document that are indexed."""

KINDS = {
    "document": "PDF and Office documents",
    "note": "Text and Markdown",
    "page": "Web pages",
    "mail": "Mail",
    "code": "Source code",
    "data": "Tables, settings and logs",
    "other": "Everything else, by name only",
}
"""Kinds of documents, as the page's filter shows them."""


class Part(NamedTuple):
    """A document in a file.

    Attributes:
        kind: one of `KINDS`.
        title: empty if it has none.
        text: at most `MOST_TEXT` characters.
        time: when it was written, in seconds since 1970, if the document says so.
    """

    kind: str
    title: str
    text: str
    time: float | None = None


Reader: TypeAlias = Callable[[BinaryIO, str], Iterator[Part]]


class Unreadable(Exception):  # noqa: N818
    """Why a file is not indexed by its content, in words."""


class Format(NamedTuple):
    """How files of some endings are read.

    Attributes:
        reader: the module of its reader.
        kind: of documents.
        largest: megabytes; a larger file is indexed by name only.
    """

    reader: str
    kind: str
    largest: int


FORMATS = {
    "txt text org rst adoc tex bib srt vtt": Format("plain", "note", 64),
    "md markdown mdown mkd": Format("plain", "note", 64),
    "html htm xhtml": Format("web", "page", 64),
    "pdf": Format("pdf", "document", 100),
    "docx docm dotx xlsx xlsm pptx pptm odt ods odp odg": Format("office", "document", 100),
    "eml": Format("mail", "mail", 100),
    "mbox mbx": Format("mail", "mail", 4000),
    "py pyi pyx c h cc cpp cxx hpp hh java js mjs cjs ts tsx jsx rs go rb php pl pm sh bash zsh fish lua r jl swift kt "
    "scala clj hs ml el lisp sql css scss less vue f90 f m mm cs vb asm s cmake make mk gradle ps1 bat proto tcl "
    "awk sed vim nix zig dart ex exs erl": Format("plain", "code", 16),
    "csv tsv json jsonl yaml yml toml ini cfg conf xml log properties plist env lock": Format("plain", "data", 64),
    "1 2 3 4 5 6 7 8 1ssl 3ssl 3pm 3perl 7ssl": Format("manual", "note", 16),
}
"""The endings of names, and how such files are read."""

_BY_ENDING = {f".{ending}": format_ for endings, format_ in FORMATS.items() for ending in endings.split()}
_UNKNOWN = Format("unknown", "other", 64)


def format_of(path: str) -> Format:
    """How a file is read, by its name, and for mail by its folder: a Maildir's messages have no ending.

    >>> format_of("/notes/Plan.MD").kind, format_of("/Maildir/cur/1.host:2,S").kind, format_of("/a.jpg").kind
    ('note', 'mail', 'other')
    """
    pure = PurePath(path)
    if pure.parent.name in ("cur", "new"):
        return _BY_ENDING[".eml"]
    name = pure.name.lower()
    if name.endswith(".gz"):  # manual pages and changelogs, as systems keep them
        inner = _BY_ENDING.get(PurePath(name[:-3]).suffix, _UNKNOWN)
        return Format("compressed", inner.kind, 16)
    return _BY_ENDING.get(PurePath(name).suffix, _UNKNOWN)


def reader_of(name: str) -> Reader:
    """The function `read` of a reader's module, imported now."""
    read: Reader = import_module(f"fultr.app.readers.{name}").read
    return read
