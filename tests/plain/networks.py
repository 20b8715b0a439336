"""Neural rankers as plainly as can be: scores in a line each, gradients by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fultr.clicks.log import Display

Array = np.ndarray[Any, Any]


def network_scores(x: Array, w: Array, hidden: int, layers: int) -> Array:
    """W . x + v . relu(...), from the flat vector: linear part, then each layer's rows and biases, then v."""
    inputs = x.shape[1]
    linear, rest = w[:inputs], w[inputs:]
    units = x
    for _ in range(layers):
        rows, bias = rest[: hidden * inputs].reshape(hidden, inputs), rest[hidden * inputs : hidden * (inputs + 1)]
        rest, inputs = rest[hidden * (inputs + 1) :], hidden
        units = np.maximum(0, units @ rows.T + bias)
    return x @ linear + units @ rest


def by_differences(function: Callable[[Array], float], w: Array, by: float = 1e-6) -> Array:
    """The gradient of a function, coordinate by coordinate."""
    steps = by * np.eye(w.size)
    return np.array([(function(w + step) - function(w - step)) / (2 * by) for step in steps])


def network_update(
    impressions: list[tuple[int, list[int]]],
    display: Display,
    credit: float,
    weights: Array,
    shape: tuple[int, int, int],
    loss: Callable[[Array, int], float],
    rate: float,
) -> Array:
    """Algorithm 1, lines 5 to 9, for one client: `shape` is features, units and layers."""
    features, hidden, layers = shape
    w = weights.astype(np.float64)
    for query, ranks in impressions:
        first, last = display.offsets[query], display.offsets[query + 1]
        x = display.features[first:last, :features].astype(np.float64)
        for rank in ranks:
            clicked = display.shown[query, rank] - first

            def h(at: Array, x: Array = x, clicked: int = clicked) -> float:
                return loss(network_scores(x, at, hidden, layers), clicked)

            w = w - rate * credit * by_differences(h, w)
    return w - weights
