"""Lambda-weighted pairs: logistic losses of pairs, each weighted by what swapping the two would change of DCG.

LambdaRank (Burges et al. 2006) with a click in place of a grade: |1 / log2(1 + r) - 1 / log2(1 + r')| times
log2(1 + exp(-(f_w(q, d) - f_w(q, d')))), where r and r' are the ranks of d and d' among D_q by their scores now. The
weights count as constants: pulls are minus the derivatives of the logistic losses alone. Documents with equal scores
are in the order of D_q, that of the display, so that a ranker of zeros starts from the logging policy's order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fultr.core.arrays import Float32s
from fultr.core.compiled import implements
from fultr.rankers.losses.loss import loss_and_pulls


class LambdaPairs(NamedTuple):
    """A pair whose order matters more for DCG pulls harder; h bounds no rank."""


@implements(loss_and_pulls, LambdaPairs)
def _pulls(loss: Any, scores: Float32s, documents: int, clicked: int, pulls: Float32s) -> float:
    for d in range(documents):  # each document's discount, until its pull takes the place
        rank = 1
        for other in range(documents):
            rank += scores[other] > scores[d] or (scores[other] == scores[d] and other < d)
        pulls[d] = np.float32(1 / np.log2(1.0 + rank))
    own = np.float64(pulls[clicked])
    h = 0.0
    total = np.float32(0)
    for d in range(documents):
        if d != clicked:
            weight = abs(own - np.float64(pulls[d]))
            margin = np.float64(scores[clicked]) - np.float64(scores[d])
            pull = np.float32(weight / ((1 + np.exp(margin)) * np.log(2.0)))
            h += weight * (max(0.0, -margin) + np.log1p(np.exp(-abs(margin)))) / np.log(2.0)
            pulls[d] = -pull
            total += pull
    pulls[clicked] = total
    return h
