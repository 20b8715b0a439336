"""Boosted trees on a whole log: trees of the kind that federated training grows, here from exact sums and many bins.

A tree asks the same question of all documents at each level (`fultr.rankers.forest`), so what is grown here is saved,
exported and served like trees from a federation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fultr.core.arrays import Float32s, Float64s, Int64s, UInt8s
from fultr.core.streams import Purpose, generator, uniforms
from fultr.core.threads import chunk_bounds, default_threads, run_chunks
from fultr.learn.pooled import Pooled, likelihood, likelihood_per_click
from fultr.learn.tree_kernels import add_values, best_bounds, descend, fill_bins, newton_steps

_MOST_ROWS = 200_000  # whose values are sorted to place a feature's bounds


@dataclass(frozen=True)
class Growth:
    """How trees grow.

    Attributes:
        trees: at most.
        depth: of a tree.
        rate: share of a Newton step that a leaf's value is.
        bins: of a feature, at most.
        columns: share of the features that a tree may split by, drawn anew for each tree.
        penalty: added to a leaf's curvature, in clicks.
        least: curvature that a leaf needs, in clicks.
        patience: trees without a better held-out likelihood, after which growth stops.
    """

    trees: int = 300
    depth: int = 4
    rate: float = 0.1
    bins: int = 64
    columns: float = 0.5
    penalty: float = 10.0
    least: float = 2.0
    patience: int = 30


@dataclass(frozen=True, eq=False)
class Trees:
    """Grown trees.

    Attributes:
        features: int64 [trees, depth].
        thresholds: float32 [trees, depth].
        values: float64 [trees, 2^depth].
        held_out: log-likelihood per click of the held-out queries without trees and after each tree, [grown + 1].
        best: how many trees gave the best of these.
    """

    features: Int64s
    thresholds: Float32s
    values: Float64s
    held_out: Float64s
    best: int


@dataclass(frozen=True, eq=False)
class Binned:
    """The features of all pairs of a log as numbers of bins.

    Attributes:
        bins: uint8 [features, pairs].
        bounds: of each feature; a value above the first b of them is in bin b.
    """

    bins: UInt8s
    bounds: list[Float32s]

    @classmethod
    def of(cls, features: Float32s, most: int, threads: int | None = None, seed: int = 0) -> Binned:
        """Bins with about equally many values each: of all rows, or of as many, drawn at random, as are soon sorted."""
        rows, width = features.shape
        bins = np.zeros((width, rows), np.uint8)
        taken: Any = slice(None)
        if rows > _MOST_ROWS:
            taken = np.sort(generator(seed, Purpose.BINS).choice(rows, _MOST_ROWS, replace=False))
        bounds: list[Float32s] = [np.empty(0, np.float32)] * width

        def work(column: int) -> None:
            bounds[column] = bounds_of(features[taken, column], most)
            fill_bins(features, column, bounds[column], bins[column])

        run_chunks(work, width, threads)
        return cls(bins, bounds)


def bounds_of(values: Float32s, bins: int) -> Float32s:
    """What separates a feature's bins: half way between neighbouring values, at about equal numbers of rows.

    >>> bounds_of(np.float32([1, 1, 2, 5]), bins=64).tolist()
    [1.5, 3.5]
    >>> bounds_of(np.float32([1, 2, 3, 4]), bins=2).tolist()
    [2.5]
    """
    distinct, counts = np.unique(values, return_counts=True)
    after = np.arange(distinct.size - 1)
    if distinct.size > bins:
        at = np.cumsum(counts)[:-1]
        wanted = np.arange(1, bins) * values.size / bins
        after = np.unique(np.clip(np.searchsorted(at, wanted - 1e-9), 0, at.size - 1))
    low, high = distinct[after].astype(np.float64), distinct[after + 1].astype(np.float64)
    middle = ((low + high) / 2).astype(np.float32)
    return np.where(middle < distinct[after + 1], middle, distinct[after])


def grown(
    pooled: Pooled,
    binned: Binned,
    base: Float64s,
    train: Int64s,
    held_out: Int64s,
    growth: Growth,
    seed: int,
    threads: int | None = None,
) -> Trees:
    """Grow trees on some queries of a log, until other queries say that it is enough.

    Args:
        pooled: the log.
        binned: its features.
        base: scores of all pairs that trees are added to.
        train: queries to train on.
        held_out: queries to judge by; with none, all trees are grown.
        growth: how.
        seed: of the columns.
        threads: how many to use; the result does not depend on it.
    """
    own, other = pooled.take(train), pooled.take(held_out)
    own_rows, other_rows = pooled.rows(train), pooled.rows(held_out)
    bins, other_bins = np.ascontiguousarray(binned.bins[:, own_rows]), binned.bins[:, other_rows]
    counts = np.array([bound.size for bound in binned.bounds])
    usable = np.flatnonzero(counts)
    scores, other_scores = base[own_rows].copy(), base[other_rows].copy()
    pulls, other_pulls = np.empty((scores.size, 2)), np.empty((other_scores.size, 2))
    features: list[list[int]] = []
    thresholds, values = [], []
    told = [likelihood_per_click(other, other_scores, other_pulls)]
    while len(features) < growth.trees and len(told) - 1 - int(np.argmax(told)) < growth.patience and usable.size:
        likelihood(own, scores, pulls)
        columns = _drawn(usable, growth.columns, seed, len(features))
        tree = _tree(bins, columns, counts, pulls, growth, threads)
        asked, bound, leaf_values, leaves = tree
        other_leaves = np.zeros(other_scores.size, np.uint8)
        for column, at in zip(asked, bound, strict=True):
            descend(other_bins[column], at, other_leaves)
        add_values(leaves, leaf_values, scores)
        add_values(other_leaves, leaf_values, other_scores)
        features.append(asked)
        thresholds.append([binned.bounds[column][at] for column, at in zip(asked, bound, strict=True)])
        values.append(leaf_values)
        told.append(likelihood_per_click(other, other_scores, other_pulls))
    best = int(np.argmax(told)) if held_out.size else len(features)
    return Trees(
        np.array(features, np.int64).reshape(-1, growth.depth)[:best],
        np.array(thresholds, np.float32).reshape(-1, growth.depth)[:best],
        np.array(values).reshape(-1, 2**growth.depth)[:best],
        np.array(told),
        best,
    )


def _drawn(usable: Int64s, share: float, seed: int, tree: int) -> Int64s:
    """The features that a tree may split by."""
    if share >= 1:
        return usable
    numbers = uniforms(seed, int(Purpose.COLUMNS), tree, np.arange(usable.size))
    return usable[np.sort(np.argsort(numbers, kind="stable")[: max(1, round(share * usable.size))])]


def _tree(
    bins: UInt8s, columns: Int64s, counts: Int64s, pulls: Float64s, growth: Growth, threads: int | None
) -> tuple[list[int], list[int], Float64s, UInt8s]:
    """Features and bounds of a tree's levels, the values of its leaves, and the leaf of each row."""
    leaves = np.zeros(len(pulls), np.uint8)
    asked, bound = [], []
    parts = chunk_bounds(columns.size, 4 * default_threads() if threads is None else 4 * threads)
    gains, best = np.empty(columns.size), np.empty(columns.size, np.int64)
    for level in range(growth.depth):

        def work(i: int, nodes: int = 2**level) -> None:
            part = slice(*parts[i])
            best_bounds(
                bins, columns[part], counts, leaves, pulls, nodes, growth.penalty, growth.least, gains[part], best[part]
            )

        run_chunks(work, len(parts), threads)
        top = int(np.argmax(gains))
        asked.append(int(columns[top]))
        bound.append(int(best[top]))
        descend(bins[columns[top]], best[top], leaves)
    values = np.empty(2**growth.depth)
    newton_steps(leaves, pulls, growth.penalty, growth.least, values)
    return asked, bound, growth.rate * values, leaves
