"""Linear rankers on a whole log: the weights that make its clicks most likely."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from fultr.core.arrays import Float64s
from fultr.core.threads import one_blas_thread
from fultr.learn.pooled import Pooled, add_pulls


@one_blas_thread()
def linear_weights(
    pooled: Pooled, features: Float64s, ridge: float, limit: float, start: Float64s | None = None
) -> Float64s:
    """Weights w that maximise the likelihood of `add_pulls` minus ridge |w|^2 / 2, with scores w . x.

    Args:
        pooled: the log.
        features: [pairs, features], scaled to variance 1.
        ridge: precision of a Gaussian prior on each weight, in clicks.
        limit: of how much a query counts.
        start: weights to start from; zero if None.
    """
    pulls = np.empty((len(features), 2))

    def loss(weights: Float64s) -> tuple[float, Float64s]:
        scores = features @ weights
        total, _ = add_pulls(scores, pooled.offsets, pooled.clicks, pooled.examined, limit, pulls)
        return ridge / 2 * float(weights @ weights) - total, ridge * weights - pulls[:, 0] @ features

    first = np.zeros(features.shape[1]) if start is None else start
    found = minimize(loss, first, method="L-BFGS-B", jac=True, options={"maxiter": 200})
    weights: Float64s = found.x
    return weights
