"""Tables in files: text with tabs or commas between columns, or Parquet; what errors call their rows.

Every cell of a text file is text here; what it should be, the readers of click logs know.
"""

from __future__ import annotations

import codecs
import csv
import io
import mmap
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from fultr.core.arrays import Bools, Float64s, Int64s
from fultr.core.errors import FultrError, one_line

BLOCK_BYTES = 1 << 24  # longer lines are refused
_PARQUET, _FEATHER = b"PAR1", b"ARROW1"
_CHECKED_BYTES = 1 << 22  # at a time
OF_FEATURE = "feature "  # before the names of features, so that none can be taken for another column
_SHOWN = 60  # characters of a wrong value


@dataclass(frozen=True)
class FileTable:
    """A file's columns, and what errors call its rows."""

    path: Path
    columns: dict[str, pa.Array]
    numbers: Int64s
    word: str  # line or row

    def where(self, name: str, row: int) -> str:
        """What errors call a row of a column."""
        return f"{self.path}, {name and f'{name}, '}{self.word} {self.numbers[row]}"

    def wrong(self, rows: Any, expected: str, found: Any) -> None:
        """Refuse the file if any of these rows is bad, naming the first."""
        bad = np.flatnonzero(rows)
        if bad.size:
            row = int(bad[0])
            value = str(found(row) if callable(found) else found[row].as_py())
            shown = f"{value[:_SHOWN]}..." if len(value) > _SHOWN else value
            raise FultrError(f"{self.path}, {self.word} {self.numbers[row]}: expected {expected}, found {shown!r}")

    def wrong_if_missing(self, name: str, column: pa.Array) -> None:
        """Refuse a column with missing values."""
        bad = np.flatnonzero(bools(column.is_null()))
        if bad.size:
            called = name.removeprefix(OF_FEATURE)
            raise FultrError(
                f"{self.path}, {self.word} {self.numbers[bad[0]]}: expected a value in column {called}, found none"
            )

    def cast(self, name: str, values: pa.Array, to: pa.DataType) -> pa.Array:
        """Values of a column in another type; refused if that is impossible."""
        try:
            return values.cast(to)
        except (pa.ArrowException, UnicodeDecodeError):
            found = str(values.type)[:_SHOWN]
            raise FultrError(f"{self.path}: expected text or numbers in column {name}, found {found!r}") from None

    def numbered(self, name: str) -> tuple[np.ndarray[Any, Any], Int64s]:
        """Distinct values of a column, as text, and for each row which of them it has."""
        column = pc.utf8_trim_whitespace(self.cast(name, self.columns[name], pa.string()))
        self.wrong(bools(pc.equal(column, "")), f"a {name}", column)
        encoded = column.dictionary_encode()
        return np.array(encoded.dictionary.to_pylist(), object), encoded.indices.to_numpy().astype(np.int64)


def bools(column: Any) -> Bools:
    """An Arrow column of booleans."""
    return np.asarray(column.to_numpy(zero_copy_only=False), bool)


