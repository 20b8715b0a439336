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
    multiply_likelihoods,
    personal_em,
    posterior_mean,
    score_cells,
)
from fultr.harvesting import pair_counts_of_versions
from fultr.policy import Display
from fultr.types import Float32s, Float64s, Int32s, Int64s, UInt8s


@njit(nogil=True, cache=True)
def _count_examined(
    n: Float64s,
    c: Float64s,
    distinct: int,
    relevance: Float64s,
    theta: Float64s,
    examined: Float64s,
    impressions: Float64s,
) -> None:
    """Add a client's expected examinations and impressions of each rank."""
    for j in range(distinct):
        for k in range(theta.size):
            shows, made = n[:, j, k].sum(), c[:, j, k].sum()
            if shows > 0:
                examined[k] += expected_examined(shows, made, relevance[j, k], theta[k])
                impressions[k] += shows


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
    likelihoods = np.empty(grid.shape[-1])
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
                    mine = evidence[u, k * grid.shape[1] : (k + 1) * grid.shape[1]]
                    likelihoods[:] = mine
                    multiply_likelihoods(n, c, skipped, distinct, scored, k, grid[k], likelihoods)
                    theta[k] = posterior_mean(likelihoods, chosen[k], grid[k])
                    if everything:
                        add_log_marginals(likelihoods, priors[k], marginals)
                        if remember:
                            mine[:] = likelihoods
            elif kind == 3:
                likelihoods[:] = evidence[u]
                for k in range(1, ranks):
                    multiply_likelihoods(n, c, skipped, distinct, scored, k, grid[k], likelihoods)
                for k in range(ranks):
                    theta[k] = posterior_mean(likelihoods, chosen[0], grid[k])
                if everything:
                    add_log_marginals(likelihoods, priors[0], marginals)
                    if remember:
                        evidence[u] = likelihoods
            for k in range(ranks):
                if part < parts:
                    divisors[u, part, k] = min(max(theta[k], floor), 1.0)
        if remember and kind == 0:
            _count_examined(n, c, distinct, scored, theta, evidence[u, :ranks], evidence[u, ranks:])
        local[:] = 0
        add_relevance_gradient(features, shown, cells, distinct, scored, theta, n, c, local)
        for f in range(gradient.size - 1):
            gradient[f] += local[f]
        gradient[-1] += local[-1]
        if kind in (1, 2):
            _count_examined(n, c, distinct, scored, pooled, examined, impressions)


def no_evidence(estimator: Estimator, clients: int, ranks: int) -> Float64s:
    """What clients remember that have not taken part yet, [clients, numbers].

    "personal": expected examinations and impressions of each rank; "shrunk" and "power-law": likelihoods on the grid.
    """
    match estimator.kind:
        case "personal":
            return np.zeros((clients, 2 * ranks))
        case "shrunk":
            return np.ones((clients, ranks * THETAS.size))
        case "power-law":
            return np.ones((clients, SEVERITIES.size))
        case "pooled" | "harvested":
            return np.zeros((clients, 0))


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
        evidence: what each client remembers, see `no_evidence`; changed. None: nothing.

    Returns:
        [clients, parts, K]; impression i of a client belongs to part i mod parts. There are 2 parts with cross-fitting,
        else 1.
    """
    if estimator.kind == "harvested":
        counts = pair_counts_of_versions(log.clicks, display.other_ranks[log.queries])
        sums.pairs += np.stack([counts.clicks, counts.impressions])
        return np.tile(np.maximum(sent.pooled, estimator.floor), (log.clients, 1, 1))
    width, padded = sent.relevance.size - 1, display.features.shape[1]
    relevance = np.zeros(padded + 1, np.float32)
    relevance[:width], relevance[-1] = sent.relevance[:-1], sent.relevance[-1]
    divisors = np.empty((log.clients, 2 if estimator.cross_fit else 1, display.ranks))
    remember = evidence is not None
    if evidence is None:
        evidence = no_evidence(estimator, log.clients, display.ranks)
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
        evidence,
        remember,
        divisors,
        sums.gradient,
        sums.examined,
        sums.impressions,
        sums.marginals,
    )
    return divisors
