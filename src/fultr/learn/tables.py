"""What estimators are given: tables of any kind as arrays, and errors that scikit-learn's tools understand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fultr.clicks.frames import features_of, numbered
from fultr.core.arrays import Float32s, Int64s
from fultr.core.checks import check_number
from fultr.core.errors import FultrError, one_line


class InputError(FultrError, ValueError, TypeError):
    """A `FultrError` that is a ValueError and a TypeError, too: scikit-learn's tools expect either of bad input."""


@contextmanager
def input_errors() -> Iterator[None]:
    """Within it, or in a function that is decorated with it, a `FultrError` is an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except FultrError as error:
        raise InputError(str(error)) from None


def table_of(estimator: Any, table: Any, *, reset: bool) -> Float32s:
    """The features of a table; names and number of columns are remembered (`reset`), or compared with those before."""
    from sklearn.utils.validation import validate_data

    values = features_of(table)[0]
    try:
        validate_data(estimator, table if hasattr(table, "shape") else values, reset=reset, skip_check_array=True)
    except (TypeError, ValueError) as error:  # other columns than before, or names of which only some are texts
        raise FultrError(f"features: {one_line(str(error), 400)}") from None
    return values


def check_given(rows: int, **columns: Any) -> None:
    """Refuse a log of one row or none, or one without its clicks, queries or ranks."""
    for name, given in columns.items():
        if given is None:
            what = "requires y to be passed, but the target y is None" if name == "clicks" else "found none"
            raise FultrError(f"{name}: expected a value for each row; {what}")
    if not rows:
        raise FultrError("click log: expected rows, found none")
    if rows == 1:
        raise FultrError("click log: expected several rows, found 1 sample")


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn calls a random state: a whole number, a generator to draw it from; 0 if None.

    >>> seed_of(7), seed_of(None)
    (7, 0)
    """
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    check_number("random_state", random_state, least=0, most=2**40, whole=True)
    return int(random_state)


def places(scores: Any, query: Any) -> Int64s:
    """The rank of each row among those of its query, from 1; of equal scores the first row is ranked higher.

    >>> places([0.5, 0.1, 0.9], ["a", "b", "a"]).tolist()
    [2, 1, 1]
    """
    values = np.asarray(scores, np.float64)
    queries = numbered("query", query, values.size)[1]
    order = np.lexsort((np.arange(values.size), -values, queries))
    begins = np.flatnonzero(np.r_[True, np.diff(queries[order]) != 0]) if order.size else order
    starts = np.repeat(begins, np.diff(np.r_[begins, order.size]))
    found = np.empty(order.size, np.int64)
    found[order] = np.arange(order.size) - starts + 1
    return found
