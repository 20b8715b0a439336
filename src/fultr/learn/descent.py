"""Linear rankers on a whole log: the weights that make its clicks most likely."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from fultr.core.arrays import Float64s
from fultr.core.threads import one_blas_thread
from fultr.learn.pooled import Pooled, likelihood

_LITTLE = 1.0  # added to the squares of each feature, so that features that go together share what they explain


@one_blas_thread()
def order_weights(pooled: Pooled, features: Float64s) -> Float64s:
    """Weights that put documents in the order in which users saw them, as well as a linear ranker can.

    Least squares on how high a document was displayed, within queries; scores have variance 1. It is zero if every
    document was displayed equally high.

    Args:
        pooled: the log.
        features: [pairs, features], scaled to variance 1.
    """
    query, size = pooled.of_query(), np.maximum(np.diff(pooled.offsets), 1)
    high = np.bincount(query, pooled.rank, size.size)[query] / size[query] - pooled.rank
    means = np.add.reduceat(features, pooled.offsets[:-1]) / size[:, np.newaxis]
    within = features - means[query]
    squares = within.T @ within + _LITTLE * np.eye(features.shape[1])
    weights: Float64s = np.linalg.solve(squares, within.T @ high).astype(np.float64)
    spread = float((within @ weights).std())
    return weights / spread if spread > 0 else 0 * weights


@one_blas_thread()
def linear_weights(
    pooled: Pooled, features: Float64s, ridge: float, order: Float64s, start: Float64s | None = None
) -> Float64s:
    """Weights w = v + s order, s >= 0, that maximise the likelihood of `add_pulls` minus ridge |v|^2 / 2.

    Scores are w . x. So where clicks tell little, the ranker keeps to the order that users saw, which somebody or
    something found good, and where clicks do not speak for that order, s is 0.

    Args:
        pooled: the log.
        features: [pairs, features], scaled to variance 1.
        ridge: precision of a Gaussian prior on each weight, in clicks.
        order: weights that put documents in the order of the log, [features].
        start: v and s to start from; zero if None.

    Returns:
        v and s.
    """
    pulls = np.empty((len(features), 2))

    def loss(parts: Float64s) -> tuple[float, Float64s]:
        own, share = parts[:-1], parts[-1]
        total, _ = likelihood(pooled, features @ (own + share * order), pulls)
        pull = pulls[:, 0] @ features
        return ridge / 2 * float(own @ own) - total, np.append(ridge * own - pull, -pull @ order)

    first = np.zeros(features.shape[1] + 1) if start is None else start
    bounds = [(None, None)] * features.shape[1] + [(0, None)]
    found = minimize(loss, first, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": 200})
    parts: Float64s = found.x
    return parts
