"""Plain versions of what the package does fast, written from the paper, to compare with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fultr.clicks.log import ClickLog, Display
from fultr.data.ranking import RankingData
from fultr.federated.settings import LocalTraining


def random_data(
    rng: np.random.Generator, queries: int = 20, features: int = 7, most: int = 12, grades: int = 5
) -> RankingData:
    """Random documents, 1 to `most` per query; some have equal features."""
    sizes = rng.integers(1, most + 1, queries)
    matrix = np.round(rng.random((sizes.sum(), features)), 1)
    ids = np.repeat(rng.permutation(10 * queries)[:queries], sizes)
    return RankingData.from_arrays(matrix, rng.integers(0, grades, sizes.sum()), ids)


Array = np.ndarray[Any, Any]


def _softmax_slopes(margins: Array) -> Array:
    shares = np.exp(-margins - np.max(-margins))
    return shares / shares.sum() / np.log(2)


# Of each loss, by its name: h as a function of the margins, the clicked document's score minus each document's; and
# minus its derivatives by them.
LOSSES: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "hinge": (lambda x: np.maximum(0, 1 - x).sum(), lambda x: (x < 1) * 1.0),
    "logistic": (lambda x: np.log2(1 + np.exp(-x)).sum(), lambda x: 1 / (1 + np.exp(x)) / np.log(2)),
    "softmax": (lambda x: np.log2(np.exp(-x).sum()), _softmax_slopes),
}


def h(scores: Array, clicked: int, loss: str = "hinge") -> float:
    """Eq. 4, d' = d included."""
    return float(LOSSES[loss][0](scores[clicked] - scores))


def h_gradient(x: Array, w: Array, clicked: int, loss: str) -> Array:
    """Gradient of `h` by the weights: a margin changes by the difference of two documents' features."""
    slopes = LOSSES[loss][1](x[clicked] @ w - x @ w)
    return np.sum([s * (other - x[clicked]) for s, other in zip(slopes, x, strict=True)], axis=0)


def client_update(
    impressions: list[tuple[int, list[int]]],
    display: Display,
    propensities: Array,
    weights: Array,
    training: LocalTraining,
) -> Array:
    """Algorithm 1, lines 5 to 9, for one client: impressions are (query, clicked ranks from 0)."""
    w = weights.astype(np.float64)
    for _ in range(training.epochs):
        for query, ranks in impressions:
            first, last = display.offsets[query], display.offsets[query + 1]
            x = display.features[first:last, : weights.size].astype(np.float64)
            for rank in ranks:
                clicked = display.shown[query, rank] - first
                weight = 1 / propensities[rank]
                if training.clip is not None:
                    weight = min(weight, training.clip)
                if training.metric == "dcg":  # g(r) = -1 / log2(1 + r) at r = 1 + h
                    bound = 2 + h(x @ w, clicked, training.loss)
                    weight *= np.log(2) / (bound * np.log(bound) ** 2)
                w = w - training.client_rate * weight * h_gradient(x, w, clicked, training.loss)
    return w - weights


def impressions_of(log: ClickLog, client: int) -> list[tuple[int, list[int]]]:
    """A client's part of a log as plain lists."""
    rows = range(log.offsets[client], log.offsets[client + 1])
    return [(int(log.queries[i]), np.flatnonzero(log.clicks[i]).tolist()) for i in rows]
