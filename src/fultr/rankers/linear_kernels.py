"""Compiled code of linear rankers, f_w(q, d) = w . x: scores of many rankers in one pass, and local training.

Scoring is bound by reading the features, so several rankers are scored while a row is in cache. A matrix product from
a library changes its last bits with the number of columns and threads; here every score goes through the same loop,
so a ranker's scores do not depend on what is scored beside it.

Training goes through the displayed documents with credit (see `fultr.federated.credit`), in the order of the log, and
makes a step for each (Algorithm 1, lines 5 to 9):

    w <- w - eta_l * credit * grad of h_{q,d}(w)

The change that one of them makes is applied in the pass over the weights that scores the documents of the next. While a
client trains, the features that the next one needs are fetched, a few rows before each step: all at once, they would
keep the processor waiting.

What a step calls is inlined (`forceinline`). A call between compiled functions counts who refers to each array that it
passes, which takes as long as half of the arithmetic here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s
from fultr.core.prefetch import prefetch_rows
from fultr.rankers.losses.loss import loss_and_pulls
from fultr.rankers.training import Training

# Sums may be reordered into vector lanes and multiply-adds fused; infinities and NaN keep their meaning.
FAST = {"reassoc", "contract", "nsz"}


@njit(nogil=True, cache=True, fastmath=FAST, forceinline=True)
def dot(x: Float32s, y: Float32s) -> np.float32:
    """The product of two vectors."""
    total = np.float32(0)
    for f in range(x.size):
        total += x[f] * y[f]
    return total


@njit(nogil=True, cache=True, fastmath=FAST, forceinline=True)
def add_scaled(y: Float32s, scale: np.float32, x: Float32s) -> None:
    """Add `scale` times x to y, in place."""
    for f in range(x.size):
        y[f] += scale * x[f]


@njit(nogil=True, cache=True, fastmath=FAST)
def _score_tile(
    x0: Float32s, x1: Float32s, x2: Float32s, x3: Float32s, v: Float32s, w: Float32s
) -> tuple[np.float32, ...]:
    """Four documents times two rankers: eight products in one loop, each loaded number used at least twice."""
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = np.float32(0)
    for f in range(v.size):
        a0 += x0[f] * v[f]
        a1 += x1[f] * v[f]
        a2 += x2[f] * v[f]
        a3 += x3[f] * v[f]
        b0 += x0[f] * w[f]
        b1 += x1[f] * w[f]
        b2 += x2[f] * w[f]
        b3 += x3[f] * w[f]
    return a0, a1, a2, a3, b0, b1, b2, b3


@njit(nogil=True, cache=True)
def score_rows(features: Float32s, weights: Float32s, begin: int, end: int, scores: Float32s) -> None:
    """Write the scores of rows `begin` to `end` under each ranker to `scores[0 : end - begin]`.

    Args:
        features: [documents, features].
        weights: [rankers, features].
        begin: first row.
        end: one past the last row.
        scores: [at least end - begin, rankers], written.
    """
    rankers = weights.shape[0]
    for row in range(begin, end, 4):
        # At the edges a tile repeats its last row or ranker: the same loop for every score.
        r1, r2, r3 = min(row + 1, end - 1), min(row + 2, end - 1), min(row + 3, end - 1)
        x0, x1, x2, x3 = features[row], features[r1], features[r2], features[r3]
        for m in range(0, rankers, 2):
            n = min(m + 1, rankers - 1)
            a0, a1, a2, a3, b0, b1, b2, b3 = _score_tile(x0, x1, x2, x3, weights[m], weights[n])
            scores[row - begin, m] = a0
            scores[r1 - begin, m] = a1
            scores[r2 - begin, m] = a2
            scores[r3 - begin, m] = a3
            scores[row - begin, n] = b0
            scores[r1 - begin, n] = b1
            scores[r2 - begin, n] = b2
            scores[r3 - begin, n] = b3


_REMEMBERED = 16  # of a client's queries, so as not to fetch what was fetched for it


class Displayed(NamedTuple):
    """Arrays of a `Display`, as compiled code takes them."""

    features: Float32s
    offsets: Int64s
    shown: Int64s
    longest: int


@njit(nogil=True, cache=True, forceinline=True)
def metric_slope(discounted: bool, h: float) -> float:
    """g'(1 + h): 1 for the rank; for g(r) = -1 / log2(1 + r), ln 2 / ((2 + h) ln(2 + h)^2)."""
    if not discounted:
        return 1.0
    return np.log(2.0) / ((2 + h) * np.log(2 + h) ** 2)


