"""Coordinate by coordinate, the mean of what is left without the largest and the smallest (Yin et al. 2018)."""

from __future__ import annotations

import math

import numpy as np

from fultr.core.arrays import Arrays, Float64s
from fultr.federated.aggregate import saying, summed
from fultr.federated.combining import Aggregation
from fultr.federated.privacy.stage import Sums


def total(settings: Aggregation, state: Arrays, rows: Sums) -> tuple[Sums, Arrays]:
    """The trimmed means, times the clients that they are of."""
    return {name: _trimmed(saying(each), settings.trim) for name, each in rows.items()}, state


def _trimmed(rows: Float64s, share: float) -> Float64s:
    clients = len(rows)
    cut = cut_of(clients, share)
    return summed(np.sort(rows, axis=0)[cut : clients - cut]) * (clients / max(1, clients - 2 * cut))


def cut_of(clients: int, share: float) -> int:
    """How many are left out at each end: at least that share, as long as some remain.

    >>> cut_of(5, 0.2), cut_of(6, 0.2), cut_of(2, 0.2)
    (1, 2, 0)
    """
    return max(0, min(math.ceil(share * clients - 1e-9), (clients - 1) // 2))
