"""The hinge loss of Eq. 4: the sum over d' in D_q of max(0, 1 - (f_w(q, d) - f_w(q, d')))."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fultr.core.arrays import Float32s
from fultr.core.compiled import implements
from fultr.rankers.losses.loss import loss_and_pulls


class Hinge(NamedTuple):
    """h bounds the rank of the clicked document: 1 + h is at least its rank, as d' = d adds 1."""


@implements(loss_and_pulls, Hinge)
def _pulls(loss: Any, scores: Float32s, documents: int, clicked: int, pulls: Float32s) -> float:
    h = 0.0
    total = np.float32(0)
    for d in range(documents):  # d' = d too: it adds 1 to h, and its pulls cancel
        margin = np.float64(scores[clicked]) - np.float64(scores[d])
        pull = np.float32(margin < 1)
        h += max(0.0, 1 - margin)
        pulls[d] = -pull
        total += pull
    pulls[clicked] += total
    return h
