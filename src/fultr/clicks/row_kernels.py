"""Hot loops over the rows of a table: which rows are the same."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fultr.core.arrays import Bools, Int64s, UInt64s
from fultr.core.streams import mix


@njit(nogil=True, cache=True)
def fill_hashes(rows: NDArray[np.uint32], hashes: UInt64s) -> None:
    """A number for each row of 32-bit words; rows that are the same have the same one."""
    for i in range(rows.shape[0]):
        state = np.uint64(rows.shape[1])
        for j in range(rows.shape[1]):
            state = mix(state ^ np.uint64(rows[i, j]))
        hashes[i] = state


@njit(nogil=True, cache=True)
def differ(rows: NDArray[np.uint32], first: Int64s, found: Bools) -> None:
    """Whether each row differs from the one that it is said to be the same as."""
    for i in range(rows.shape[0]):
        found[i] = False
        for j in range(rows.shape[1]):
            if rows[i, j] != rows[first[i], j]:
                found[i] = True
                break
