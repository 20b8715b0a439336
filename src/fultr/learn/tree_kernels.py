"""Hot loops of trees that grow on a whole log: bins, sums per node and bin, best splits, and leaves."""

from __future__ import annotations

import numpy as np
from numba import njit

from fultr.core.arrays import Float32s, Float64s, Int64s, UInt8s


@njit(nogil=True, cache=True)
def fill_bins(features: Float32s, column: int, bounds: Float32s, found: UInt8s) -> None:
    """The bin of each value of a column: how many bounds it is above."""
    for row in range(features.shape[0]):
        value = features[row, column]
        low, high = 0, bounds.size
        while low < high:
            middle = (low + high) // 2
            if value > bounds[middle]:
                low = middle + 1
            else:
                high = middle
        found[row] = low


@njit(nogil=True, cache=True, error_model="numpy")
def best_bound(
    bins: UInt8s, leaves: UInt8s, pulls: Float64s, nodes: int, bounds: int, penalty: float, least: float
) -> tuple[float, int]:
    """The bound of one feature that gains most, if every node of a level splits by it, and what it gains.

    A node gains G^2 / (H + penalty) on each side; one with less curvature than `least` gains nothing and is not split.
    Of equal bounds the first is taken.

    Args:
        bins: of the feature, [rows].
        leaves: the node of each row.
        pulls: [rows, 2], gradient and curvature.
        nodes: of the level.
        bounds: of the feature; bins are one more.
        penalty: added to curvatures.
        least: curvature of a node.
    """
    size = bounds + 1
    sums = np.zeros((nodes * size, 2))
    for row in range(bins.size):
        at = leaves[row] * size + bins[row]
        sums[at, 0] += pulls[row, 0]
        sums[at, 1] += pulls[row, 1]
    gains = np.zeros(bounds)
    for node in range(nodes):
        gradient, curvature = 0.0, 0.0
        for at in range(node * size, (node + 1) * size):
            gradient += sums[at, 0]
            curvature += sums[at, 1]
        left_gradient, left_curvature = 0.0, 0.0
        whole = gradient * gradient / (curvature + penalty) if curvature >= least else 0.0
        for bound in range(bounds):
            left_gradient += sums[node * size + bound, 0]
            left_curvature += sums[node * size + bound, 1]
            right_gradient, right_curvature = gradient - left_gradient, curvature - left_curvature
            if left_curvature >= least and right_curvature >= least:
                gains[bound] += left_gradient * left_gradient / (left_curvature + penalty) + (
                    right_gradient * right_gradient / (right_curvature + penalty)
                )
            else:
                gains[bound] += whole
    best = 0
    for bound in range(1, bounds):
        if gains[bound] > gains[best]:
            best = bound
    return gains[best], best


@njit(nogil=True, cache=True, error_model="numpy")
def best_bounds(
    bins: UInt8s,
    columns: Int64s,
    bounds: Int64s,
    leaves: UInt8s,
    pulls: Float64s,
    nodes: int,
    penalty: float,
    least: float,
    gains: Float64s,
    best: Int64s,
) -> None:
    """For each of some features what `best_bound` finds; one with a single bin gains nothing.

    Args:
        bins: [features, rows].
        columns: the features.
        bounds: how many each feature has, [features].
        leaves: the node of each row.
        pulls: [rows, 2].
        nodes: of the level.
        penalty: added to curvatures.
        least: curvature of a node.
        gains: [columns], written.
        best: [columns], written.
    """
    for i in range(columns.size):
        column = columns[i]
        if bounds[column] == 0:
            gains[i], best[i] = -1.0, 0
        else:
            gains[i], best[i] = best_bound(bins[column], leaves, pulls, nodes, bounds[column], penalty, least)


@njit(nogil=True, cache=True)
def descend(bins: UInt8s, bound: int, leaves: UInt8s) -> None:
    """Answer the question of one level for each row: is its bin above the bound?"""
    for row in range(bins.size):
        leaves[row] = 2 * leaves[row] + (bins[row] > bound)


@njit(nogil=True, cache=True, error_model="numpy")
def newton_steps(leaves: UInt8s, pulls: Float64s, penalty: float, least: float, values: Float64s) -> None:
    """The value of each leaf: G / (H + penalty), 0 where H is below `least`."""
    sums = np.zeros((values.size, 2))
    for row in range(leaves.size):
        sums[leaves[row], 0] += pulls[row, 0]
        sums[leaves[row], 1] += pulls[row, 1]
    for leaf in range(values.size):
        values[leaf] = sums[leaf, 0] / (sums[leaf, 1] + penalty) if sums[leaf, 1] >= max(least, 1e-12) else 0.0


@njit(nogil=True, cache=True)
def add_values(leaves: UInt8s, values: Float64s, scores: Float64s) -> None:
    """Add to each row's score the value of its leaf."""
    for row in range(leaves.size):
        scores[row] += values[leaves[row]]
