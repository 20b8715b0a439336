"""How the server grows trees: splits that are drawn, and leaf values and best splits from sums over clients.

All sums are pairs of a gradient G and a curvature H, the last axis. Regularisation is by shares of the cohort's whole
curvature, so that it does not depend on the number of clients, on learning rates or on credit: a leaf's value is
G / (H + penalty x total), and zero where H is below least x total.
"""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Float32s, Float64s, Int64s
from fultr.core.streams import Purpose, uniforms


def drawn_splits(seed: int, first: int, trees: int, depth: int, features: int) -> tuple[Int64s, Float32s]:
    """Splits of trees `first`, `first + 1`, ...: features [trees, depth], and thresholds, squares of uniform numbers.

    Values that are scaled to [0, 1] within a query are mostly near 0: squares are, too.
    """
    found, thresholds = np.empty((trees, depth), np.int64), np.empty((trees, depth), np.float32)
    levels = np.arange(2 * depth)
    for i in range(trees):
        numbers = uniforms(seed, int(Purpose.SPLITS), first + i, levels)
        found[i] = (numbers[:depth] * features).astype(np.int64)
        thresholds[i] = numbers[depth:] ** 2
    return found, thresholds


def drawn_columns(seed: int, tree: int, columns: int, features: int) -> Int64s:
    """The features whose bins are counted for a tree: [columns], ascending.

    >>> drawn_columns(0, 5, columns=3, features=3).tolist()
    [0, 1, 2]
    """
    numbers = uniforms(seed, int(Purpose.COLUMNS), tree, np.arange(features))
    found: Int64s = np.sort(np.argsort(numbers, kind="stable")[:columns])
    return found


def bin_bounds(bins: int) -> Float32s:
    """What separates bins of a feature in [0, 1]: squares, since most values are near 0.

    >>> bin_bounds(4).tolist()
    [0.0625, 0.25, 0.5625]
    """
    bounds: Float32s = ((np.arange(1, bins) / bins) ** 2).astype(np.float32)
    return bounds


def leaf_values(sums: Float64s, penalty: float, least: float) -> Float64s:
    """A Newton step for each leaf of a tree, or of several: [..., leaves] from sums [..., leaves, 2].

    >>> leaf_values(np.array([[1.0, 3.0], [-2.0, 6.9], [0.2, 0.1]]), penalty=0.1, least=0.05).round(3).tolist()
    [0.25, -0.253, 0.0]
    """
    gradient, curvature = sums[..., 0], np.maximum(sums[..., 1], 0)  # noise can make it negative
    total = curvature.sum(axis=-1, keepdims=True)
    enough = (curvature >= least * total) & (curvature > 0)
    return np.where(enough, gradient / np.where(enough, curvature + penalty * total, 1.0), 0.0)


def best_split(sums: Float64s, penalty: float, least: float) -> tuple[int, int, Float64s]:
    """The split of a tree's next level that gains most over all its nodes, and what falls to either side of it.

    A side of a node gains G^2 / (H + penalty x total), or nothing where H is below least x total. Of equal gains the
    first counts.

    Args:
        sums: [nodes, columns, bins, 2].
        penalty: share of the whole curvature that is added to a leaf's.
        least: share of the whole curvature that a leaf needs.

    Returns:
        The numbers of the column and of the bound, and the sums of the 2 x nodes leaves, [leaves, 2].
    """
    nodes, _, bins, _ = sums.shape
    below = np.cumsum(sums, axis=2)[:, :, :-1]  # of bound b: values in bins 0 to b
    whole = sums.sum(axis=2, keepdims=True)
    sides = np.stack([below, whole - below], axis=1)  # [nodes, side, columns, bounds, 2]
    curvature = np.maximum(sides[..., 1], 0)  # noise can make it negative
    total = np.maximum(whole[:, 0, 0, 1], 0).sum()  # of any column: each has all documents
    enough = (curvature >= least * total) & (curvature > 0)
    gains = np.where(enough, sides[..., 0] ** 2 / np.where(enough, curvature + penalty * total, 1.0), 0.0)
    column, bound = divmod(int(gains.sum(axis=(0, 1)).argmax()), bins - 1)
    leaves: Float64s = sides[:, :, column, bound].reshape(2 * nodes, 2)
    return column, bound, leaves
