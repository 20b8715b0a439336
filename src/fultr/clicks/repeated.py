"""Pages that display a document twice: about 3% of the pages of some real logs.

A click on such a document counts for the place where it was made: by default, the second place is another document.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np

from fultr.clicks.impressions import ImpressionLog
from fultr.core.arrays import Bools, Int64s
from fultr.core.errors import FultrError

Repeated: TypeAlias = Literal["keep", "drop", "refuse"]
REPEATED: tuple[Repeated, ...] = get_args(Repeated)


def occurrences(codes: Int64s, shown: Bools) -> Int64s:
    """How many documents of the same code are above each one on its page, [impressions, K].

    >>> occurrences(np.array([[7, 8, 7, 7], [7, 8, 0, 0]]), np.array([[True] * 4, [True, True, False, False]])).tolist()
    [[0, 0, 1, 2], [0, 0, 0, 0]]
    """
    above = np.zeros(codes.shape, np.int64)
    ordered = np.sort(np.where(shown, codes, -1 - np.arange(codes.shape[1])), axis=1)
    some = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    for k in range(1, codes.shape[1]):
        same = codes[some, :k] == codes[some, k : k + 1]
        above[some, k] = (same & shown[some, :k]).sum(axis=1)
    return np.where(shown, above, 0)


def on_one_page(codes: Int64s, rows: Int64s) -> Bools:
    """Which pages display a document twice, [pages].

    Args:
        codes: the number of the document of each row of a table.
        rows: the table's row of each displayed document, [pages, K]; -1 past the last one.

    >>> on_one_page(np.array([7, 8, 7, 7]), np.array([[0, 1, 2], [3, -1, -1]])).tolist()
    [True, False]
    """
    shown = np.where(rows >= 0, codes[rows], -1 - np.arange(rows.shape[1]))
    ordered = np.sort(shown, axis=1)
    twice: Bools = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    return twice


def without_repeated(path: Path, log: ImpressionLog, twice: Bools, repeated: Repeated) -> ImpressionLog:
    """A log whose pages that display a document twice are kept or left out; a warning says how many these are."""
    pages = int(twice.sum())
    if not pages:
        return log
    done = "its second place counts as another document" if repeated == "keep" else "left out"
    some = "1 page displays" if pages == 1 else f"{pages:,} of {twice.size:,} pages display"
    warnings.warn(f"{path}: {some} a document twice; {done}", stacklevel=4)
    if repeated == "keep":
        return log
    if pages == twice.size:
        raise FultrError(f"{path}: expected impressions, found only pages that display a document twice")
    return log.take(~twice)
