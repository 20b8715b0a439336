"""What one client computes to estimate examination: expectations and likelihoods of the position-based model.

A click at rank k on document d has probability theta_k r_d: examined, and relevant. r_d = sigmoid(F . x_d + b) comes
from the relevance function F that all clients share. A client's log enters as counts of impressions n and clicks c of
each (query, rank).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from fultr.linear import FAST
from fultr.types import Float32s, Float64s, Int32s, Int64s, UInt8s

_LEAST = 1e-6  # relevance stays so far from 0 and 1
_TINY = 1e-300
_SMALL, _TINIEST = np.float32(1e-8), np.float32(1e-37)  # of likelihoods
_ZERO, _ONE = np.float32(0), np.float32(1)


@njit(nogil=True, cache=True, error_model="numpy")
def expected_examined(n: float, c: float, relevance: float, theta: float) -> float:
    """E-step: how many of n impressions with c clicks were examined (Wang et al. 2018, Eq. 1)."""
    return c + (n - c) * theta * (1 - relevance) / (1 - theta * relevance)


@njit(nogil=True, cache=True, error_model="numpy")
def expected_relevant(n: float, c: float, relevance: float, theta: float) -> float:
    """E-step: in how many of n impressions with c clicks the document was relevant."""
    return c + (n - c) * relevance * (1 - theta) / (1 - theta * relevance)


@njit(nogil=True, cache=True)
def count_cells(
    queries: Int32s,
    clicks: UInt8s,
    begin: int,
    end: int,
    shown: Int64s,
    cells: Int32s,
    n: Float64s,
    c: Float64s,
) -> int:
    """Count a client's impressions and clicks of each query and rank: in all of its log, and without each of its parts.

    Impression i belongs to part i mod parts. Returns the number of distinct queries, which are written to `cells`.

    Args:
        queries: of the log's impressions.
        clicks: of the log's impressions.
        begin: the client's first impression.
        end: one past its last.
        shown: [queries, K], -1 where nothing is displayed.
        cells: int32 [at least end - begin], written: the distinct queries.
        n: [1 + parts, at least end - begin, K], written: impressions in all of the log, and without each part.
        c: likewise clicks.
    """
    parts = n.shape[0] - 1
    distinct = 0
    for i in range(begin, end):
        q = queries[i]
        j = 0
        while j < distinct and cells[j] != q:
            j += 1
        if j == distinct:
            cells[j] = q
            distinct += 1
            n[:, j] = 0
            c[:, j] = 0
        for counted in range(parts + 1):
            if counted == 0 or (i - begin) % parts != counted - 1:
                for k in range(clicks.shape[1]):
                    if shown[q, k] >= 0:
                        n[counted, j, k] += 1
                        c[counted, j, k] += clicks[i, k]
    return distinct


@njit(nogil=True, cache=True, fastmath=FAST)
def _dot_five(features: Float32s, x0: int, x1: int, x2: int, x3: int, x4: int, w: Float32s) -> Any:
    """Products of five rows with w in one pass."""
    s0 = s1 = s2 = s3 = s4 = np.float32(0)
    for f in range(w.size):
        s0 += features[x0, f] * w[f]
        s1 += features[x1, f] * w[f]
        s2 += features[x2, f] * w[f]
        s3 += features[x3, f] * w[f]
        s4 += features[x4, f] * w[f]
    return s0, s1, s2, s3, s4


@njit(nogil=True, cache=True)
def _five(shown: Int64s, q: int, k: int) -> Any:
    """Rows that query q displays at ranks k to k + 4; beyond the last document, its own again."""
    last = shown.shape[1] - 1
    while last > 0 and shown[q, last] < 0:
        last -= 1
    return (
        shown[q, k],
        shown[q, min(k + 1, last)],
        shown[q, min(k + 2, last)],
        shown[q, min(k + 3, last)],
        shown[q, min(k + 4, last)],
    )


@njit(nogil=True, cache=True, error_model="numpy")
def score_cells(
    features: Float32s, shown: Int64s, cells: Int32s, distinct: int, weights: Float32s, relevance: Float64s
) -> None:
    """Relevance of what each of a client's queries displays, [queries, K]; the last of `weights` is the intercept."""
    ranks = shown.shape[1]
    slope = weights[:-1]
    for j in range(distinct):
        q = cells[j]
        for first in range(0, ranks, 5):
            if shown[q, first] < 0:
                relevance[j, first:] = 0.5  # no impressions there: any number will do
                break
            scores = _dot_five(features, *_five(shown, q, first), slope)  # type: ignore[call-arg]
            for k in range(first, min(first + 5, ranks)):
                score = np.float64(scores[k - first]) + weights[-1]
                relevance[j, k] = min(max(1 / (1 + np.exp(-score)), _LEAST), 1 - _LEAST)


@njit(nogil=True, cache=True, fastmath=FAST)
def _add_five(
    y: Float32s,
    features: Float32s,
    x0: int,
    x1: int,
    x2: int,
    x3: int,
    x4: int,
    c0: np.float32,
    c1: np.float32,
    c2: np.float32,
    c3: np.float32,
    c4: np.float32,
) -> None:
    """Add five rows, times c, to y in one pass."""
    for f in range(y.size):
        y[f] += (
            c0 * features[x0, f]
            + c1 * features[x1, f]
            + c2 * features[x2, f]
            + c3 * features[x3, f]
            + c4 * features[x4, f]
        )


