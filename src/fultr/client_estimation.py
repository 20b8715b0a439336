"""What clients do to estimate examination: from a click log and the server's broadcast to propensities and sums."""

from __future__ import annotations

import numpy as np
from numba import njit

from fultr.clicks import ClickLog
from fultr.estimation import KINDS, SEVERITIES, THETAS, Broadcast, Estimator, Sums
from fultr.estimation_kernels import (
    add_expectations,
    count_cells,
    multiply_likelihoods,
    multiply_marginals,
    personal_em,
    posterior_mean,
    score_cells,
)
from fultr.harvesting import pair_counts_of_versions
from fultr.policy import Display
from fultr.prefetch import prefetch_rows
from fultr.types import Float32s, Float64s, Int32s, Int64s, UInt8s


@njit(nogil=True, cache=True)
def _prefetch_displayed(features: Float32s, shown: Int64s, cells: Int32s, begin: int, end: int) -> None:
    """Begin to load what a client's queries display."""
    for j in range(begin, end):
        for k in range(shown.shape[1]):
            row = shown[cells[j], k]
            if row >= 0:
                prefetch_rows(features, row, row + 1)


@njit(nogil=True, cache=True)
def _estimate_clients(
    features: Float32s,
    shown: Int64s,
    queries: Int32s,
    clicks: UInt8s,
    offsets: Int64s,
    slope: Float32s,
    intercept: np.float32,
    kind: int,
    pooled: Float64s,
    iterations: int,
    floor: float,
    grid: Float32s,
    priors: Float32s,
    chosen: Float32s,
    evidence: Float32s,
    remember: bool,
    divisors: Float64s,
    gradient: Float64s,
    examined: Float64s,
    impressions: Float64s,
    products: Float64s,
) -> None:
    clients, parts, ranks = divisors.shape
    splits, points = parts if parts > 1 else 0, grid.shape[1]
    cells, bounds = np.empty(queries.size, np.int32), np.empty(clients + 1, np.int64)
    n, c = np.empty((1 + splits, queries.size, ranks)), np.empty((1 + splits, queries.size, ranks))
    count_cells(queries, clicks, offsets, shown, cells, bounds, n, c)
    scored = np.empty((bounds[-1], ranks))
    theta, looked, shows = np.empty(ranks), np.empty(ranks), np.empty(ranks)
    local, pulls = np.empty(slope.size, np.float32), np.zeros(ranks + 4, np.float32)
    scores, likelihoods = np.empty(5, np.float32), np.empty(points, np.float32)
    for u in range(clients):
        begin, end = bounds[u], bounds[u + 1]
        if u + 1 < clients:
            _prefetch_displayed(features, shown, cells, end, bounds[u + 2])
        score_cells(features, shown, cells, begin, end, slope, intercept, scored, scores)
        for counted in range(splits, -1, -1):  # without each part of the log, and at last all of it
            for k in range(ranks):
                theta[k] = pooled[k]
            if kind == 0:
                personal_em(n, c, counted, begin, end, scored, iterations, evidence, u, theta, shows)
            elif kind == 2:
                for k in range(1, ranks):
                    for g in range(points):
                        likelihoods[g] = evidence[u, k * points + g]
                    multiply_likelihoods(n, c, counted, begin, end, scored, k, grid, likelihoods)
                    theta[k] = posterior_mean(likelihoods, chosen, k, grid, k)
                    if counted == 0:
                        multiply_marginals(likelihoods, priors, k, products, u)
                        if remember:
                            for g in range(points):
                                evidence[u, k * points + g] = likelihoods[g]
            elif kind == 3:
                for g in range(points):
                    likelihoods[g] = evidence[u, g]
                for k in range(1, ranks):
                    multiply_likelihoods(n, c, counted, begin, end, scored, k, grid, likelihoods)
                for k in range(ranks):
                    theta[k] = posterior_mean(likelihoods, chosen, 0, grid, k)
                if counted == 0:
                    multiply_marginals(likelihoods, priors, 0, products, u)
                    if remember:
                        for g in range(points):
                            evidence[u, g] = likelihoods[g]
            for k in range(ranks):
                if counted > 0 or splits == 0:
                    divisors[u, max(counted - 1, 0), k] = min(max(theta[k], floor), 1.0)
        local[:] = 0  # the client's own sums first, as if it had sent them
        looked[:] = 0
        shows[:] = 0
        for k in range(ranks):
            if kind == 2:  # "shrunk" has the same F and pooled examination as "pooled"
                theta[k] = pooled[k]
        gradient[-1] += add_expectations(
            features, shown, cells, begin, end, scored, theta, n, c, local, looked, shows, pulls
        )
        for f in range(gradient.size - 1):
            gradient[f] += local[f]
        for k in range(ranks):
            if kind in (1, 2):
                examined[k] += looked[k]
                impressions[k] += shows[k]
            elif kind == 0 and remember:
                evidence[u, k] += looked[k]
                evidence[u, ranks + k] += shows[k]


def no_evidence(estimator: Estimator, clients: int, ranks: int) -> Float32s:
    """What clients remember that have not taken part yet, [clients, numbers].

    "personal": expected examinations and impressions of each rank; "shrunk" and "power-law": likelihoods on the grid.
    """
    match estimator.kind:
        case "personal":
            return np.zeros((clients, 2 * ranks), np.float32)
        case "shrunk":
            return np.ones((clients, ranks * THETAS.size), np.float32)
        case "power-law":
            return np.ones((clients, SEVERITIES.size), np.float32)
        case "pooled" | "harvested":
            return np.zeros((clients, 0), np.float32)


def estimate_clients(
    estimator: Estimator,
    sent: Broadcast,
    log: ClickLog,
    display: Display,
    sums: Sums,
    evidence: Float32s | None = None,
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
    slope = np.zeros(display.features.shape[1], np.float32)  # rows may be padded with zeros
    slope[: sent.relevance.size - 1] = sent.relevance[:-1]
    divisors = np.empty((log.clients, 2 if estimator.cross_fit and estimator.kind != "pooled" else 1, display.ranks))
    remember = evidence is not None
    if evidence is None:
        evidence = no_evidence(estimator, log.clients, display.ranks)
    products = np.ones((log.clients, sums.marginals.size))  # of clients' marginal likelihoods
    _estimate_clients(
        display.features,
        display.shown,
        log.queries,
        log.clicks,
        log.offsets,
        slope,
        sent.relevance[-1],
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
        products,
    )
    sums.marginals[:] = np.vstack([sums.marginals, np.log(products)]).sum(axis=0)  # client by client
    return divisors
