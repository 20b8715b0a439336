"""A check for trust bias: do higher ranks raise the clicks of poor documents more than those of good ones?

A position-based model says that a document's clicks fall from rank k to rank k' by the same factor whatever its
relevance. With trust bias (Agarwal, Wang, Li, Bendersky and Najork 2019, Addressing Trust Bias for Unbiased
Learning-to-Rank) poor documents are clicked at high ranks just because they are there, so their clicks fall by more.
No propensity, being one number per rank, can correct that.

Documents are compared with others of the same query only: queries may differ in how far down users look, and then
documents of queries with a long look seem better, and their clicks fall by less, without any trust bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numba import njit

from fultr.clicks.canonical import page_places
from fultr.clicks.examination.harvesting import all_pairs, pair_counts
from fultr.clicks.impressions import Cells, ImpressionLog
from fultr.core.arrays import Float64s, Int32s, Int64s
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, generator

LEAST_CLICKS = 50  # of documents that moved, weighted: with fewer, the standard error is unknown
LIMIT = 2.33  # standard deviations: false alarms in 1% of logs
REVERSED = -2.81  # in .25%
_MAYBE_REVERSED = -1.96  # in 2.5%
_POWER = 0.84  # standard deviations: 80% power
_INVERTED = 4  # iterations, to find what examination would look like the curve
_TRUSTS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # strengths of trust bias whose effect is worked out
_SLIPS = (0.05, 0.1, 0.2, 0.4, 0.8)  # likewise: clicks on what was not examined, as a share of the log's click rate


@dataclass(frozen=True)
class TrustBias:
    """What the check found.

    Attributes:
        excess: how much further the click rate of less relevant documents falls from the higher to the lower of two
            ranks than that of more relevant ones of the same query, as the logarithm of the ratio of the two falls: 0
            if a position-based model holds, above 0 with trust bias.
        interval: its 95% interval.
        z: the excess in standard errors.
        error: by what share the curve is off at its worst rank if the excess is due to trust that falls as 1 / rank;
            infinite if no trust that was tried causes as much.
        hidden: the smallest such error whose trust bias this log would have shown with a probability of 80%; None if it
            would have missed any, however strong.
        slips: by what share the curve is off if clicks on less relevant documents fall less because of clicks on what
            was not examined, alike at all ranks; infinite if no such clicks that were tried cause as much.
        hidden_slips: the smallest error due to such clicks that this log would have shown with a probability of 80%
            (`reversed`); None if it would have missed any.
    """

    excess: float
    interval: tuple[float, float]
    z: float
    error: float
    hidden: float | None
    slips: float
    hidden_slips: float | None

    @property
    def more(self) -> float:
        """The excess as a share: 0.1 if the factor by which clicks fall is a tenth larger."""
        return math.expm1(self.excess)

    @property
    def seen(self) -> bool:
        """Is trust bias significant?"""
        return self.z > LIMIT

    @property
    def reversed(self) -> bool:
        """Do clicks on less relevant documents fall significantly less, which no trust bias explains?"""
        return self.z < REVERSED

    @property
    def maybe_reversed(self) -> bool:
        """Do they fall less, by so much that chance is a poor explanation?"""
        return self.z < _MAYBE_REVERSED


def trust_bias(log: ImpressionLog, examination: Float64s, *, seed: int = 0) -> TrustBias | None:
    """Check a log by its documents that were shown at several ranks; None if too few of them were clicked.

    The pages are halved at random. How relevant the documents of a half are is taken from the other half: within one
    half, documents with lucky clicks would pass for relevant.

    Args:
        log: the log.
        examination: an estimate, by which documents' relevance is compared.
        seed: of the halves.
    """
    half = generator(seed, Purpose.HALVES).random(log.impressions)[page_places(log)] < 0.5
    if log.ranks == 1 or not 0 < half.sum() < half.size or examination.min() <= 0:
        return None
    halves = log.cells(half.astype(np.float64)), log.cells((~half).astype(np.float64))
    goods = tuple(_good(other, examination, log.query_of_pair) for other in halves[::-1])
    crossed = [_crossed(own, good, log.query_of_pair) for own, good in zip(halves, goods, strict=True)]
    kept, lost, variance = (sum(parts) for parts in zip(*crossed, strict=True))
    if min(kept, lost) <= 0 or variance <= 0 or sum(_moved_clicks(own) for own in halves) < LEAST_CLICKS:
        return None
    excess, error = math.log(lost / kept), math.sqrt(variance) / ((kept + lost) / 2)
    rate = float(log.clicks.sum() / log.shown.sum())
    trust = [_by_trust(strength, log.ranks) for strength in _TRUSTS]
    slips = [_by_slips(share * rate) for share in _SLIPS]
    shifts = _shifts(halves, goods, examination, log.query_of_pair, trust)
    slipped = [(-one, off) for one, off in _shifts(halves, goods, examination, log.query_of_pair, slips)]
    off, slips_off = _error_of(shifts, max(excess, 0.0)), _error_of(slipped, max(-excess, 0.0))
    return TrustBias(
        excess,
        (excess - 1.96 * error, excess + 1.96 * error),
        (lost - kept) / math.sqrt(variance),
        math.inf if off is None else off,
        _error_of(shifts, (LIMIT + _POWER) * error),
        math.inf if slips_off is None else slips_off,
        _error_of(slipped, (_POWER - REVERSED) * error),
    )


def _good(other: Cells, examination: Float64s, query_of_pair: Int32s) -> Float64s:
    """How good each document is among those of its query, 0 to 1, as another half shows it."""
    examined = other.sum_by_pair(other.impressions * examination[other.rank])
    clicks = other.by_pair()[1]
    relevance = (clicks + clicks.sum() / max(examined.sum(), 1.0)) / (examined + 1)  # smoothed by one impression
    best = np.full(int(query_of_pair.max()) + 1, 1e-300)
    np.maximum.at(best, query_of_pair, relevance)
    good: Float64s = relevance / best[query_of_pair]
    return good


def _moved_clicks(cells: Cells) -> float:
    """Clicks of documents shown at several ranks, weighted as harvesting does."""
    return float(pair_counts(cells).clicks.sum())


def _crossed(cells: Cells, good: Float64s, query_of_pair: Int32s) -> tuple[float, float, float]:
    """`_cross` of cells, whose counts are ordered by query."""
    query = query_of_pair[cells.pair].astype(np.int64)
    there = np.flatnonzero(cells.impressions > 0)
    order = there[np.argsort(query[there], kind="stable")]
    found = _cross(
        query[order], cells.pair[order], cells.rank[order], cells.impressions[order], cells.clicks[order], good,
        cells.ranks,
    )  # fmt: skip
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def _cross(
    query: Int64s, pair: Int64s, rank: Int64s, shown: Float64s, clicks: Float64s, good: Float64s, size: int
) -> tuple[float, float, float]:
    """Sums over queries and ranks k < j of G_k P_j / V and of G_j P_k / V, and the variance of their difference.

    G_k adds up v g c / n at rank k over the documents of the query that were shown at both, P_k those with 1 - g; g is
    how good a document is, v = n n' / (n + n'), and V adds up v. In a position-based model both sums have the same
    mean, also if every query has an examination of its own: in the mean of each product, p_k p_j r_d r_e, the ranks can
    be exchanged, and terms of a document with itself cancel.
    """
    kept, lost, variance = 0.0, 0.0, 0.0
    g, p, v = np.zeros((size, size)), np.zeros((size, size)), np.zeros((size, size))
    start = 0
    while start < query.size:
        end = start
        while end < query.size and query[end] == query[start]:
            end += 1
        g[:] = 0
        p[:] = 0
        v[:] = 0
        first = start
        for s in range(start, end):
            if pair[s] != pair[first]:
                first = s
            t = first
            while t < end and pair[t] == pair[s]:
                if t != s:
                    weight = shown[s] * shown[t] / (shown[s] + shown[t])
                    rate = weight * clicks[s] / shown[s]
                    g[rank[s], rank[t]] += good[pair[s]] * rate
                    p[rank[s], rank[t]] += (1 - good[pair[s]]) * rate
                    v[rank[s], rank[t]] += weight
                t += 1
        for k in range(size):
            for j in range(k + 1, size):
                if v[k, j] > 0:
                    kept += g[k, j] * p[j, k] / v[k, j]
                    lost += g[j, k] * p[k, j] / v[k, j]
        first = start
        for s in range(start, end):  # by the derivative of the difference by each count
            if pair[s] != pair[first]:
                first = s
            slope, t = 0.0, first
            while t < end and pair[t] == pair[s]:
                if t != s:
                    k, j = rank[s], rank[t]
                    weight = shown[t] / (shown[s] + shown[t]) / v[k, j]
                    change = weight * (good[pair[s]] * p[j, k] - (1 - good[pair[s]]) * g[j, k])
                    slope += change if k < j else -change
                t += 1
            n, c = shown[s], clicks[s]
            variance += slope**2 * (c * (n - c) / (n - 1) if n > 1 else c)
        start = end
    return kept, lost, variance


_Affine: TypeAlias = Callable[[Float64s], tuple[Float64s, Float64s]]  # examination of ranks -> alpha, beta of clicks


def _by_trust(strength: float, ranks: int) -> _Affine:
    """The trust-bias model (`fultr.clicks.models.trust`), with trust that falls as 1 / rank."""
    trusted = strength / np.arange(1.0, ranks + 1)
    return lambda examination: (examination * (1 - trusted), examination * trusted)


def _by_slips(rate: float) -> _Affine:
    """Clicks on what was not examined, or is not relevant, with the same probability at every rank."""
    return lambda examination: ((1 - rate) * examination, np.full_like(examination, rate))


def _shifts(
    halves: tuple[Cells, Cells],
    goods: tuple[Float64s, ...],
    curve: Float64s,
    query_of_pair: Int32s,
    models: Sequence[_Affine],
) -> list[tuple[float, float]]:
    """Excess, and error of the curve at its worst rank, of each of several models: the weakest first, until it turns.

    For each model that examination is sought which, with the documents and impressions of this log and clicks replaced
    by their mean alpha r + beta, leads to the curve that was found.
    """
    found = [(0.0, 0.0)]
    for model in models:
        true = curve
        for _ in range(_INVERTED):
            first, second = (_expected(own, *model(true)) for own in halves)
            both = replace(
                first, impressions=first.impressions + second.impressions, clicks=first.clicks + second.clicks
            )
            try:
                seen = all_pairs(pair_counts(both))
            except FultrError:
                return found
            if seen.min() <= 0:
                return found
            true = np.minimum(true * curve / seen, 1.0)
        crossed = [_crossed(own, good, query_of_pair) for own, good in zip((first, second), goods, strict=True)]
        kept, lost = sum(one[0] for one in crossed), sum(one[1] for one in crossed)
        if min(kept, lost) <= 0 or abs(math.log(lost / kept)) <= abs(found[-1][0]):
            break
        found.append((math.log(lost / kept), float(np.abs(curve / true - 1).max())))
    return found


def _expected(own: Cells, alpha: Float64s, beta: Float64s) -> Cells:
    """Cells with the mean of their clicks; relevance is such that every document has as many in all as it had."""
    by_trust = own.sum_by_pair(own.impressions * beta[own.rank])
    by_relevance = own.sum_by_pair(own.impressions * alpha[own.rank])
    clicks = own.by_pair()[1]
    known = by_relevance > 0
    r = np.clip(np.divide(clicks - by_trust, by_relevance, out=np.zeros_like(clicks), where=known), 0, 1)[own.pair]
    return replace(own, clicks=own.impressions * (beta[own.rank] + alpha[own.rank] * r))


def _error_of(shifts: list[tuple[float, float]], excess: float) -> float | None:
    """The error of the curve that goes with an excess; None if no model that was tried causes as much."""
    excesses, errors = zip(*shifts, strict=True)
    return float(np.interp(excess, excesses, errors)) if excess <= excesses[-1] else None
