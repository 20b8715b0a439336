"""How good a ranking is: NDCG@k, MRR, precision@k and average relevant position, per query.

Libraries differ on three points of NDCG; here gains are 2^grade - 1, the discount of rank r is 1 / log2(r + 1), and a
query without a document of grade 1 or more has no value (NaN) and is left out of the mean. Documents with equal scores
are ranked by a fixed random key of (query id, position in the query): never by file order, which on some data sets
knows the grades. A NaN score ranks below all others.

Every metric takes `(scores, data)` and returns one float64 a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numba import njit

from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s, UInt64s
from fultr.core.checks import MAX_GRADE, check_number
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, mix, start
from fultr.core.threads import chunk_bounds, run_chunks, run_ranges
from fultr.data.ranking import RankingData

_TIES = int(Purpose.TIES)
GAINS: Float64s = np.exp2(np.arange(MAX_GRADE + 1.0)) - 1


@dataclass(frozen=True)
class Summary:
    """Mean of a metric over the queries that have a value, and the standard error of that mean.

    >>> print(summarise(np.array([0.2, 0.4, np.nan])))
    0.3000 ± 0.1000 (2 queries)
    """

    mean: float
    standard_error: float
    queries: int

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.standard_error:.4f} ({self.queries:,} queries)"


def summarise(values: Float64s) -> Summary:
    """Mean and standard error of the values that are not NaN."""
    values = values[~np.isnan(values)]
    if values.size == 0:
        return Summary(float("nan"), float("nan"), 0)
    spread = float(values.std(ddof=1)) if values.size > 1 else float("nan")
    return Summary(float(values.mean()), spread / values.size**0.5, values.size)


def default_relevant_grade(data: RankingData) -> int:
    """The lowest grade that counts as relevant: 3 where grades reach 4 (as in the paper), 1 where they end at 2.

    >>> default_relevant_grade(RankingData.from_arrays([[0.0]] * 2, labels=[0, 4], query_ids=[1, 1]))
    3
    """
    top = int(data.labels.max())
    return 1 if top <= 2 else 2 if top == 3 else 3


@njit(nogil=True, cache=True)
def tie_key(seed: int, purpose: int, query_id: int, position: int) -> np.uint64:
    """The random key that orders documents with equal scores, lowest first."""
    return mix(start(seed, purpose, query_id, position))


@njit(nogil=True, cache=True)
def ranks_above(score: float, key: np.uint64, other: float, other_key: np.uint64) -> bool:
    """Does a document with `score` and `key` rank above one with `other` and `other_key`?"""
    if score > other:
        return True
    if score < other:
        return False
    if np.isnan(score) != np.isnan(other):
        return bool(np.isnan(other))
    return bool(key < other_key)


@njit(nogil=True, cache=True)
def top_documents(scores: Float32s, keys: UInt64s, top: Int64s) -> int:
    """Write the positions of the best `top.size` documents to `top`, best first; return how many there are."""
    found = 0
    for d in range(scores.size):
        if found == top.size and not ranks_above(scores[d], keys[d], scores[top[found - 1]], keys[top[found - 1]]):
            continue
        place = min(found, top.size - 1)
        while place > 0 and ranks_above(scores[d], keys[d], scores[top[place - 1]], keys[top[place - 1]]):
            top[place] = top[place - 1]
            place -= 1
        top[place] = d
        found = min(found + 1, top.size)
    return found


@njit(nogil=True, cache=True)
def _query_keys(query_id: int, keys: UInt64s) -> None:
    for d in range(keys.size):
        keys[d] = tie_key(0, _TIES, query_id, d)


@njit(nogil=True, cache=True)
def ideal_dcg(labels: Int32s, k: int, gains: Float64s, discounts: Float64s) -> float:
    """DCG@k of the best ranking of documents with these grades."""
    counts = np.zeros(gains.size, np.int64)
    for label in labels:
        counts[label] += 1
    ideal, rank = 0.0, 0
    for grade in range(gains.size - 1, 0, -1):
        while counts[grade] > 0 and rank < k:
            ideal += gains[grade] * discounts[rank]
            counts[grade] -= 1
            rank += 1
    return ideal


@njit(nogil=True, cache=True)
def _ndcg_query(
    scores: Float32s, labels: Int32s, query_id: int, gains: Float64s, discounts: Float64s, out: Float64s
) -> None:
    """NDCG of one query under each column of `scores` -> `out`; NaN if no document has a gain."""
    k = min(discounts.size, labels.size)
    ideal = ideal_dcg(labels, k, gains, discounts)
    if ideal == 0:
        out[:] = np.nan
        return
    keys = np.empty(labels.size, np.uint64)
    _query_keys(query_id, keys)
    column = np.empty(labels.size, np.float32)
    top = np.empty(k, np.int64)
    for m in range(scores.shape[1]):
        column[:] = scores[:, m]
        top_documents(column, keys, top)
        dcg = 0.0
        for rank in range(k):
            dcg += gains[labels[top[rank]]] * discounts[rank]
        out[m] = dcg / ideal


@njit(nogil=True, cache=True)
def _ndcg_scores(
    scores: Float32s,
    labels: Int32s,
    offsets: Int64s,
    query_ids: Int64s,
    gains: Float64s,
    discounts: Float64s,
    begin: int,
    end: int,
    out: Float64s,
) -> None:
    """NDCG of queries `begin` to `end`; the first row of `scores` belongs to the first document of `begin`."""
    for q in range(begin, end):
        first, last = offsets[q], offsets[q + 1]
        own = scores[first - offsets[begin] : last - offsets[begin]]
        _ndcg_query(own, labels[first:last], query_ids[q], gains, discounts, out[q])


def _checked(scores: Float32s, data: RankingData) -> Float32s:
    if scores.shape[0] != data.documents:
        raise ValueError(f"scores: expected one for each of {data.documents} documents, found {scores.shape[0]}")
    return np.ascontiguousarray(scores, np.float32)


def rank_discounts(k: int) -> Float64s:
    """1 / log2(rank + 1) of ranks 1 to k."""
    discounts: Float64s = 1 / np.log2(np.arange(2.0, k + 2))
    return discounts


def _discounts_for(data: RankingData, k: int) -> Float64s:
    check_number("k", k, least=1, whole=True)
    return rank_discounts(min(k, int(np.diff(data.offsets).max())))


def ndcg(scores: Float32s, data: RankingData, *, k: int = 5, threads: int | None = None) -> Float64s:
    """NDCG@k of each query: [queries], or [queries, rankers] if `scores` has a column a ranker.

    >>> data = RankingData.from_arrays([[0.0]] * 3, labels=[2, 0, 1], query_ids=[1, 1, 1])
    >>> ndcg(np.float32([1, 3, 2]), data, k=2)  # (1 / log2(3)) / (3 + 1 / log2(3)): grade 1 stands second
    array([0.1737...])
    """
    table = _checked(scores, data).reshape(data.documents, -1)
    out = np.empty((data.queries, table.shape[1]))
    discounts = _discounts_for(data, k)

    def work(begin: int, end: int) -> None:
        rows = table[data.offsets[begin] : data.offsets[end]]
        _ndcg_scores(rows, data.labels, data.offsets, data.query_ids, GAINS, discounts, begin, end, out)

    run_ranges(work, data.queries, threads)
    return out.reshape(data.queries, *scores.shape[1:])


class Scores(Protocol):
    """What is asked of a model to measure it."""

    def scores(self, weights: Float32s, features: Float32s, threads: int | None = None) -> Float32s:
        """Scores [documents, rankers] of every row of `features` under each row of `weights`."""


def ndcg_of_rankers(
    model: Scores, weights: Float32s, data: RankingData, *, k: int = 5, threads: int | None = None
) -> Float64s:
    """NDCG@k [queries, rankers] of a model with each of the given rows of `weights`, in one pass over the features.

    Needs 8 bytes per query and ranker. A ranker's values do not depend on the other rankers or the number of threads.
    """
    out = np.empty((data.queries, weights.shape[0]))
    discounts = _discounts_for(data, k)

    def work(begin: int, end: int) -> None:
        scores = model.scores(weights, data.features[data.offsets[begin] : data.offsets[end]], threads=1)
        _ndcg_scores(scores, data.labels, data.offsets, data.query_ids, GAINS, discounts, begin, end, out)

    bounds = chunk_bounds(data.queries, 256)  # whose scores are held at a time, whatever the number of threads
    run_chunks(lambda i: work(*bounds[i]), len(bounds), threads)
    return out


def mean_over_queries(values: Float64s) -> Float64s:
    """Mean of each column of [queries, rankers] over the queries that have a value (the same for all rankers)."""
    kept = values[~np.isnan(values[:, 0])]
    if kept.shape[0] == 0:
        raise FultrError("no query has a relevant document: there is nothing to measure")
    return np.array([np.mean(np.ascontiguousarray(column)) for column in kept.T])


@njit(nogil=True, cache=True)
def _relevant_ranks(
    scores: Float32s, labels: Int32s, offsets: Int64s, query_ids: Int64s, lowest: int, begin: int, end: int, out: Int64s
) -> None:
    for q in range(begin, end):
        first, last = offsets[q], offsets[q + 1]
        keys = np.empty(last - first, np.uint64)
        _query_keys(query_ids[q], keys)
        for d in range(first, last):
            out[d] = 0
            if labels[d] >= lowest:
                out[d] = 1
                for e in range(first, last):
                    out[d] += ranks_above(scores[e], keys[e - first], scores[d], keys[d - first])


def relevant_ranks(
    scores: Float32s, data: RankingData, *, relevant_grade: int | None = None, threads: int | None = None
) -> Int64s:
    """The rank, from 1, of each relevant document in its query; 0 for documents that are not relevant.

    >>> data = RankingData.from_arrays([[0.0]] * 3, labels=[2, 0, 1], query_ids=[1, 1, 1])
    >>> relevant_ranks(np.float32([1, 3, 2]), data).tolist()
    [3, 0, 2]
    """
    lowest = default_relevant_grade(data) if relevant_grade is None else relevant_grade
    out = np.empty(data.documents, np.int64)
    values = _checked(scores, data)

    def work(begin: int, end: int) -> None:
        _relevant_ranks(values, data.labels, data.offsets, data.query_ids, lowest, begin, end, out)

    run_ranges(work, data.queries, threads)
    return out


def mrr(scores: Float32s, data: RankingData, *, relevant_grade: int | None = None) -> Float64s:
    """Reciprocal rank of the first relevant document of each query; NaN for a query without one.

    >>> data = RankingData.from_arrays([[0.0]] * 3, labels=[2, 0, 1], query_ids=[1, 1, 1])
    >>> mrr(np.float32([1, 3, 2]), data).tolist()
    [0.5]
    """
    ranks = relevant_ranks(scores, data, relevant_grade=relevant_grade)
    reciprocals = np.divide(1.0, ranks, out=np.zeros(ranks.size), where=ranks > 0)
    best: Float64s = np.maximum.reduceat(reciprocals, data.offsets[:-1])
    return np.where(best > 0, best, np.nan)


def precision(scores: Float32s, data: RankingData, *, k: int = 5, relevant_grade: int | None = None) -> Float64s:
    """Share of relevant documents among the first k of each query; NaN for a query without a relevant document.

    >>> data = RankingData.from_arrays([[0.0]] * 3, labels=[2, 0, 1], query_ids=[1, 1, 1])
    >>> precision(np.float32([1, 3, 2]), data, k=2).tolist()
    [0.5]
    """
    ranks = relevant_ranks(scores, data, relevant_grade=relevant_grade)
    found: Int64s = np.add.reduceat(((ranks > 0) & (ranks <= k)).astype(np.int64), data.offsets[:-1])
    relevant = np.maximum.reduceat(ranks, data.offsets[:-1]) > 0
    return np.where(relevant, found / k, np.nan)


def average_relevant_position(scores: Float32s, data: RankingData, *, relevant_grade: int | None = None) -> Float64s:
    """Mean rank of the relevant documents of each query (lower is better); NaN for a query without one.

    >>> data = RankingData.from_arrays([[0.0]] * 3, labels=[2, 0, 1], query_ids=[1, 1, 1])
    >>> average_relevant_position(np.float32([1, 3, 2]), data).tolist()
    [2.5]
    """
    ranks = relevant_ranks(scores, data, relevant_grade=relevant_grade)
    total: Int64s = np.add.reduceat(ranks, data.offsets[:-1])
    relevant = np.add.reduceat((ranks > 0).astype(np.int64), data.offsets[:-1])
    return np.where(relevant > 0, total / np.maximum(relevant, 1), np.nan)


def ranking(scores: Float32s, data: RankingData) -> Int64s:
    """Rows of `data`, query by query, best document first; ties by the same key as in the metrics.

    >>> data = RankingData.from_arrays([[0.0]] * 3, labels=[2, 0, 1], query_ids=[1, 1, 1])
    >>> ranking(np.float32([1, 3, 2]), data).tolist()
    [1, 2, 0]
    """
    query = np.repeat(np.arange(data.queries), np.diff(data.offsets))
    keys = np.empty(data.documents, np.uint64)
    for q, (first, last) in enumerate(zip(data.offsets[:-1], data.offsets[1:], strict=True)):
        _query_keys(data.query_ids[q], keys[first:last])
    return np.lexsort((keys, -scores, query))
