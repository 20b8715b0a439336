"""What one client computes to estimate examination: expectations and likelihoods of the position-based model.

A click at rank k on document d has probability theta_k r_d: examined, and relevant. r_d = sigmoid(F . x_d + b) comes
from the relevance function F that all clients share. A client's log enters as counts of impressions n and clicks c of
each (query, rank): those of all clients are in one array, and a client's queries are its rows `begin` to `end`.

Compiled code counts who refers to an array wherever one is sliced, or passed on in a loop that a called function could
end by an error. That takes as long as the arithmetic here, so that rows are told by their indices, helpers are inlined
and divisions raise nothing.
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


@njit(nogil=True, cache=True)
def count_cells(
    queries: Int32s,
    clicks: UInt8s,
    offsets: Int64s,
    shown: Int64s,
    cells: Int32s,
    bounds: Int64s,
    n: Float64s,
    c: Float64s,
) -> None:
    """Count each client's impressions and clicks of each query and rank: in all of its log, and without each part.

    Impression i of a client belongs to part i mod parts.

    Args:
        queries: of the log's impressions.
        clicks: of the log's impressions.
        offsets: [clients + 1] where each client's impressions begin.
        shown: [queries, K], -1 where nothing is displayed.
        cells: int32 [impressions], written: the distinct queries of each client.
        bounds: [clients + 1], written: where those of each client begin.
        n: [1 + parts, impressions, K], written: impressions in all of the log, and without each part.
        c: likewise clicks.
    """
    parts, ranks = n.shape[0] - 1, n.shape[2]
    end = 0
    for u in range(offsets.size - 1):
        bounds[u] = end
        for i in range(offsets[u], offsets[u + 1]):
            q = queries[i]
            j = bounds[u]
            while j < end and cells[j] != q:
                j += 1
            if j == end:
                end += 1
                cells[j] = q
                for counted in range(parts + 1):
                    for k in range(ranks):
                        n[counted, j, k] = c[counted, j, k] = 0
            for counted in range(parts + 1):
                if counted == 0 or (i - offsets[u]) % parts != counted - 1:
                    for k in range(ranks):
                        if shown[q, k] >= 0:
                            n[counted, j, k] += 1
                            c[counted, j, k] += clicks[i, k]
    bounds[-1] = end


@njit(nogil=True, cache=True, fastmath=FAST, inline="always")
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


@njit(nogil=True, cache=True, inline="always")
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


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def score_cells(
    features: Float32s,
    shown: Int64s,
    cells: Int32s,
    begin: int,
    end: int,
    slope: Float32s,
    intercept: np.float32,
    relevance: Float64s,
    scores: Float32s,
) -> None:
    """Write the relevance of what each of a client's queries displays, [queries, K]; `scores` is room for five."""
    ranks = shown.shape[1]
    for j in range(begin, end):
        q = cells[j]
        for first in range(0, ranks, 5):
            if shown[q, first] < 0:
                for k in range(first, ranks):
                    relevance[j, k] = 0.5  # no impressions there: any number will do
                break
            x0, x1, x2, x3, x4 = _five(shown, q, first)
            scores[0], scores[1], scores[2], scores[3], scores[4] = _dot_five(features, x0, x1, x2, x3, x4, slope)
            for k in range(first, min(first + 5, ranks)):
                score = np.float64(scores[k - first]) + intercept
                relevance[j, k] = min(max(1 / (1 + np.exp(-score)), _LEAST), 1 - _LEAST)


@njit(nogil=True, cache=True, fastmath=FAST, inline="always")
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


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def add_expectations(
    features: Float32s,
    shown: Int64s,
    cells: Int32s,
    begin: int,
    end: int,
    relevance: Float64s,
    theta: Float64s,
    n: Float64s,
    c: Float64s,
    gradient: Float32s,
    examined: Float64s,
    impressions: Float64s,
    pulls: Float32s,
) -> np.float32:
    """E-step (Wang et al. 2018, Eq. 1), and the M-step of F: add up what a client expects from all of its log.

    Of n impressions with c clicks, (n - c) theta (1 - r) / (1 - theta r) were examined beside the clicked ones, and in
    (n - c) r (1 - theta) / (1 - theta r) the document was relevant.

    Args:
        features: of the displayed documents.
        shown: [queries, K].
        cells: the clients' queries.
        begin: the client's first.
        end: one past its last.
        relevance: [queries, K].
        theta: [K].
        n: [1 + parts, queries, K] impressions.
        c: likewise clicks.
        gradient: added to: that of F's expected log-likelihood, (expected relevance - relevance) x.
        examined: [K], added to: expected examinations.
        impressions: [K], added to.
        pulls: room for K + 4 numbers, zero from the K-th on.

    Returns:
        The gradient of the intercept.
    """
    ranks = shown.shape[1]
    intercept = np.float32(0)
    for j in range(begin, end):
        q = cells[j]
        for k in range(ranks):
            shows, clicked, r = n[0, j, k], c[0, j, k], relevance[j, k]
            open_ = (shows - clicked) / (1 - theta[k] * r)
            examined[k] += clicked + open_ * theta[k] * (1 - r)
            impressions[k] += shows
            pulls[k] = clicked + open_ * r * (1 - theta[k]) - shows * r
            intercept += pulls[k]
        for k in range(0, ranks, 5):
            if shown[q, k] < 0:
                break
            x0, x1, x2, x3, x4 = _five(shown, q, k)
            _add_five(
                gradient,
                features,
                x0,
                x1,
                x2,
                x3,
                x4,
                pulls[k],
                pulls[k + 1],
                pulls[k + 2],
                pulls[k + 3],
                pulls[k + 4],
            )
    return intercept


