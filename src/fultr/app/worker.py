"""The process that reads files for the index: what a damaged or hostile file does to it, it does to nothing else.

It is given paths on its standard input and answers on its standard output, in messages of JSON, each after its length.
It has limits of memory and time; where it dies or hangs, the index starts another, and says so of the file.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

from fultr.app.crawl import Stamp, open_plain, stamp_of
from fultr.app.readers import Part, Unreadable, format_of, reader_of
from fultr.core.system import limit_this_process

MEMORY = 1_500_000_000
"""Bytes that a reading process may take; Windows does not hold it to that."""

SECONDS = 60.0
"""In which a file has to be read, or the next documents of a mailbox."""

_AT_ONCE = 50  # messages of a mailbox in one message to the index
_NICE = 10
_LENGTH = struct.Struct("<I")


def main() -> None:
    """Answer until the other end is closed."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing else is written where answers go
    questions = os.fdopen(os.dup(0), "rb")
    limit_this_process(MEMORY, _NICE)
    sys.setrecursionlimit(2000)
    warnings.simplefilter("ignore")
    while (asked := receive(questions)) is not None:
        for answer in answers(os.fsdecode(asked)):
            send(out, json.dumps(answer).encode("ascii"))


def send(pipe: IO[bytes], message: bytes) -> None:
    """Write a message, after its length: pipes alone do this on every system."""
    pipe.write(_LENGTH.pack(len(message)) + message)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """The next message; None if the other end is closed, or was in the middle of one."""
    try:
        head = pipe.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack(head)
        message = pipe.read(length)
    except (OSError, ValueError):
        return None
    return message if len(message) == length else None


def answers(path: str) -> Iterator[dict[str, Any]]:
    """What is sent for a file: its documents, some at a time; then its stamp, or why it cannot be read."""
    try:
        with open_plain(path) as file:
            found = stamp_of(os.fstat(file.fileno()))  # before reading: a change meanwhile is noticed by the next look
            format_ = format_of(path)
            if found.size > format_.largest * 1_000_000:
                raise Unreadable(f"is too large: {found.size / 1e6:,.0f} MB, and the limit is {format_.largest}")
            parts = reader_of(format_.reader)(file, path)
            while some := list(islice(parts, 1 if found.size < 1_000_000 and format_.kind != "mail" else _AT_ONCE)):
                yield {"parts": [_plain(part) for part in some]}
        yield {"stamp": found}
    except Unreadable as error:
        yield {"problem": str(error)}
    except MemoryError:
        yield {"problem": f"needs more than {MEMORY / 1e9:.1f} GB to read"}
    except OSError as error:
        yield {"problem": f"cannot be read: {error.strerror or error}"}
    except Exception as error:  # libraries fail on damaged files in ways of their own
        yield {"problem": f"is damaged: {type(error).__name__}: {' '.join(str(error).split())[:120]}"}


def _plain(part: Part) -> Part:
    """Without what is no character, so that it can be sent and stored."""
    return part._replace(title=_clean(part.title), text=_clean(part.text))


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")


def parts_of(answer: dict[str, Any]) -> list[Part]:
    """The documents of an answer."""
    return [Part(*part) for part in answer.get("parts", ())]


def stamp_in(answer: dict[str, Any]) -> Stamp | None:
    """The stamp of an answer that ends a file."""
    return Stamp(*answer["stamp"]) if "stamp" in answer else None


if __name__ == "__main__":
    main()
