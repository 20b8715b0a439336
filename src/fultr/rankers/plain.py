"""Ranking in NumPy alone, for an application on a device: it loads no compiler, and one query is soon done.

Training and evaluation score whole data sets with compiled code (`fultr.rankers.model`); tests hold that the two agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fultr.core.arrays import Float32s


class Plain(NamedTuple):
    """What the weights of a model mean.

    Attributes:
        size: how many weights it has, given the number of features.
        scores: float32 [documents], from weights [size] and features [documents, features].
    """

    size: Callable[[int], int]
    scores: Callable[[Float32s, Float32s], Float32s]


def _linear(weights: Float32s, features: Float32s) -> Float32s:
    """W . x, summed in float64 and rounded once, as an exported ranker does.

    Each row is summed by itself in the same order, so equal documents have equal scores; a matrix product from a
    library does not promise that.
    """
    with np.errstate(over="ignore"):  # a score beyond float32 is infinite, and ranks accordingly
        return (features.astype(np.float64, order="C") * weights).sum(axis=1).astype(np.float32)


PLAIN = {"linear": Plain(lambda features: features, _linear)}
"""Every model of `fultr.rankers.model.MODELS`, by name."""


def scaled(features: Float32s) -> Float32s:
    """The features of one query's documents, each scaled to [0, 1]; a constant one becomes 0.

    The same numbers as `RankingData.normalise`, to the last bit.

    >>> scaled(np.float32([[1, 5], [3, 5], [2, 5]])).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]]
    """
    low, high = features.min(axis=0), features.max(axis=0)
    span = high.astype(np.float64) - low  # in float64, since the range of float32 values may overflow
    return ((features.astype(np.float64) - low) / np.where(span > 0, span, 1.0)).astype(np.float32)
