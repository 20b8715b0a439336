"""The server's step: from the average update to the next weights (Algorithm 1, line 11)."""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Arrays, Float32s, Float64s
from fultr.federated.optimisers import OPTIMISERS
from fultr.federated.settings import ServerOptimiser

_ROUNDS = "rounds"


def initial_state(settings: ServerOptimiser, size: int) -> Arrays:
    """What a server optimiser remembers before the first round, and the rounds so far if its rate depends on them."""
    counted = {} if settings.decay_rounds is None else {_ROUNDS: np.zeros(1)}
    return {**OPTIMISERS[settings.server].init(settings, size), **counted}


def step(settings: ServerOptimiser, state: Arrays, weights: Float32s, update: Float64s) -> tuple[Float32s, Arrays]:
    """The next weights, float32 as they travel, and what the optimiser remembers then.

    >>> settings = ServerOptimiser("sgd", server_rate=0.5)
    >>> weights, _ = step(settings, initial_state(settings, 1), np.float32([1]), np.array([4.0]))
    >>> weights.tolist()
    [3.0]
    """
    rate, counted = settings.server_rate, {}
    if settings.decay_rounds is not None:
        rate *= max(0.0, 1 - float(state[_ROUNDS][0]) / settings.decay_rounds)
        counted = {_ROUNDS: state[_ROUNDS] + 1}
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is measured like any other
        direction, state = OPTIMISERS[settings.server].direction(settings, state, update)
        return (weights + rate * direction).astype(np.float32), {**state, **counted}


def average(total: Float64s, clients: float) -> Float64s:
    """The pseudo-gradient: the sum of the clients' updates over their number; zero if there is no client.

    >>> average(np.array([6.0]), 3).tolist()
    [2.0]
    """
    return total / clients if clients else np.zeros_like(total)
