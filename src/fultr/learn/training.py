"""Training on a whole log: every choice is made on queries that were held out.

The queries of a log are cut into a few folds. For each fold a ranker is trained on the other queries, and its settings
are chosen by how likely it makes the clicks of the fold. The result is the mean of these rankers: every query is
trained on and every query is held out once, and a mean varies less than any of its parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fultr.core.arrays import Float32s, Float64s, Int64s
from fultr.core.streams import Purpose, generator
from fultr.learn.boosting import Binned, Growth, Trees, grown
from fultr.learn.descent import linear_weights, order_weights
from fultr.learn.network import Network, Units, trained_units
from fultr.learn.pooled import Pooled, likelihood
from fultr.rankers.forest import forest_parts, forest_size
from fultr.rankers.model import ModelSettings

RIDGES = (3.0, 30.0, 300.0, 3000.0, 30_000.0)  # that a linear ranker may have
FEW_QUERIES = 10  # with clicks: below, nothing is held out
UNCHOSEN_RIDGE, UNCHOSEN_TREES = 300.0, 30  # where nothing is held out


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained ranker and how it came about.

    Attributes:
        model: what the weights mean.
        weights: float32, for features as they were given.
        held_out: log-likelihood per click of the held-out clicks, and that of a ranker that tells no documents apart;
            None if nothing was held out.
        chosen: settings that were chosen, by name.
        curves: what the choice was made by, for each fold: numbers of trees or epochs, or ridges, and the held-out
            log-likelihood per click with each.
    """

    model: ModelSettings
    weights: Float32s
    held_out: tuple[float, float] | None
    chosen: dict[str, Any] = field(default_factory=dict)
    curves: list[tuple[Float64s, Float64s]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Scaled:
    """Features with mean 0 and variance 1; those that do not vary are 0."""

    values: Float64s
    mean: Float64s
    spread: Float64s

    @classmethod
    def of(cls, features: Float32s) -> Scaled:
        """From features of any scale."""
        mean = features.mean(axis=0, dtype=np.float64)
        spread = features.std(axis=0, dtype=np.float64)
        spread = np.where(spread > 1e-7 * np.maximum(1e-30, np.abs(mean)), spread, np.inf)
        return cls((features - mean) / spread, mean, spread)


def telling_queries(pooled: Pooled) -> Int64s:
    """Queries with clicks, and with several documents that these may be on: others say nothing about any order."""
    made = np.add.reduceat(pooled.clicks, pooled.offsets[:-1])
    return np.flatnonzero((made > 0) & (np.diff(pooled.offsets) > 1))


def folds_of(pooled: Pooled, folds: int, seed: int) -> list[tuple[Int64s, Int64s]]:
    """Queries to train on and to hold out, for each fold; one that holds out nothing if there are too few queries."""
    telling = telling_queries(pooled)
    if telling.size < FEW_QUERIES:
        return [(telling, telling[:0])]
    order = generator(seed, Purpose.HELD_OUT).permutation(telling)
    parts = [np.sort(order[i::folds]) for i in range(min(folds, telling.size))]
    return [(np.setdiff1d(telling, part), part) for part in parts]


def fit_linear(pooled: Pooled, folds: list[tuple[Int64s, Int64s]], threads: int | None, seed: int) -> Fitted:
    """A linear ranker whose ridge is chosen on held-out queries."""
    scaled = Scaled.of(pooled.features)
    tried, ridge, weights = _ridged(pooled, scaled, folds)
    held = folds[0][1].size > 0
    report = _held_out(pooled, folds, max(tried.values())) if held else None
    mean = (np.mean(weights, axis=0) / scaled.spread).astype(np.float32)
    curves = [(np.array(list(tried)), np.array(list(tried.values())))] if held else []
    return Fitted(ModelSettings("linear"), mean, report, {"ridge": ridge}, curves)


def _ridged(
    pooled: Pooled, scaled: Scaled, folds: list[tuple[Int64s, Int64s]]
) -> tuple[dict[float, float], float, list[Float64s]]:
    """The held-out likelihood per click of each ridge tried, the best ridge, and each fold's weights with it."""
    rows = [(pooled.take(train), pooled.rows(train), pooled.take(other), pooled.rows(other)) for train, other in folds]
    starts: list[Float64s | None] = [None] * len(rows)
    order = order_weights(pooled, scaled.values)
    tried: dict[float, float] = {}
    best, chosen = 0.0, [np.zeros(0)]
    for ridge in reversed(RIDGES) if folds[0][1].size else (UNCHOSEN_RIDGE,):
        sums = np.zeros(2)
        for i, (own, at, other, other_at) in enumerate(rows):
            parts = linear_weights(own, scaled.values[at], ridge, order, starts[i])
            sums += likelihood(other, scaled.values[other_at] @ (parts[:-1] + parts[-1] * order))
            starts[i] = parts
        tried[ridge] = float(sums[0] / max(sums[1], 1e-12))
        if tried[ridge] < max(tried.values()):
            break
        best, chosen = ridge, [parts[:-1] + parts[-1] * order for parts in starts if parts is not None]
    return tried, best, chosen


def fit_trees(pooled: Pooled, folds: list[tuple[Int64s, Int64s]], threads: int | None, seed: int) -> Fitted:
    """Boosted trees on top of a linear ranker; their number is chosen on held-out queries, fold by fold."""
    held = folds[0][1].size > 0
    growth = Growth() if held else Growth(trees=UNCHOSEN_TREES)
    binned = Binned.of(pooled.features, growth.bins, threads, seed)
    scaled = Scaled.of(pooled.features)
    _, ridge, linear = _ridged(pooled, scaled, folds)
    forests = [
        grown(pooled, binned, scaled.values @ linear[i], train, other, growth, seed + i, threads)
        for i, (train, other) in enumerate(folds)
    ]
    weights, model = forest_of(forests, pooled.features.shape[1], growth.depth)
    weights[: pooled.features.shape[1]] = np.mean(linear, axis=0) / scaled.spread
    clicks = [likelihood(pooled.take(other), np.zeros(pooled.rows(other).size))[1] for _, other in folds]
    held_out = [forest.held_out[forest.best] for forest in forests]
    report = _held_out(pooled, folds, float(np.average(held_out, weights=clicks))) if held else None
    curves = [(np.arange(float(forest.held_out.size)), forest.held_out) for forest in forests] if held else []
    return Fitted(model, weights, report, {"ridge": ridge, "trees": [forest.best for forest in forests]}, curves)


def forest_of(forests: list[Trees], features: int, depth: int) -> tuple[Float32s, ModelSettings]:
    """The mean of some forests as the weights of one ranker: all their trees, each worth a share."""
    trees = max(1, sum(len(forest.features) for forest in forests))
    weights = np.zeros(forest_size(features, trees, depth), np.float32)
    parts, begin = forest_parts(weights, features, depth), 0
    for forest in forests:
        now = slice(begin, begin + len(forest.features))
        parts["tree_features"][now], parts["tree_thresholds"][now] = forest.features, forest.thresholds
        parts["tree_values"][now] = forest.values / len(forests)
        begin = now.stop
    parts["head"][:2] = trees, trees
    return weights, ModelSettings("random-trees", trees=1, tree_rounds=trees, linear_rounds=0, depth=depth)


def fit_mlp(pooled: Pooled, folds: list[tuple[Int64s, Int64s]], threads: int | None, seed: int) -> Fitted:
    """A neural ranker whose epochs are chosen on held-out queries, fold by fold: hidden units side by side."""
    scaled = Scaled.of(pooled.features)
    how = Network()
    held = folds[0][1].size > 0
    _, ridge, linear_parts = _ridged(pooled, scaled, folds)
    values = scaled.values.astype(np.float32)
    parts: list[Units] = [
        trained_units(pooled, values, linear_parts[i], train, other, how, seed + i)
        for i, (train, other) in enumerate(folds)
    ]
    share = 1 / len(parts)
    hidden = np.concatenate([part.hidden for part in parts]) / scaled.spread
    bias = np.concatenate([part.bias - (part.hidden / scaled.spread) @ scaled.mean for part in parts])
    output = np.concatenate([share * part.output for part in parts])
    linear = np.mean([part.linear for part in parts], axis=0) / scaled.spread
    weights = np.concatenate([linear, hidden.ravel(), bias, output]).astype(np.float32)
    model = ModelSettings("mlp", hidden=len(bias), hidden_layers=1)
    clicks = [likelihood(pooled.take(other), np.zeros(pooled.rows(other).size))[1] for _, other in folds]
    told = [part.held_out for part in parts]
    report = _held_out(pooled, folds, float(np.average(told, weights=clicks))) if held else None
    curves = [(np.arange(float(part.curve.size)), part.curve) for part in parts] if held else []
    return Fitted(model, weights, report, {"ridge": ridge, "epochs": [part.epochs for part in parts]}, curves)


def _held_out(pooled: Pooled, folds: list[tuple[Int64s, Int64s]], found: float) -> tuple[float, float]:
    """Held-out log-likelihood per click, and that of a ranker whose scores are all equal."""
    sums = np.zeros(2)
    for _, other in folds:
        part = pooled.take(other)
        sums += likelihood(part, np.zeros(len(part.features)))
    return found, float(sums[0] / max(sums[1], 1e-12))
