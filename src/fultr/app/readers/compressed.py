"""Files compressed with gzip: read as what they are within."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from typing import BinaryIO

from fultr.app.readers import MOST_TEXT, Part, format_of, reader_of

_MOST = 4 * MOST_TEXT  # bytes that are unpacked, however large the file would become


def read(file: BinaryIO, name: str) -> Iterator[Part]:
    """The documents of the file within."""
    inner = name[: -len(".gz")]
    with gzip.GzipFile(fileobj=file) as unpacked:
        start = io.BytesIO(unpacked.read(_MOST))
    yield from reader_of(format_of(inner).reader)(start, inner)