@njit(nogil=True, cache=True, error_model="numpy")
def add_relevance_gradient(
    features: Float32s,
    shown: Int64s,
    cells: Int32s,
    distinct: int,
    relevance: Float64s,
    theta: Float64s,
    n: Float64s,
    c: Float64s,
    gradient: Float32s,
    pulls: Float32s,
) -> None:
    """M-step of F: add the gradient of its expected log-likelihood, (expected relevance - relevance) x.

    `pulls` is room for K + 4 numbers, zero from the K-th on.
    """
    ranks = shown.shape[1]
    slope = gradient[:-1]
    intercept = np.float32(0)
    for j in range(distinct):
        q = cells[j]
        for k in range(ranks):
            shows, r = n[j, k], relevance[j, k]
            pull = np.float32(expected_relevant(shows, c[j, k], r, theta[k]) - shows * r)
            pulls[k] = pull
            intercept += pull
        for k in range(0, ranks, 5):
            if shown[q, k] < 0:
                break
            _add_five(  # type: ignore[call-arg]
                slope, features, *_five(shown, q, k), pulls[k], pulls[k + 1], pulls[k + 2], pulls[k + 3], pulls[k + 4]
            )
    gradient[-1] += intercept


@njit(nogil=True, cache=True, error_model="numpy")
def personal_em(
    n: Float64s,
    c: Float64s,
    distinct: int,
    relevance: Float64s,
    start: Float64s,
    iterations: int,
    examined: Float64s,
    impressions: Float64s,
    theta: Float64s,
    shows: Float64s,
    looked: Float64s,
) -> None:
    """A client's own examination by EM, rank 1 fixed at 1; a rank that it never displayed keeps its start.

    Args:
        n: [queries, K] impressions.
        c: likewise clicks.
        distinct: queries.
        relevance: [queries, K].
        start: [K].
        iterations: of EM.
        examined: [K] what the client remembers: examinations of earlier rounds.
        impressions: [K] likewise impressions.
        theta: [K], written.
        shows: [K], room.
        looked: [K], room.
    """
    ranks = theta.size
    for k in range(ranks):
        theta[k] = start[k]
        shows[k] = impressions[k]
        for j in range(distinct):
            shows[k] += n[j, k]
    for _ in range(iterations):
        for k in range(ranks):
            looked[k] = examined[k]
        for j in range(distinct):
            for k in range(ranks):
                looked[k] += expected_examined(n[j, k], c[j, k], relevance[j, k], theta[k])
        for k in range(ranks):
            if shows[k] > 0:
                theta[k] = looked[k] / shows[k]
        theta[0] = 1.0


@njit(nogil=True, cache=True, fastmath=FAST)
def _multiply(likelihoods: Float32s, thetas: Float32s, scale: np.float32, shift: np.float32, times: int) -> None:
    """Multiply each likelihood by (shift + scale theta) ** times, and all by a common factor if they become small."""
    while times > 0:
        together = np.float32(0)
        if times >= 4:
            times -= 4
            for g in range(likelihoods.size):
                square = (shift + scale * thetas[g]) ** 2
                likelihoods[g] *= square * square
                together += likelihoods[g]
        elif times == 3:
            times = 0
            for g in range(likelihoods.size):
                factor = shift + scale * thetas[g]
                likelihoods[g] *= factor * factor * factor
                together += likelihoods[g]
        elif times == 2:
            times = 0
            for g in range(likelihoods.size):
                likelihoods[g] *= (shift + scale * thetas[g]) ** 2
                together += likelihoods[g]
        else:
            times = 0
            for g in range(likelihoods.size):
                likelihoods[g] *= shift + scale * thetas[g]
                together += likelihoods[g]
        if together < _SMALL:
            for g in range(likelihoods.size):
                likelihoods[g] /= max(together, _TINIEST)


@njit(nogil=True, cache=True)
def multiply_likelihoods(
    n: Float64s,
    c: Float64s,
    distinct: int,
    relevance: Float64s,
    k: int,
    thetas: Float32s,
    likelihoods: Float32s,
) -> None:
    """Multiply by the likelihoods of one rank's clicks if its examination were each of `thetas`.

    Factors that do not depend on theta are left out, and all may be multiplied by a common one: only ratios count.

    Args:
        n: [queries, K] impressions.
        c: likewise clicks.
        distinct: queries.
        relevance: [queries, K].
        k: the rank, from 0.
        thetas: [grid].
        likelihoods: [grid], changed.
    """
    clicked = 0.0
    for j in range(distinct):
        clicked += c[j, k]
        _multiply(likelihoods, thetas, -np.float32(relevance[j, k]), _ONE, int(n[j, k] - c[j, k]))
    _multiply(likelihoods, thetas, _ONE, _ZERO, int(clicked))


@njit(nogil=True, cache=True, fastmath=FAST)
def posterior_mean(likelihoods: Float32s, prior: Float32s, values: Float32s) -> float:
    """Mean of `values` under the posterior: prior times likelihoods; the prior's mean if they exclude each other."""
    total = mean = np.float32(0)
    for g in range(likelihoods.size):
        weight = prior[g] * likelihoods[g]
        total += weight
        mean += weight * values[g]
    return np.float64(mean / total) if total > 0 else np.float64((prior * values).sum())


@njit(nogil=True, cache=True, fastmath=FAST)
def multiply_marginals(likelihoods: Float32s, priors: Float32s, products: Float64s) -> None:
    """Multiply each of `products` by the client's marginal likelihood under a row of `priors` [several, grid].

    As a share of what all points of the grid together have, which is the same for all priors.
    """
    together = np.float32(0)
    for g in range(likelihoods.size):
        together += likelihoods[g]
    for h in range(priors.shape[0]):
        marginal = np.float32(0)
        for g in range(likelihoods.size):
            marginal += priors[h, g] * likelihoods[g]
        products[h] = max(products[h] * np.float64(marginal / together), _TINY)
