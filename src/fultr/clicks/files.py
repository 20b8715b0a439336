"""Click logs in files: tab-separated, CSV or Parquet, plain or compressed, in one of two layouts.

A row for each page: query, user (optional), the displayed documents from rank 1, and their clicks, 0 or 1. Documents
and clicks are lists within their cells, joined by commas or another separator; Parquet files may hold them as lists.
The documents' features, if the log has any, are numbers joined by spaces or another separator, or lists of lists.

Or a row for each displayed document, with its rank: see `fultr.clicks.row_files`.
"""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fultr.clicks.feature_names import TITLE, is_title, names_in
from fultr.clicks.file_tables import (
    FileTable,
    as_numbers,
    bools,
    first_cells,
    is_parquet,
    parquet_names,
    read_parquet,
    read_text,
    zeros_and_ones,
)
from fultr.clicks.frames import coarse_columns
from fultr.clicks.impressions import ImpressionLog, check_lengths, mean_by_pair, number_pairs
from fultr.clicks.published.aol import aol_log_files, read_aol
from fultr.clicks.published.baidu import COLUMNS as BAIDU
from fultr.clicks.published.baidu import is_baidu, pages_of_baidu
from fultr.clicks.published.tiangong import is_xml, read_tiangong
from fultr.clicks.published.yandex import is_yandex, read_yandex
from fultr.clicks.repeated import REPEATED, Repeated, occurrences, without_repeated
from fultr.clicks.row_files import are_rows, log_of_rows, named_columns
from fultr.core.arrays import Bools, Float32s, Int32s, Int64s
from fultr.core.checks import check_choice
from fultr.core.compressed import map_text
from fultr.core.errors import FultrError

COLUMNS = ("query", "user", "documents", "clicks", "features")
_UNNAMED = {3: ("query", "documents", "clicks"), 4: ("query", "user", "documents", "clicks")}  # by number of columns
_SEPARATORS = (",", " ", ";", "|", ":", "/")
_LOOK_AHEAD = 1000  # cells searched for the separator


