"""Likelihoods of a client's clicks over a grid of examinations, and what follows from them with a prior.

As in `expectations`, rows are told by their indices and helpers are inlined, so that no references are counted.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fultr.core.arrays import Float32s, Float64s
from fultr.rankers.linear_kernels import FAST

_TINY = 1e-300
_SMALL, _TINIEST = np.float32(1e-8), np.float32(1e-37)
_ZERO, _ONE = np.float32(0), np.float32(1)


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


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy", forceinline=True)
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


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy", forceinline=True)
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


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy", forceinline=True)
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
