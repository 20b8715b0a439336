"""Ids of queries, users and documents: one text for each, whatever it is held in, and a number made of it.

A table says 7, 7.0 or "7" of the same query, a file has texts alone, and the numbers that a log gives to its queries
depend on which of these it was made from.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.core.arrays import UInt64s

_WHOLE = re.compile(r"(-?\d+)\.0+")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T]00:00:00(?:\.0+)?|[ T](\d\d:\d\d:\d\d)(\.\d*?)?0*)")


def text_of(name: Any) -> str:
    """An id as text; whole numbers and times have one text each, of whatever type they are.

    >>> text_of(7), text_of(7.0), text_of("7.0"), text_of(b"7"), text_of("d7.0")
    ('7', '7', '7', '7', 'd7.0')
    >>> text_of(datetime(2024, 1, 31)), text_of("2024-01-31T00:00:00.000"), text_of("2024-01-31 12:30:00.500")
    ('2024-01-31', '2024-01-31', '2024-01-31 12:30:00.5')
    """
    if isinstance(name, bytes):
        return text_of(name.decode("utf-8", "surrogateescape"))
    if isinstance(name, datetime) and name.tzinfo is not None:
        return f"{text_of(name.astimezone(UTC).replace(tzinfo=None))}Z"
    if isinstance(name, float) and name.is_integer():
        return str(int(name))
    text = str(name)
    if "." in text and (found := _WHOLE.fullmatch(text)):
        return found[1]
    if ":" in text and (found := _TIME.fullmatch(text.removesuffix("Z"))):
        day, time, part = found.groups()
        return (day if time is None else f"{day} {time}{(part or '').rstrip('.')}") + "Z" * text.endswith("Z")
    return text


def digests_of(names: NDArray[Any]) -> UInt64s:
    """A number for each id, the same wherever it occurs, and another one, in practice, for all others."""
    known: dict[str, int] = {}
    values = np.datetime_as_string(names) if names.dtype.kind == "M" else names
    found = np.empty(names.size, np.uint64)
    for i, name in enumerate(values.tolist()):
        text = text_of(name)
        if text not in known:
            known[text] = digest_of(text)
        found[i] = known[text]
    return found


def digest_of(text: str) -> int:
    """A text as a number of 64 bits."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def mixed(values: UInt64s) -> UInt64s:
    """Every bit of a number depends on all of its bits: the last steps of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
