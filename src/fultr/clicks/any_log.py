"""A click log from whatever holds one: a file, a data frame, or a log that was read already."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fultr.clicks.file_tables import FileTable
from fultr.clicks.files import feature_names, log_of_pages, page_columns, read_click_log, refuse_columns
from fultr.clicks.frames import Pages, dense
from fultr.clicks.impressions import ImpressionLog
from fultr.clicks.repeated import REPEATED, Repeated
from fultr.clicks.row_files import are_rows, log_of_rows, named_columns
from fultr.core.checks import check_choice
from fultr.core.errors import FultrError, one_line


def click_log(
    given: Any,
    *,
    features: Sequence[str] | None = None,
    repeated: Repeated = "keep",
) -> ImpressionLog:
    """A click log from a data frame (pandas, polars, Arrow), a dict of columns, or the path of a file.

    The columns are those of click-log files, see `fultr.read_click_log`: a row is a displayed document (query, rank,
    click, document, user, session, f1, f2, ...), or a page (query, user, documents, clicks, features, the last three
    being lists). Errors name rows from 0.

    Args:
        given: the table or the path; a click log is returned as it is.
        features: the columns that hold the features, where a row is a displayed document; by default those called f1,
            f2, ... or feature_1, feature_2, ...
        repeated: what becomes of pages that display a document twice, see `fultr.read_click_log`.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"query": ["a", "a"], "rank": [1, 2], "click": [0, 1], "document": ["x", "y"]})
    >>> click_log(rows).clicks.tolist()
    [[0, 1]]
    """
    check_choice("repeated", repeated, REPEATED)
    if isinstance(given, ImpressionLog):
        return given
    if isinstance(given, Pages):
        return given.log
    if isinstance(given, (str, os.PathLike)):
        return read_click_log(Path(given), features=features, repeated=repeated)
    table = _arrow(given)
    names = [str(name) for name in table.column_names]
    plain = [name.strip().lower() for name in names]
    rows = are_rows(plain)
    if not rows:
        refuse_columns("click log", features)
    wanted = named_columns("click log", names, features) if rows else page_columns("click log", names)
    columns = {}
    for i, name in enumerate(wanted):
        if name:
            column = table.column(i).combine_chunks()
            columns[name] = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    held = FileTable(Path("click log"), columns, np.arange(table.num_rows), "row")
    if not table.num_rows:
        raise FultrError("click log: expected rows, found none")
    for name, column in columns.items():
        held.wrong_if_missing(name, column)
    if rows:
        return log_of_rows(held, repeated)
    return log_of_pages(held, None, repeated, feature_names(names, wanted))


def _arrow(given: Any) -> pa.Table:
    if isinstance(given, pa.Table):
        return given
    try:
        if isinstance(given, dict):
            return pa.table(given)
        import narwhals as nw

        return nw.from_native(dense(given), eager_only=True).to_arrow()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise FultrError(f"click log: expected columns with values of one type each: {one_line(str(error))}") from None
    except TypeError:
        raise FultrError(
            "click log: expected a click log (fultr.read_click_log), a data frame with columns such as query, rank and "
            f"click, or the path of a file; found {type(given).__name__}"
        ) from None
