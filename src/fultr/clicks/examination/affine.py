"""Affine clicks: besides its share of relevance, every rank has clicks of its own, as trust bias makes them.

A document of relevance r is clicked at rank k with probability a_k r + b_k (1 - r) = alpha_k r + beta_k, alpha_k =
a_k - b_k (Vardasbi, Oosterhuis and de Rijke 2020, When Inverse Propensity Scoring does not Work, eq. 9 and 10). The
credit of a click is then (c - beta_k) / alpha_k. Clicks determine alpha up to a factor, and beta up to a multiple of
alpha: a lower relevance for all and higher beta look the same. Here alpha is relative to rank 1, and beta is the least
that is possible, 0 at the rank where beta / alpha is lowest. Either choice adds the same to every document's credit.

As in their paper the fit is by expectation maximisation, with one relevance for each document of a query in place of a
function of features, so it needs many clicks per document (docs/estimating.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fultr.clicks.impressions import Cells, summed
from fultr.core.arrays import Float64s
from fultr.core.checks import check_number
from fultr.core.errors import FultrError

_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class AffineModel:
    """Clicks as an affine function of relevance.

    Attributes:
        alpha: [K], the part that relevance has in the clicks at each rank, relative to rank 1.
        beta: [K], the probability of a click that does not depend on relevance; 0 at one rank.
        share: [K], the share of the clicks at each rank that beta accounts for.
        steps: number of EM steps.
    """

    alpha: Float64s
    beta: Float64s
    share: Float64s
    steps: int


def affine_em(cells: Cells, *, tolerance: float = 1e-5, most: int = 600) -> AffineModel:
    """Fit alpha and beta to the counts of the documents that were shown at several ranks.

    Args:
        cells: counts of each document at each rank.
        tolerance: stop when an EM step changes no rank's probabilities by more than this.
        most: largest number of EM steps.

    >>> from fultr.clicks.impressions import ImpressionLog
    >>> rng = np.random.default_rng(0)
    >>> order = np.array([rng.permutation(3) for _ in range(30_000)])
    >>> chance = np.array([0.1, 0.4, 0.8])[order] * [0.8, 0.4, 0.2] + [0.2, 0.05, 0.0]
    >>> log = ImpressionLog.from_arrays([1] * 30_000, order, rng.random(order.shape) < chance)
    >>> affine_em(log.cells()).alpha.round(1).tolist()
    [1.0, 0.5, 0.2]
    """
    check_number("tolerance", tolerance, above=0)
    cells.check_clicks()
    moved = (cells.ranks_of_pair() > 1)[cells.pair] & (cells.impressions > 0)
    pair, rank, n, c = cells.pair[moved], cells.rank[moved], cells.impressions[moved], cells.clicks[moved]
    shown = summed(n, rank, cells.ranks)
    clicked = summed(c, rank, cells.ranks)
    if not np.all(clicked > 0):
        raise FultrError("affine: documents that were shown at several ranks must have been clicked at every rank")
    weight = cells.copies[pair]
    pair = np.unique(pair, return_inverse=True)[1]
    of_pair = np.bincount(pair, n)
    rate = clicked / shown
    a, b = np.minimum(0.95, 2 * rate / rate.max()), 0.05 * rate
    r = np.clip((np.bincount(pair, c) + 0.5) / (of_pair + 1.5), 0.01, 0.99)
    steps, change = 0, np.inf
    while steps < most and change > tolerance:
        now = r[pair]
        chance = np.clip(a[rank] * now + b[rank] * (1 - now), _TINY, 1 - _TINY)
        if_clicked = a[rank] * now / chance  # the probability that what was clicked is relevant
        relevant = c * if_clicked + (n - c) * (1 - a[rank]) * now / (1 - chance)
        of_rank = summed(weight * relevant, rank, cells.ranks)
        new_a = summed(weight * c * if_clicked, rank, cells.ranks) / np.maximum(of_rank, _TINY)
        others = np.maximum(summed(weight * n, rank, cells.ranks) - of_rank, _TINY)
        new_b = summed(weight * c * (1 - if_clicked), rank, cells.ranks) / others
        r = np.clip(np.bincount(pair, relevant) / of_pair, _TINY, 1 - _TINY)
        change = float(max(np.abs(new_a - a).max(), np.abs(new_b - b).max()))
        a, b = new_a, new_b
        steps += 1
    alpha = np.maximum(a - b, _TINY)
    least = (b / alpha).min()
    beta = np.maximum(b - least * alpha, 0.0)
    return AffineModel(alpha / alpha[0], beta, np.clip(beta * shown / clicked, 0, 1), steps)
