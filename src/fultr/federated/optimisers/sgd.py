"""FedAvg as the paper has it: the weights move by the average update (McMahan et al. 2017).

w + eta_g Delta.
"""

from __future__ import annotations

from fultr.core.arrays import Arrays, Float64s
from fultr.federated.settings import ServerOptimiser


def init(settings: ServerOptimiser, size: int) -> Arrays:
    """What it remembers before the first round."""
    return {}


def direction(settings: ServerOptimiser, state: Arrays, update: Float64s) -> tuple[Float64s, Arrays]:
    """Where to go, and what it remembers then."""
    return update, {}
