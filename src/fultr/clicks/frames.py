"""Click logs as tables with a row for each displayed document, from NumPy, pandas, polars, Arrow or SciPy.

A page is the rows of one impression, from rank 1. Which rows these are a `session` says (a page is then a session's
query by a user, in whatever order its rows are); without one, rows are in the order of ranks, and a page ends where the
query or the user changes, or the rank does not rise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fultr.clicks.impressions import ImpressionLog, check_lengths, mean_by_pair, number_pairs
from fultr.clicks.repeated import occurrences
from fultr.core.arrays import Bools, Float32s, Float64s, Int64s
from fultr.core.checks import written
from fultr.core.errors import FultrError, one_line

Where: TypeAlias = Callable[[str, int], str]
"""What errors call a row of a column: a table's are counted from 0, a file's are its lines."""


_ROOM = 1000  # float32 numbers between a column's least and largest value: with fewer, values may be lost


def _in_table(name: str, row: int) -> str:
    return f"{name}, row {row}"


@dataclass(frozen=True, eq=False)
class Pages:
    """A table of displayed documents as a click log.

    Attributes:
        log: the click log; its features are those of the table.
        rows: int64 [impressions, K], the table's row of each displayed document; -1 past the last one.
        user_names: what the table calls each user; None if it does not say who searched.
    """

    log: ImpressionLog
    rows: Int64s
    user_names: NDArray[Any] | None


def features_of(table: Any) -> tuple[Float32s, tuple[str, ...] | None]:
    """The numbers of a table of features as float32 [rows, features], and their names if it has any.

    >>> features_of([[1, 2], [3, 4]])[0].tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    values, names = _values_of(table)
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(values, np.float32)
    bad = np.argwhere(~np.isfinite(numbers))
    if bad.size:
        row, column = bad[0]
        name = column if names is None else names[column]
        found = "NaN" if np.isnan(numbers[row, column]) else values[row, column]
        raise FultrError(f"features, row {row}, column {name}: expected a finite number, found {found}")
    return numbers, names


def coarse_columns(table: Any, numbers: Float32s) -> list[str]:
    """The columns of a table of which float32, `features_of`, leaves few of many values; in words, a sentence for each.

    >>> times = 1.7e9 + np.arange(1000)[:, np.newaxis]
    >>> coarse_columns(times, features_of(times)[0])
    ['Column 0: float32 leaves 9 of 1,000 different values; subtract a constant from it first.']
    """
    narrow = np.flatnonzero(_are_narrow(numbers)) if len(numbers) else ()
    if not len(narrow):
        return []
    values, names = _values_of(table)
    return [
        f"Column {i if names is None else names[i]}: {said}."
        for i in narrow
        if (said := coarsened(values[:, i], numbers[:, i]))
    ]


def coarsened(values: NDArray[Any], numbers: Float32s) -> str:
    """What float32 leaves of a column's values, in words; nothing if they stay apart, or are many."""
    if not numbers.size or not _are_narrow(numbers[:, np.newaxis])[0]:
        return ""
    before, left = np.unique(values).size, np.unique(numbers).size
    said = f"float32 leaves {left:,} of {before:,} different values; subtract a constant from it first"
    return said if left < before else ""


def _are_narrow(numbers: Float32s) -> Bools:
    """Which columns have room for few float32 between their least and their largest value."""
    low, high = numbers.min(axis=0).astype(np.float64), numbers.max(axis=0).astype(np.float64)
    size = np.maximum(-low, high)
    narrow: Bools = (size > 0) & (high - low < _ROOM * np.spacing(size.astype(np.float32)))
    return narrow


def _values_of(table: Any) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """The numbers of a table of features, of the type that they have, and its columns' names."""
    names: tuple[str, ...] | None = None
    if hasattr(table, "toarray"):  # SciPy's sparse matrices
        values = table.toarray()
    elif isinstance(table, (np.ndarray, list, tuple)):
        values = _of_rows(table)
    else:
        values, names = _of_frame(table)
    if values.ndim != 2:
        hint = "; Reshape your data: a row for each document" if values.ndim < 2 else ""
        raise FultrError(f"features: expected rows of numbers, found shape {values.shape}{hint}")
    if not values.shape[1]:
        raise FultrError(f"features: found 0 feature(s) (shape={values.shape}) while a minimum of 1 is required.")
    if values.dtype.kind in "OSU":
        values = _of_cells(values)
    if values.dtype.kind not in "fiub":
        hint = "; Complex data not supported" if values.dtype.kind == "c" else ""
        raise FultrError(f"features: expected numbers, found values of type {values.dtype}{hint}")
    return values, names


