"""The server's step: from the average update to the next weights (Algorithm 1, line 11)."""

from __future__ import annotations

import math

import numpy as np

from fultr.core.arrays import Arrays, Float32s, Float64s
from fultr.federated.optimisers import OPTIMISERS
from fultr.federated.settings import ServerOptimiser

_ROUNDS, _MEAN = "rounds", "mean"


def initial_state(settings: ServerOptimiser, size: int) -> Arrays:
    """What a server optimiser remembers before the first round; the rounds and the mean so far, where they matter."""
    state: Arrays = OPTIMISERS[settings.server].init(settings, size)
    if settings.decay_rounds is not None or settings.averaged is not None:
        state[_ROUNDS] = np.zeros(1)
    if settings.averaged is not None:
        state[_MEAN] = np.zeros(size)
    return state


def step(settings: ServerOptimiser, state: Arrays, weights: Float32s, update: Float64s) -> tuple[Float32s, Arrays]:
    """The next weights, float32 as they travel, and what the optimiser remembers then.

    >>> settings = ServerOptimiser("sgd", server_rate=0.5)
    >>> weights, _ = step(settings, initial_state(settings, 1), np.float32([1]), np.array([4.0]))
    >>> weights.tolist()
    [3.0]
    """
    done = float(state[_ROUNDS][0]) if _ROUNDS in state else 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is measured like any other
        direction, after = OPTIMISERS[settings.server].direction(settings, state, update)
        rate = settings.rate * _rate_left(settings, done)
        kept = weights * (1 - rate * settings.weight_decay) if settings.weight_decay else weights
        moved = (kept + rate * direction).astype(np.float32)
        if _MEAN in state and settings.averaged is not None:
            power = 2 / settings.averaged - 2
            after = {**after, _MEAN: state[_MEAN] + (moved - state[_MEAN]) * (1 + power) / (done + 1 + power)}
    return moved, {**after, **({_ROUNDS: state[_ROUNDS] + 1} if _ROUNDS in state else {})}


def ranker_of(state: Arrays, weights: Float32s) -> Float32s:
    """The ranker that training has come to: the weights, or the mean over late rounds where there is one.

    >>> settings = ServerOptimiser(server_rate=1.0, averaged=1.0)
    >>> state, weights = initial_state(settings, 1), np.float32([0])
    >>> for _ in range(3):
    ...     weights, state = step(settings, state, weights, np.array([1.0]))
    >>> weights.tolist(), ranker_of(state, weights).tolist()
    ([3.0], [2.0])
    """
    return state[_MEAN].astype(np.float32) if _MEAN in state and state[_ROUNDS][0] else weights


def _rate_left(settings: ServerOptimiser, done: float) -> float:
    """The share of the server's rate that is left after this many rounds."""
    if settings.decay_rounds is None:
        return 1.0
    gone = min(1.0, done / settings.decay_rounds)
    return (1 + math.cos(math.pi * gone)) / 2 if settings.decay == "cosine" else 1 - gone


def average(total: Float64s, clients: float) -> Float64s:
    """The pseudo-gradient: the sum of the clients' updates over their number; zero if there is no client.

    >>> average(np.array([6.0]), 3).tolist()
    [2.0]
    """
    return total / clients if clients else np.zeros_like(total)
