"""The process that reads files for the index: what a damaged or hostile file does to it, it does to nothing else.

It is given paths on its standard input and answers on its standard output, in messages of JSON. It has limits of memory
and time; where it dies or hangs, the index starts another, and says so of the file.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, BinaryIO

from fultr.app.crawl import Stamp, stamp_of
from fultr.app.readers import Part, Unreadable, format_of, reader_of

try:
    import resource
except ModuleNotFoundError:  # Windows, where a file that takes too much memory is not stopped
    resource = None  # type: ignore[assignment]

MEMORY = 1_500_000_000
"""Bytes that a reading process may take."""

SECONDS = 60.0
"""In which a file has to be read, or the next documents of a mailbox."""

_AT_ONCE = 50  # messages of a mailbox in one message to the index
_NICE = 10


def main() -> None:
    """Answer until the other end is closed."""
    out = Connection(os.dup(1), readable=False)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing else is written where answers go
    questions = Connection(os.dup(0), writable=False)
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(_NICE)
    sys.setrecursionlimit(2000)
    warnings.simplefilter("ignore")
    while True:
        try:
            path = os.fsdecode(questions.recv_bytes())
        except (EOFError, OSError):
            return
        for answer in answers(path):
            out.send_bytes(json.dumps(answer).encode("ascii"))


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


def open_plain(path: str) -> BinaryIO:
    """A regular file that is where it says: no link, neither the file nor a folder above it; no pipe or device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode) or os.path.realpath(path) != path:
        file.close()
        raise Unreadable("is not a plain file")
    return file


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
