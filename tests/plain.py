"""Plain versions of what the package does fast, written from the paper, to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np

from fultr.clicks import ClickLog
from fultr.client import LocalTraining
from fultr.data import RankingData
from fultr.policy import Display


def random_data(
    rng: np.random.Generator, queries: int = 20, features: int = 7, most: int = 12, grades: int = 5
) -> RankingData:
    """Random documents, 1 to `most` a query; some have equal features."""
    sizes = rng.integers(1, most + 1, queries)
    matrix = np.round(rng.random((sizes.sum(), features)), 1)
    ids = np.repeat(rng.permutation(10 * queries)[:queries], sizes)
    return RankingData.from_arrays(matrix, rng.integers(0, grades, sizes.sum()), ids)


def h(scores: np.ndarray[Any, Any], clicked: int, loss: str = "hinge") -> float:
    """Eq. 4, d' = d included."""
    margins = scores[clicked] - scores
    if loss == "hinge":
        return float(np.maximum(0, 1 - margins).sum())
    return float(np.log2(1 + np.exp(-margins)).sum())


def h_gradient(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], clicked: int, loss: str) -> np.ndarray[Any, Any]:
    """Gradient of `h` by the weights."""
    margins = x[clicked] @ w - x @ w
    slopes = (margins < 1) * 1.0 if loss == "hinge" else 1 / (1 + np.exp(margins)) / np.log(2)
    return np.sum([s * (other - x[clicked]) for s, other in zip(slopes, x, strict=True)], axis=0)


def client_update(
    impressions: list[tuple[int, list[int]]],
    display: Display,
    propensities: np.ndarray[Any, Any],
    weights: np.ndarray[Any, Any],
    training: LocalTraining,
) -> np.ndarray[Any, Any]:
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
                w = w - training.learning_rate * weight * h_gradient(x, w, clicked, training.loss)
    return w - weights


def impressions_of(log: ClickLog, client: int) -> list[tuple[int, list[int]]]:
    """A client's part of a log as plain lists."""
    rows = range(log.offsets[client], log.offsets[client + 1])
    return [(int(log.queries[i]), np.flatnonzero(log.clicks[i]).tolist()) for i in rows]
