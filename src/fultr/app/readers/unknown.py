"""Files whose name does not say what they are: text if they look like it, else found by name only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from fultr.app.readers import MOST_TEXT, Part, Unreadable, reader_of
from fultr.app.readers.plain import decoded, heading


def read(file: BinaryIO, name: str) -> Iterator[Part]:
    """A mailbox, a note, or a document without text."""
    start = file.read(8192)
    file.seek(0)
    if start.startswith(b"From ") and b"\nSubject:" in start:
        yield from reader_of("mail")(file, name)
        return
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(start) - 4:  # not merely cut within a character
            yield Part("other", "", "")
            return
    try:
        text = decoded(file.read(MOST_TEXT * 4))
    except Unreadable:
        yield Part("other", "", "")
        return
    yield Part("code" if text.startswith("#!") else "note", heading(text), text)
