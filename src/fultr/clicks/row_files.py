"""Click logs in files with a row for each displayed document: the usual long table.

Columns: query, rank (from 1), click (0 or 1), document (an id), user and session (optional), and features. A page is a
session's query by a user, in whatever order its rows are; without a session, rows are in the order of ranks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from fultr.clicks.feature_names import number_in
from fultr.clicks.file_tables import OF_FEATURE, FileTable, as_numbers, zeros_and_ones
from fultr.clicks.frames import coarsened, pages_of
from fultr.clicks.impressions import ImpressionLog
from fultr.clicks.repeated import Repeated, on_one_page, without_repeated
from fultr.core.arrays import Float32s
from fultr.core.checks import written
from fultr.core.errors import FultrError

_CALLED = {
    "query": ("query", "query_id", "qid"),
    "rank": ("rank", "position"),
    "click": ("click", "clicks", "clicked"),
    "document": ("document", "document_id", "doc_id"),
    "user": ("user", "user_id"),
    "session": ("session", "session_id", "impression"),
}
"""What a column may be called; the first of these names that there is."""

_NEEDED = ("query", "rank", "click")


def are_rows(names: Sequence[str]) -> bool:
    """Do the columns say that a row is a displayed document?

    >>> are_rows(["query", "rank", "click"]), are_rows(["query", "documents", "clicks"])
    (True, False)
    """
    return "documents" not in names and any(name in names for name in _CALLED["rank"])


def named_columns(place: str, given: Sequence[str], features: Sequence[str] | None) -> list[str]:
    """What each column of a file is for: a name of the table above, a feature, or "" for nothing.

    Args:
        place: file and line, for errors.
        given: the columns' names.
        features: the names of those that hold features; None: those that are called so.
    """
    names = [name.strip().lower() for name in given]
    exact = [name.strip() for name in given]
    found = [""] * len(names)
    for meaning, called in _CALLED.items():
        name = next((name for name in called if name in names), None)
        if name is not None and names.count(name) > 1:
            raise FultrError(f"{place}: expected one column {name}, found {names.count(name)}")
        if name is not None:
            found[names.index(name)] = meaning
        elif meaning in _NEEDED:
            there = ", ".join(names)[:80]
            raise FultrError(f"{place}: expected columns query, rank and click; there is no {meaning} in {there!r}")
    if features is None:
        chosen = [name for name in exact if number_in(name) is not None]
    elif isinstance(features, Iterable):
        chosen = [features] if isinstance(features, str) else list(features)
    else:
        raise FultrError(f"{place}: features: expected names of columns, found {written(features)}")
    for i, name in enumerate(chosen):
        if name in chosen[:i]:
            raise FultrError(f"{place}: expected different columns of features, found {name} twice")
        if exact.count(name) != 1:
            raise FultrError(f"{place}: expected one column {name} of features, found {exact.count(name)}")
        if found[exact.index(name)]:
            raise FultrError(f"{place}: column {name} cannot be a feature: it is the {found[exact.index(name)]}")
        found[exact.index(name)] = OF_FEATURE + name
    if not chosen and "document" not in found:
        raise FultrError(f"{place}: expected a column document, or features that tell documents apart; found neither")
    return found


def log_of_rows(table: FileTable, repeated: Repeated) -> ImpressionLog:
    """The click log in such a table."""
    ids = {}
    for name in ("query", "user", "session", "document"):
        if name in table.columns:
            names, numbers = table.numbered(name)
            ids[name] = names[numbers]
    ranks, clicks = _column(table, "rank"), _column(table, "click", flags=True)
    chosen = [name for name in table.columns if name.startswith(OF_FEATURE)]
    features = _features(table, chosen) if chosen else None
    made = pages_of(
        features,
        clicks,
        query=ids["query"],
        rank=ranks,
        user=ids.get("user"),
        session=ids.get("session"),
        document=ids.get("document"),
        where=table.where,
    )
    log = made.log
    if chosen:
        log = replace(log, feature_names=tuple(name.removeprefix(OF_FEATURE) for name in chosen))
    if "document" not in ids:
        return log
    twice = on_one_page(table.numbered("document")[1], made.rows)
    if repeated == "refuse" and twice.any():
        page = int(np.argmax(twice))
        row = int(made.rows[page][0])
        raise FultrError(f"{table.where('document', row)}: expected different documents on a page, found one twice")
    return without_repeated(table.path, log, twice, repeated)


def _column(table: FileTable, name: str, *, flags: bool = False) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """A column of numbers; what is none is refused with its row. With flags, true and false are numbers, too."""
    text = _text(table, name)
    numbers = as_numbers(zeros_and_ones(text) if flags else text)
    table.wrong(np.isnan(numbers), f"a number in column {name}", text)
    return numbers


def _text(table: FileTable, name: str) -> pa.Array:
    """A column of numbers as text; true is 1."""
    column = table.columns[name]
    return table.cast(name, column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column, pa.string())


def _features(table: FileTable, names: Sequence[str]) -> Float32s:
    """float32 [rows, features]."""
    values = np.empty((table.numbers.size, len(names)), np.float32)
    for i, name in enumerate(names):
        text, called = _text(table, name), name.removeprefix(OF_FEATURE)
        with np.errstate(over="ignore"):
            values[:, i] = numbers = as_numbers(text)
        table.wrong(~np.isfinite(values[:, i]), f"a finite number in column {called}", text)
        if said := coarsened(numbers, values[:, i]):
            warnings.warn(f"{table.path}, column {called}: {said}", stacklevel=4)
    return values