@njit(nogil=True, cache=True, error_model="numpy")
def personal_em(
    n: Float64s,
    c: Float64s,
    counted: int,
    begin: int,
    end: int,
    relevance: Float64s,
    iterations: int,
    evidence: Float32s,
    u: int,
    theta: Float64s,
    shows: Float64s,
) -> None:
    """A client's own examination by EM, rank 1 fixed at 1; a rank that it never displayed keeps its start.

    Args:
        n: [1 + parts, queries, K] impressions.
        c: likewise clicks.
        counted: which of these: 0 for all.
        begin: the client's first query.
        end: one past its last.
        relevance: [queries, K].
        iterations: of EM.
        evidence: [clients, 2 K] what clients remember: examinations and impressions of earlier rounds.
        u: the client.
        theta: [K], the start; changed.
        shows: [K], room.
    """
    ranks = theta.size
    for k in range(ranks):
        shows[k] = evidence[u, ranks + k]
        for j in range(begin, end):
            shows[k] += n[counted, j, k]
    theta[0] = 1.0
    for _ in range(iterations):
        for k in range(1, ranks):
            before, looked = theta[k], np.float64(evidence[u, k])
            for j in range(begin, end):
                missed, r = n[counted, j, k] - c[counted, j, k], relevance[j, k]
                looked += c[counted, j, k] + missed * before * (1 - r) / (1 - before * r)
            if shows[k] > 0:
                theta[k] = looked / shows[k]


@njit(nogil=True, cache=True, fastmath=FAST, inline="always")
def _multiply(
    likelihoods: Float32s, thetas: Float32s, k: int, scale: np.float32, shift: np.float32, times: int
) -> None:
    """Multiply each likelihood by (shift + scale theta) ** times, and all by a common factor if they become small."""
    while times > 0:
        together = np.float32(0)
        if times >= 4:
            times -= 4
            for g in range(likelihoods.size):
                square = (shift + scale * thetas[k, g]) ** 2
                likelihoods[g] *= square * square
                together += likelihoods[g]
        elif times == 3:
            times = 0
            for g in range(likelihoods.size):
                factor = shift + scale * thetas[k, g]
                likelihoods[g] *= factor * factor * factor
                together += likelihoods[g]
        elif times == 2:
            times = 0
            for g in range(likelihoods.size):
                likelihoods[g] *= (shift + scale * thetas[k, g]) ** 2
                together += likelihoods[g]
        else:
            times = 0
            for g in range(likelihoods.size):
                likelihoods[g] *= shift + scale * thetas[k, g]
                together += likelihoods[g]
        if together < _SMALL:
            for g in range(likelihoods.size):
                likelihoods[g] /= max(together, _TINIEST)


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def multiply_likelihoods(
    n: Float64s,
    c: Float64s,
    counted: int,
    begin: int,
    end: int,
    relevance: Float64s,
    k: int,
    thetas: Float32s,
    likelihoods: Float32s,
) -> None:
    """Multiply by the likelihoods of one rank's clicks if its examination were each of `thetas`.

    Factors that do not depend on theta are left out, and all may be multiplied by a common one: only ratios count.

    Args:
        n: [1 + parts, queries, K] impressions.
        c: likewise clicks.
        counted: which of these: 0 for all.
        begin: the client's first query.
        end: one past its last.
        relevance: [queries, K].
        k: the rank, from 0.
        thetas: [K, grid].
        likelihoods: [grid], changed.
    """
    clicked = 0
    for j in range(begin, end):
        made = int(c[counted, j, k])
        clicked += made
        _multiply(likelihoods, thetas, k, -np.float32(relevance[j, k]), _ONE, int(n[counted, j, k]) - made)
    _multiply(likelihoods, thetas, k, _ONE, _ZERO, clicked)


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def posterior_mean(likelihoods: Float32s, priors: Float32s, prior: int, values: Float32s, k: int) -> float:
    """Mean of `values[k]` under the posterior: `priors[prior]` times likelihoods.

    The prior's own mean if they exclude each other.
    """
    total = mean = alone = np.float32(0)
    for g in range(likelihoods.size):
        weight = priors[prior, g] * likelihoods[g]
        total += weight
        mean += weight * values[k, g]
        alone += priors[prior, g] * values[k, g]
    return np.float64(mean / total) if total > 0 else np.float64(alone)


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def multiply_marginals(likelihoods: Float32s, priors: Float32s, k: int, products: Float64s, u: int) -> None:
    """Multiply each of `products[u]` by client u's marginal likelihood under one of `priors[k]`, [several, grid].

    As a share of what all points of the grid together have, which is the same for all priors.
    """
    together = np.float32(0)
    for g in range(likelihoods.size):
        together += likelihoods[g]
    together = max(together, _TINIEST)
    for h in range(priors.shape[1]):
        marginal = np.float32(0)
        for g in range(likelihoods.size):
            marginal += priors[k, h, g] * likelihoods[g]
        products[u, h] = max(products[u, h] * np.float64(marginal / together), _TINY)
