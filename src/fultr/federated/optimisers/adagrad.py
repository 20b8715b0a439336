"""FedAdagrad (Reddi et al. 2021, Algorithm 2), without momentum.

v <- v + Delta^2; w + eta_g Delta / (sqrt(v) + tau).
"""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Arrays, Float64s
from fultr.federated.settings import ServerOptimiser


def init(settings: ServerOptimiser, size: int) -> Arrays:
    """What it remembers before the first round."""
    return {"squares": np.full(size, settings.tau**2)}


def direction(settings: ServerOptimiser, state: Arrays, update: Float64s) -> tuple[Float64s, Arrays]:
    """Where to go, and what it remembers then."""
    squares = state["squares"] + update**2
    return update / (np.sqrt(squares) + settings.tau), {"squares": squares}
