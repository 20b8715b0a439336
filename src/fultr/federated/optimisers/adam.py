"""FedAdam (Reddi et al. 2021, Algorithm 2), without bias correction.

m and v are running averages of Delta and Delta^2; w + eta_g m / (sqrt(v) + tau).
"""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Arrays, Float64s
from fultr.federated.settings import ServerOptimiser


def init(settings: ServerOptimiser, size: int) -> Arrays:
    """What it remembers before the first round."""
    return {"momentum": np.zeros(size), "squares": np.full(size, settings.tau**2)}


def direction(settings: ServerOptimiser, state: Arrays, update: Float64s) -> tuple[Float64s, Arrays]:
    """Where to go, and what it remembers then."""
    momentum = settings.beta1 * state["momentum"] + (1 - settings.beta1) * update
    squares = settings.beta2 * state["squares"] + (1 - settings.beta2) * update**2
    return momentum / (np.sqrt(squares) + settings.tau), {"momentum": momentum, "squares": squares}
