"""The paper's estimator: each client's own examination by EM on its own log, with the shared relevance function."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fultr.clicks.log import Records
from fultr.core.arrays import Arrays, Float32s, Float64s
from fultr.core.compiled import implements
from fultr.federated.estimators.expectations import Counted, examine
from fultr.federated.estimators.relevance import estimated, initial_relevance, next_relevance, parts_of
from fultr.federated.settings import Estimator


class Personal(NamedTuple):
    """What compiled code takes.

    Attributes:
        iterations: of EM.
        evidence: [clients, 2 K] examinations and impressions of earlier rounds.
        shows: [K], room.
    """

    iterations: int
    evidence: Float32s
    shows: Float64s


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
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


@implements(examine, Personal)
def _examine(
    kind: Any, counted: Counted, u: int, begin: int, end: int, without: int, theta: Float64s, room: Float32s
) -> None:
    n, c, relevance = counted
    personal_em(n, c, without, begin, end, relevance, kind.iterations, kind.evidence, u, theta, kind.shows)


def init(settings: Estimator, features: int, ranks: int) -> Arrays:
    """F, and the examination that EM starts from."""
    return {**initial_relevance(settings, features), "pooled": np.r_[1.0, np.full(ranks - 1, settings.estimate_start)]}


def broadcast(settings: Estimator, state: Arrays) -> Arrays:
    """F, and where to start."""
    return {name: state[name] for name in ("relevance", "pooled")}


def nothing(settings: Estimator, features: int, ranks: int, rows: int) -> Arrays:
    """The gradient of F is all that clients send."""
    return {"gradient": np.zeros((rows, features + 1))}


def no_evidence(settings: Estimator, clients: int, ranks: int) -> Float32s:
    """No examinations and no impressions."""
    return np.zeros((clients, 2 * ranks), np.float32)


def client(
    settings: Estimator, sent: Arrays, records: Records, sums: Arrays, evidence: Float32s | None = None
) -> Float64s:
    """Each client's own estimate; it expects by it too."""
    ranks = records.display.ranks
    kept = no_evidence(settings, records.clients, ranks) if evidence is None else evidence
    kind = Personal(settings.estimate_iterations, kept, np.empty(ranks))
    counts = {name: np.zeros((records.clients, ranks)) for name in ("examined", "impressions")}  # stay with the client
    found = estimated(settings, kind, sent, records, {**sums, **counts}, own=True, parts=parts_of(settings))
    if evidence is not None:
        evidence += np.hstack([counts["examined"], counts["impressions"]])
    return found


def server(settings: Estimator, state: Arrays, sums: Arrays, clients: float) -> Arrays:
    """The next F."""
    return {**state, **next_relevance(settings, state, sums["gradient"], clients)}
