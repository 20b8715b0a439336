"""Compiled code for click logs, apart from them: an application that only writes its log loads no compiler."""

from __future__ import annotations

import numpy as np
from numba import njit

from fultr.core.arrays import Float64s, Int64s


@njit(nogil=True, cache=True)
def each_impression(of_clients: Float64s, offsets: Int64s) -> Float64s:
    """Numbers [clients, parts, K] as [impressions, K]; impression i of a client belongs to part i mod parts."""
    _, parts, ranks = of_clients.shape
    rows = np.empty((offsets[-1], ranks))
    for u in range(offsets.size - 1):
        part = 0
        for i in range(offsets[u], offsets[u + 1]):
            for k in range(ranks):
                rows[i, k] = of_clients[u, part, k]
            part = part + 1 if part + 1 < parts else 0
    return rows
