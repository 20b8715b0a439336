"""The values an application passes to the device's log: checked, and converted to their stored form."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from time import time as current_time
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.core.checks import check_number
from fultr.core.errors import FultrError
from fultr.rankers.schema import schema_text

DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2")}
RANKS = np.dtype("<u2")


def described_features(features: Sequence[str] | int, normalised: bool = True) -> tuple[int, str]:
    """The number of features, and the stored form of their schema."""
    if not isinstance(normalised, bool):
        raise FultrError(f"normalised: expected true or false, found {normalised!r}")
    if isinstance(features, int | np.integer):
        check_number("features", features, least=1, most=100_000, whole=True)
        return int(features), schema_text(int(features), normalised)
    names = list(features)
    if isinstance(features, str) or not names or not all(isinstance(name, str) for name in names):
        raise FultrError("features: expected the number of features, or a list of their names")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FultrError(f"features: expected different names, found {twice!r} twice")
    return len(names), schema_text(names, normalised)


def query_hash(query: str | bytes | int, key: bytes) -> bytes:
    """The query's keyed hash; text, bytes and numbers are never the same query."""
    if isinstance(query, str):
        data = b"s" + query.encode("utf-8", "surrogatepass")
    elif isinstance(query, bytes):
        data = b"b" + query
    elif isinstance(query, int | np.integer) and not isinstance(query, bool):
        data = b"i%d" % int(query)
    else:
        raise FultrError(f"query: expected text, bytes or a whole number, found {type(query).__name__}")
    return hashlib.blake2b(data, key=key, digest_size=16).digest()


def feature_matrix(features: ArrayLike, width: int, dtype: str) -> NDArray[Any]:
    """[K, features] in the stored type."""
    try:
        with np.errstate(over="ignore"):
            matrix = np.ascontiguousarray(np.asarray(features), DTYPES[dtype])
    except (TypeError, ValueError):
        raise FultrError("features: expected numbers, one row per displayed document") from None
    if matrix.ndim != 2 or matrix.shape[1] != width or not len(matrix):
        raise FultrError(
            f"features: expected one row of {width} numbers per displayed document, and at least one row; "
            f"found shape {np.shape(features)}"
        )
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise FultrError(
            f"features: expected finite numbers that a {dtype} can hold, "
            f"found {np.asarray(features)[row, column]} at rank {row + 1}, feature {column + 1}"
        )
    return matrix


def checksum(time: float, query: bytes, bits: int, documents: int, other_ranks: bytes | None, features: bytes) -> int:
    """Detects damage inside a row, which SQLite itself does not."""
    begun = crc32(struct.pack("<dqq", time, bits, documents) + query)
    return crc32(features, crc32(other_ranks or b"", begun))


def click_checksum(impression: int, rank: int, time: float, batch: int) -> int:
    """The same for a click; -1 for what cannot be one."""
    try:
        return crc32(struct.pack("<qqdq", impression, rank, time, batch))
    except struct.error:
        return -1


def checked_time(time: float | None) -> float:
    """Seconds since 1970; now if None."""
    if time is None:
        return current_time()
    check_number("time", time)
    return float(time)


def checked_text(name: str, value: str) -> str:
    """Text that can be stored."""
    if not isinstance(value, str):
        raise FultrError(f"{name}: expected text, found {type(value).__name__}")
    return value.encode("utf-8", "replace").decode()  # a lone surrogate cannot be stored


def ranks_of_versions(given: ArrayLike, documents: int) -> bytes:
    """`other_ranks` of an impression."""
    ranks = np.asarray(given)
    if ranks.ndim != 2 or len(ranks) != documents or not ranks.size or ranks.dtype.kind not in "iu":
        raise FultrError(
            f"other_ranks: expected whole numbers, one row for each of the {documents} documents and one column per "
            f"version; found shape {ranks.shape} of {ranks.dtype}"
        )
    if ranks.min() < 0 or ranks.max() > np.iinfo(RANKS).max:
        raise FultrError(f"other_ranks: expected ranks from 1, or 0 for none; found {ranks.min()} to {ranks.max()}")
    if not (ranks == np.arange(1, documents + 1)[:, np.newaxis]).all(axis=0).any():
        raise FultrError("other_ranks: expected one version to rank the documents 1, 2, ... as displayed")
    return ranks.astype(RANKS).tobytes()
