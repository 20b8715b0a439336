"""Scores of linear rankers, f_w(q, d) = w . x (Section 4, Baselines): many rankers in one pass over the features.

Scoring is bound by reading the features, so several rankers are scored while a row is in cache. A matrix product from
a library changes its last bits with the number of columns and threads; here every score goes through the same loop,
so a ranker's scores do not depend on what is scored beside it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fultr.threads import run_ranges
from fultr.types import Float32s

# Sums may be reordered into vector lanes and multiply-adds fused; infinities and NaN keep their meaning.
FAST = {"reassoc", "contract", "nsz"}


@njit(nogil=True, cache=True, fastmath=FAST)
def dot(x: Float32s, y: Float32s) -> np.float32:
    """The product of two vectors."""
    total = np.float32(0)
    for f in range(x.size):
        total += x[f] * y[f]
    return total


@njit(nogil=True, cache=True, fastmath=FAST)
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


def score(features: Float32s, weights: Float32s, threads: int | None = None) -> Float32s:
    """Scores [documents, rankers] of every row of `features` under each row of `weights`.

    >>> score(np.float32([[1, 2], [3, 4]]), np.float32([[1, 0], [0, 10]])).tolist()
    [[1.0, 20.0], [3.0, 40.0]]
    """
    scores = np.empty((features.shape[0], weights.shape[0]), np.float32)
    run_ranges(lambda a, b: score_rows(features, weights, a, b, scores[a:b]), features.shape[0], threads)
    return scores
