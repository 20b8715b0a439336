"""A check for cascades: does a click keep users from the ranks below it?

In a position-based model, whether a document is clicked does not depend on the clicks above it. In a cascade
(Craswell, Zoeter, Taylor and Ramsey 2008) users scan from rank 1 down and may stop at a click, so that the ranks below
are examined less often on pages with a click, and no number per rank says how often.

Clicks of a page may also go together because some users look at more ranks than others. That does no harm to the curve,
which is their average, but it hides a cascade. So impressions of a document at a rank are compared only if the lowest
click between rank 1 and theirs is at the same rank: who clicked there has come that far, with or without another click
above it. Among them, a click above that one makes no difference unless users stop at clicks. This is exact for
position-based clicks, also if users scan down and differ in patience (`fultr.clicks.strata`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fultr.clicks.impressions import ImpressionLog
from fultr.clicks.strata import Contrast, contrast
from fultr.core.arrays import Float64s

LIMIT = 2.33  # standard deviations: false alarms in 1% of logs
TOGETHER = 2.81  # in .25%
_POWER = 0.84  # standard deviations: 80% power


@dataclass(frozen=True)
class Stopping:
    """What the check found.

    Attributes:
        continues: how often users who clicked look at what is below, relative to the same without that click: 1 in a
            position-based model; in `fultr.clicks.models.cascade`, its parameter.
        interval: its 95% interval.
        z: the difference from 1, in standard deviations.
        hidden: the smallest fall below 1 that this log would have shown with a probability of 80%.
    """

    continues: float
    interval: tuple[float, float]
    z: float
    hidden: float

    @property
    def seen(self) -> bool:
        """Is it significant?"""
        return self.z < -LIMIT

    @property
    def together(self) -> bool:
        """Is a click significantly more likely with another above it, so that users who stop could be hidden?"""
        return self.z > TOGETHER


def stopping(log: ImpressionLog) -> Stopping | None:
    """Check a log; None if clicks above others are too few to compare.

    >>> pages = [[7, 8]] * 300
    >>> found = stopping(ImpressionLog.from_arrays([1] * 300, pages, [[1, 0], [0, 1], [0, 0]] * 100))
    >>> found.seen, found.continues  # none of 100 after a click, 100 of 200 without one
    (True, 0.0)
    """
    found = _compared(log)
    ratio, error = found.ratio, found.error
    if ratio is None or not error:
        return None
    spread = 1.96 * error * ((1 + 1 / ratio) / 2) ** 0.5 if ratio > 0 else 0.0  # fewer clicks: wider in logarithms
    low, high = (ratio * np.exp(-spread), ratio * np.exp(spread)) if ratio > 0 else (0.0, 1.96 * error)
    return Stopping(ratio, (float(low), float(high)), found.z, min(1.0, (LIMIT + _POWER) * error))


def _compared(log: ImpressionLog) -> Contrast:
    """Clicks at all ranks but the first, with and without another click above the lowest one between."""
    cells = np.full(log.shown.shape, -1)
    cells[log.shown] = log.cell_of_entry[1]
    clicks = log.clicks.astype(bool)
    lowest = np.zeros(log.impressions, np.int64)  # where the lowest click between rank 1 and this one is, 0 if nowhere
    above = clicks[:, 0].copy()  # is there a click above that one (where there is none, at rank 1)?
    any_above = clicks[:, 0].copy()
    total = Contrast(0.0, 0.0, 0.0)
    for k in range(1, log.ranks):
        there = log.shown[:, k]
        if there.any():
            number = np.unique(cells[there, k], return_inverse=True)[1]
            clicked: Float64s = clicks[there, k].astype(np.float64)
            total += contrast(number * log.ranks + lowest[there], clicked, above[there], ~above[there])
        above = np.where(clicks[:, k], any_above, above)
        lowest = np.where(clicks[:, k], k, lowest)
        any_above |= clicks[:, k]
    return total
