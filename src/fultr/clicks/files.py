"""Click logs in files: tab-separated, CSV or Parquet, plain or compressed.

A line is a page: query, user (optional), the displayed documents from rank 1, and their clicks, 0 or 1. Documents and
clicks are lists within their cells, joined by commas or another separator; Parquet files may hold them as lists. The
documents' features, if the log has any, are numbers joined by spaces or another separator, or lists of lists.
"""

from __future__ import annotations

import csv
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from fultr.clicks.impressions import ImpressionLog, mean_by_pair, number_pairs
from fultr.core.arrays import Bools, Float32s, Float64s, Int32s, Int64s
from fultr.core.compressed import map_text
from fultr.core.errors import FultrError

COLUMNS = ("query", "user", "documents", "clicks", "features")
_UNNAMED = {3: ("query", "documents", "clicks"), 4: ("query", "user", "documents", "clicks")}  # by number of columns
_SEPARATORS = (",", " ", ";", "|", ":", "/")
_LOOK_AHEAD = 1000  # cells searched for the separator
_BLOCK_BYTES = 1 << 24  # longer lines are refused
_PARQUET = b"PAR1"


@dataclass(frozen=True)
class _Table:
    """A file's columns, and what errors call its rows."""

    path: Path
    columns: dict[str, pa.Array]
    numbers: Int64s
    word: str  # line or row

    def wrong(self, rows: Any, expected: str, found: Any) -> None:
        """Refuse the file if any of these rows is bad, naming the first."""
        bad = np.flatnonzero(rows)
        if bad.size:
            row = int(bad[0])
            value = str(found(row) if callable(found) else found[row].as_py())
            shown = f"{value[:60]}..." if len(value) > 60 else value
            raise FultrError(f"{self.path}, {self.word} {self.numbers[row]}: expected {expected}, found {shown!r}")


def read_click_log(path: str | Path, *, separator: str | None = None) -> ImpressionLog:
    r"""Read a click log.

    The first line may name the columns (query, user, documents, clicks, features, in any order and among others);
    without names, three columns are query, documents, clicks, and four are query, user, documents, clicks.

    Args:
        path: of a tab-separated, CSV or Parquet file; .gz, .xz, .bz2 and .zst are unpacked.
        separator: between documents, and between clicks, of one cell; by default the first of comma, space, semicolon,
            bar, colon, slash that occurs between clicks.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.tsv"
    ...     _ = file.write_text("cats\t17,4,23\t0,1,0\ncats\t4,17\t1,0\n")
    ...     log = read_click_log(file)
    >>> log.documents.tolist(), log.clicks.sum(axis=0).tolist()
    ([[0, 1, 2], [1, 0, -1]], [1, 1, 0])
    """
    path = Path(path)
    if separator == "":
        raise FultrError("separator: expected at least one character, found none")
    text = map_text(path)
    table = _read_parquet(path, text) if text[:4] == _PARQUET else _read_text(path, text)
    if not table.numbers.size:
        raise FultrError(f"{path}: expected impressions, found none")
    return _impressions(table, separator)


def _read_text(path: Path, text: mmap.mmap) -> _Table:
    first, skipped = _first_line(path, text)
    if first is None:
        raise FultrError(f"{path}: expected impressions, found blank lines only")
    delimiter = "\t" if "\t" in first else ","
    cells = first.split("\t") if delimiter == "\t" else next(csv.reader([first]))
    names = [cell.strip().lower() for cell in cells]
    header = bool({"query", "documents", "clicks"} & set(names))
    if header:
        _check_columns(f"{path}, line {skipped}", names)
    elif len(names) in _UNNAMED:
        names = list(_UNNAMED[len(names)])
    else:
        hint = "; in a comma-separated file, quote lists or join them by another separator" if delimiter == "," else ""
        raise FultrError(
            f"{path}, line {skipped}: expected 3 columns (query, documents, clicks) or 4 (query, user, documents, "
            f"clicks), found {len(names)}{hint}"
        )
    parsed = _parse(path, text, delimiter, len(names))
    table = parsed.slice(skipped if header else 0)
    columns = {name: table.column(names.index(name)).combine_chunks() for name in COLUMNS if name in names}
    blank = np.logical_and.reduce([_bools(pc.equal(column, "")) for column in columns.values()])
    kept = pa.array(~blank)
    numbers = np.flatnonzero(~blank) + 1 + (skipped if header else 0)
    return _Table(path, {name: column.filter(kept) for name, column in columns.items()}, numbers, "line")


