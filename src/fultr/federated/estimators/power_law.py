"""A power law for each client, examination = (1 / rank) ** severity, its severity a posterior mean.

The prior of severities is a truncated Gaussian, whose mean and spread the clients' marginal likelihoods decide.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from fultr.clicks.log import Records
from fultr.core.arrays import Arrays, Float32s, Float64s
from fultr.core.compiled import implements
from fultr.federated.estimators.expectations import Counted, examine
from fultr.federated.estimators.grid import hats
from fultr.federated.estimators.likelihoods import multiply_likelihoods, multiply_marginals, posterior_mean
from fultr.federated.estimators.relevance import (
    add_marginals,
    estimated,
    initial_relevance,
    next_relevance,
    parts_of,
)
from fultr.federated.settings import Estimator

SEVERITIES = np.linspace(0.0, 4.0, 32)
_MEANS, _SPREADS = np.linspace(0.0, 3.0, 13), np.array([0.0, 0.15, 0.3, 0.6, 1.0])
PRIORS = np.array([(mean, spread) for mean in _MEANS for spread in _SPREADS])
"""Means and standard deviations of the severities' distribution that clients evaluate."""


class PowerLaw(NamedTuple):
    """What compiled code takes.

    Attributes:
        grid: [K, grid] the examinations of each rank that likelihoods are evaluated at.
        priors: [1, priors, grid] those that marginal likelihoods are evaluated for.
        chosen: [1, grid] the one that a client's estimate is made with.
        evidence: [clients, grid] likelihoods of what clients clicked in earlier rounds.
        remembers: is the evidence to be kept up?
        products: [clients, priors] of clients' marginal likelihoods; multiplied.
    """

    grid: Float32s
    priors: Float32s
    chosen: Float32s
    evidence: Float32s
    remembers: bool
    products: Float64s


@implements(examine, PowerLaw)
def _examine(
    kind: Any, counted: Counted, u: int, begin: int, end: int, without: int, theta: Float64s, room: Float32s
) -> None:
    n, c, relevance = counted
    grid, priors, chosen, evidence, remembers, products = kind
    likelihoods, points = room, room.size
    for g in range(points):
        likelihoods[g] = evidence[u, g]
    for k in range(1, theta.size):
        multiply_likelihoods(n, c, without, begin, end, relevance, k, grid, likelihoods)
    for k in range(theta.size):
        theta[k] = posterior_mean(likelihoods, chosen, 0, grid, k)
    if without == 0:
        multiply_marginals(likelihoods, priors, 0, products, u)
        if remembers:
            for g in range(points):
                evidence[u, g] = likelihoods[g]


def init(settings: Estimator, features: int, ranks: int) -> Arrays:
    """F, and sums of the logarithms of marginal likelihoods; "ranks" is how many there are."""
    own = {"marginals": np.zeros(len(PRIORS)), "ranks": np.array(ranks)}
    return {**initial_relevance(settings, features), **own}


def broadcast(settings: Estimator, state: Arrays) -> Arrays:
    """F, and the prior of severities with the largest marginal likelihood."""
    grid = np.arange(1.0, int(state["ranks"]) + 1)[:, np.newaxis] ** -SEVERITIES
    chosen = severity_prior(*best_severities(settings, state["marginals"]))[np.newaxis]
    found = {"grid": grid, "priors": _severity_priors(), "chosen": chosen}
    single = {name: array.astype(np.float32) for name, array in found.items()}
    return {"relevance": state["relevance"], "pooled": np.minimum(grid @ chosen[0], 1.0), **single}


def nothing(settings: Estimator, features: int, ranks: int, rows: int) -> Arrays:
    """The gradient of F, and the logarithms of marginal likelihoods."""
    return {"gradient": np.zeros((rows, features + 1)), "marginals": np.zeros((rows, len(PRIORS)))}


def no_evidence(settings: Estimator, clients: int, ranks: int) -> Float32s:
    """Nothing speaks for any severity."""
    return np.ones((clients, SEVERITIES.size), np.float32)


def client(
    settings: Estimator, sent: Arrays, records: Records, sums: Arrays, evidence: Float32s | None = None
) -> Float64s:
    """Each client's posterior means; it expects by them too."""
    kept = no_evidence(settings, records.clients, records.display.ranks) if evidence is None else evidence
    room = sent["grid"].shape[1]
    products = np.ones((records.clients, sums["marginals"].shape[1]))
    kind = PowerLaw(sent["grid"], sent["priors"], sent["chosen"], kept, evidence is not None, products)
    divisors = estimated(settings, kind, sent, records, sums, own=True, parts=parts_of(settings), room=room)
    add_marginals(sums, products)
    return divisors


def server(settings: Estimator, state: Arrays, sums: Arrays, clients: float) -> Arrays:
    """The next F and sums of marginal likelihoods."""
    marginals = settings.estimate_memory * state["marginals"] + sums["marginals"]
    return {**state, **next_relevance(settings, state, sums["gradient"], clients), "marginals": marginals}


def severity_prior(mean: float, spread: float) -> Float64s:
    """The prior [grid] of a client's severity: a Gaussian truncated at 0, spread over `SEVERITIES` by hat functions."""
    if spread < 1e-3:
        return hats(SEVERITIES, np.array([mean]), np.ones(1))
    edges = np.linspace(0.0, SEVERITIES[-1], 801)
    density = np.diff(ndtr((edges - mean) / spread))
    return hats(SEVERITIES, (edges[1:] + edges[:-1]) / 2, density)


@cache
def _severity_priors() -> Float64s:
    """All of `PRIORS` on the grid, [1, priors, grid]."""
    return np.stack([severity_prior(*prior) for prior in PRIORS])[np.newaxis]


def best_severities(settings: Estimator, marginals: Float64s) -> tuple[float, float]:
    """Mean and spread of the severities' distribution with the largest marginal likelihood.

    Between the points of the grid by a parabola through the best one and its neighbours.
    """
    if np.ptp(marginals) == 0:
        through = float(-np.log(settings.estimate_start) / np.log(2.0))  # the power law through the start at rank 2
        return min(through, float(SEVERITIES[-1])), 0.3
    table = marginals.reshape(_MEANS.size, _SPREADS.size)
    i, j = np.unravel_index(np.argmax(table), table.shape)
    return _peak(_MEANS, table[:, j], int(i)), max(0.0, _peak(_SPREADS, table[i], int(j)))


def _peak(x: Float64s, y: Float64s, i: int) -> float:
    """Where the parabola through three neighbouring points is highest; at the ends, the end."""
    if i in (0, x.size - 1):
        return float(x[i])
    a, b, _ = np.polyfit(x[i - 1 : i + 2] - x[i], y[i - 1 : i + 2] - y[i], 2)
    return float(x[i] - b / (2 * a)) if a < 0 else float(x[i])
