"""A click log by (query, document) pair: all that training on a whole log needs to know of its clicks.

However often a pair was displayed, its clicks and how often it was examined, summed over its impressions, are all that
a position-based model says about its relevance. A log of millions of rows becomes a few thousand pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from fultr.clicks.impressions import ImpressionLog
from fultr.core.arrays import Float32s, Float64s, Int64s
from fultr.core.errors import FultrError


@dataclass(frozen=True, eq=False)
class Pooled:
    """The pairs of a log, query by query.

    Attributes:
        features: float32 [pairs, features].
        offsets: int64 [queries + 1]: the pairs of query q are offsets[q] to offsets[q + 1].
        clicks: float64 [pairs], C_d.
        examined: float64 [pairs], E_d: the examination of a pair's ranks, summed over its impressions.
        rank: float64 [pairs]: the mean rank of a pair's impressions, from 0.

    >>> log = ImpressionLog.from_arrays([1, 1], [[7, 8], [8, 7]], [[1, 0], [1, 1]], features=np.ones((2, 2, 1)))
    >>> found = Pooled.of(log, np.array([1.0, 0.5]))
    >>> found.clicks.tolist(), found.examined.tolist()
    ([2.0, 1.0], [1.5, 1.5])
    """

    features: Float32s
    offsets: Int64s
    clicks: Float64s
    examined: Float64s
    rank: Float64s

    @classmethod
    def of(cls, log: ImpressionLog, examination: Float64s) -> Pooled:
        """From a log with features and the examination of each rank, [K]."""
        if log.features is None:
            raise FultrError("click log: expected features of the documents, to train on; found none")
        cells = log.cells()
        examined = cells.sum_by_pair(cells.impressions * examination[cells.rank])
        shown, clicks = cells.by_pair()
        rank = cells.sum_by_pair(cells.impressions * cells.rank) / np.maximum(shown, 1)
        begins = np.flatnonzero(np.r_[True, np.diff(log.query_of_pair) != 0])
        offsets = np.r_[begins, log.pairs].astype(np.int64)
        return cls(log.features, offsets, clicks, examined, rank)

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return self.offsets.size - 1

    def of_query(self) -> Int64s:
        """The query of each pair."""
        return np.repeat(np.arange(self.queries), np.diff(self.offsets))

    def rows(self, queries: Int64s) -> Int64s:
        """The pairs of some queries, in the order given."""
        sizes = np.diff(self.offsets)[queries]
        ends = np.cumsum(sizes)
        return np.repeat(self.offsets[queries] - (ends - sizes), sizes) + np.arange(sizes.sum())

    def take(self, queries: Int64s) -> Pooled:
        """Some of the queries, copied."""
        rows = self.rows(queries)
        offsets = np.r_[0, np.cumsum(np.diff(self.offsets)[queries])].astype(np.int64)
        return Pooled(self.features[rows], offsets, self.clicks[rows], self.examined[rows], self.rank[rows])


LIMIT = 100.0  # of how much a query counts, see `add_pulls`


def likelihood(pooled: Pooled, scores: Float64s, pulls: Float64s | None = None) -> tuple[float, float]:
    """Log-likelihood and clicks, as `add_pulls` counts them; `pulls` is room for what it writes."""
    room = np.empty((scores.size, 2)) if pulls is None else pulls
    return add_pulls(scores, pooled.offsets, pooled.clicks, pooled.examined, LIMIT, room)


def likelihood_per_click(pooled: Pooled, scores: Float64s, pulls: Float64s | None = None) -> float:
    """Log-likelihood per click that counts; 0 if there is none."""
    total, counted = likelihood(pooled, scores, pulls)
    return total / counted if counted else 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def add_pulls(
    scores: Float64s, offsets: Int64s, clicks: Float64s, examined: Float64s, limit: float, pulls: Float64s
) -> tuple[float, float]:
    """Gradient and curvature of the log-likelihood of which document of a query its clicks are on.

    A document of relevance exp(f) that was examined E times is clicked E exp(f) times on average. Given that a query
    has C clicks, each is on d with probability E_d exp(f_d) / sum over d' of E_d' exp(f_d'), whatever the level of the
    query's relevance. So examination is what the counts are compared with, and clicks at low ranks need no large
    weights.

    Args:
        scores: f, [pairs].
        offsets: [queries + 1].
        clicks: C_d.
        examined: E_d.
        limit: a query whose documents were examined E times in all counts 1 / (1 + E / limit) of its clicks, so that
            a few frequent queries do not decide alone. (By its clicks instead of E, queries whose best document is on
            top would count less than others.)
        pulls: [pairs, 2], written: gradient and curvature by each score.

    Returns:
        The log-likelihood, and the clicks that it is of, as counted.
    """
    total, counted = 0.0, 0.0
    for q in range(offsets.size - 1):
        begin, end = offsets[q], offsets[q + 1]
        made, seen, top = 0.0, 0.0, -np.inf
        for d in range(begin, end):
            made += clicks[d]
            seen += examined[d]
            if examined[d] > 0:
                top = max(top, scores[d])
        if made <= 0 or end - begin < 2:
            for d in range(begin, end):
                pulls[d, 0] = pulls[d, 1] = 0.0
            continue
        weight = 1.0 / (1.0 + seen / limit)
        mass = 0.0
        for d in range(begin, end):
            pulls[d, 0] = examined[d] * np.exp(min(scores[d] - top, 0.0)) if examined[d] > 0 else 0.0
            mass += pulls[d, 0]
        for d in range(begin, end):
            share = pulls[d, 0] / mass
            if clicks[d] > 0 and share > 0:
                total += weight * clicks[d] * np.log(share)
            pulls[d, 0] = weight * (clicks[d] - made * share)
            pulls[d, 1] = weight * made * share * (1.0 - share)
        counted += weight * made
    return total, counted
