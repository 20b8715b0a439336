"""What one client computes to estimate examination: expectations and likelihoods of the position-based model.

A click at rank k on document d has probability theta_k r_d: examined, and relevant. r_d = sigmoid(F . x_d + b) comes
from the relevance function F that all clients share. A client's log enters as counts of impressions n and clicks c of
each (query, rank).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fultr.linear import FAST, add_scaled, dot
from fultr.types import Float32s, Float64s, Int32s, Int64s, UInt8s

_LEAST = 1e-6  # relevance stays so far from 0 and 1
_TINY = 1e-300
_SMALL = 1e-100


@njit(nogil=True, cache=True)
def expected_examined(n: float, c: float, relevance: float, theta: float) -> float:
    """E-step: how many of n impressions with c clicks were examined (Wang et al. 2018, Eq. 1)."""
    return c + (n - c) * theta * (1 - relevance) / (1 - theta * relevance)


@njit(nogil=True, cache=True)
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
    """Count a client's impressions and clicks by part of its log, query and rank.

    Impression i belongs to part i mod parts. Returns the number of distinct queries, which are written to `cells`.

    Args:
        queries: of the log's impressions.
        clicks: of the log's impressions.
        begin: the client's first impression.
        end: one past its last.
        shown: [queries, K], -1 where nothing is displayed.
        cells: int32 [at least end - begin], written: the distinct queries.
        n: [parts, at least end - begin, K], written: impressions.
        c: likewise clicks.
    """
    parts = n.shape[0]
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
        part = (i - begin) % parts
        for k in range(clicks.shape[1]):
            if shown[q, k] >= 0:
                n[part, j, k] += 1
                c[part, j, k] += clicks[i, k]
    return distinct


@njit(nogil=True, cache=True)
def score_cells(
    features: Float32s, shown: Int64s, cells: Int32s, distinct: int, weights: Float32s, relevance: Float64s
) -> None:
    """Relevance of what each of a client's queries displays, [queries, K]; the last of `weights` is the intercept."""
    for j in range(distinct):
        for k in range(shown.shape[1]):
            row = shown[cells[j], k]
            relevance[j, k] = 0.5  # past the last document there are no impressions, and any number will do
            if row >= 0:
                score = np.float64(dot(features[row], weights[:-1])) + weights[-1]
                relevance[j, k] = min(max(1 / (1 + np.exp(-score)), _LEAST), 1 - _LEAST)


@njit(nogil=True, cache=True)
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
) -> None:
    """M-step of F: add the gradient of its expected log-likelihood, (expected relevance - relevance) x."""
    for j in range(distinct):
        for k in range(shown.shape[1]):
            row = shown[cells[j], k]
            shows, made = n[:, j, k].sum(), c[:, j, k].sum()
            if row >= 0 and shows > 0:
                pull = np.float32(expected_relevant(shows, made, relevance[j, k], theta[k]) - shows * relevance[j, k])
                add_scaled(gradient[:-1], pull, features[row])
                gradient[-1] += pull


@njit(nogil=True, cache=True)
def personal_em(
    n: Float64s,
    c: Float64s,
    skipped: int,
    distinct: int,
    relevance: Float64s,
    start: Float64s,
    iterations: int,
    examined: Float64s,
    impressions: Float64s,
    theta: Float64s,
) -> None:
    """A client's own examination by EM, rank 1 fixed at 1; a rank that it never displayed keeps its start.

    Args:
        n: [parts, queries, K] impressions.
        c: likewise clicks.
        skipped: a part of the log that takes no part; -1: none.
        distinct: queries.
        relevance: [queries, K].
        start: [K].
        iterations: of EM.
        examined: [K] what the client remembers: examinations of earlier rounds.
        impressions: [K] likewise impressions.
        theta: [K], written.
    """
    theta[0] = 1.0
    for k in range(1, theta.size):
        shows = impressions[k]
        for part in range(n.shape[0]):
            if part != skipped:
                for j in range(distinct):
                    shows += n[part, j, k]
        theta[k] = start[k]
        if shows == 0:
            continue
        for _ in range(iterations):
            looked = examined[k]
            for part in range(n.shape[0]):
                if part != skipped:
                    for j in range(distinct):
                        looked += expected_examined(n[part, j, k], c[part, j, k], relevance[j, k], theta[k])
            theta[k] = looked / shows


@njit(nogil=True, cache=True, fastmath=FAST)
def _multiply(likelihoods: Float64s, thetas: Float64s, scale: float, shift: float, times: int) -> None:
    """Multiply each likelihood by (shift + scale theta) ** times, and all by a common factor if they become small."""
    for _ in range(times):
        for g in range(thetas.size):
            likelihoods[g] *= shift + scale * thetas[g]
        top = likelihoods.max()
        if top < _SMALL:
            likelihoods /= max(top, _TINY)


@njit(nogil=True, cache=True)
def multiply_likelihoods(
    n: Float64s,
    c: Float64s,
    skipped: int,
    distinct: int,
    relevance: Float64s,
    k: int,
    thetas: Float64s,
    likelihoods: Float64s,
) -> None:
    """Multiply by the likelihoods of one rank's clicks if its examination were each of `thetas`.

    Factors that do not depend on theta are left out, and all may be multiplied by a common one: only ratios count.

    Args:
        n: [parts, queries, K] impressions.
        c: likewise clicks.
        skipped: a part of the log that takes no part; -1: none.
        distinct: queries.
        relevance: [queries, K].
        k: the rank, from 0.
        thetas: [grid].
        likelihoods: [grid], changed.
    """
    clicked = 0.0
    for part in range(n.shape[0]):
        if part != skipped:
            for j in range(distinct):
                clicked += c[part, j, k]
                _multiply(likelihoods, thetas, -relevance[j, k], 1.0, int(n[part, j, k] - c[part, j, k]))
    _multiply(likelihoods, thetas, 1.0, 0.0, int(clicked))


@njit(nogil=True, cache=True, fastmath=FAST)
def posterior_mean(likelihoods: Float64s, prior: Float64s, values: Float64s) -> float:
    """Mean of `values` under the posterior: prior times likelihoods; the prior's mean if they exclude each other."""
    total = mean = 0.0
    for g in range(prior.size):
        weight = prior[g] * likelihoods[g]
        total += weight
        mean += weight * values[g]
    return mean / total if total > 0 else (prior * values).sum()


@njit(nogil=True, cache=True, fastmath=FAST)
def add_log_marginals(likelihoods: Float64s, priors: Float64s, totals: Float64s) -> None:
    """Add to `totals` the logarithm of the client's marginal likelihood under each row of `priors` [several, grid]."""
    for h in range(priors.shape[0]):
        total = 0.0
        for g in range(likelihoods.size):
            total += priors[h, g] * likelihoods[g]
        totals[h] += np.log(max(total, _TINY))
