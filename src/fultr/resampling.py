"""Estimates of examination by name, and how far they would differ in another log of the same kind: the bootstrap.

What is drawn again, with replacement, are users, queries or pages. Pages of one user or one query resemble each other;
drawing page by page takes them as independent, and its intervals are then too narrow for any other users or queries.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fultr.checks import check_choice, check_number, check_seed
from fultr.document_em import document_em
from fultr.errors import FultrError
from fultr.harvesting import adjacent_pairs, all_pairs, pair_counts
from fultr.impressions import Cells, ImpressionLog
from fultr.regression import feature_model
from fultr.streams import Purpose, generator
from fultr.types import Float64s, Int32s, Int64s

Method = Literal["all-pairs", "regression", "em", "adjacent"]
Unit = Literal["users", "queries", "pages"]
METHODS: tuple[Method, ...] = ("all-pairs", "regression", "em", "adjacent")  # the best that can be done first
UNITS: tuple[Unit, ...] = ("users", "queries", "pages")
INTERVAL = (2.5, 97.5)  # percentiles: 95% intervals


def examination_by(method: Method, cells: Cells, *, start: Float64s | None = None) -> Float64s:
    """Examination relative to rank 1, [K], estimated by a method.

    Args:
        method: "all-pairs" or "adjacent" harvest interventions, "regression" fits a relevance
            that follows from features, "em" one for each document.
        cells: counts of the log.
        start: where "em" and "regression" start; given one, as from another draw, "em" stops a little earlier.

    >>> log = ImpressionLog.from_arrays([1] * 4, [[7, 8], [8, 7]] * 2, [[1, 0], [1, 0], [1, 1], [1, 0]])
    >>> examination_by("all-pairs", log.cells()).round(6).tolist()
    [1.0, 0.25]
    """
    check_choice("method", method, METHODS)
    cells.check_clicks()
    if method == "em":
        return document_em(cells, start=start, tolerance=1e-6 if start is None else 1e-5, most=1000).examination
    if method == "regression":
        return feature_model(cells, start=start).examination
    counts = pair_counts(cells)
    return adjacent_pairs(counts) if method == "adjacent" else all_pairs(counts)


def usual_unit(log: ImpressionLog) -> Unit:
    """What to draw again unless told: users if the log has several, else queries if it has several, else pages."""
    if log.users is not None and log.users.max() > 0:
        return "users"
    return "queries" if np.unique(log.queries).size > 1 else "pages"


def units_of(log: ImpressionLog, over: Unit) -> Int32s | Int64s:
    """Which unit each impression belongs to, numbered from 0 without gaps."""
    check_choice("bootstrap over", over, UNITS)
    if over == "pages":
        return np.arange(log.impressions)
    if over == "users":
        if log.users is None:
            raise FultrError("bootstrap over users: the log does not say who searched; take queries or pages")
        return np.unique(log.users, return_inverse=True)[1]
    return np.unique(log.queries, return_inverse=True)[1]


@dataclass(frozen=True, eq=False)
class Draws:
    """What a statistic came to in each bootstrap draw.

    Attributes:
        values: [draws that gave one, size of the statistic].
        failed: draws in which it could not be computed.
        over: what was drawn.
        effective_units: how many units of equal size would say as much: (sum of sizes)^2 / sum of squared sizes.
    """

    values: Float64s
    failed: int
    over: Unit
    effective_units: float

    @property
    def usable(self) -> bool:
        """Are there draws enough for intervals?"""
        return len(self.values) >= 20  # the outermost twentieth must hold at least one

    def interval(self) -> tuple[Float64s, Float64s] | None:
        """The 95% interval of each element: percentiles of the draws; None if there are too few."""
        if not self.usable:
            return None
        low, high = np.percentile(self.values, INTERVAL, axis=0)
        return low, high


def bootstrap(
    log: ImpressionLog,
    statistic: Callable[[Cells], Float64s],
    *,
    over: Unit | None = None,
    draws: int = 200,
    seed: int = 0,
    on_draw: Callable[[], None] = lambda: None,
) -> Draws:
    """Compute a statistic for logs drawn from a log with replacement.

    A draw's log depends on the seed and the draw's number alone. A draw for which the statistic raises a `FultrError`
    (no document left at two ranks, say) is counted as failed.

    Args:
        log: the log.
        statistic: of its counts.
        over: what is drawn; see `usual_unit`.
        draws: how many.
        seed: of the draws.
        on_draw: called after each draw.
    """
    check_number("bootstrap", draws, least=0, most=10**6, whole=True)
    check_seed(seed)
    over = over or usual_unit(log)
    unit = units_of(log, over)
    units = int(unit.max()) + 1
    sizes = np.bincount(unit).astype(np.float64)
    whole = log.cells()
    query_unit = np.zeros(log.query_names.size, np.int64)
    query_unit[log.queries] = unit  # read only if queries are drawn
    values: list[Float64s] = []
    for draw in range(draws):
        chosen = generator(seed, Purpose.BOOTSTRAP, draw).integers(units, size=units)
        times = np.bincount(chosen, minlength=units).astype(np.float64)
        if over == "queries":  # a query that is drawn twice is two queries, each with documents of its own
            cells = replace(whole, copies=times[query_unit[log.query_of_pair]])
        else:
            cells = log.cells(times[unit])
        with suppress(FultrError):
            values.append(statistic(cells))
        on_draw()
    size = values[0].size if values else 0
    effective = float(sizes.sum() ** 2 / (sizes**2).sum())
    return Draws(np.array(values).reshape(len(values), size), draws - len(values), over, effective)