@njit(nogil=True, cache=True, fastmath=FAST, forceinline=True)
def _change_and_score_five(
    features: Float32s,
    weights: Float32s,
    c0: np.float32,
    c1: np.float32,
    c2: np.float32,
    c3: np.float32,
    c4: np.float32,
    y0: int,
    y1: int,
    y2: int,
    y3: int,
    y4: int,
    x0: int,
    x1: int,
    x2: int,
    x3: int,
    x4: int,
) -> Any:
    """Add rows y, times c, to the weights and return their products with rows x, in one pass over the weights."""
    s0 = s1 = s2 = s3 = s4 = np.float32(0)
    for f in range(weights.size):
        w = weights[f] + (
            c0 * features[y0, f]
            + c1 * features[y1, f]
            + c2 * features[y2, f]
            + c3 * features[y3, f]
            + c4 * features[y4, f]
        )
        weights[f] = w
        s0 += features[x0, f] * w
        s1 += features[x1, f] * w
        s2 += features[x2, f] * w
        s3 += features[x3, f] * w
        s4 += features[x4, f] * w
    return s0, s1, s2, s3, s4


@njit(nogil=True, cache=True, forceinline=True)
def change_and_score(
    features: Float32s,
    weights: Float32s,
    changed: int,
    changed_end: int,
    changes: Float32s,
    scored: int,
    scored_end: int,
    scores: Float32s,
) -> None:
    """Add rows `changed` to `changed_end`, times `changes`, to the weights; then score rows `scored` to `scored_end`.

    The first five rows of either go through one pass over the weights; where there are fewer, the last row is
    repeated, with change 0.
    """
    for row in range(changed + 5, changed_end):
        add_scaled(weights, changes[row - changed], features[row])
    n, last = changed_end - changed, changed_end - 1
    end = scored_end - 1
    zero = np.float32(0)
    scores[0], scores[1], scores[2], scores[3], scores[4] = _change_and_score_five(
        features,
        weights,
        changes[0],
        changes[1] if n > 1 else zero,
        changes[2] if n > 2 else zero,
        changes[3] if n > 3 else zero,
        changes[4] if n > 4 else zero,
        changed,
        min(changed + 1, last),
        min(changed + 2, last),
        min(changed + 3, last),
        min(changed + 4, last),
        scored,
        min(scored + 1, end),
        min(scored + 2, end),
        min(scored + 3, end),
        min(scored + 4, end),
    )
    for row in range(scored + 5, scored_end):
        scores[row - scored] = dot(features[row], weights)


@njit(nogil=True, cache=True)
def _steps(credit: Float64s, offsets: Int64s) -> tuple[Int64s, Int64s]:
    """The documents with credit, each as impression x K + rank, and [clients + 1] where those of each client begin."""
    worth, ranks = credit.ravel(), credit.shape[1]
    steps, bounds = np.empty(worth.size + 1, np.int64), np.empty(offsets.size, np.int64)
    found = 0
    for u in range(offsets.size - 1):
        bounds[u] = found
        for i in range(offsets[u] * ranks, offsets[u + 1] * ranks):
            steps[found] = i  # stays if there is credit: without branches, which could not be predicted
            found += worth[i] != 0
    bounds[-1] = found
    return steps[:found], bounds


