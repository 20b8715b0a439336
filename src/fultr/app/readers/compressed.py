"""Files compressed with gzip: read as what they are within."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from typing import BinaryIO

from fultr.app.readers import MOST_TEXT, Part, Unreadable, format_of, reader_of

_MOST = 4 * MOST_TEXT  # bytes that are unpacked, however large the file would become
_MOST_WHOLE = 32_000_000  # likewise, of formats that can only be read as a whole


def read(file: BinaryIO, name: str) -> Iterator[Part]:
    """The documents of the file within."""
    inner = name[: -len(".gz")]
    reader = format_of(inner).reader
    whole = reader in ("pdf", "office")
    with gzip.GzipFile(fileobj=file) as unpacked:
        start = unpacked.read(_MOST_WHOLE if whole else _MOST)
        if whole and unpacked.read(1):
            raise Unreadable(f"is too large: more than {_MOST_WHOLE / 1e6:.0f} MB within")
    yield from reader_of(reader)(io.BytesIO(start), inner)
