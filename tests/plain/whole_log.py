"""Training on a whole log as plainly as can be: sums over rows in Python, likelihoods by their formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def bin_of(value: float, bounds: Sequence[float]) -> int:
    """How many bounds a value is above."""
    return sum(value > bound for bound in bounds)


def bounds_of(values: Sequence[float], bins: int) -> list[float]:
    """Half way between neighbours: between all, or where the next i / bins of the values are reached."""
    distinct = sorted(set(values))
    if len(distinct) <= bins:
        after = list(range(len(distinct) - 1))
    else:
        upto = [sum(value <= one for value in values) for one in distinct]
        places = (next(i for i, n in enumerate(upto) if n >= part * len(values) / bins) for part in range(1, bins))
        after = sorted({min(place, len(distinct) - 2) for place in places})
    return [(distinct[i] + distinct[i + 1]) / 2 for i in after]


def _sums(rows: Sequence[int], pulls: Array) -> tuple[float, float]:
    return math.fsum(pulls[row, 0] for row in rows), math.fsum(pulls[row, 1] for row in rows)


def gain(bins: Array, bound: int, leaves: Array, pulls: Array, nodes: int, penalty: float, least: float) -> float:
    """What a level gains by a bound: G^2 / (H + penalty) of both sides of each node, or of the node as it is."""
    total = 0.0
    for node in range(nodes):
        inside = [row for row in range(len(bins)) if leaves[row] == node]
        left, right = [row for row in inside if bins[row] <= bound], [row for row in inside if bins[row] > bound]
        sides = [_sums(part, pulls) for part in (left, right)]
        if any(h < least for _, h in sides):
            sides = [(g, h) for g, h in [_sums(inside, pulls)] if h >= least]
        total += sum(g * g / (h + penalty) for g, h in sides)
    return total


def leaf_value(leaf: int, leaves: Array, pulls: Array, penalty: float, least: float) -> float:
    """G / (H + penalty) of a leaf, 0 if it has less than `least` curvature or none."""
    g, h = _sums([row for row in range(len(leaves)) if leaves[row] == leaf], pulls)
    return g / (h + penalty) if h >= max(least, 1e-12) else 0.0


def tree(
    bins: Array, columns: Sequence[int], counts: Sequence[int], pulls: Array, depth: int, penalty: float, least: float
) -> tuple[list[tuple[int, int]], list[float], Array]:
    """Each level's feature and bound, every candidate tried; the values of the leaves; the leaf of each row."""
    leaves, splits = np.zeros(len(pulls), np.int64), []
    for level in range(depth):
        tried = [(column, bound) for column in columns for bound in range(counts[column])]
        gains = [gain(bins[c], bound, leaves, pulls, 2**level, penalty, least) for c, bound in tried]
        column, bound = tried[gains.index(max(gains))]
        splits.append((column, bound))
        leaves = np.array([2 * leaves[row] + int(bins[column, row] > bound) for row in range(len(pulls))])
    return splits, [leaf_value(leaf, leaves, pulls, penalty, least) for leaf in range(2**depth)], leaves


def likelihood(
    scores: Array, offsets: Array, clicks: Array, examined: Array, limit: float
) -> tuple[float, float, list[float]]:
    """Of which document of its query each click is on; how many clicks count; the curvature by each score."""
    total, counted, curvatures = 0.0, 0.0, []
    for begin, end in pairwise(offsets):
        rows = range(begin, end)
        made, weight = sum(clicks[begin:end]), 1 / (1 + sum(examined[begin:end]) / limit)
        if made == 0 or len(rows) == 1:
            curvatures += [0.0] * len(rows)
            continue
        masses = [examined[row] * math.exp(scores[row]) for row in rows]
        for row, mass in zip(rows, masses, strict=True):
            share = mass / sum(masses)
            total += weight * clicks[row] * math.log(share) if clicks[row] and share else 0.0
            curvatures.append(weight * made * share * (1 - share))
        counted += weight * made
    return total, counted, curvatures
