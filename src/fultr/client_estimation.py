"""What clients do to estimate examination: from a click log and the server's broadcast to propensities and sums."""

from __future__ import annotations

import numpy as np
from numba import njit

from fultr.clicks import ClickLog
from fultr.estimation import KINDS, SEVERITIES, THETAS, Broadcast, Estimator, Sums
from fultr.estimation_kernels import (
    add_relevance_gradient,
    count_cells,
    expected_examined,
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
def count_examined(
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
            if n[j, k] > 0:
                examined[k] += expected_examined(n[j, k], c[j, k], relevance[j, k], theta[k])
                impressions[k] += n[j, k]


@njit(nogil=True, cache=True)
def _prefetch_displayed(features: Float32s, shown: Int64s, cells: Int32s, distinct: int) -> None:
    """Begin to load what a client's queries display."""
    for j in range(distinct):
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
    relevance: Float32s,
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
    marginals: Float64s,
) -> None:
    clients, parts, ranks = divisors.shape
    splits = parts if parts > 1 else 0
    longest = 1
    for u in range(clients):
        longest = max(longest, offsets[u + 1] - offsets[u])
    # Of two clients: while one estimates, what the next one needs is counted and fetched.
    cells = np.empty((2, longest), np.int32)
    n, c = np.empty((2, 1 + splits, longest, ranks)), np.empty((2, 1 + splits, longest, ranks))
    distinct = np.zeros(2, np.int64)
    scored = np.empty((longest, ranks))
    theta, room = np.ones(ranks), np.empty((2, ranks))
    local, pulls = np.zeros(relevance.size, np.float32), np.zeros(ranks + 4, np.float32)
    likelihoods = np.empty(grid.shape[-1], np.float32)
    products = np.empty(priors.shape[1])
    for step in range(clients + 1):
        soon = step % 2
        if step < clients:
            distinct[soon] = count_cells(
                queries, clicks, offsets[step], offsets[step + 1], shown, cells[soon], n[soon], c[soon]
            )
            _prefetch_displayed(features, shown, cells[soon], distinct[soon])
        if step == 0:
            continue
        u, now = step - 1, 1 - soon
        mine, these, queries_of = evidence[u], cells[now], distinct[now]
        score_cells(features, shown, these, queries_of, relevance, scored)
        for counted in range(splits, -1, -1):  # without each part of the log, and at last all of it
            shows, made = n[now, counted], c[now, counted]
            theta[:] = pooled
            products[:] = 1.0
            if kind == 0:
                personal_em(
                    shows,
                    made,
                    queries_of,
                    scored,
                    pooled,
                    iterations,
                    mine[:ranks],
                    mine[ranks:],
                    theta,
                    room[0],
                    room[1],
                )
            elif kind == 2:
                for k in range(1, ranks):
                    kept = mine[k * grid.shape[1] : (k + 1) * grid.shape[1]]
                    likelihoods[:] = kept
                    multiply_likelihoods(shows, made, queries_of, scored, k, grid[k], likelihoods)
                    theta[k] = posterior_mean(likelihoods, chosen[k], grid[k])
                    if counted == 0:
                        multiply_marginals(likelihoods, priors[k], products)
                        if remember:
                            kept[:] = likelihoods
            elif kind == 3:
                likelihoods[:] = mine
                for k in range(1, ranks):
                    multiply_likelihoods(shows, made, queries_of, scored, k, grid[k], likelihoods)
                for k in range(ranks):
                    theta[k] = posterior_mean(likelihoods, chosen[0], grid[k])
                if counted == 0:
                    multiply_marginals(likelihoods, priors[0], products)
                    if remember:
                        mine[:] = likelihoods
            for k in range(ranks):
                if counted > 0 or splits == 0:
                    divisors[u, max(counted - 1, 0), k] = min(max(theta[k], floor), 1.0)
        if kind in (2, 3):
            for prior in range(products.size):
                marginals[prior] += np.log(products[prior])
        if remember and kind == 0:
            count_examined(n[now, 0], c[now, 0], queries_of, scored, theta, mine[:ranks], mine[ranks:])
        local[:] = 0
        believed = pooled if kind == 2 else theta  # "shrunk" has the same F and pooled examination as "pooled"
        add_relevance_gradient(features, shown, these, queries_of, scored, believed, n[now, 0], c[now, 0], local, pulls)
        for f in range(gradient.size - 1):
            gradient[f] += local[f]
        gradient[-1] += local[-1]
        if kind in (1, 2):
            room[:] = 0  # the client's own sums first, as if it had sent them
            count_examined(n[now, 0], c[now, 0], queries_of, scored, pooled, room[0], room[1])
            for k in range(ranks):
                examined[k] += room[0, k]
                impressions[k] += room[1, k]


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
    width, padded = sent.relevance.size - 1, display.features.shape[1]
    relevance = np.zeros(padded + 1, np.float32)
    relevance[:width], relevance[-1] = sent.relevance[:-1], sent.relevance[-1]
    divisors = np.empty((log.clients, 2 if estimator.cross_fit and estimator.kind != "pooled" else 1, display.ranks))
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
