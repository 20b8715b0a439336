"""Tables with a row for each displayed document."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from fultr.clicks.frames import features_of, numbered, pages_of
from fultr.core.errors import FultrError

ROWS = [[0.1, 3], [0.2, 4], [0.3, 5], [0.2, 4], [0.1, 3]]
PAGE = dict(query=["a", "a", "b", "a", "a"], rank=[1, 2, 1, 1, 2])
CLICKS = [1, 0, 0, 0, 1]


@pytest.mark.parametrize(
    "table",
    [
        ROWS,
        np.array(ROWS),
        pd.DataFrame(ROWS, columns=["x", "y"]),
        pl.DataFrame(ROWS, schema=["x", "y"], orient="row"),
        pa.table({"x": [row[0] for row in ROWS], "y": [row[1] for row in ROWS]}),
        sparse.csr_array(np.array(ROWS)),
    ],
    ids=["lists", "numpy", "pandas", "polars", "arrow", "scipy"],
)
def test_every_kind_of_table_gives_the_same_log(table):
    made = pages_of(table, CLICKS, **PAGE)
    assert made.rows.tolist() == [[0, 1], [2, -1], [3, 4]]
    assert made.log.documents.tolist() == [[0, 1], [2, -1], [1, 0]]
    assert made.log.clicks.tolist() == [[1, 0], [0, 0], [0, 1]]
    assert made.log.features.tolist() == np.float32(ROWS[:3]).tolist()
    assert made.log.query_names[made.log.queries].tolist() == ["a", "b", "a"]


def test_names_of_features_are_those_of_the_columns():
    assert features_of(pl.DataFrame({"x": [1], "y": [True]}))[1] == ("x", "y")
    assert features_of(np.ones((1, 2)))[1] is None


MIXED = pd.DataFrame({"x": [1.5, 2.0], "y": [True, False], "z": [3, 4]})


@pytest.mark.parametrize(
    "table",
    [
        MIXED,
        MIXED.astype({"x": "float32[pyarrow]"}),
        MIXED.astype("float64[pyarrow]"),
        MIXED.astype({"y": "boolean"}),
        MIXED.convert_dtypes(),
        MIXED.convert_dtypes(dtype_backend="pyarrow"),
        MIXED.astype({"y": pd.SparseDtype(bool)}),
        pl.from_pandas(MIXED),
        pl.from_pandas(MIXED).with_columns(pl.col("z").cast(pl.Int128)),
        pa.Table.from_pandas(MIXED),
        MIXED.to_numpy(),
        [["1.5", "1", "3"], ["2", "0", "4"]],
    ],
)
def test_columns_of_different_types_are_numbers(table):
    assert features_of(table)[0].tolist() == [[1.5, 1, 3], [2, 0, 4]]


@pytest.mark.parametrize("clicks", [["1.0", "0.0"], [True, False], pd.Series([1, 0], dtype="Int64"), ["1", 0.0]])
def test_clicks_of_any_type(clicks):
    assert pages_of([[1], [2]], clicks, query=[1, 1], rank=["1", 2.0]).log.clicks.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("clicks", "says"),
    [
        ([[1, 2], 0], "clicks: expected a value for each of 2 rows, found lists of different lengths"),
        (np.array([1, 1j]), r"clicks, row 0: expected 0 or 1, found \(1\+0j\)"),
        (np.zeros(2, "M8[s]"), "clicks, row 0: expected 0 or 1, found 1970-01-01T00:00:00"),
    ],
)
@pytest.mark.parametrize("features", [[[1], [2]], None])
def test_clicks_that_are_none(features, clicks, says):
    with pytest.raises(FultrError, match=says):
        pages_of(features, clicks, query=[1, 1], rank=[1, 2], document=["a", "b"])


def test_ids_may_be_columns_of_any_kind():
    columns = dict(
        query=pd.Series([(1, 2), "a", "a", 7, 7], dtype=object),
        rank=pl.Series([1, 1, 2, 1, 2]),
        user=pa.array(["u", "v", "v", "w", "w"]),
    )
    made = pages_of(ROWS, pd.Series(CLICKS, dtype=bool), **columns)
    assert made.log.query_names[made.log.queries].tolist() == [(1, 2), "a", 7]
    assert made.user_names[made.log.users].tolist() == ["u", "v", "w"]


def test_what_pandas_calls_missing_is_no_id():
    for missing in (None, np.nan, pd.NA, pd.NaT):
        with pytest.raises(FultrError, match="query, row 1: expected an id, found none"):
            numbered("query", ["a", missing], 2)
    with pytest.raises(FultrError, match="query, row 1: expected an id, found none"):
        numbered("query", pd.Series(["a", pd.NA], dtype="string"), 2)


def test_columns_whose_names_are_no_names():
    """Names that are no texts are none; the same name twice is refused."""
    assert features_of(pd.DataFrame([[1.0, 2.0]]))[1] is None
    with pytest.raises(FultrError, match="features: expected columns with different names"):
        features_of(pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]))


def test_one_endless_page_is_refused_before_memory_is():
    pages, long = 100_000, 5_000
    rank = np.r_[np.ones(pages, int), np.arange(1, long + 1)]
    query = np.r_[np.arange(pages), np.full(long, pages)]
    with pytest.raises(FultrError, match=r"rank, row 104999: 5,000 documents on a page, where pages have 1\.0 on"):
        pages_of(None, np.zeros(rank.size), query=query, rank=rank, document=np.arange(rank.size))


def test_sessions_tell_pages_apart_in_any_order_of_rows():
    shuffled = [3, 1, 4, 0, 2]
    session = np.array([10, 10, 11, 12, 12])
    table, clicks = np.array(ROWS)[shuffled], np.array(CLICKS)[shuffled]
    columns = {name: np.array(values)[shuffled] for name, values in PAGE.items()}
    made = pages_of(table, clicks, **columns, session=session[shuffled])
    assert made.rows.tolist() == [[0, 2], [3, 1], [4, -1]]  # in the order of their first rows
    assert made.log.clicks.tolist() == [[0, 1], [1, 0], [0, 0]]


def test_without_sessions_a_page_ends_where_the_rank_does_not_rise():
    made = pages_of(np.ones((4, 1)), [0, 0, 0, 1], query=[1] * 4, rank=[1, 1, 2, 1])
    assert made.rows.tolist() == [[0, -1], [1, 2], [3, -1]]
    users = pages_of(np.ones((2, 1)), [0, 1], query=[1, 1], rank=[1, 1], user=["a", "b"])
    assert users.rows.tolist() == [[0], [1]]


def test_a_document_twice_on_a_page_counts_as_two():
    made = pages_of(np.ones((4, 1)), [0, 1, 1, 0], query=[1] * 4, rank=[1, 2, 1, 2], document=["d", "d", "d", "e"])
    assert made.log.documents.tolist() == [[0, 2], [0, 1]]
    assert made.log.document_names.tolist() == ["d", "e", "d"]


def test_features_that_differ_by_page_are_averaged_for_a_document():
    made = pages_of([[1], [3]], [0, 1], query=[1, 1], rank=[1, 1], document=["d", "d"])
    assert made.log.features.tolist() == [[2.0]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (dict(rank=[1, 2, 1, 1, 3]), "rank, row 4: expected rank 2 next on this page, found 3; without a session, the"),
        (dict(rank=[1, 2, 2, 1, 2]), "rank, row 2: expected rank 1 next on this page, found 2"),
        (dict(rank=[0, 1, 0, 0, 1]), "rank, row 0: expected a whole number from 1 to 10,000, found 0"),
        (dict(rank=[1, 1.5, 1, 1, 2]), "rank, row 1: expected a whole number from 1 to 10,000, found 1.5"),
        (dict(rank=[1, 2, "x", 1, 2]), 'rank, row 2: expected a whole number from 1 to 10,000, found the text "x"'),
        (dict(rank=[[1, 2], 1]), "rank: expected a value for each of 5 rows, found lists of different lengths"),
        (
            dict(rank=np.zeros(5, "M8[s]")),
            "rank, row 0: expected a whole number from 1 to 10,000, found 1970-01-01T00:00",
        ),
        (dict(rank=[1, 2]), r"rank: expected a value for each of 5 rows, found shape \(2,\)"),
        (dict(query=["a", "a", None, "a", "a"]), "query, row 2: expected an id, found none"),
        (dict(user=[1.0, 1.0, np.nan, 1, 1]), "user, row 2: expected an id, found none"),
        (dict(session=[7] * 5), "rank, row 3: rank 1 occurs twice on this page, first in row 0"),
        (dict(clicks=[1, 0, 2, 0, 1]), "clicks, row 2: expected 0 or 1, found 2"),
        (dict(clicks=["1", 0, "0.0", "yes", "no"]), 'clicks, row 3: expected 0 or 1, found the text "yes"'),
        (dict(clicks=pd.Series([1, 0, 1, pd.NA, 0], dtype="boolean")), "clicks, row 3: expected 0 or 1, found <NA>"),
        (dict(clicks=[0, 1, 10**400, 0, 1]), "clicks, row 2: expected 0 or 1, found a number of about 401 digits"),
        (
            dict(features=[[1], [2], [np.nan], [4], [5]]),
            "features, row 2, column 0: expected a finite number, found NaN",
        ),
        (
            dict(features=pd.DataFrame({"a": [1.5] * 5, "b": pd.array([True, False, None, True, None], "boolean")})),
            "features, row 2, column b: expected a finite number, found NaN",
        ),
        (dict(features=np.zeros((5, 0))), r"features: found 0 feature\(s\) \(shape=\(5, 0\)\) while a minimum of 1"),
        (dict(features=[[1], [2], ["x"], [4], [5]]), "features, row 2, column 0: expected a number: could not convert"),
        (dict(features=[[1], [2], [3, 4], [4], [5]]), "features, row 2: expected 1 numbers as in row 0, found 2"),
        (dict(features=[{"a": 1}] * 5), r"features: expected rows of numbers, found shape \(5,\)"),
        (dict(features=np.zeros((5, 1, 1))), r"features: expected rows of numbers, found shape \(5, 1, 1\)"),
        (dict(features=np.zeros((5, 1), "M8[s]")), r"features: expected numbers, found values of type datetime64\[s\]"),
        (dict(features=pd.DataFrame({"t": ["x"] * 5})), "features: expected numbers in column t, found String"),
        (dict(features="x"), "features: expected an array or a table of numbers, found str"),
        (dict(features=np.zeros((0, 1))), "click log: expected rows, found none"),
    ],
)
def test_bad_rows_are_named(changed, message):
    given = dict(features=ROWS, clicks=CLICKS, **PAGE) | changed
    with pytest.raises(FultrError, match=message):
        pages_of(given.pop("features"), given.pop("clicks"), **given)
