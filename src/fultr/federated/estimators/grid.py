"""Probabilities on a grid."""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Float64s


def hats(grid: Float64s, at: Float64s, density: Float64s) -> Float64s:
    """Probabilities on a grid with the mean of a density: each point is shared by the two grid points around it."""
    at = np.clip(at, grid[0], grid[-1])
    right = np.clip(np.searchsorted(grid, at), 1, grid.size - 1)
    share = (at - grid[right - 1]) / (grid[right] - grid[right - 1])
    mass = np.bincount(right, density * share, grid.size) + np.bincount(right - 1, density * (1 - share), grid.size)
    mass = np.maximum(mass, 0.0)  # densities that are differences may be negative by a rounding error
    return mass / mass.sum()
