"""Linear rankers trained on the grades themselves, by SGD over mini-batches of queries.

Two objectives share one loop: the pairwise hinge loss of the logging policy, and LambdaRank for the λLinear baseline.
For each query both give a coefficient a document, c_d = d loss / d score(d), and the gradient is the sum of c_d x_d.
A batch's loss is the mean over its queries.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import njit

from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s
from fultr.core.streams import Purpose
from fultr.data.ranking import RankingData
from fultr.rankers.linear_kernels import add_scaled, dot
from fultr.rankers.metrics import GAINS, ideal_dcg, rank_discounts, tie_key

_TIES = int(Purpose.TIES)


class Objective(IntEnum):
    """What a query's loss is."""

    HINGE_SUM = 0
    HINGE_MEAN = 1
    LAMBDARANK = 2


@njit(nogil=True, cache=True)
def _hinge_coefficients(scores: Float32s, labels: Int32s, mean: bool, coefficients: Float64s) -> None:
    """Pairs (d, e) with grade(d) > grade(e): the sum, or mean, of max(0, 1 - (s_d - s_e))."""
    pairs = 0
    coefficients[:] = 0
    for d in range(labels.size):
        for e in range(labels.size):
            if labels[d] > labels[e]:
                pairs += 1
                if scores[d] - scores[e] < 1:
                    coefficients[d] -= 1
                    coefficients[e] += 1
    if mean and pairs > 0:
        coefficients /= pairs


@njit(nogil=True, cache=True)
def _lambda_coefficients(
    scores: Float32s, labels: Int32s, query_id: int, gains: Float64s, discounts: Float64s, coefficients: Float64s
) -> None:
    """LambdaRank (Burges 2010, Section 4): for each pair, sigmoid(-(s_d - s_e)) times what a swap changes in NDCG."""
    coefficients[:] = 0
    n = labels.size
    ideal = ideal_dcg(labels, n, gains, discounts)
    if ideal == 0:
        return
    keys = np.empty(n, np.uint64)
    for d in range(n):
        keys[d] = tie_key(0, _TIES, query_id, d)
    discount = np.empty(n, np.float64)
    order = np.argsort(keys)
    order = order[np.argsort(-scores[order], kind="mergesort")]
    for rank in range(n):
        discount[order[rank]] = discounts[rank]
    for d in range(n):
        for e in range(n):
            if labels[d] > labels[e]:
                swap = abs(gains[labels[d]] - gains[labels[e]]) * abs(discount[d] - discount[e]) / ideal
                push = swap / (1 + np.exp(np.float64(scores[d]) - scores[e]))
                coefficients[d] -= push
                coefficients[e] += push


@njit(nogil=True, cache=True)
def _train_epoch(
    features: Float32s,
    labels: Int32s,
    offsets: Int64s,
    query_ids: Int64s,
    order: Int64s,
    batch: int,
    learning_rate: float,
    objective: int,
    gains: Float64s,
    discounts: Float64s,
    weights: Float32s,
) -> None:
    step = np.empty(weights.size, np.float32)
    for begin in range(0, order.size, batch):
        queries = order[begin : begin + batch]
        step[:] = 0
        for q in queries:
            first, last = offsets[q], offsets[q + 1]
            scores = np.empty(last - first, np.float32)
            for d in range(first, last):
                scores[d - first] = dot(features[d], weights)
            coefficients = np.empty(last - first, np.float64)
            if objective == 2:
                _lambda_coefficients(scores, labels[first:last], query_ids[q], gains, discounts, coefficients)
            else:
                _hinge_coefficients(scores, labels[first:last], objective == 1, coefficients)
            for d in range(first, last):
                if coefficients[d - first] != 0:
                    add_scaled(step, np.float32(coefficients[d - first]), features[d])
        add_scaled(weights, np.float32(-learning_rate / queries.size), step)


def train_epoch(
    data: RankingData, weights: Float32s, order: Int64s, *, batch: int, learning_rate: float, objective: Objective
) -> None:
    """One pass over the queries in `order`, in mini-batches; updates `weights` in place, on the calling thread.

    Args:
        data: features and grades.
        weights: float32 [features], changed.
        order: indices of queries.
        batch: queries a step.
        learning_rate: eta.
        objective: the loss of a query.
    """
    longest = int(np.diff(data.offsets).max())
    _train_epoch(
        data.features,
        data.labels,
        data.offsets,
        data.query_ids,
        order,
        batch,
        learning_rate,
        int(objective),
        GAINS,
        rank_discounts(longest),
        weights,
    )
