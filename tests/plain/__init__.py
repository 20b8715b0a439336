"""Plain versions of what the package does fast, written from the paper, to compare with."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
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


def _softmax_slopes(margins: Array, clicked: int) -> Array:
    shares = np.exp(-margins - np.max(-margins))
    return shares / shares.sum() / np.log(2)


def _dcg_changes(margins: Array, clicked: int) -> Array:
    """What DCG changes by if the clicked document and each other one change places; ties keep their order."""
    ranks = np.argsort(np.argsort(margins, kind="stable")) + 1
    return np.abs(1 / np.log2(1 + ranks) - 1 / np.log2(1 + ranks[clicked]))


# Of each loss, by its name: h as a function of the margins, the clicked document's score minus each document's, and the
# place of the clicked one; and minus its derivatives by the margins.
LOSSES: dict[str, tuple[Callable[[Array, int], Array], Callable[[Array, int], Array]]] = {
    "hinge": (lambda x, _: np.maximum(0, 1 - x).sum(), lambda x, _: (x < 1) * 1.0),
    "logistic": (lambda x, _: np.log2(1 + np.exp(-x)).sum(), lambda x, _: 1 / (1 + np.exp(x)) / np.log(2)),
    "softmax": (lambda x, _: np.log2(np.exp(-x).sum()), _softmax_slopes),
    "lambda-pairs": (
        lambda x, c: (_dcg_changes(x, c) * np.log2(1 + np.exp(-x))).sum(),
        lambda x, c: _dcg_changes(x, c) / (1 + np.exp(x)) / np.log(2),
    ),
}


def h(scores: Array, clicked: int, loss: str = "hinge") -> float:
    """Eq. 4, d' = d included."""
    return float(LOSSES[loss][0](scores[clicked] - scores, clicked))


def h_gradient(x: Array, w: Array, clicked: int, loss: str) -> Array:
    """Gradient of `h` by the weights: a margin changes by the difference of two documents' features."""
    slopes = LOSSES[loss][1](x[clicked] @ w - x @ w, clicked)
    return np.sum([s * (other - x[clicked]) for s, other in zip(slopes, x, strict=True)], axis=0)


def client_update(
    impressions: list[tuple[int, list[int]]],
    display: Display,
    propensities: Array,
    weights: Array,
    training: LocalTraining,
) -> Array:
    """Algorithm 1, lines 5 to 9, for one client: impressions are (query, clicked ranks from 0)."""
    clip = np.inf if training.clip is None else training.clip
    weighed = [(query, [(rank, min(1 / propensities[rank], clip)) for rank in ranks]) for query, ranks in impressions]
    return credited_update(weighed, display, weights, training)


def credited_update(
    impressions: list[tuple[int, list[tuple[int, float]]]], display: Display, weights: Array, training: LocalTraining
) -> Array:
    """A step for each displayed document with credit, of either sign: impressions are (query, (rank, credit) pairs)."""
    w = weights.astype(np.float64)
    for _ in range(training.epochs):
        for query, credited in impressions:
            first, last = display.offsets[query], display.offsets[query + 1]
            x = display.features[first:last, : weights.size].astype(np.float64)
            for rank, weight in credited:
                clicked = display.shown[query, rank] - first
                if training.metric == "dcg":  # g(r) = -1 / log2(1 + r) at r = 1 + h
                    bound = 2 + h(x @ w, clicked, training.loss)
                    weight *= np.log(2) / (bound * np.log(bound) ** 2)
                w = w - training.client_rate * weight * h_gradient(x, w, clicked, training.loss)
    return w - weights


def impressions_of(log: ClickLog, client: int) -> list[tuple[int, list[int]]]:
    """A client's part of a log as plain lists."""
    rows = range(log.offsets[client], log.offsets[client + 1])
    return [(int(log.queries[i]), np.flatnonzero(log.clicks[i]).tolist()) for i in rows]


def ordered_sum(rows: list[list[float]]) -> list[float]:
    """Sixteen parts, or as many as there are clients; each added up by itself, then all."""
    count = max(1, min(16, len(rows)))
    edges = [len(rows) * i // count for i in range(count + 1)]
    width = len(rows[0]) if rows else 0
    parts = []
    for first, last in pairwise(edges):
        part = [0.0] * width
        for row in rows[first:last]:
            part = [a + b for a, b in zip(part, row, strict=True)]
        parts.append(part)
    total = parts[0]
    for part in parts[1:]:
        total = [a + b for a, b in zip(total, part, strict=True)]
    return total


def _norm(row: list[float]) -> float:
    return float(np.sqrt(sum(x * x for x in row)))


def _lower_middle(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def _clipped(rounds: list[dict[str, list[list[float]]]], settings: Any) -> dict[str, list[float]]:
    """Of the last round, after all of them."""
    limits = {}
    for name in rounds[-1]:
        said = [[_norm(row) for row in each[name] if any(row)] for each in rounds]
        medians = [_lower_middle(norms) for norms in said if norms][-5:]
        limits[name] = settings.clip_multiple * _lower_middle(medians) if medians else np.inf
    clients = len(rounds[-1]["update"])

    def factor(name: str, u: int) -> float:
        length = _norm(rounds[-1][name][u])
        return min(1.0, limits[name] / length) if length else 1.0

    factors = {"update": [factor("update", u) ** 2 for u in range(clients)]}
    for name in limits:
        if name != "update":
            factors[name] = [min(factor(n, u) for n in limits if n != "update") for u in range(clients)]
    return {
        name: ordered_sum([[factors[name][u] * x for x in row] for u, row in enumerate(rows)])
        for name, rows in rounds[-1].items()
    }


def _trimmed(column: list[float], settings: Any) -> float:
    n = len(column)
    left_out = 0
    while left_out < settings.trim * n - 1e-9 and n - 2 * (left_out + 1) > 0:
        left_out += 1
    kept = sorted(column)[left_out : n - left_out]
    return sum(kept) / len(kept)


def _grouped(column: list[float], settings: Any) -> float:
    count = min(settings.groups, len(column))
    edges = [len(column) * i // count for i in range(count + 1)]
    means = sorted(sum(column[a:b]) / (b - a) for a, b in pairwise(edges))
    return (means[(count - 1) // 2] + means[count // 2]) / 2


def _by_column(rule: Callable[[list[float], Any], float]) -> Any:
    """The rule for every coordinate, over the clients that say something, times their number."""

    def total(rounds: list[dict[str, list[list[float]]]], settings: Any) -> dict[str, list[float]]:
        found = {}
        for name, rows in rounds[-1].items():
            said = [row for row in rows if any(row)]
            columns = [[row[i] for row in said] for i in range(len(rows[0]) if rows else 0)]
            found[name] = [rule(column, settings) * len(said) if said else 0.0 for column in columns]
        return found

    return total


# Of each aggregation, by its name: what is taken for the sum of the last of some rounds, each named rows of numbers.
AGGREGATIONS: dict[str, Any] = {
    "mean": lambda rounds, settings: {name: ordered_sum(rows) for name, rows in rounds[-1].items()},
    "clipped": _clipped,
    "trimmed": _by_column(_trimmed),
    "grouped": _by_column(_grouped),
}
