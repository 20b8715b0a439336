"""Compiled code of rankers with trees: scores, and what clients add up for the server to grow trees from.

A client goes through its impressions. From the credit of an impression and the current scores, the loss gives each of
its documents a gradient g, how much higher its score should be, and a curvature h: the sum of the absolute values
whose signed sum is g. As |g| <= h, a limit of h is one of both. Second derivatives of the losses are at most h, so that
a Newton step g / h never goes too far. A client's sums are rounded to float32, as they travel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s
from fultr.rankers.linear_kernels import Displayed, metric_slope
from fultr.rankers.losses.loss import loss_and_pulls
from fultr.rankers.training import Training

_TOGETHER = 64  # documents that go through the trees side by side


@njit(nogil=True, cache=True)
def add_tree_scores(
    features: Float32s,
    asked: Int32s,
    thresholds: Float32s,
    values: Float32s,
    used: Int32s,
    begin: int,
    end: int,
    sums: Float64s,
) -> None:
    """Add the leaf values of all these trees, one after the other, to the sums of rows `begin` to `end`.

    Some rows at a time go through all trees, with a feature's values side by side: a level is then a few instructions.

    Args:
        features: [documents, features or more].
        asked: [trees, depth], features.
        thresholds: [trees, depth].
        values: [trees, 2^depth].
        used: all features in `asked`.
        begin: first row.
        end: one past the last row.
        sums: [end - begin], added to.
    """
    trees, depth = asked.shape
    columns = np.zeros((features.shape[1], _TOGETHER), np.float32)
    leaves = np.empty(_TOGETHER, np.int32)
    for block in range(begin, end, _TOGETHER):
        rows = min(_TOGETHER, end - block)
        for f in used:
            for d in range(rows):
                columns[f, d] = features[block + d, f]
        for tree in range(trees):
            leaves[:] = 0
            for level in range(depth):
                column, threshold = columns[np.uint32(asked[tree, level])], thresholds[tree, level]
                for d in range(_TOGETHER):
                    leaves[d] = np.int32(2) * leaves[d] + np.int32(column[d] > threshold)
            own = values[tree]
            for d in range(rows):
                sums[block - begin + d] += own[np.uint32(leaves[d])]


class Documents(NamedTuple):
    """Displayed documents of one client, those of every impression with credit; room for the most that there are."""

    rows: Int64s
    gradients: Float64s
    curvatures: Float64s


@njit(nogil=True, cache=True)
def _room(displayed: Displayed, queries: Int32s, offsets: Int64s) -> Documents:
    """Arrays for the documents of any one client."""
    most = 1
    for u in range(offsets.size - 1):
        own = 0
        for i in range(offsets[u], offsets[u + 1]):
            own += displayed.offsets[queries[i] + 1] - displayed.offsets[queries[i]]
        most = max(most, own)
    return Documents(np.empty(most, np.int64), np.empty(most), np.empty(most))


@njit(nogil=True)  # compiled and cached as part of its caller, see `compiled_for`
def _documents_of(
    displayed: Displayed,
    queries: Int32s,
    credit: Float64s,
    scores: Float32s,
    begin: int,
    finish: int,
    training: Training,
    limit: float,
    pulls: Float32s,
    found: Documents,
) -> tuple[int, bool]:
    """Write gradient and curvature of one client's documents; returns how many, and whether there was any credit.

    An impression in which a document's curvature is above the limit is scaled down as a whole, so that what some
    documents gain is still what others lose.
    """
    count, had = 0, False
    for i in range(begin, finish):
        q = queries[i]
        first, end = displayed.offsets[q], displayed.offsets[q + 1]
        documents, credited = end - first, False
        gradients, curvatures = found.gradients[count:], found.curvatures[count:]
        for rank in range(credit.shape[1]):
            if credit[i, rank] != 0:
                if not credited:
                    gradients[:documents] = 0
                    curvatures[:documents] = 0
                    credited = True
                place = displayed.shown[q, rank] - first
                h = loss_and_pulls(training.loss, scores[first:end], documents, place, pulls)
                weight = credit[i, rank] * metric_slope(training.discounted, h)
                for d in range(documents):
                    gradients[d] += weight * pulls[d]
                    curvatures[d] += abs(weight * pulls[d])
        if credited:
            had = True
            highest = 0.0
            for d in range(documents):
                found.rows[count + d] = first + d
                highest = max(highest, curvatures[d])
            scale = training.learning_rate * (limit / highest if highest > limit else 1.0)
            for d in range(documents):
                gradients[d] *= scale
                curvatures[d] *= scale
            count += documents
    return count, had


@njit(nogil=True, cache=True)
def add_leaf_sums(
    displayed: Displayed,
    queries: Int32s,
    offsets: Int64s,
    credit: Float64s,
    scores: Float32s,
    training: Training,
    limit: float,
    asked: Int32s,
    thresholds: Float32s,
    totals: Float64s,
    trained: Float64s,
) -> None:
    """Add gradient and curvature of each displayed document to its leaf of every tree.

    Args:
        displayed: what the queries displayed.
        queries: of each impression.
        offsets: [clients + 1] where each client's impressions begin.
        credit: [impressions, K].
        scores: of the display's rows.
        training: how a client trains.
        limit: of a document's curvature in an impression, and with it of its gradient.
        asked: [trees, depth], features.
        thresholds: [trees, depth].
        totals: [clients or 1, trees, 2^depth, 2]; each client's sums are added to its row, or to the only one.
        trained: [clients or 1, 1], likewise: 1 for each client that had any credit.
    """
    found, pulls = _room(displayed, queries, offsets), np.empty(max(displayed.longest, 1), np.float32)
    trees, depth = asked.shape
    own = np.zeros((2**depth, 2))
    for u in range(offsets.size - 1):
        begin, end, row = offsets[u], offsets[u + 1], u if totals.shape[0] > 1 else 0
        count, had = _documents_of(displayed, queries, credit, scores, begin, end, training, limit, pulls, found)
        for tree in range(trees):
            own[:] = 0
            for d in range(count):
                leaf = 0
                for level in range(depth):
                    above = displayed.features[found.rows[d], asked[tree, level]] > thresholds[tree, level]
                    leaf = 2 * leaf + above
                own[leaf, 0] += found.gradients[d]
                own[leaf, 1] += found.curvatures[d]
            for leaf in range(own.shape[0]):
                totals[row, tree, leaf, 0] += np.float32(own[leaf, 0])
                totals[row, tree, leaf, 1] += np.float32(own[leaf, 1])
        trained[row, 0] += had


@njit(nogil=True, cache=True)
def add_histograms(
    displayed: Displayed,
    queries: Int32s,
    offsets: Int64s,
    credit: Float64s,
    scores: Float32s,
    training: Training,
    limit: float,
    asked: Int32s,
    thresholds: Float32s,
    columns: Int64s,
    bounds: Float32s,
    totals: Float64s,
    trained: Float64s,
) -> None:
    """Add gradient and curvature of each displayed document to its bin of every column, in its node of a tree.

    Args:
        displayed: what the queries displayed.
        queries: of each impression.
        offsets: [clients + 1] where each client's impressions begin.
        credit: [impressions, K].
        scores: of the display's rows.
        training: how a client trains.
        limit: of a document's curvature in an impression, and with it of its gradient.
        asked: [levels so far], features.
        thresholds: [levels so far].
        columns: [columns], features whose bins are counted.
        bounds: [bins - 1], ascending: a value is in the bin whose number is how many of them it is above.
        totals: [clients or 1, nodes, columns, bins, 2]; each client's sums are added to its row, or to the only one.
        trained: [clients or 1, 1], likewise: 1 for each client that had any credit.
    """
    found, pulls = _room(displayed, queries, offsets), np.empty(max(displayed.longest, 1), np.float32)
    nodes, bins = np.empty(found.rows.size, np.int64), np.empty(found.rows.size, np.int64)
    own = np.zeros((totals.shape[1], bounds.size + 1, 2))
    for u in range(offsets.size - 1):
        begin, end, row = offsets[u], offsets[u + 1], u if totals.shape[0] > 1 else 0
        count, had = _documents_of(displayed, queries, credit, scores, begin, end, training, limit, pulls, found)
        for d in range(count):
            nodes[d] = 0
            for level in range(asked.size):
                above = displayed.features[found.rows[d], asked[level]] > thresholds[level]
                nodes[d] = 2 * nodes[d] + above
        for c in range(columns.size):
            for d in range(count):
                bins[d] = _bin(bounds, displayed.features[found.rows[d], columns[c]])
                own[nodes[d], bins[d], 0] += found.gradients[d]
                own[nodes[d], bins[d], 1] += found.curvatures[d]
            for d in range(count):  # most bins are empty: only those that are not are gone through
                totals[row, nodes[d], c, bins[d], 0] += np.float32(own[nodes[d], bins[d], 0])
                totals[row, nodes[d], c, bins[d], 1] += np.float32(own[nodes[d], bins[d], 1])
                own[nodes[d], bins[d]] = 0
        trained[row, 0] += had


@njit(nogil=True, cache=True)
def _bin(bounds: Float32s, value: np.float32) -> int:
    """How many of the bounds a value is above; comparing with all of them is faster than a search that must guess."""
    above = np.int32(0)
    for bound in bounds:
        above += np.int32(value > bound)
    return int(above)