def _of_rows(table: Any) -> NDArray[Any]:
    """An array, or lists of numbers as one; rows of different lengths are refused."""
    try:
        return np.asarray(table)
    except ValueError as error:
        sizes = [len(row) if hasattr(row, "__len__") else 1 for row in table]
        row = next((row for row, size in enumerate(sizes) if size != sizes[0]), None)
        if row is None:
            raise FultrError(f"features: expected rows of numbers: {one_line(str(error))}") from None
        raise FultrError(f"features, row {row}: expected {sizes[0]} numbers as in row 0, found {sizes[row]}") from None


def _of_cells(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers from texts or objects."""
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        at, said = _no_number(values.ravel().tolist()) or (0, str(error))
        row, column = divmod(at, values.shape[1])
        raise FultrError(f"features, row {row}, column {column}: expected a number: {one_line(said)}") from None


def _no_number(values: Iterable[Any]) -> tuple[int, str] | None:
    """The first of some values that is no number, and what Python says about it."""
    for i, value in enumerate(values):
        try:
            float(value)
        except (TypeError, ValueError, OverflowError) as error:
            return i, str(error)
    return None


def _of_frame(table: Any) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """The numbers of a data frame, and its columns' names if all are texts."""
    import narwhals as nw

    try:
        frame = nw.from_native(dense(table), eager_only=True)
        columns = list(frame.iter_columns())
    except TypeError:
        found = type(table).__name__
        raise FultrError(f"features: expected an array or a table of numbers, found {found}") from None
    except nw.exceptions.NarwhalsError as error:
        raise FultrError(f"features: expected columns with different names: {one_line(str(error))}") from None
    for name, column in zip(frame.columns, columns, strict=True):
        if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
            hint = "leave it out, or encode it"
            raise FultrError(f"features: expected numbers in column {name}, found {column.dtype}; {hint}")
    texts = all(isinstance(name, str) for name in frame.columns)
    odd = (nw.Boolean, nw.Decimal, nw.Int128, nw.UInt128)
    if any(column.dtype in odd for column in columns) or frame.head(1).to_numpy().dtype.kind == "O":
        cast = [column.cast(nw.Float64) if column.dtype in odd else column for column in columns]
        values = np.stack([column.to_numpy() for column in cast]).T  # column by column, NaN where a value is missing
    else:
        values = frame.to_numpy()  # one copy less
    return values, tuple(frame.columns) if texts else None


def dense(table: Any) -> Any:
    """A table of pandas without sparse columns; others as they are."""
    types: Any = getattr(table, "dtypes", None)
    if not hasattr(types, "items"):
        return table
    sparse = {name: kind.subtype for name, kind in types.items() if type(kind).__name__ == "SparseDtype"}
    return table.astype(sparse) if sparse else table


def column_of(name: str, values: Any, rows: int) -> NDArray[Any]:
    """One value for each row, as an array."""
    try:
        column = np.asarray(values)
    except ValueError:  # lists of different lengths
        raise FultrError(
            f"{name}: expected a value for each of {rows} rows, found lists of different lengths"
        ) from None
    if column.shape != (rows,):
        raise FultrError(f"{name}: expected a value for each of {rows} rows, found shape {column.shape}")
    return column


def numbered(name: str, values: Any, rows: int, where: Where = _in_table) -> tuple[NDArray[Any], Int64s]:
    """The distinct values of a column of ids of any type, and the number of each row's.

    >>> numbered("query", ["b", 7, "b"], 3)[1].tolist()
    [0, 1, 0]
    """
    if isinstance(values, (list, tuple)):  # each element is an id, a tuple too
        values = np.fromiter(values, object, len(values))
    column = column_of(name, values, rows)
    if column.dtype.kind not in "iubSU":  # which have no missing values
        missing = np.array([_is_missing(value) for value in column.tolist()], bool)
        if missing.any():
            raise FultrError(f"{where(name, int(np.argmax(missing)))}: expected an id, found none")
    if column.dtype.kind in "iubfSUmM":
        names, numbers = np.unique(column, return_inverse=True)
        return names, numbers.astype(np.int64)
    first: dict[Any, int] = {}
    try:
        codes = np.array([first.setdefault(value, len(first)) for value in column.tolist()], np.int64)
    except TypeError:
        raise FultrError(f"{name}: expected ids such as texts or numbers, found {written(column[0])}") from None
    found = np.empty(len(first), object)
    found[:] = list(first)
    return found, codes


def _is_missing(value: Any) -> bool:
    """None, NaN, NaT, and what pandas calls NA: nothing that compares with it is true or false."""
    if value is None or type(value).__name__ == "NAType":
        return True
    same = value == value
    return isinstance(same, (bool, np.bool_)) and not same


def pages_of(
    features: Any,
    clicks: Any,
    *,
    query: Any,
    rank: Any,
    user: Any = None,
    session: Any = None,
    document: Any = None,
    where: Where = _in_table,
) -> Pages:
    """A click log from a table with a row for each displayed document.

    Args:
        features: of the documents: an array, a data frame, or a sparse matrix; None if there are none.
        clicks: 0 or 1 of each row.
        query: an id of each row's query, of any type.
        rank: at which the document was displayed, from 1.
        user: an id of who searched; None: that is not known.
        session: an id that tells impressions of the same query by the same user apart.
        document: an id; None: documents of a query with the same features are the same, in other logs too, and are
            called by a number made of these. One that a page displays twice counts as two documents.
        where: what errors call a row of a column.

    >>> made = pages_of([[1], [2], [2], [1]], [1, 0, 0, 0], query=list("aaaa"), rank=[1, 2, 1, 2])
    >>> made.log.documents.tolist(), made.rows.tolist()
    ([[0, 1], [1, 0]], [[0, 1], [2, 3]])
    """
    values, names = (None, None) if features is None else features_of(features)
    size = len(values) if values is not None else len(clicks) if hasattr(clicks, "__len__") else np.asarray(clicks).size
    if not size:
        raise FultrError("click log: expected rows, found none")
    if values is None and document is None:
        raise FultrError("document: expected an id of each row's document, where there are no features; found none")
    made = _zeros_and_ones(clicks, size, where)
    place = _ranks(rank, size, where)
    query_names, queries = numbered("query", query, size, where)
    user_names, users = (None, np.zeros(size, np.int64)) if user is None else numbered("user", user, size, where)
    page = _pages(queries, users, place, None if session is None else numbered("session", session, size, where)[1])
    order = np.lexsort((np.arange(size), place, page))
    _check_ranks(page[order], place[order], order, session is not None, where)
    begins = np.flatnonzero(np.r_[True, np.diff(page[order]) != 0])
    check_lengths(begins.size, size, int(place.max()), lambda: where("rank", int(np.argmax(place))))
    rows = np.full((begins.size, int(place.max())), -1, np.int64)
    rows[page[order], place[order] - 1] = order
    shown = rows >= 0
    if document is None:
        assert values is not None
        called, codes = _same_features(values)
    else:
        called, codes = numbered("document", document, size, where)
    first = order[begins]
    displayed = np.where(shown, codes[rows], 0)
    displayed += len(called) * occurrences(displayed, shown)  # one that a page displays twice counts as two
    taken = rows[shown]
    if values is not None and not np.array_equal(taken, np.arange(size)):  # else they need no copy
        values = values[taken]
    owner, pairs = number_pairs(queries[first][:, np.newaxis], displayed, shown)
    log = ImpressionLog(
        queries[first].astype(np.int32),
        pairs,
        np.where(shown, made[rows], 0).astype(np.uint8),
        None if user is None else users[first].astype(np.int32),
        owner[0].astype(np.int32),
        query_names,
        called[owner[1] % len(called)],
        None if values is None else mean_by_pair(values, pairs[shown], owner[0].size),
        user_names,
        names,
    )
    return Pages(log, rows, user_names)


def _zeros_and_ones(clicks: Any, size: int, where: Where) -> NDArray[Any]:
    column, numbers = _column_of_numbers("clicks", clicks, size, "0 or 1", where)
    good: Bools = np.isin(numbers, (0, 1))
    if not good.all():
        row = int(np.argmin(good))
        raise FultrError(f"{where('clicks', row)}: expected 0 or 1, found {column[row]}")
    return numbers.astype(np.uint8)


def _ranks(rank: Any, size: int, where: Where) -> Int64s:
    expected = "a whole number from 1 to 10,000"
    column, numbers = _column_of_numbers("rank", rank, size, expected, where)
    good = (numbers >= 1) & (numbers <= 10_000) & (numbers == np.floor(numbers))
    if not good.all():
        row = int(np.argmin(good))
        raise FultrError(f"{where('rank', row)}: expected {expected}, found {column[row]}")
    return numbers.astype(np.int64)


def _column_of_numbers(name: str, values: Any, size: int, expected: str, where: Where) -> tuple[NDArray[Any], Float64s]:
    """A column as it was given, and its numbers; the first value that is none is named."""
    column = column_of(name, values, size)
    if size and column.dtype.kind in "cmM":  # float64 would take them, and lose what they say
        raise FultrError(f"{where(name, 0)}: expected {expected}, found {written(column[0])}")
    try:
        return column, column.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        listed = column.tolist()
        row, _ = _no_number(listed) or (0, "")
        raise FultrError(f"{where(name, row)}: expected {expected}, found {written(listed[row])}") from None


def _pages(queries: Int64s, users: Int64s, place: Int64s, sessions: Int64s | None) -> Int64s:
    """The number of each row's page, in the order in which pages begin."""
    if sessions is None:
        changes = (np.diff(queries) != 0) | (np.diff(users) != 0) | (np.diff(place) <= 0)
        return np.cumsum(np.r_[0, changes])
    _, first, page = np.unique(np.c_[sessions, queries, users], axis=0, return_index=True, return_inverse=True)
    position = np.empty(first.size, np.int64)
    position[np.argsort(first)] = np.arange(first.size)
    return position[page.ravel()]


def _check_ranks(page: Int64s, place: Int64s, order: Int64s, sessions: bool, where: Where) -> None:
    """Refuse pages whose ranks are not 1, 2, 3, ...; all are sorted by page and rank, `order` are their rows."""
    begins = np.r_[True, np.diff(page) != 0]
    expected = np.where(begins, 1, np.r_[0, place[:-1]] + 1)
    bad = np.flatnonzero(place != expected)
    if not bad.size:
        return
    at = int(bad[0])
    row, found, wanted = int(order[at]), place[at], expected[at]
    if found == wanted - 1:
        first = where("", int(order[at - 1])).split(", ")[-1]
        raise FultrError(f"{where('rank', row)}: rank {found} occurs twice on this page, first in {first}")
    hint = "" if sessions else "; without a session, the rows of a page follow each other in the order of their ranks"
    raise FultrError(f"{where('rank', row)}: expected rank {wanted} next on this page, found {found}{hint}")


def _same_features(values: Float32s) -> tuple[NDArray[Any], Int64s]:
    """A name for each distinct row of features, the same in every log, and for each row which of these it has."""
    from fultr.clicks.row_kernels import differ, fill_hashes  # compiled

    words = np.ascontiguousarray(values + np.float32(0)).view(np.uint32)  # -0 is 0
    hashes, different = np.empty(len(words), np.uint64), np.empty(len(words), bool)
    fill_hashes(words, hashes)
    _, first, codes = np.unique(hashes, return_index=True, return_inverse=True)
    differ(words, first[codes], different)
    if different.any():  # two rows with one hash: one table of millions of rows in a million
        keys = words.view(np.dtype((np.void, 4 * words.shape[1]))).ravel()
        _, first, codes = np.unique(keys, return_index=True, return_inverse=True)
    position = np.empty(first.size, np.int64)
    position[np.argsort(first)] = np.arange(first.size)
    return hashes[np.sort(first)], position[codes]
