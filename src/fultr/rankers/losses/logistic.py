"""The logistic loss: the sum over d' in D_q of log2(1 + exp(-(f_w(q, d) - f_w(q, d'))))."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fultr.core.arrays import Float32s
from fultr.core.compiled import implements
from fultr.rankers.losses.loss import loss_and_pulls


class Logistic(NamedTuple):
    """Like the hinge loss, a term is 1 at equal scores and at least 1 below, so that 1 + h bounds the rank."""


@implements(loss_and_pulls, Logistic)
def _pulls(loss: Any, scores: Float32s, documents: int, clicked: int, pulls: Float32s) -> float:
    h = 0.0
    total = np.float32(0)
    for d in range(documents):  # d' = d too: it adds 1 to h, and its pulls cancel
        margin = np.float64(scores[clicked]) - np.float64(scores[d])
        pull = np.float32(1 / ((1 + np.exp(margin)) * np.log(2.0)))
        h += (max(0.0, -margin) + np.log1p(np.exp(-abs(margin)))) / np.log(2.0)
        pulls[d] = -pull
        total += pull
    pulls[clicked] += total
    return h