def _first_line(path: Path, text: mmap.mmap) -> tuple[str | None, int]:
    """The first line that is not blank, and its number."""
    number = 0
    text.seek(0)
    for line in iter(text.readline, b""):
        number += 1
        if line.strip():
            try:
                return line.decode("utf-8-sig").rstrip("\r\n"), number
            except UnicodeDecodeError as error:
                raise _undecodable(path, number, error) from None
    return None, number


def _undecodable(path: Path, line: int, error: UnicodeDecodeError) -> FultrError:
    found = error.object[error.start : error.start + 4]
    return FultrError(f"{path}, line {line}: expected UTF-8 text, found the bytes {found!r}")


def _parse(path: Path, text: mmap.mmap, delimiter: str, columns: int) -> pa.Table:
    wrong: list[Any] = []

    def refuse(row: Any) -> str:
        wrong.append(row)
        return "error"

    names = [f"{i}" for i in range(columns)]
    try:
        return pv.read_csv(
            pa.BufferReader(pa.py_buffer(text)),
            pv.ReadOptions(column_names=names, use_threads=False, block_size=_BLOCK_BYTES),
            pv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if delimiter == "," else False,
                ignore_empty_lines=False,  # so that rows are lines
                invalid_row_handler=refuse,
            ),
            pv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        if wrong:
            row = wrong[0]
            raise FultrError(
                f"{path}, line {row.number}: expected {columns} columns as in the first line, "
                f"found {row.actual_columns}: {row.text[:60]!r}"
            ) from None
        try:
            bytes(text).decode()
        except UnicodeDecodeError as where:
            raise _undecodable(path, text[: where.start].count(b"\n") + 1, where) from None
        raise FultrError(f"{path}: expected a table of text: {error}") from None


def _read_parquet(path: Path, text: mmap.mmap) -> _Table:
    try:
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(text)))
        given = {name.strip().lower(): name for name in file.schema_arrow.names}
        _check_columns(f"{path}", list(given))
        wanted = {name: given[name] for name in COLUMNS if name in given}
        table = file.read(columns=list(wanted.values()))
        columns = {name: table.column(column).combine_chunks() for name, column in wanted.items()}
    except (pa.ArrowException, OSError) as error:
        raise FultrError(f"{path}: expected a complete Parquet file: {str(error).splitlines()[0]}") from None
    numbers = np.arange(1, table.num_rows + 1)
    table = _Table(path, columns, numbers, "row")
    for name, column in columns.items():
        table.wrong(_bools(column.is_null()), f"a value in column {name}", lambda _: None)
        if pa.types.is_dictionary(column.type):
            columns[name] = column.dictionary_decode()
    return table


def _check_columns(where: str, names: list[str]) -> None:
    for name in ("query", "documents", "clicks"):
        if name not in names:
            found = ", ".join(names)[:80]
            raise FultrError(f"{where}: expected columns query, documents and clicks; there is no {name} in {found!r}")
    for name in COLUMNS:
        if names.count(name) > 1:
            raise FultrError(f"{where}: expected one column {name}, found {names.count(name)}")


def _impressions(table: _Table, separator: str | None) -> ImpressionLog:
    joined = separator or _separator(table.columns["clicks"])
    documents, lengths = _lists(table, "documents", joined)
    clicks, click_lengths = _lists(table, "clicks", joined)
    cell = table.columns["clicks"]
    table.wrong(
        click_lengths != lengths,
        "one click (0 or 1) for each document",
        lambda row: f"{click_lengths[row]} for {lengths[row]} documents",
    )
    shown = np.arange(lengths.max()) < lengths[:, np.newaxis]
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
    query_names, queries = _numbered(table, "query")
    user_names, users = _numbered(table, "user") if "user" in table.columns else (None, None)
    padded = np.zeros(shown.shape, np.int64)
    padded[shown] = codes
    (query_of_pair, document_of_pair), pairs = number_pairs(queries[:, np.newaxis], padded, shown)
    ordered = np.sort(pairs, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)

    def repeated(row: int) -> str:
        number = ordered[row, 1:][twice[row]][0]
        return f"{names[document_of_pair[number]]} twice"

    table.wrong(twice.any(axis=1), "different documents on a page", repeated)
    clicked = np.zeros(shown.shape, np.uint8)
    clicked[shown] = values
    return ImpressionLog(
        queries.astype(np.int32),
        pairs,
        clicked,
        None if users is None else users.astype(np.int32),
        query_of_pair.astype(np.int32),
        query_names,
        names[document_of_pair],
        _features(table, joined, lengths, pairs[shown], query_of_pair.size) if "features" in table.columns else None,
        user_names,
    )


