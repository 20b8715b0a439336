"""The bootstrap: how far a statistic would differ in another log of the same kind.

Users, queries or pages are resampled with replacement. Pages of one user or one query resemble each other; resampling
page by page treats them as independent, and the intervals are then too narrow for other users or queries.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fultr.clicks.canonical import page_places, query_places, user_places
from fultr.clicks.impressions import Cells, ImpressionLog
from fultr.core.arrays import Float64s, Int32s, Int64s
from fultr.core.checks import check_choice, check_number, check_seed
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, generator

Unit = Literal["users", "queries", "pages"]
UNITS: tuple[Unit, ...] = ("users", "queries", "pages")
INTERVAL = (2.5, 97.5)  # percentiles: 95% intervals


def usual_unit(log: ImpressionLog) -> Unit:
    """What to resample by default: users if the log has several, else queries if it has several, else pages."""
    if log.users is not None and log.users.max() > 0:
        return "users"
    return "queries" if np.unique(log.queries).size > 1 else "pages"


def units_of(log: ImpressionLog, over: Unit) -> Int32s | Int64s:
    """Which unit each impression belongs to, numbered from 0 without gaps, and alike in all logs of the same pages."""
    check_choice("bootstrap over", over, UNITS)
    if over == "pages":
        return page_places(log)
    if over == "users":
        if log.users is None:
            raise FultrError("bootstrap over users: the log does not say who searched; use queries or pages")
        return np.unique(user_places(log), return_inverse=True)[1]
    return np.unique(query_places(log), return_inverse=True)[1]


@dataclass(frozen=True, eq=False)
class Draws:
    """The values of a statistic in each bootstrap draw.

    Attributes:
        values: [draws with a value, size of the statistic].
        failed: number of draws in which it could not be computed.
        over: what was resampled.
        effective_units: how many units of equal size would say as much: (sum of sizes)^2 / sum of squared sizes.
    """

    values: Float64s
    failed: int
    over: Unit
    effective_units: float

    @property
    def usable(self) -> bool:
        """Are there enough draws for intervals?"""
        return len(self.values) >= 20  # the outermost twentieth must hold at least one draw

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
        log: the click log.
        statistic: a function of its counts.
        over: what is resampled; see `usual_unit`.
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
    query_unit[log.queries] = unit  # used only if queries are resampled
    values: list[Float64s] = []
    for draw in range(draws):
        chosen = generator(seed, Purpose.BOOTSTRAP, draw).integers(units, size=units)
        times = np.bincount(chosen, minlength=units).astype(np.float64)
        if over == "queries":  # a query drawn twice counts as two queries, each with its own documents
            cells = replace(whole, copies=times[query_unit[log.query_of_pair]])
        else:
            cells = log.cells(times[unit])
        with suppress(FultrError):
            values.append(statistic(cells))
        on_draw()
    size = values[0].size if values else 0
    effective = float(sizes.sum() ** 2 / (sizes**2).sum())
    return Draws(np.array(values).reshape(len(values), size), draws - len(values), over, effective)
