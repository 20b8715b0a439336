"""Neural rankers on a whole log: f(x) = w . x + v . relu(W x + b) by Adam, in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fultr.core.arrays import Float32s, Float64s, Int64s
from fultr.core.streams import Purpose, generator
from fultr.core.threads import one_blas_thread
from fultr.learn.pooled import Pooled, likelihood, likelihood_per_click


@dataclass(frozen=True)
class Network:
    """How a neural ranker is trained.

    Attributes:
        hidden: units.
        rate: of Adam.
        decay: share of the weights that a step of rate 1 takes away.
        batch: queries of a step.
        epochs: at most.
        patience: epochs without a better held-out likelihood, after which training stops.
    """

    hidden: int = 32
    rate: float = 0.001
    decay: float = 0.1
    batch: int = 64
    epochs: int = 60
    patience: int = 5


@dataclass(frozen=True, eq=False)
class Units:
    """A trained network, for scaled features.

    Attributes:
        linear: w, [features].
        hidden: W, [units, features].
        bias: b, [units].
        output: v, [units].
        held_out: log-likelihood per click of the held-out queries.
        epochs: after which it was the best.
        curve: the same log-likelihood before the first epoch and after each.
    """

    linear: Float64s
    hidden: Float64s
    bias: Float64s
    output: Float64s
    held_out: float
    epochs: int
    curve: Float64s


@one_blas_thread()
def trained_units(
    pooled: Pooled, features: Float32s, linear: Float64s, train: Int64s, held_out: Int64s, how: Network, seed: int
) -> Units:
    """Train on some queries of a log, for as many epochs as others say.

    Args:
        pooled: the log.
        features: of its pairs, scaled to mean 0 and variance 1.
        linear: weights of the linear ranker that training starts from, [features]; hidden units add nothing at first.
        train: queries to train on.
        held_out: queries to judge by; with none, the last epoch counts.
        how: settings.
        seed: of first weights and of the order of queries.
    """
    width = features.shape[1]
    random = generator(seed, Purpose.INITIAL_WEIGHTS)
    parts = [
        linear.astype(np.float32),
        random.standard_normal((how.hidden, width), np.float32) * np.float32((2 / width) ** 0.5),
        random.standard_normal(how.hidden, np.float32),
        np.zeros(how.hidden, np.float32),
    ]
    means, squares = [np.zeros_like(part) for part in parts], [np.zeros_like(part) for part in parts]
    other, at = pooled.take(held_out), pooled.rows(held_out)
    told = likelihood_per_click(other, _scores(features[at], parts)[0]) if held_out.size else 0.0
    curve = [told]
    best = (told, 0, [part.copy() for part in parts])
    shuffle, step = generator(seed, Purpose.LAMBDA_BATCHES), 0
    for epoch in range(1, how.epochs + 1):
        order = shuffle.permutation(train)
        for begin in range(0, order.size, how.batch):
            queries = order[begin : begin + how.batch]
            step += 1
            for i, slope in enumerate(_slopes(pooled.take(queries), features[pooled.rows(queries)], parts)):
                means[i] += np.float32(0.1) * (slope - means[i])
                squares[i] += np.float32(0.01) * (slope * slope - squares[i])
                moved = (means[i] / (1 - 0.9**step)) / (np.sqrt(squares[i] / (1 - 0.99**step)) + 1e-6)
                parts[i] += (how.rate * (moved - how.decay * parts[i])).astype(np.float32)
        told = likelihood_per_click(other, _scores(features[at], parts)[0]) if held_out.size else float(epoch)
        curve.append(told)
        if told > best[0]:
            best = (told, epoch, [part.copy() for part in parts])
        if epoch - best[1] >= how.patience:
            break
    skip, hidden, bias, output = (part.astype(np.float64) for part in best[2])
    return Units(skip, hidden, bias, output, best[0], best[1], np.array(curve))


def _scores(features: Float32s, parts: list[Float32s]) -> tuple[Float64s, Float32s]:
    """Scores of rows, and their units."""
    linear, hidden, bias, output = parts
    units = np.maximum(features @ hidden.T + bias, 0)
    return (features @ linear + units @ output).astype(np.float64), units


def _slopes(pooled: Pooled, features: Float32s, parts: list[Float32s]) -> list[Float32s]:
    """The gradient of the log-likelihood of a batch, per click that counts."""
    scores, units = _scores(features, parts)
    pulls = np.empty((scores.size, 2))
    _, counted = likelihood(pooled, scores, pulls)
    pull = (pulls[:, 0] / max(counted, 1e-12)).astype(np.float32)
    back = np.where(units > 0, pull[:, np.newaxis] * parts[3], np.float32(0))
    return [pull @ features, back.T @ features, back.sum(axis=0), pull @ units]
