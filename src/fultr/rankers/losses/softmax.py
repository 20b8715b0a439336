"""The softmax loss: minus the logarithm of the clicked document's share of exp(f_w) among D_q (ListNet's top one).

With credit it is the softmax cross entropy of unbiased learning to rank (Ai et al. 2018, Eq. 9), one step per click.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fultr.core.arrays import Float32s
from fultr.core.compiled import implements
from fultr.rankers.losses.loss import loss_and_pulls


class Softmax(NamedTuple):
    """h = -log2 softmax(scores)[clicked]: 0 where the clicked document has it all, and at least log2 of its rank."""


@implements(loss_and_pulls, Softmax)
def _pulls(loss: Any, scores: Float32s, documents: int, clicked: int, pulls: Float32s) -> float:
    highest = np.float64(scores[0])
    for d in range(1, documents):
        highest = max(highest, np.float64(scores[d]))
    total = 0.0
    for d in range(documents):
        total += np.exp(np.float64(scores[d]) - highest)
    for d in range(documents):
        pulls[d] = np.float32(-np.exp(np.float64(scores[d]) - highest) / (total * np.log(2.0)))
    pulls[clicked] += np.float32(1 / np.log(2.0))
    return (np.log(total) - (np.float64(scores[clicked]) - highest)) / np.log(2.0)
