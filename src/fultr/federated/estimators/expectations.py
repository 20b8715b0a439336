"""What clients compute to estimate examination, whatever the estimator: expectations of the position-based model.

A click at rank k on document d has probability theta_k r_d: examined, and relevant. r_d = sigmoid(F . x_d + b) comes
from the relevance function F that all clients share. A client's log enters as counts of impressions n and clicks c of
each (query, rank): those of all clients are in one array, and a client's queries are its rows `begin` to `end`.

Compiled code counts who refers to an array wherever one is sliced, or passed on in a loop that a called function could
end by an error. That takes as long as the arithmetic here, so that rows are told by their indices, helpers are inlined
and divisions raise nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s, UInt8s
from fultr.core.prefetch import prefetch_rows
from fultr.rankers.linear_kernels import FAST

_LEAST = 1e-6  # relevance stays so far from 0 and 1


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
    places = np.empty(shown.shape[0], np.int32)  # of queries in `cells`; right if this client's query is there
    end = 0
    for u in range(offsets.size - 1):
        begin = bounds[u] = end
        for i in range(offsets[u], offsets[u + 1]):
            q = queries[i]
            j = places[q]
            if j < begin or j >= end or cells[j] != q:
                j = places[q] = end
                cells[j] = q
                end += 1
                for counted in range(parts + 1):
                    for k in range(ranks):
                        n[counted, j, k] = c[counted, j, k] = 0
            for counted in range(parts + 1):
                if counted == 0 or (i - offsets[u]) % parts != counted - 1:
                    n[counted, j, 0] += 1  # of the query: ranks follow below
                    for k in range(ranks):
                        c[counted, j, k] += clicks[i, k]
        for counted in range(parts + 1):
            for j in range(begin, end):
                impressions = n[counted, j, 0]
                for k in range(ranks):
                    there = shown[cells[j], k] >= 0
                    n[counted, j, k] = impressions if there else 0.0
                    c[counted, j, k] = c[counted, j, k] if there else 0.0
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


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy", forceinline=True)
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


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy", forceinline=True)
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


class Counted(NamedTuple):
    """Impressions and clicks of each client's queries: in all of its log, and without each part of it.

    Attributes:
        n: [1 + parts, queries, K] impressions.
        c: likewise clicks.
        relevance: [queries, K] by F.
    """

    n: Float64s
    c: Float64s
    relevance: Float64s


class Expected(NamedTuple):
    """What clients add to, each in its own row or all in the only one.

    Attributes:
        gradient: [rows, features + 1] of F.
        examined: [rows, K] expected examinations.
        impressions: [rows, K].
    """

    gradient: Float64s
    examined: Float64s
    impressions: Float64s


def examine(
    kind: Any, counted: Counted, u: int, begin: int, end: int, without: int, theta: Float64s, room: Float32s
) -> None:
    """Write client u's estimate of examination to `theta`, which holds the pooled one.

    Called from compiled code alone. An estimator's file gives the code for its type, see `fultr.core.compiled`.

    Args:
        kind: which estimator, with what it was sent and what its clients remember.
        counted: the counts of all clients.
        u: the client.
        begin: its first query.
        end: one past its last.
        without: which counts to take: 0 for all of its log, i for all but part i - 1.
        theta: [K], changed.
        room: as much as the estimator asked for.
    """
    raise NotImplementedError(f"{kind!r}: only compiled code calls this")


@njit(nogil=True, cache=True, forceinline=True)
def _prefetch_displayed(features: Float32s, shown: Int64s, cells: Int32s, begin: int, end: int) -> None:
    """Begin to load what a client's queries display."""
    for j in range(begin, end):
        for k in range(shown.shape[1]):
            row = shown[cells[j], k]
            if row >= 0:
                prefetch_rows(features, row, row + 1)


@njit(nogil=True, cache=True)
def estimate_clients(
    kind: Any,
    features: Float32s,
    shown: Int64s,
    queries: Int32s,
    clicks: UInt8s,
    offsets: Int64s,
    relevance: Float32s,
    pooled: Float64s,
    floor: float,
    own: bool,
    room: int,
    divisors: Float64s,
    expected: Expected,
) -> None:
    """What each client divides its clicks by, and what it adds to the sums.

    Args:
        kind: the estimator, see `examine`.
        features: of the displayed documents.
        shown: [queries, K].
        queries: of the impressions.
        clicks: [impressions, K].
        offsets: [clients + 1] where each client's impressions begin.
        relevance: F, padded to the width of the features, and the intercept.
        pooled: [K] examination as the server believes it.
        floor: of estimates.
        own: do clients expect by their own estimates, or by the pooled one?
        room: numbers that the estimator needs room for; made here, compiled code knows that nothing else is there.
        divisors: [clients, parts, K], written.
        expected: added to.
    """
    gradient, examined, impressions = expected
    clients, parts, ranks = divisors.shape
    splits = parts if parts > 1 else 0
    slope, intercept = relevance[:-1], relevance[-1]
    cells, bounds = np.empty(queries.size, np.int32), np.empty(clients + 1, np.int64)
    n, c = np.empty((1 + splits, queries.size, ranks)), np.empty((1 + splits, queries.size, ranks))
    count_cells(queries, clicks, offsets, shown, cells, bounds, n, c)
    scored = np.empty((bounds[-1], ranks))
    counted = Counted(n, c, scored)
    theta, looked, shows = np.empty(ranks), np.empty(ranks), np.empty(ranks)
    local, pulls = np.empty(slope.size, np.float32), np.zeros(ranks + 4, np.float32)
    scores, space = np.empty(5, np.float32), np.empty(room, np.float32)
    for u in range(clients):
        begin, end = bounds[u], bounds[u + 1]
        if u + 1 < clients:
            _prefetch_displayed(features, shown, cells, end, bounds[u + 2])
        score_cells(features, shown, cells, begin, end, slope, intercept, scored, scores)
        for without in range(splits, -1, -1):  # without each part of the log, and at last all of it
            for k in range(ranks):
                theta[k] = pooled[k]
            examine(kind, counted, u, begin, end, without, theta, space)
            for k in range(ranks):
                if without > 0 or splits == 0:
                    divisors[u, max(without - 1, 0), k] = min(max(theta[k], floor), 1.0)
        for f in range(local.size):  # the client's own sums first, as if it had sent them
            local[f] = 0
        for k in range(ranks):
            looked[k] = shows[k] = 0
        if not own:
            for k in range(ranks):
                theta[k] = pooled[k]
        row = u if gradient.shape[0] > 1 else 0
        gradient[row, -1] += add_expectations(
            features, shown, cells, begin, end, scored, theta, n, c, local, looked, shows, pulls
        )
        for f in range(gradient.shape[1] - 1):
            gradient[row, f] += local[f]
        row = u if examined.shape[0] > 1 else 0
        for k in range(ranks):
            examined[row, k] += looked[k]
            impressions[row, k] += shows[k]
