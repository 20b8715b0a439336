"""The position-based model whose relevance follows from features: for logs in which documents rarely recur.

A document with features x is clicked at rank k with probability p_k sigmoid(w x + b): the model of regression-based EM
(Wang, Golbandi, Bendersky, Metzler and Najork 2018, Position Bias Estimation for Unbiased Learning to Rank in Personal
Search). With the counts of a log at hand, its likelihood is maximised directly, by L-BFGS. Documents need not have been
shown at several ranks; but any part of relevance that features do not explain and that falls with rank counts as
examination.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from fultr.clicks.examination.document_em import started
from fultr.clicks.impressions import Cells, summed
from fultr.core.arrays import Bools, Float64s
from fultr.core.checks import check_number
from fultr.core.errors import FultrError
from fultr.core.threads import one_blas_thread

_TINY = 1e-12
_EDGE = 1e-6  # below rank 1, examination stays at least this far from 0 and 1


@dataclass(frozen=True, eq=False)
class FeatureModel:
    """A position-based model with a logistic relevance.

    Attributes:
        examination: [K], rank 1 has 1; a rank without clicks has 0.
        relevance: [pairs], probability of a click at rank 1.
        log_likelihood: of the log, and of the prior.
    """

    examination: Float64s
    relevance: Float64s
    log_likelihood: float


@one_blas_thread()
def feature_model(cells: Cells, *, ridge: float = 1.0, start: Float64s | None = None) -> FeatureModel:
    """Fit examination and the relevance function to the counts of a log.

    Args:
        cells: counts of each document at each rank, with features.
        ridge: precision of a Gaussian prior on each weight, for features scaled to variance 1: as weak as one click.
        start: initial examination, [K]; 1 / rank if None. Below rank 1 it is moved off 0 and 1, where it would stay.

    >>> from fultr.clicks.impressions import ImpressionLog
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((20_000, 2, 1))
    >>> clicks = rng.random((20_000, 2)) < [1, 0.4] / (1 + np.exp(-x[:, :, 0]))
    >>> documents = np.arange(40_000).reshape(-1, 2)  # none recurs
    >>> log = ImpressionLog.from_arrays([1] * 20_000, documents, clicks, features=x)
    >>> feature_model(log.cells()).examination.round(1).tolist()
    [1.0, 0.4]
    """
    check_number("ridge", ridge, least=0)
    cells.check_clicks()
    if cells.features is None:
        raise FultrError("the log has no features; add a column features, or use another method")
    p = started(start, cells.ranks)
    shown, clicked = cells.by_rank()
    alive = clicked > 0  # elsewhere examination is 0, the most likely value
    rate = float(np.clip(clicked.sum() / max(float(shown @ p), _TINY), 0.01, 0.99))
    width = cells.features.shape[1]
    first = np.concatenate([logit(p[1:]), np.zeros(width), [logit(rate)]])
    bounds = [(logit(_EDGE), logit(1 - _EDGE))] * (cells.ranks - 1) + [(None, None)] * (width + 1)
    found = minimize(_loss, first, (cells, cells.features, alive, ridge), method="L-BFGS-B", jac=True, bounds=bounds)
    p, r = _model(found.x, cells.features, alive)
    return FeatureModel(p, r, -float(found.fun))


def _model(values: Float64s, x: Float64s, alive: Bools) -> tuple[Float64s, Float64s]:
    """Examination of ranks and relevance of pairs."""
    below = alive.size - 1
    p = np.concatenate([[1.0], np.where(alive[1:], expit(values[:below]), 0.0)])
    return p, expit(x @ values[below:-1] + values[-1])


def _loss(values: Float64s, cells: Cells, x: Float64s, alive: Bools, ridge: float) -> tuple[float, Float64s]:
    """Minus the log-likelihood, and its gradient."""
    p, r = _model(values, x, alive)
    weights = values[p.size - 1 : -1]
    chance = np.clip(p[cells.rank] * r[cells.pair], 1e-300, 1 - _TINY)
    missed = cells.impressions - cells.clicks
    likelihood = cells.weight @ (cells.clicks * np.log(chance) + missed * np.log1p(-chance))
    slope = cells.weight * (cells.clicks - missed * chance / (1 - chance))  # by log(chance)
    by_rank = summed(slope, cells.rank, p.size) * (1 - p)
    by_pair = cells.sum_by_pair(slope) * (1 - r)
    gradient = np.concatenate([np.where(alive, by_rank, 0.0)[1:], by_pair @ x - ridge * weights, [by_pair.sum()]])
    return float(ridge / 2 * (weights @ weights) - likelihood), -gradient