def _features(table: _Table, joined: str, lengths: Int64s, pairs: Int32s, size: int) -> Float32s:
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
    if not pa.types.is_list(documents.type):
        raise FultrError(f"{table.path}: expected lists of numbers in column features, found {str(cell.type)[:60]!r}")
    widths: Int64s = documents.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    table.wrong(_rows(np.equal(widths, 0), owner, lengths.size), "at least one feature for each document", cell)
    other: Bools = np.not_equal(widths, widths[0])
    table.wrong(
        _rows(other, owner, lengths.size),
        f"{widths[0]} features for each document, as for the first",
        lambda row: f"{widths[owner == row].tolist()}",
    )
    with np.errstate(over="ignore"):
        values = _numbers(documents.flatten()).astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(values)) // widths[0]
    table.wrong(np.isin(np.arange(lengths.size), owner[bad]), "finite features", cell)
    return mean_by_pair(values.reshape(owner.size, widths[0]), pairs, size)


def _numbers(elements: pa.Array) -> Float64s:
    """Numbers, or text that holds them, as float64; NaN where there is none."""
    if pa.types.is_string(elements.type):
        trimmed = pc.utf8_trim_whitespace(elements)
        good = pc.match_substring_regex(trimmed, r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")
        elements = pc.if_else(good, trimmed, "nan")
    values: Float64s = elements.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    return values


def _separator(clicks: pa.Array) -> str:
    """The first known separator that occurs between clicks; a comma if they are lists or single values."""
    if not pa.types.is_string(clicks.type):
        return ","
    text = "\n".join(clicks.slice(0, _LOOK_AHEAD).to_pylist())
    return next((mark for mark in _SEPARATORS if mark in text.replace(", ", ",")), ",")


def _lists(table: _Table, name: str, separator: str) -> tuple[pa.Array, Int64s]:
    """All elements of a column of lists, one after the other, and the lists' lengths."""
    column, text = table.columns[name], None
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        elements = column.flatten()
        if elements.null_count:
            owner = column.value_parent_indices().to_numpy()
            bad = _rows(_bools(elements.is_null()), owner, len(column))
            table.wrong(bad, f"{name} without missing values", column)
        if name == "documents":
            elements = _cast(table, name, elements, pa.string())
    else:
        text = pc.utf8_trim_whitespace(_cast(table, name, column, pa.string()))
        column = pc.split_pattern(text, separator)
        elements = pc.utf8_trim_whitespace(column.flatten())
    lengths = column.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    empty = lengths == 0 if text is None else _bools(pc.equal(text, ""))
    table.wrong(empty, f"a list of {name}", table.columns[name])
    return elements, lengths


def _cast(table: _Table, name: str, values: pa.Array, to: pa.DataType) -> pa.Array:
    try:
        return values.cast(to)
    except pa.ArrowException:
        found = str(values.type)[:60]
        raise FultrError(f"{table.path}: expected text or numbers in column {name}, found {found!r}") from None


def _zeros_and_ones(table: _Table, elements: pa.Array) -> tuple[np.ndarray[Any, Any], Bools]:
    """Clicks as numbers, and where they are 0 or 1."""
    if pa.types.is_string(elements.type) or pa.types.is_large_string(elements.type):
        ones, zeros = _bools(pc.equal(elements, "1")), _bools(pc.equal(elements, "0"))
    else:
        kind = pa.int8() if pa.types.is_boolean(elements.type) else pa.float64()
        numbers = _cast(table, "clicks", elements, kind).to_numpy()
        ones, zeros = numbers == 1, numbers == 0
    return ones.astype(np.uint8), ones | zeros


def _numbered(table: _Table, name: str) -> tuple[np.ndarray[Any, Any], Int64s]:
    """Distinct values of a column, and for each row which of them it has."""
    column = pc.utf8_trim_whitespace(_cast(table, name, table.columns[name], pa.string()))
    table.wrong(_bools(pc.equal(column, "")), f"a {name}", column)
    encoded = column.dictionary_encode()
    return np.array(encoded.dictionary.to_pylist(), object), encoded.indices.to_numpy().astype(np.int64)


def _rows(bad: Bools, row_of_entry: Int64s, rows: int) -> Bools:
    """Which rows have a bad entry."""
    marked = np.zeros(rows, bool)
    marked[row_of_entry[bad]] = True
    return marked


def _bools(column: Any) -> Bools:
    return np.asarray(column.to_numpy(zero_copy_only=False), bool)
