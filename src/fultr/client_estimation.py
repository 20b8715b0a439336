"""What clients do to estimate examination: from a click log and the server's broadcast to propensities and sums."""

from __future__ import annotations

import numpy as np
from numba import njit

from fultr.clicks import ClickLog
from fultr.estimation import KINDS, SEVERITIES, THETAS, Broadcast, Estimator, Sums
from fultr.estimation_kernels import (
    add_log_marginals,
    add_relevance_gradient,
    count_cells,
    expected_examined,
    personal_em,
    posterior_means,
    rank_log_likelihoods,
    score_cells,
)
from fultr.policy import Display
from fultr.types import Float32s, Float64s, Int32s, Int64s, UInt8s


@njit(nogil=True, cache=True)
def _estimate_clients(
    features: Float32s,
    shown: Int64s,
    queries: Int32s,
    clicks: UInt8s,
    offsets: Int64s,
    relevance: Float32s,
    kind: int,
    pooled: Float64s,
    iterations: int,
    floor: float,
    grid: Float64s,
    priors: Float64s,
    chosen: Float64s,
    values: Float64s,
    evidence: Float64s,
    remember: bool,
    divisors: Float64s,
    gradient: Float64s,
    examined: Float64s,
    impressions: Float64s,
    marginals: Float64s,
) -> None:
    clients, parts, ranks = divisors.shape
    longest = 1
    for u in range(clients):
        longest = max(longest, offsets[u + 1] - offsets[u])
    cells = np.empty(longest, np.int32)
    n, c = np.empty((parts, longest, ranks)), np.empty((parts, longest, ranks))
    scored = np.empty((longest, ranks))
    theta = np.ones(ranks)
    local = np.zeros(relevance.size, np.float32)
    weights = np.empty(max(grid.shape[-1], 1))
    fresh = np.empty(max(grid.shape[-1], 1))
    means = np.empty(ranks)
    for u in range(clients):
        distinct = count_cells(queries, clicks, offsets[u], offsets[u + 1], shown, cells, n, c)
        score_cells(features, shown, cells, distinct, relevance, scored)
        for part in range(parts + (parts > 1)):
            # With several parts, each is reweighted by an estimate from the others; the last estimate is from all.
            skipped = part if parts > 1 and part < parts else -1
            everything = skipped == -1
            theta[:] = pooled
            if kind == 0:
                personal_em(
                    n, c, skipped, distinct, scored, pooled, iterations, evidence[u, :ranks], evidence[u, ranks:], theta
                )
            elif kind == 2:
                for k in range(1, ranks):
                    fresh[:] = evidence[u, k * weights.size : (k + 1) * weights.size]
                    rank_log_likelihoods(n, c, skipped, distinct, scored, k, grid[0], grid[1], fresh)
                    posterior_means(fresh, chosen[k], values[k : k + 1], weights, means)
                    theta[k] = means[0]
                    if everything:
                        add_log_marginals(fresh, priors[k], weights, marginals)
            elif kind == 3:
                fresh[:] = evidence[u, : weights.size]
                for k in range(1, ranks):
                    rank_log_likelihoods(n, c, skipped, distinct, scored, k, grid[2 * k], grid[2 * k + 1], fresh)
                posterior_means(fresh, chosen[0], values, weights, means)
                theta[:] = means
                if everything:
                    add_log_marginals(fresh, priors[0], weights, marginals)
            for k in range(ranks):
                if part < parts:
                    divisors[u, part, k] = max(theta[k], floor)
        if remember:
            if kind == 0:
                for j in range(distinct):
                    for k in range(ranks):
                        shows, made = n[:, j, k].sum(), c[:, j, k].sum()
                        if shows > 0:
                            evidence[u, k] += expected_examined(shows, made, scored[j, k], theta[k])
                            evidence[u, ranks + k] += shows
            elif kind == 2:
                for k in range(1, ranks):
                    mine = evidence[u, k * weights.size : (k + 1) * weights.size]
                    rank_log_likelihoods(n, c, -1, distinct, scored, k, grid[0], grid[1], mine)
            elif kind == 3:
                evidence[u, : weights.size] = fresh
        local[:] = 0
        add_relevance_gradient(features, shown, cells, distinct, scored, theta, n, c, local)
        for f in range(gradient.size - 1):
            gradient[f] += local[f]
        gradient[-1] += local[-1]
        for j in range(distinct):
            for k in range(ranks):
                shows, made = n[:, j, k].sum(), c[:, j, k].sum()
                if shows > 0:
                    examined[k] += expected_examined(shows, made, scored[j, k], pooled[k])
                    impressions[k] += shows


def evidence_size(estimator: Estimator, ranks: int) -> int:
    """How many numbers a client remembers of its earlier rounds."""
    return {
        "personal": 2 * ranks,
        "pooled": 1,
        "shrunk": ranks * THETAS.size,
        "power-law": SEVERITIES.size,
    }[estimator.kind]


def estimate_clients(
    estimator: Estimator,
    sent: Broadcast,
    log: ClickLog,
    display: Display,
    sums: Sums,
    evidence: Float64s | None = None,
) -> Float64s:
    """What each client of a log divides its clicks by; what they send is added to `sums`.

    Args:
        estimator: how it is estimated.
        sent: what the server broadcast.
        log: the clients' impressions, clicked and not.
        display: what the queries displayed.
        sums: added to, client by client.
        evidence: [clients, `evidence_size`] what each remembers, added to; None: nothing.

    Returns:
        [clients, parts, K]; impression i of a client belongs to part i mod parts. There are 2 parts with cross-fitting,
        else 1.
    """
    width, padded = sent.relevance.size - 1, display.features.shape[1]
    relevance = np.zeros(padded + 1, np.float32)
    relevance[:width], relevance[-1] = sent.relevance[:-1], sent.relevance[-1]
    divisors = np.empty((log.clients, 2 if estimator.cross_fit else 1, display.ranks))
    remember = evidence is not None
    if evidence is None:
        evidence = np.zeros((log.clients, evidence_size(estimator, display.ranks)))
    _estimate_clients(
        display.features,
        display.shown,
        log.queries,
        log.clicks,
        log.offsets,
        relevance,
        KINDS.index(estimator.kind),
        sent.pooled,
        estimator.iterations,
        estimator.floor,
        sent.grid,
        sent.priors,
        sent.chosen,
        sent.values,
        evidence,
        remember,
        divisors,
        sums.gradient,
        sums.examined,
        sums.impressions,
        sums.marginals,
    )
    return divisors
