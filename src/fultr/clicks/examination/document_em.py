"""Expectation maximisation of the position-based model without features: one relevance for each document of a query.

A document of relevance r is clicked at rank k with probability p_k r (Chuklin, Markov and de Rijke 2015, Click Models
for Web Search). The likelihood is concave in log p and log r: where documents were shown at several ranks the estimate
does not depend on the starting point; where none was, it returns the starting point and the prior. With few clicks per
document, low ranks are overstated however long the log is (docs/estimating.md): every new query adds parameters.

The EM steps are extrapolated as in SQUAREM (Varadhan and Roland 2008, third scheme) as long as that is no less likely.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fultr.clicks.impressions import Cells, summed
from fultr.core.arrays import Float64s
from fultr.core.checks import check_number
from fultr.core.errors import FultrError
from fultr.core.threads import one_blas_thread

_TINY = 1e-12
_EDGE = 0.01


@dataclass(frozen=True, eq=False)
class DocumentModel:
    """A position-based model with one relevance for each (query, document) pair.

    Attributes:
        examination: [K], rank 1 has 1; a rank without clicks has 0.
        relevance: [pairs], probability of a click at rank 1.
        log_likelihood: of the log, and of the prior.
        steps: number of EM steps.
        converged: whether the last step changed examination by less than the tolerance.
    """

    examination: Float64s
    relevance: Float64s
    log_likelihood: float
    steps: int
    converged: bool


@one_blas_thread()
def document_em(
    cells: Cells,
    *,
    prior: tuple[float, float] = (0.001, 0.009),
    start: Float64s | None = None,
    tolerance: float = 1e-6,
    most: int = 2_000,
) -> DocumentModel:
    """Fit examination and relevance to the counts of a log.

    Args:
        cells: counts of each document at each rank.
        prior: extra clicks and non-clicks that every document is assumed to have had at rank 1: a Beta prior on its
            relevance, weak by default, which keeps it away from 0 and 1.
        start: initial examination, [K]; 1 / rank if None. Below rank 1 it is moved off 0 and 1, where EM would stay.
        tolerance: stop when an EM step changes no rank's examination by more than this share of it.
        most: largest number of EM steps.

    >>> from fultr.clicks.impressions import ImpressionLog
    >>> log = ImpressionLog.from_arrays([1] * 4, [[7, 8], [8, 7]] * 2, [[1, 0], [1, 0], [1, 1], [1, 0]])
    >>> document_em(log.cells()).examination.round(2).tolist()
    [1.0, 0.25]
    """
    check_number("tolerance", tolerance, above=0)
    for value in prior:
        check_number("prior", value, least=0)
    cells.check_clicks()
    p = started(start, cells.ranks)
    shown, clicked = cells.by_rank()
    p[1:][(shown > 0)[1:] & (clicked == 0)[1:]] = 0.0  # where EM would converge slowly
    shown, clicked = cells.by_pair()
    r = np.clip((clicked + prior[0]) / (shown + sum(prior) + _TINY), _TINY, 1 - _TINY)
    likelihood = _log_likelihood(cells, p, r, prior)
    steps, converged = 0, False
    while steps < most and not converged:
        p_1, r_1 = _step(cells, p, r, prior)
        p_2, r_2 = _step(cells, p_1, r_1, prior)
        steps += 2
        converged = bool(np.all(np.abs(p_2 - p_1) <= tolerance * p_1))
        p, r, likelihood = _extrapolated(cells, (p, r), (p_1, r_1), (p_2, r_2), prior, likelihood)
    return DocumentModel(p, r, likelihood, steps, converged)


def started(start: Float64s | None, ranks: int) -> Float64s:
    """Initial examination, 1 / rank unless given; below rank 1 it is moved off 0 and 1, which no step would leave.

    >>> started(None, 3).round(2).tolist(), started(np.array([1.0, 1.0, 0.0]), 3).tolist()
    ([1.0, 0.5, 0.33], [1.0, 0.99, 0.01])
    """
    p = 1 / np.arange(1.0, ranks + 1) if start is None else np.array(start, np.float64)
    if p.shape != (ranks,) or not np.all((p >= 0) & (p <= 1)) or p[0] != 1:
        raise FultrError(f"start: expected {ranks} numbers from 0 to 1, the first 1; found {str(p)[:60]}")
    p[1:] = np.clip(p[1:], _EDGE, 1 - _EDGE)
    return p


def _step(cells: Cells, p: Float64s, r: Float64s, prior: tuple[float, float]) -> tuple[Float64s, Float64s]:
    """One EM step: expected examinations and expected relevances, given the clicks and the current model."""
    p_cell, r_cell = p[cells.rank], r[cells.pair]
    missed = (cells.impressions - cells.clicks) / np.maximum(1 - p_cell * r_cell, _TINY)
    examined = cells.clicks + missed * p_cell * (1 - r_cell)
    relevant = cells.clicks + missed * r_cell * (1 - p_cell)
    shown = cells.by_rank()[0]
    examination = summed(cells.weight * examined, cells.rank, cells.ranks)
    examination = np.divide(examination, shown, out=p.copy(), where=shown > 0)
    examination[0] = 1.0
    total = cells.sum_by_pair(cells.impressions) + sum(prior)
    relevance = cells.sum_by_pair(relevant) + prior[0]
    relevance = np.divide(relevance, total, out=r.copy(), where=total > 0)
    return np.minimum(examination, 1.0), np.minimum(relevance, 1.0)


def _extrapolated(
    cells: Cells,
    old: tuple[Float64s, Float64s],
    once: tuple[Float64s, Float64s],
    twice: tuple[Float64s, Float64s],
    prior: tuple[float, float],
    likelihood: float,
) -> tuple[Float64s, Float64s, float]:
    """Two EM steps extrapolated by SQUAREM, if that is at least as likely as before; else just the two steps."""
    first = [b - a for a, b in zip(old, once, strict=True)]
    bend = [(c - b) - d for b, c, d in zip(once, twice, first, strict=True)]
    length = sum(float(d @ d) for d in bend)
    if length > 0:
        reach = (sum(float(d @ d) for d in first) / length) ** 0.5
        while reach > 1.01:
            moved = [a + 2 * reach * d + reach**2 * b for a, d, b in zip(old, first, bend, strict=True)]
            p, r = (np.clip(values, 0.5 * low, 0.5 + 0.5 * low) for values, low in zip(moved, twice, strict=True))
            p[0] = 1.0
            p, r = _step(cells, p, r, prior)
            found = _log_likelihood(cells, p, r, prior)
            if found >= likelihood:
                return p, r, found
            reach = (1 + reach) / 2 if reach > 2 else 1.0
    return *twice, _log_likelihood(cells, *twice, prior)


def _log_likelihood(cells: Cells, p: Float64s, r: Float64s, prior: tuple[float, float]) -> float:
    chance = np.clip(p[cells.rank] * r[cells.pair], 1e-300, 1 - _TINY)
    cell = cells.clicks * np.log(chance) + (cells.impressions - cells.clicks) * np.log1p(-chance)
    relevance = np.clip(r, 1e-300, 1 - _TINY)
    pair = prior[0] * np.log(relevance) + prior[1] * np.log1p(-relevance)
    return float(cells.weight @ cell + cells.copies @ pair)
