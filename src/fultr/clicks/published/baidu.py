"""Baidu-ULTR as the University of Amsterdam publishes it (Hager et al. 2024): a Parquet or Feather file.

A row is a page: `query_id`, `query_md5` (of the query's text: the query here, where there is one), and lists of
`url_md5`, `click`, `position` and `query_document_embedding`, the features. There are no users.
"""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fultr.clicks.file_tables import FileTable
from fultr.core.arrays import Int64s
from fultr.core.errors import FultrError

COLUMNS = ("query_id", "query_md5", "url_md5", "click", "position", "query_document_embedding")


def is_baidu(names: list[str]) -> bool:
    """Are these the columns of such a log?

    >>> is_baidu(["query_id", "url_md5", "click", "position"]), is_baidu(["query", "documents", "clicks"])
    (True, False)
    """
    return {"url_md5", "click"} <= set(names) and bool({"query_id", "query_md5"} & set(names))


def pages_of_baidu(table: FileTable) -> FileTable:
    """The same with the columns of a click log; a page ends before the first position that is missing."""
    columns: dict[str, pa.Array] = {
        name: _list(table, name) for name in ("url_md5", "click", "position") if name in table.columns
    }
    lengths = columns["url_md5"].value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    for name, column in columns.items():
        other = column.value_lengths().to_numpy(zero_copy_only=False)
        table.wrong(other != lengths, f"as many values in {name} as in url_md5", lambda row, o=other: o[row])
    order, kept = _by_position(table, columns, lengths)
    offsets = pa.array(np.r_[0, np.cumsum(kept)].astype(np.int32))
    taken = pa.array(order)
    clicks = table.cast("click", columns["click"].flatten(), pa.float64())
    query = table.columns["query_md5" if "query_md5" in table.columns else "query_id"]
    found = {
        "query": query,
        "documents": pa.ListArray.from_arrays(offsets, columns["url_md5"].flatten().take(taken)),
        "clicks": pa.ListArray.from_arrays(offsets, pc.greater(clicks, 0).take(taken)),
    }
    if "query_document_embedding" in table.columns:
        vectors = _list(table, "query_document_embedding")
        other = vectors.value_lengths().to_numpy(zero_copy_only=False)
        table.wrong(other != lengths, "an embedding of each document", lambda row: other[row])
        found["features"] = pa.ListArray.from_arrays(offsets, _vectors(table, vectors.flatten()).take(taken))
    whole = np.flatnonzero(kept > 0)
    if whole.size < kept.size:
        found = {name: column.take(pa.array(whole)) for name, column in found.items()}
    left = int(lengths.sum() - kept.sum())
    if left:
        said = f"{left:,} of {lengths.sum():,} documents, at or after a position that is missing on their page"
        warnings.warn(f"{table.path}: left out: {said}", stacklevel=4)
    if not whole.size:
        raise FultrError(f"{table.path}: expected pages from position 1, found none")
    return FileTable(table.path, found, table.numbers[whole], table.word)


def _list(table: FileTable, name: str) -> pa.Array:
    column = table.columns[name]
    if pa.types.is_fixed_size_list(column.type) or pa.types.is_large_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    if not pa.types.is_list(column.type):
        raise FultrError(f"{table.path}: expected lists in column {name}, found {str(column.type)[:60]!r}")
    return column


def _vectors(table: FileTable, vectors: pa.Array) -> pa.Array:
    """Lists of float32, which Arrow can compute with as it cannot with float16."""
    if pa.types.is_fixed_size_list(vectors.type):
        vectors = vectors.cast(pa.list_(vectors.type.value_type))
    if not pa.types.is_list(vectors.type):
        raise FultrError(f"{table.path}: expected lists of numbers as embeddings, found {str(vectors.type)[:60]!r}")
    offsets = pc.subtract(vectors.offsets, vectors.offsets[0]) if len(vectors.offsets) else vectors.offsets
    return pa.ListArray.from_arrays(offsets, table.cast("query_document_embedding", vectors.flatten(), pa.float32()))


def _by_position(table: FileTable, columns: dict[str, pa.Array], lengths: Int64s) -> tuple[Int64s, Int64s]:
    """Documents in the order of their pages and positions, up to the first gap, and how many each page keeps."""
    page = np.repeat(np.arange(lengths.size), lengths)
    begins = np.r_[0, np.cumsum(lengths)[:-1]]
    if "position" not in columns:
        return np.arange(page.size), lengths
    position = table.cast("position", columns["position"].flatten(), pa.float64()).to_numpy(zero_copy_only=False)
    order = np.lexsort((position, page))
    expected = np.arange(page.size) - np.repeat(begins, lengths) + 1
    good = position[order] == expected
    first_bad = np.full(lengths.size, np.iinfo(np.int64).max)
    np.minimum.at(first_bad, page[~good], expected[~good])
    kept = expected < np.repeat(first_bad, lengths)
    return order[kept], np.bincount(page[kept], minlength=lengths.size)
