"""Each client's own examination, shrunk towards that of all: a posterior mean with a Beta prior around the pooled one.

How strong the prior is, the clients' marginal likelihoods decide (empirical Bayes): each sends their logarithms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import betainc

from fultr.clicks.log import Records
from fultr.core.arrays import Arrays, Float32s, Float64s
from fultr.core.compiled import implements
from fultr.federated.estimators.expectations import Counted, examine
from fultr.federated.estimators.grid import hats
from fultr.federated.estimators.likelihoods import multiply_likelihoods, multiply_marginals, posterior_mean
from fultr.federated.estimators.pooled import next_pooled
from fultr.federated.estimators.pooled import nothing as nothing_pooled
from fultr.federated.estimators.relevance import (
    add_marginals,
    estimated,
    initial_relevance,
    next_relevance,
    parts_of,
)
from fultr.federated.settings import Estimator

STRENGTHS = np.array([2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, np.inf])
"""How many impressions the prior of a client's examination is worth; infinite: all clients are alike."""

THETAS = np.linspace(0.04, 1.0, 32) ** 2  # closer together where examination is rare


class Shrunk(NamedTuple):
    """What compiled code takes.

    Attributes:
        grid: [K, grid] the examinations of each rank that likelihoods are evaluated at.
        priors: [K, priors, grid] those that marginal likelihoods are evaluated for.
        chosen: [K, grid] the one that a client's estimate is made with.
        evidence: [clients, K x grid] likelihoods of what clients clicked in earlier rounds.
        remembers: is the evidence to be kept up?
        products: [clients, priors] of clients' marginal likelihoods; multiplied.
    """

    grid: Float32s
    priors: Float32s
    chosen: Float32s
    evidence: Float32s
    remembers: bool
    products: Float64s


@implements(examine, Shrunk)
def _examine(
    kind: Any, counted: Counted, u: int, begin: int, end: int, without: int, theta: Float64s, room: Float32s
) -> None:
    n, c, relevance = counted
    grid, priors, chosen, evidence, remembers, products = kind
    likelihoods, points = room, room.size
    for k in range(1, theta.size):
        for g in range(points):
            likelihoods[g] = evidence[u, k * points + g]
        multiply_likelihoods(n, c, without, begin, end, relevance, k, grid, likelihoods)
        theta[k] = posterior_mean(likelihoods, chosen, k, grid, k)
        if without == 0:
            multiply_marginals(likelihoods, priors, k, products, u)
            if remembers:
                for g in range(points):
                    evidence[u, k * points + g] = likelihoods[g]


def init(settings: Estimator, features: int, ranks: int) -> Arrays:
    """F, pooled examination with its strides, and sums of the logarithms of marginal likelihoods."""
    pooled = np.r_[1.0, np.full(ranks - 1, settings.estimate_start)]
    own = {"pooled": pooled, "stride": np.zeros(ranks), "marginals": np.zeros(STRENGTHS.size)}
    return {**initial_relevance(settings, features), **own}


def broadcast(settings: Estimator, state: Arrays) -> Arrays:
    """F, pooled examination, and priors around it."""
    pooled = state["pooled"]
    priors = strength_priors(pooled)
    found = {
        "grid": np.tile(THETAS, (pooled.size, 1)),
        "priors": priors,
        "chosen": np.ascontiguousarray(priors[:, best_strength(state["marginals"])]),
    }
    single = {name: array.astype(np.float32) for name, array in found.items()}
    return {"relevance": state["relevance"], "pooled": pooled, **single}


def nothing(settings: Estimator, features: int, ranks: int, rows: int) -> Arrays:
    """What the pooled estimator sends, and the logarithms of marginal likelihoods."""
    return {**nothing_pooled(settings, features, ranks, rows), "marginals": np.zeros((rows, STRENGTHS.size))}


def no_evidence(settings: Estimator, clients: int, ranks: int) -> Float32s:
    """Nothing speaks for any examination."""
    return np.ones((clients, ranks * THETAS.size), np.float32)


def client(
    settings: Estimator, sent: Arrays, records: Records, sums: Arrays, evidence: Float32s | None = None
) -> Float64s:
    """Each client's posterior means; it expects by the pooled estimate, which makes that the pooled estimator's."""
    kept = no_evidence(settings, records.clients, records.display.ranks) if evidence is None else evidence
    room = sent["grid"].shape[1]
    products = np.ones((records.clients, sums["marginals"].shape[1]))
    kind = Shrunk(sent["grid"], sent["priors"], sent["chosen"], kept, evidence is not None, products)
    divisors = estimated(settings, kind, sent, records, sums, own=False, parts=parts_of(settings), room=room)
    add_marginals(sums, products)
    return divisors


def server(settings: Estimator, state: Arrays, sums: Arrays, clients: float) -> Arrays:
    """The next F, pooled examination and sums of marginal likelihoods."""
    marginals = settings.estimate_memory * state["marginals"] + sums["marginals"]
    relevance = next_relevance(settings, state, sums["gradient"], clients)
    return {**state, **relevance, **next_pooled(state, sums), "marginals": marginals}


def strength_priors(pooled: Float64s) -> Float64s:
    """Priors [K, strengths, grid] of a client's examination of each rank: Beta, with the pooled mean.

    Each is spread over the grid by hat functions, which keeps its mean. Rank 1 has none: it is always examined.
    """
    edges = np.linspace(0.0, 1.0, 201)
    fine = (edges[1:] + edges[:-1]) / 2
    priors = np.zeros((pooled.size, STRENGTHS.size, THETAS.size))
    for k in range(1, pooled.size):
        mean = float(np.clip(pooled[k], THETAS[0], 1 - 1e-3))
        for s, strength in enumerate(STRENGTHS):
            if np.isinf(strength):
                density, at = np.ones(1), np.array([mean])
            else:
                density, at = np.diff(betainc(strength * mean, strength * (1 - mean), edges)), fine
            priors[k, s] = hats(THETAS, at, density)
    return priors


def best_strength(marginals: Float64s) -> int:
    """The index of the strength with the largest marginal likelihood; at first, when all are equal, the middle one."""
    return int(np.argmax(marginals)) if np.ptp(marginals) > 0 else STRENGTHS.size // 2
