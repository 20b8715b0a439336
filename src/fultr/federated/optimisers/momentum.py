"""FedAvgM (Hsu et al. 2019).

m <- beta1 m + Delta; w + eta_g m.
"""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Arrays, Float64s
from fultr.federated.settings import ServerOptimiser


def init(settings: ServerOptimiser, size: int) -> Arrays:
    """What it remembers before the first round."""
    return {"momentum": np.zeros(size)}


def direction(settings: ServerOptimiser, state: Arrays, update: Float64s) -> tuple[Float64s, Arrays]:
    """Where to go, and what it remembers then."""
    momentum = settings.beta1 * state["momentum"] + update
    return momentum, {"momentum": momentum}
