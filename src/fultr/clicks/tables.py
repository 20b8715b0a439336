"""Click logs as Arrow tables, and as files.

Two layouts. "rows", the usual long table: a row for each displayed document, with its session (the number of its page,
from 1), rank, click, and a column for each feature. "pages": a row for each page, with lists of documents, clicks and
features, whose names are in the name of their column unless they are f1, f2, ... `read_click_log` reads both.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fultr.clicks.any_log import click_log
from fultr.clicks.feature_names import numbered_names, title_of
from fultr.clicks.impressions import ImpressionLog
from fultr.core.arrays import Int64s
from fultr.core.checks import check_choice
from fultr.core.compressed import SUFFIXES, replacing
from fultr.core.errors import FultrError
from fultr.core.files import written_whole

Layout: TypeAlias = Literal["pages", "rows"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
_TEXT = {".tsv": "\t", ".txt": "\t", ".csv": ","}
_PARQUET = (".parquet", ".pq")
_BLOCK_NUMBERS = 1 << 22  # features that are written at a time


def table_of(
    log: ImpressionLog,
    layout: Layout = "rows",
    *,
    features: bool = True,
    more: Mapping[str, NDArray[Any]] | None = None,
) -> pa.Table:
    """A click log as an Arrow table, which pandas and polars take as it is.

    Args:
        log: the click log, or what holds one, see `fultr.click_log`.
        layout: "rows" or "pages", see above.
        features: with the documents' features, where the log has any.
        more: further columns, with a value for each page.

    >>> log = ImpressionLog.from_arrays(["a", "b"], [[7, 8], [9, -1]], [[0, 1], [1, 0]], ["ann", "bob"])
    >>> table_of(log).to_pylist()[1]
    {'user': 'ann', 'session': 1, 'query': 'a', 'document': 8, 'rank': 2, 'click': 1}
    >>> table_of(log, "pages").to_pylist()[0]
    {'query': 'a', 'user': 'ann', 'documents': [7, 8], 'clicks': [0, 1]}
    """
    log = click_log(log)
    check_choice("layout", layout, LAYOUTS)
    made = _rows if layout == "rows" else _pages
    return made(log, np.arange(log.impressions), features, more or {})


def write_click_log(
    log: ImpressionLog,
    path: str | Path,
    layout: Layout = "pages",
    *,
    features: bool = True,
    more: Mapping[str, NDArray[Any]] | None = None,
) -> None:
    """Write a click log to a file that `read_click_log` reads.

    Args:
        log: the click log, or what holds one, see `fultr.click_log`.
        path: of the file, which is replaced. Its ending says what it is: .tsv or .txt (tab-separated), .csv, or
            .parquet; and, for text, .gz, .xz, .bz2 or .zst after it.
        layout: "pages" or "rows", see `table_of`.
        features: with the documents' features, where the log has any.
        more: further columns, with a value for each page.

    >>> import tempfile
    >>> log = ImpressionLog.from_arrays(["a", "b"], [[7, 8], [9, -1]], [[0, 1], [1, 0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_click_log(log, Path(folder) / "log.tsv")
    ...     print((Path(folder) / "log.tsv").read_text().expandtabs(), end="")
    query   documents       clicks
    a       7,8     0,1
    b       9       1
    """
    path, log = Path(path), click_log(log)
    check_choice("layout", layout, LAYOUTS)
    kind = check_log_name(path)
    made = _rows if layout == "rows" else _pages
    blocks = (made(log, block, features, more or {}) for block in _blocks(log, features))
    if kind in _PARQUET:
        first = next(blocks)
        with written_whole(path) as temporary, pq.ParquetWriter(temporary, first.schema, compression="zstd") as writer:
            for block in chain([first], blocks):
                writer.write_table(block)
        return
    with replacing(path) as file:
        for i, block in enumerate(blocks):
            file.write(_lines(path, block, _TEXT[kind], named=i == 0))


def _lines(path: Path, table: pa.Table, delimiter: str, *, named: bool) -> bytes:
    """The rows as lines of text, with the names of the columns before them or without."""
    _check_cells(path, table, delimiter)
    text = _as_text(table)
    style = "none" if delimiter == "\t" else "needed"
    head = io.StringIO()
    if named:  # Arrow would quote them whatever the style is
        csv.writer(head, delimiter=delimiter, lineterminator="\n").writerow(text.column_names)
    made = pa.BufferOutputStream()
    pv.write_csv(text, made, pv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=style))
    return head.getvalue().encode() + made.getvalue().to_pybytes()


def check_log_name(path: Path) -> str:
    """The ending that says how a click log is written; refuse others.

    >>> check_log_name(Path("log.csv.gz"))
    '.csv'
    """
    packed = path.suffix in SUFFIXES and path.suffix != ""
    kind = Path(path.stem).suffix if packed else path.suffix
    if kind not in _TEXT and (packed or kind not in _PARQUET):
        raise FultrError(
            f"{path}: expected a name that ends with .tsv, .csv or .parquet (text also with .gz, .xz, .bz2 or .zst)"
        )
    return kind


def _blocks(log: ImpressionLog, features: bool) -> Iterator[Int64s]:
    """The pages, as many at a time as bounded memory allows."""
    width = log.features.shape[1] if features and log.features is not None else 1
    pages = max(1, _BLOCK_NUMBERS // (width * log.ranks))
    for begin in range(0, log.impressions, pages):
        yield np.arange(begin, min(begin + pages, log.impressions))


def _rows(log: ImpressionLog, pages: Int64s, features: bool, more: Mapping[str, NDArray[Any]]) -> pa.Table:
    shown = log.shown[pages]
    at, rank = np.nonzero(shown)
    page, pair = pages[at], log.documents[pages][shown]
    columns: dict[str, Any] = {}
    if log.users is not None:
        columns["user"] = _users(log, page)
    columns["session"] = page + 1
    if log.times is not None:
        columns["time"] = log.times[page]
    columns["query"] = _names(log.query_names, log.queries[page])
    columns["document"] = _names(log.document_names, pair)
    columns["rank"] = rank + 1
    columns["click"] = log.clicks[pages][shown]
    columns |= {name: pa.array(values[page]) for name, values in more.items()}
    if features and log.features is not None:
        names = log.feature_names or numbered_names(log.features.shape[1])
        values = log.features[pair]
        columns |= {name: np.ascontiguousarray(values[:, i]) for i, name in enumerate(names)}
    return pa.table(columns)


def _pages(log: ImpressionLog, pages: Int64s, features: bool, more: Mapping[str, NDArray[Any]]) -> pa.Table:
    shown = log.shown[pages]
    pair = log.documents[pages][shown]
    offsets = pa.array(np.r_[0, np.cumsum(shown.sum(axis=1))], pa.int32())
    columns: dict[str, Any] = {"query": _names(log.query_names, log.queries[pages])}
    if log.users is not None:
        columns["user"] = _users(log, pages)
    if log.times is not None:
        columns["time"] = log.times[pages]
    columns["documents"] = pa.ListArray.from_arrays(offsets, _names(log.document_names, pair))
    columns["clicks"] = pa.ListArray.from_arrays(offsets, pa.array(log.clicks[pages][shown]))
    columns |= {name: pa.array(values[pages]) for name, values in more.items()}
    if features and log.features is not None:
        width = log.features.shape[1]
        inner = pa.array(np.arange(pair.size + 1) * width, pa.int32())
        vectors = pa.ListArray.from_arrays(inner, pa.array(log.features[pair].ravel()))
        columns[title_of(log.feature_names, width)] = pa.ListArray.from_arrays(offsets, vectors)
    return pa.table(columns)


def _names(names: NDArray[Any], numbers: NDArray[Any]) -> pa.Array:
    """The names with these numbers."""
    return _array(names).take(pa.array(numbers))


def _users(log: ImpressionLog, pages: Int64s) -> pa.Array:
    assert log.users is not None
    users = log.users[pages]
    return pa.array(users) if log.user_names is None else _names(log.user_names, users)


def _array(names: NDArray[Any]) -> pa.Array:
    """Names of any type; those that Arrow has no single type for as text."""
    try:
        return pa.array(names)
    except pa.ArrowException:
        return pa.array([str(name) for name in names.tolist()])


def _as_text(table: pa.Table) -> pa.Table:
    """Lists as text: their elements joined by commas, and those of lists within lists by spaces."""
    columns = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if pa.types.is_list(column.type):
            values = column.flatten()
            if pa.types.is_list(values.type):
                values = pc.binary_join(
                    pa.ListArray.from_arrays(values.offsets, values.flatten().cast(pa.string())), " "
                )
            offsets = pc.subtract(column.offsets, column.offsets[0])
            column = pc.binary_join(pa.ListArray.from_arrays(offsets, values.cast(pa.string())), ",")
        columns[name] = column
    return pa.table(columns)


def _check_cells(path: Path, table: pa.Table, delimiter: str) -> None:
    """Refuse what would break a line of a tab-separated file, which has no quotes, or a list within a cell."""
    for name in table.column_names:
        if delimiter == "\t" and any(mark in name for mark in '\t\r\n"'):
            raise FultrError(
                f"{path}: expected no tab, new line or quotation mark in the names of columns of a tab-separated file, "
                f"found {name!r:.60}; write .csv or .parquet"
            )
        column = table.column(name).combine_chunks()
        listed = pa.types.is_list(column.type)
        texts = column.flatten() if listed else column
        if not pa.types.is_string(texts.type):
            continue
        if listed and (commas := texts.filter(pc.match_substring(texts, ","))):
            raise FultrError(
                f"{path}: expected no comma in column {name}, whose cells are lists joined by commas, found "
                f'{commas[0].as_py()!r}; write rows (layout "rows"), or .parquet'
            )
        if delimiter == "\t" and pc.any(pc.match_substring_regex(texts, '[\t\r\n"]')).as_py():
            raise FultrError(
                f"{path}: expected no tab, new line or quotation mark in column {name} of a tab-separated file; "
                "write .csv or .parquet"
            )