@njit(nogil=True, cache=True)
def _wanted(queries: Int32s, ranks: int, steps: Int64s, bounds: Int64s) -> tuple[Int32s, Int64s]:
    """The queries of each client's steps in their order, each once, and [clients + 1] where those of a client begin."""
    wanted, wanted_bounds = np.empty(steps.size, np.int32), np.empty(bounds.size, np.int64)
    end = 0
    for u in range(bounds.size - 1):
        begin = wanted_bounds[u] = end
        for s in range(bounds[u], bounds[u + 1]):
            q = queries[steps[s] // ranks]
            j = max(begin, end - _REMEMBERED)
            while j < end and wanted[j] != q:
                j += 1
            if j == end:
                wanted[end] = q
                end += 1
    wanted_bounds[-1] = end
    return wanted, wanted_bounds


@njit(nogil=True, forceinline=True)  # compiled and cached as part of its caller, see `compiled_for`
def _train_client(
    features: Float32s,
    row_offsets: Int64s,
    shown: Int64s,
    queries: Int32s,
    credit: Float64s,
    steps: Int64s,
    training: Training,
    weights: Float32s,
    scores: Float32s,
    changes: Float32s,
    soon: Int32s,
) -> None:
    """Algorithm 1, lines 5 to 8, for one client's `steps`; changes `weights`. Fetches what the queries `soon` need."""
    changed, changed_end = 0, 1
    changes[0] = 0
    rows = 0
    for q in soon:
        rows += row_offsets[q + 1] - row_offsets[q]
    fetching, row, fetched = 0, row_offsets[soon[0]] if rows else 0, 0
    for epoch in range(training.epochs):
        for s in range(steps.size):
            while epoch == 0 and fetched * steps.size < rows * (s + 1):
                if row == row_offsets[soon[fetching] + 1]:
                    fetching += 1
                    row = row_offsets[soon[fetching]]
                else:
                    prefetch_rows(features, row, row + 1)
                    row += 1
                    fetched += 1
            i, rank = divmod(steps[s], credit.shape[1])
            q = queries[i]
            first, end = row_offsets[q], row_offsets[q + 1]
            change_and_score(features, weights, changed, changed_end, changes, first, end, scores)
            h = loss_and_pulls(training.loss, scores, end - first, shown[q, rank] - first, changes)
            step = training.learning_rate * credit[i, rank] * metric_slope(training.discounted, h)
            for d in range(end - first):
                changes[d] *= np.float32(step)
            changed, changed_end = first, end
    for row in range(changed, changed_end):
        add_scaled(weights, changes[row - changed], features[row])


@njit(nogil=True, cache=True)
def train_clients(
    displayed: Displayed,
    queries: Int32s,
    offsets: Int64s,
    credit: Float64s,
    weights: Float32s,
    training: Training,
    totals: Float64s,
    trained: Float64s,
) -> None:
    """Train each client from the same weights, and add its update to its row of `totals`, or to the only one.

    Args:
        displayed: what the queries displayed.
        queries: of each impression.
        offsets: [clients + 1] where each client's impressions begin.
        credit: [impressions, K].
        weights: w_t, float32 [features].
        training: how a client trains.
        totals: float64 [clients or 1, features], added to.
        trained: float64 [clients or 1, 1], likewise: 1 for each client that had any credit.
    """
    features, row_offsets, shown, longest = displayed
    local = np.zeros(features.shape[1], np.float32)  # rows may be padded with zeros
    scores = np.empty(max(longest, 5), np.float32)
    changes = np.empty(max(longest, 5), np.float32)
    steps, bounds = _steps(credit, offsets)
    wanted, wanted_bounds = _wanted(queries, credit.shape[1], steps, bounds)
    clients = offsets.size - 1
    for u in range(clients):
        row = u if totals.shape[0] > 1 else 0
        own = steps[bounds[u] : bounds[u + 1]]
        soon = wanted[wanted_bounds[u + 1] : wanted_bounds[min(u + 2, clients)]]
        for f in range(weights.size):  # a slice would take several times as long
            local[f] = weights[f]
        _train_client(features, row_offsets, shown, queries, credit, own, training, local, scores, changes, soon)
        for f in range(weights.size):
            totals[row, f] += local[f] - weights[f]
        trained[row, 0] += own.size > 0