def as_numbers(elements: pa.Array) -> Float64s:
    """Numbers, or text that holds them, as float64; NaN where there is none."""
    if pa.types.is_string(elements.type) or pa.types.is_large_string(elements.type):
        trimmed = pc.utf8_trim_whitespace(elements)
        good = pc.match_substring_regex(trimmed, r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")
        elements = pc.if_else(good, trimmed, "nan")
    values: Float64s = elements.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    return values


def zeros_and_ones(texts: pa.Array) -> pa.Array:
    """Texts that say true or false, in whatever letters, as the texts 1 and 0; others as they are."""
    low = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    return pc.if_else(pc.equal(low, "true"), "1", pc.if_else(pc.equal(low, "false"), "0", texts))


def is_parquet(text: mmap.mmap) -> bool:
    """Does a file begin as Parquet or Feather files do?"""
    return text[:4] == _PARQUET or text[:6] == _FEATHER


def first_cells(path: Path, text: mmap.mmap) -> tuple[list[str], str, int]:
    """The cells of the first line that is not blank, what is between them, and the line's number."""
    number = 0
    text.seek(0)
    for raw in iter(text.readline, b""):
        number += 1
        if not raw.strip():
            continue
        try:
            line = raw.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise _undecodable(path, number, error) from None
        if "\r" in line:
            raise FultrError(
                f"{path}, line {number}: expected one line, found a carriage return in the middle of it; "
                "end lines with a new line, or with both"
            )
        if "\t" in line:
            return line.split("\t"), "\t", number
        try:
            return next(csv.reader(io.StringIO(line), strict=True)), ",", number
        except csv.Error as error:
            raise FultrError(f"{path}, line {number}: expected cells with commas between them: {error}") from None
    raise FultrError(f"{path}: expected impressions, found blank lines only")


def _undecodable(path: Path, line: int, error: UnicodeDecodeError) -> FultrError:
    found = error.object[error.start : error.start + 4]
    return FultrError(f"{path}, line {line}: expected UTF-8 text, found the bytes {found!r}")


def _check_utf8(path: Path, text: mmap.mmap) -> None:
    """Refuse what is not UTF-8, naming the line; block by block, so that little memory is needed."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = 1
    for begin in range(0, len(text), _CHECKED_BYTES):
        block = text[begin : begin + _CHECKED_BYTES]
        before = decoder.getstate()[0]  # the first bytes of a letter that the last block cut
        try:
            decoder.decode(block, final=begin + len(block) == len(text))
        except UnicodeDecodeError as error:
            line = lines + (before + block)[: error.start].count(b"\n")
            raise _undecodable(path, line, error) from None
        lines += block.count(b"\n")


def read_text(path: Path, text: mmap.mmap, delimiter: str, names: Sequence[str], skipped: int) -> FileTable:
    """The named columns of a text file; others have no name.

    Args:
        path: for errors.
        text: of the file.
        delimiter: between columns.
        names: of all columns in their order, "" for those that are not wanted.
        skipped: lines before the first row.
    """
    _check_utf8(path, text)  # before Arrow quotes a line that is none, and cannot
    parsed = _parsed(path, text, delimiter, len(names))
    begins = np.arange(1, len(parsed) + 1) + _breaks_before(parsed, text, delimiter)[:-1]
    table = parsed.slice(skipped)
    columns = {name: table.column(i).combine_chunks() for i, name in enumerate(names) if name}
    blank = np.logical_and.reduce([bools(pc.equal(column, "")) for column in columns.values()])
    kept = pa.array(~blank)
    numbers = begins[skipped:][~blank]
    return FileTable(path, {name: column.filter(kept) for name, column in columns.items()}, numbers, "line")


def _parsed(path: Path, text: mmap.mmap, delimiter: str, columns: int) -> pa.Table:
    wrong: list[Any] = []

    def leave_out(row: Any) -> str:
        if not wrong:
            wrong.append(row)
        return "skip"

    names = [f"{i}" for i in range(columns)]
    try:
        table = pv.read_csv(
            pa.BufferReader(pa.py_buffer(text)),
            pv.ReadOptions(column_names=names, use_threads=False, block_size=BLOCK_BYTES),
            pv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if delimiter == "," else False,
                ignore_empty_lines=False,  # they count
                newlines_in_values=delimiter == ",",
                invalid_row_handler=leave_out,
            ),
            pv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
        )
    except pa.ArrowException as error:
        raise FultrError(f"{path}: expected a table of text: {one_line(str(error))}") from None
    if wrong:
        row = wrong[0]
        line = row.number + _breaks_before(table, text, delimiter)[row.number - 1]
        raise FultrError(
            f"{path}, line {line}: expected {columns} columns as in the first line, found {row.actual_columns}: "
            f"{row.text[:_SHOWN]!r}"
        )
    return table


def _breaks_before(table: pa.Table, text: mmap.mmap, delimiter: str) -> Int64s:
    """How many line breaks the cells above each row have, [rows + 1]: within quotes, in a file with commas."""
    before = np.zeros(len(table) + 1, np.int64)
    if delimiter == "," and text.find(b'"') >= 0:
        for column in table.columns:
            before[1:] += pc.count_substring(column, "\n").to_numpy()
    return np.cumsum(before)


def parquet_names(path: Path, text: mmap.mmap) -> list[str]:
    """The names of a Parquet file's columns."""
    if text[:6] == _FEATHER:
        return _checked(path, lambda: list(_feather(text).schema.names))
    return _checked(path, lambda: list(_opened(text).schema_arrow.names))


def read_parquet(path: Path, text: mmap.mmap, wanted: Iterable[tuple[str, str]]) -> FileTable:
    """Columns of a Parquet file.

    Args:
        path: for errors.
        text: of the file.
        wanted: what each is to be called, and what it is called in the file.
    """
    names = dict(wanted)

    def read() -> tuple[int, dict[str, pa.Array]]:
        if text[:6] == _FEATHER:
            table = _feather(text).read_all().select(list(names.values()))
        else:
            table = _opened(text).read(columns=list(names.values()), use_threads=False)
        found = {name: table.column(given).combine_chunks() for name, given in names.items()}
        for name, column in found.items():
            if pa.types.is_dictionary(column.type):
                found[name] = column.dictionary_decode()
            found[name].validate(full=True)  # also that text is UTF-8
        return table.num_rows, found

    rows, columns = _checked(path, read)
    table = FileTable(path, columns, np.arange(1, rows + 1), "row")
    for name, column in columns.items():
        table.wrong_if_missing(name, column)
    return table


def _opened(text: mmap.mmap) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(pa.py_buffer(text)))


def _feather(text: mmap.mmap) -> pa.ipc.RecordBatchFileReader:
    return pa.ipc.open_file(pa.BufferReader(pa.py_buffer(text)))


def _checked(path: Path, read: Any) -> Any:
    """What a damaged file leads to, in one line, whatever Arrow makes of it."""
    try:
        return read()
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, KeyError, RuntimeError) as error:
        said = re.sub(r"\s*The underlying.*", "", one_line(str(error) or type(error).__name__))
        raise FultrError(f"{path}: expected a complete Parquet file: {said}") from None
