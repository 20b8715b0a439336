"""Coordinate by coordinate, the median of the means of groups of clients (Chen et al. 2017).

Groups are neighbours in the order of the clients' numbers, nearly equal in size. With as many groups as clients it is
the median of the clients. It holds as long as fewer than half of the groups have an adversary in them.
"""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Arrays, Float64s
from fultr.core.threads import chunk_bounds
from fultr.federated.aggregate import saying, summed
from fultr.federated.combining import Aggregation
from fultr.federated.privacy.stage import Sums


def total(settings: Aggregation, state: Arrays, rows: Sums) -> tuple[Sums, Arrays]:
    """The medians, times the clients that they are of."""
    return {name: _grouped(saying(each), settings.groups) for name, each in rows.items()}, state


def _grouped(rows: Float64s, groups: int) -> Float64s:
    if not len(rows):
        return summed(rows)
    means = [summed(rows[begin:end]) / (end - begin) for begin, end in chunk_bounds(len(rows), groups)]
    middle: Float64s = np.median(means, axis=0)
    return middle * len(rows)