class LogFile:
    r"""A click log's file, opened once: what comes through a pipe cannot be read again.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.csv"
    ...     _ = file.write_text("query,rank,click,age\ncats,1,0,7\n")
    ...     opened = LogFile(file)
    ...     opened.columns(), read_click_log(opened, features=["age"]).impressions
    (('query', 'rank', 'click', 'age'), 1)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.aol = aol_log_files(self.path)

    @cached_property
    def text(self) -> mmap.mmap:
        """Its content, unpacked."""
        return map_text(self.path)

    def columns(self) -> tuple[str, ...]:
        """The columns of a file of which each row is a displayed document; none if its rows are pages."""
        if self.aol is not None or is_xml(self.text):
            return ()
        parquet = is_parquet(self.text)
        given = parquet_names(self.path, self.text) if parquet else first_cells(self.path, self.text)[0]
        return tuple(name.strip() for name in given) if are_rows([name.strip().lower() for name in given]) else ()


def read_click_log(
    path: str | Path | LogFile,
    *,
    separator: str | None = None,
    features: Sequence[str] | None = None,
    repeated: Repeated = "keep",
) -> ImpressionLog:
    r"""Read a click log, of which each row is a page, or a displayed document with its rank.

    The first line may name the columns, in any order and among others: of pages query, user, documents, clicks and
    features; of displayed documents query, user, session, document, rank, click and those of the features. Without
    names, rows are pages: three columns are query, documents, clicks, and four are query, user, documents, clicks.
    Files of Baidu-ULTR, TianGong-ST and the Yandex relevance challenge, and the folder of AOL4FOLTR, are recognised
    (`fultr.clicks.published`).

    Args:
        path: of a tab-separated, CSV or Parquet file, or of AOL4FOLTR's folder; .gz, .xz, .bz2 and .zst are unpacked.
            Or a file that was opened already.
        separator: between documents, and between clicks, of one cell; by default the first of comma, space, semicolon,
            bar, colon, slash that occurs between clicks.
        features: the columns that hold the features, where a row is a displayed document; by default those called f1,
            f2, ... or feature_1, feature_2, ...
        repeated: what becomes of pages that display a document twice. "keep": the second counts as another document,
            and a warning says how many there are; "drop": such pages are left out, likewise; "refuse": the file is.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.tsv"
    ...     _ = file.write_text("cats\t17,4,23\t0,1,0\ncats\t4,17\t1,0\n")
    ...     log = read_click_log(file)
    >>> log.documents.tolist(), log.clicks.sum(axis=0).tolist()
    ([[0, 1, 2], [1, 0, -1]], [1, 1, 0])
    """
    check_choice("repeated", repeated, REPEATED)
    if separator == "":
        raise FultrError("separator: expected at least one character, found none")
    file = path if isinstance(path, LogFile) else LogFile(path)
    path = file.path
    if file.aol is not None:
        return read_aol(*file.aol, repeated)
    text = file.text
    delimiter, line = "", 0
    if is_xml(text):
        return log_of_pages(read_tiangong(path, text), None, repeated)
    if is_parquet(text):
        given = parquet_names(path, text)
        place = f"{path}"
        if is_baidu(given):
            wanted = [(name, name) for name in BAIDU if name in given]
            return log_of_pages(pages_of_baidu(read_parquet(path, text, wanted)), None, repeated)
    else:
        given, delimiter, line = first_cells(path, text)
        place = f"{path}, line {line}"
        if is_yandex(given):
            return log_of_pages(read_yandex(path, text), None, repeated)
    names = [name.strip().lower() for name in given]
    rows = are_rows(names)
    if not rows:
        refuse_columns(place, features)
    if not delimiter or rows or {"query", "documents", "clicks"} & set(names):
        meant = named_columns(place, given, features) if rows else page_columns(place, given)
    elif len(names) in _UNNAMED:
        meant, line = list(_UNNAMED[len(names)]), 0
    else:
        hint = "; in a comma-separated file, quote lists or join them by another separator" if delimiter == "," else ""
        raise FultrError(
            f"{place}: expected 3 columns (query, documents, clicks) or 4 (query, user, documents, clicks), found "
            f"{len(names)}{hint}"
        )
    if delimiter:
        table = read_text(path, text, delimiter, meant, line)
    else:
        table = read_parquet(path, text, [(name, own) for name, own in zip(meant, given, strict=True) if name])
    if not table.numbers.size:
        raise FultrError(f"{path}: expected impressions, found none")
    if rows:
        return log_of_rows(table, repeated)
    return log_of_pages(table, separator, repeated, feature_names(given, meant))


def refuse_columns(place: str, features: Sequence[str] | None) -> None:
    """Refuse to take features from columns of a table whose rows are pages."""
    if features is not None:
        raise FultrError(
            f"{place}: expected a row for each displayed document, to take columns of features from; found a row for "
            "each page, whose features are in a column features"
        )


def page_columns(place: str, given: Sequence[str]) -> list[str]:
    """The columns that are wanted, in the order of the file; "" for others."""
    names = [TITLE if is_title(name) else name.strip().lower() for name in given]
    for name in ("query", "documents", "clicks"):
        if name not in names:
            found = ", ".join(names)[:80]
            raise FultrError(f"{place}: expected columns query, documents and clicks; there is no {name} in {found!r}")
    for name in COLUMNS:
        if names.count(name) > 1:
            raise FultrError(f"{place}: expected one column {name}, found {names.count(name)}")
    return [name if name in COLUMNS else "" for name in names]


def feature_names(given: Sequence[str], meant: Sequence[str]) -> tuple[str, ...] | None:
    """The names of the features of a table with a row for each page, if the name of their column says them."""
    return names_in(given[meant.index(TITLE)]) if TITLE in meant else None


def log_of_pages(
    table: FileTable, separator: str | None, repeated: Repeated, names_of_features: tuple[str, ...] | None = None
) -> ImpressionLog:
    """The click log in a table with a row for each page."""
    joined = separator or _separator(table.columns["clicks"])
    documents, lengths = _lists(table, "documents", joined)
    clicks, click_lengths = _lists(table, "clicks", joined)
    cell = table.columns["clicks"]
    table.wrong(
        click_lengths != lengths,
        "one click (0 or 1) for each document",
        lambda row: f"{click_lengths[row]} for {lengths[row]} documents",
    )
    longest = int(lengths.max())
    check_lengths(lengths.size, int(lengths.sum()), longest, lambda: table.where("", int(np.argmax(lengths))))
    shown = np.arange(longest) < lengths[:, np.newaxis]
    row_of_entry = np.repeat(np.arange(lengths.size), lengths)
    values, good = _zeros_and_ones(table, clicks)
    table.wrong(_rows(~good, row_of_entry, lengths.size), "clicks of 0 or 1", cell)
    encoded = documents.dictionary_encode()
    names = np.array(encoded.dictionary.to_pylist(), object)
    codes = encoded.indices.to_numpy().astype(np.int64)
    table.wrong(
        _rows(np.array([name == "" for name in names], bool)[codes], row_of_entry, lengths.size),
        "documents with non-empty names",
        table.columns["documents"],
    )
    query_names, queries = table.numbered("query")
    user_names, users = table.numbered("user") if "user" in table.columns else (None, None)
    padded = np.zeros(shown.shape, np.int64)
    padded[shown] = codes
    again = occurrences(padded, shown)
    twice: Bools = np.any(again, axis=1)
    if repeated == "refuse":
        table.wrong(
            twice, "different documents on a page", lambda row: f"{names[padded[row][again[row] > 0][0]]} twice"
        )
    (query_of_pair, document_of_pair), pairs = number_pairs(queries[:, np.newaxis], padded + len(names) * again, shown)
    clicked = np.zeros(shown.shape, np.uint8)
    clicked[shown] = values
    features = _features(table, joined, lengths, pairs[shown], query_of_pair.size) if TITLE in table.columns else None
    if names_of_features is not None and features is not None:
        _check_names(table.path, names_of_features, features.shape[1])
    log = ImpressionLog(
        queries.astype(np.int32),
        pairs,
        clicked,
        None if users is None else users.astype(np.int32),
        query_of_pair.astype(np.int32),
        query_names,
        names[document_of_pair % len(names)],
        features,
        user_names,
        names_of_features,
    )
    return without_repeated(table.path, log, twice, repeated)


def _features(table: FileTable, joined: str, lengths: Int64s, pairs: Int32s, size: int) -> Float32s:
    """The features of each pair: means over its pages."""
    cell = table.columns["features"]
    documents, counts = _lists(table, "features", joined)
    table.wrong(
        counts != lengths,
        "features for each document",
        lambda row: f"features of {counts[row]} for {lengths[row]} documents",
    )
    owner = np.repeat(np.arange(lengths.size), lengths)
    if pa.types.is_string(documents.type):
        inner = next((mark for mark in (" ", *_SEPARATORS) if mark != joined and mark in documents[0].as_py()), " ")
        documents = pc.split_pattern(documents, inner)
    if pa.types.is_fixed_size_list(documents.type):
        documents = documents.cast(pa.list_(documents.type.value_type))
    if not (pa.types.is_list(documents.type) or pa.types.is_large_list(documents.type)):
        raise FultrError(f"{table.path}: expected lists of numbers in column features, found {str(cell.type)[:60]!r}")
    widths: Int64s = documents.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    table.wrong(_rows(np.equal(widths, 0), owner, lengths.size), "at least one feature for each document", cell)
    other: Bools = np.not_equal(widths, widths[0])
    table.wrong(
        _rows(other, owner, lengths.size),
        f"{widths[0]} features for each document, as for the first",
        lambda row: f"{widths[owner == row].tolist()}",
    )
    numbers = as_numbers(documents.flatten()).reshape(owner.size, widths[0])
    with np.errstate(over="ignore"):
        values = numbers.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(values)) // widths[0]
    table.wrong(np.isin(np.arange(lengths.size), owner[bad]), "finite features", cell)
    for said in coarse_columns(numbers, values):
        warnings.warn(f"{table.path}, features: {said}", stacklevel=4)
    return mean_by_pair(values, pairs, size)


def _check_names(path: Path, names: tuple[str, ...], width: int) -> None:
    """Refuse names that are not one for each feature, all different."""
    if len(names) != width or len({*names} - {""}) != width:
        said = f"{len(names)} names" if len(names) != width else f"{', '.join(names)!r:.60}"
        raise FultrError(f"{path}: expected {width} different names in the name of column features, found {said}")


def _separator(clicks: pa.Array) -> str:
    """The first known separator that occurs between clicks; a comma if they are lists or single values."""
    if not pa.types.is_string(clicks.type):
        return ","
    text = "\n".join(clicks.slice(0, _LOOK_AHEAD).to_pylist())
    return next((mark for mark in _SEPARATORS if mark in text.replace(", ", ",")), ",")


def _lists(table: FileTable, name: str, separator: str) -> tuple[pa.Array, Int64s]:
    """All elements of a column of lists, one after the other, and the lists' lengths."""
    column, text = table.columns[name], None
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        elements = column.flatten()
        if elements.null_count:
            owner = column.value_parent_indices().to_numpy()
            bad = _rows(bools(elements.is_null()), owner, len(column))
            table.wrong(bad, f"{name} without missing values", column)
        if name == "documents":
            elements = table.cast(name, elements, pa.string())
    else:
        text = pc.utf8_trim_whitespace(table.cast(name, column, pa.string()))
        column = pc.split_pattern(text, separator)
        elements = pc.utf8_trim_whitespace(column.flatten())
    lengths = column.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    empty = lengths == 0 if text is None else bools(pc.equal(text, ""))
    table.wrong(empty, f"a list of {name}", table.columns[name])
    return elements, lengths


def _zeros_and_ones(table: FileTable, elements: pa.Array) -> tuple[np.ndarray[Any, Any], Bools]:
    """Clicks as numbers, and where they are 0 or 1."""
    if pa.types.is_string(elements.type) or pa.types.is_large_string(elements.type):
        elements = zeros_and_ones(elements)
        ones, zeros = bools(pc.equal(elements, "1")), bools(pc.equal(elements, "0"))
    else:
        kind = pa.int8() if pa.types.is_boolean(elements.type) else pa.float64()
        numbers = table.cast("clicks", elements, kind).to_numpy()
        ones, zeros = numbers == 1, numbers == 0
    return ones.astype(np.uint8), ones | zeros


def _rows(bad: Bools, row_of_entry: Int64s, rows: int) -> Bools:
    """Which rows have a bad entry."""
    marked = np.zeros(rows, bool)
    marked[row_of_entry[bad]] = True
    return marked
