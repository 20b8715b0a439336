"""RankingData -> LETOR text that reads back to the same bits.

Memory: the data, plus 32 MB of text.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np
from numba import njit

from fultr.core.arrays import Bools, Float32s, Int32s, Int64s, UInt8s
from fultr.core.checks import MAX_GRADE
from fultr.core.compressed import replacing
from fultr.core.errors import FultrError
from fultr.core.threads import run_chunks
from fultr.data.ranking import RankingData

_MINUS, _POINT, _ZERO, _LOWER_E = 45, 46, 48, 101
_TEN = np.uint64(10)
_POWERS = np.array([float(f"1e{i}") for i in range(60)])
_BLOCKS = 4  # formatted at a time
_BLOCK_BYTES = 8_000_000

# A value's longest text is "-1.23456789e-45"; an id's is 19 digits between a space and a colon.
_FEATURE_BYTES = 15 + 21
_HEAD_BYTES = len("30 qid:-9223372036854775808\n")


def write_letor(data: RankingData, path: str | os.PathLike[str], *, threads: int | None = None) -> None:
    """Write `label qid:N feature:value ...`, one document per line; zeros are left out.

    Reading the file gives the same labels, ids and float32 bits; a column of zeros is written once. The
    file appears complete or not at all. It is compressed if its name ends in .gz, .xz, .bz2 or .zst.

    Args:
        data: what to write; its features must be finite, its query ids distinct.
        path: the file, replaced if it exists.
        threads: how many threads format numbers; all cores if None.

    >>> import tempfile
    >>> data = RankingData.from_arrays([[0.5, 0.0], [0.0, 2.0]], labels=[0, 2], query_ids=[7, 7])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_letor(data, Path(folder, "data.txt"))
    ...     print(Path(folder, "data.txt").read_text())
    0 qid:7 1:0.5
    2 qid:7 2:2
    """
    if np.unique(data.query_ids).size != data.queries:
        raise FultrError(f"{path}: not written: expected distinct query ids")
    if data.labels.min() < 0 or data.labels.max() > MAX_GRADE:
        raise FultrError(f"{path}: not written: expected grades 0 to {MAX_GRADE}")
    texts = [f" {feature}:".encode() for feature in data.feature_ids.tolist()]
    sizes = np.array([len(text) for text in texts], np.int64)
    prefixes = np.zeros((len(texts), max(map(len, texts), default=0)), np.uint8)
    for prefix, text in zip(prefixes, texts, strict=True):
        prefix[: len(text)] = list(text)
    forced = _zero_columns(data.features)
    row_bytes = _HEAD_BYTES + _FEATURE_BYTES * data.width
    rows = max(1, _BLOCK_BYTES // row_bytes)
    buffers = [np.empty(rows * row_bytes, np.uint8) for _ in range(_BLOCKS)]
    lengths = [0] * _BLOCKS

    arrays = (data.features, data.labels, data.query_ids, data.offsets, prefixes, sizes, forced)

    def format_block(block: int, first: int) -> None:
        begin = min(first + block * rows, data.documents)
        lengths[block] = _format_rows(buffers[block], *arrays, begin, min(begin + rows, data.documents))

    with replacing(Path(path)) as file:
        for first in range(0, data.documents, rows * _BLOCKS):
            run_chunks(partial(format_block, first=first), _BLOCKS, threads)
            for buffer, length in zip(buffers, lengths, strict=True):
                if length < 0:
                    raise FultrError(f"{path}: not written: expected finite features, found NaN or infinity")
                file.write(buffer[:length].data)


@njit(nogil=True, cache=True)
def _put_whole(out: UInt8s, at: int, value: np.uint64, least: int) -> int:
    """Write a whole number with at least `least` digits; returns where it ends."""
    digits, rest = 1, value // _TEN
    while rest > 0:
        digits += 1
        rest //= _TEN
    digits = max(digits, least)
    for i in range(at + digits - 1, at - 1, -1):
        out[i] = _ZERO + value % _TEN
        value //= _TEN
    return at + digits


@njit(nogil=True, cache=True)
def _put_fraction(out: UInt8s, at: int, value: np.uint64, places: int) -> int:
    """Write a point and the given number of decimals without the zeros at the end; nothing if all are zero."""
    if value == 0:
        return at
    out[at] = _POINT
    at = _put_whole(out, at + 1, value, places)
    while out[at - 1] == _ZERO:
        at -= 1
    return at


@njit(nogil=True, cache=True)
def _put_float(out: UInt8s, at: int, value: np.float32) -> int:
    """Write a finite float32: up to six decimals if they carry it exactly, else nine significant digits."""
    if np.signbit(value):
        out[at] = _MINUS
        at += 1
    size = abs(np.float64(value))
    millionths = np.rint(size * 1e6)
    if millionths < 1e15 and np.float32(millionths / 1e6) == np.float32(size):
        million, k = np.uint64(1_000_000), np.uint64(millionths)
        return _put_fraction(out, _put_whole(out, at, k // million, 1), k % million, 6)
    # Nine digits distinguish all float32: their spacing is at most 1e-8, that of float32 at least 2**-24, and the
    # rounding errors made here are far smaller than the difference.
    exponent = int(np.floor(np.log10(size)))
    scaled = np.rint(size * _POWERS[8 - exponent] if exponent <= 8 else size / _POWERS[exponent - 8])
    if scaled >= 1e9:
        exponent += 1
        scaled = np.rint(scaled / 10)
    elif scaled < 1e8:
        exponent -= 1
        scaled = np.rint(size * _POWERS[8 - exponent] if exponent <= 8 else size / _POWERS[exponent - 8])
    unit, k = np.uint64(10**8), np.uint64(scaled)
    at = _put_fraction(out, _put_whole(out, at, k // unit, 1), k % unit, 8)
    out[at] = _LOWER_E
    at += 1
    if exponent < 0:
        out[at] = _MINUS
        at += 1
    return _put_whole(out, at, np.uint64(abs(exponent)), 1)


@njit(nogil=True, cache=True)
def _format_rows(
    out: UInt8s,
    features: Float32s,
    labels: Int32s,
    query_ids: Int64s,
    offsets: Int64s,
    prefixes: UInt8s,
    prefix_sizes: Int64s,
    forced: Bools,
    begin: int,
    end: int,
) -> int:
    """Write documents `begin` to `end` as text into `out`; returns its length, -1 if a feature is not finite.

    `out` has room for `_HEAD_BYTES` a document and `_FEATURE_BYTES` a feature; `prefixes` and `prefix_sizes` hold the
    text " id:" of each column; `forced` says which columns document 0 states even if they are zero.
    """
    query = np.searchsorted(offsets, begin, side="right") - 1
    at = 0
    for d in range(begin, end):
        while d >= offsets[query + 1]:
            query += 1
        at = _put_whole(out, at, np.uint64(labels[d]), 1)
        for letter in (32, 113, 105, 100, 58):  # " qid:"
            out[at] = letter
            at += 1
        if query_ids[query] < 0:
            out[at] = _MINUS
            at += 1
        size = np.uint64(query_ids[query])
        at = _put_whole(out, at, ~size + np.uint64(1) if query_ids[query] < 0 else size, 1)
        for f in range(features.shape[1]):
            value = features[d, f]
            if not np.isfinite(value):
                return -1
            if value == 0 and not np.signbit(value) and not (d == 0 and forced[f]):
                continue
            for i in range(prefix_sizes[f]):
                out[at + i] = prefixes[f, i]
            at = _put_float(out, at + prefix_sizes[f], value)
        out[at] = 10
        at += 1
    return at


@njit(nogil=True, cache=True)
def _zero_columns(features: Float32s) -> Bools:
    """The columns in which every value is +0."""
    zero = np.ones(features.shape[1], np.bool_)
    for d in range(features.shape[0]):
        for f in range(features.shape[1]):
            if features[d, f] != 0 or np.signbit(features[d, f]):
                zero[f] = False
    return zero
