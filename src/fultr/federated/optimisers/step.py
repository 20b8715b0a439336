"""The server's step: from the average update to the next weights (Algorithm 1, line 11)."""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Arrays, Float32s, Float64s
from fultr.federated.optimisers import OPTIMISERS
from fultr.federated.settings import ServerOptimiser


def initial_state(settings: ServerOptimiser, size: int) -> Arrays:
    """What a server optimiser remembers before the first round."""
    return OPTIMISERS[settings.server].init(settings, size)


def step(settings: ServerOptimiser, state: Arrays, weights: Float32s, update: Float64s) -> tuple[Float32s, Arrays]:
    """The next weights, float32 as they travel, and what the optimiser remembers then.

    >>> settings = ServerOptimiser("sgd", server_rate=0.5)
    >>> weights, _ = step(settings, initial_state(settings, 1), np.float32([1]), np.array([4.0]))
    >>> weights.tolist()
    [3.0]
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is measured like any other
        direction, state = OPTIMISERS[settings.server].direction(settings, state, update)
        return (weights + settings.server_rate * direction).astype(np.float32), state


def average(total: Float64s, clients: float) -> Float64s:
    """The pseudo-gradient: the sum of the clients' updates over their number; zero if there is no client.

    >>> average(np.array([6.0]), 3).tolist()
    [2.0]
    """
    return total / clients if clients else np.zeros_like(total)
