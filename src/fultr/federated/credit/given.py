"""What a kind of credit may need to know beside the records and their examination."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from fultr.clicks.log import Records
from fultr.core.arrays import Arrays, Bools, Float32s, Float64s
from fultr.federated.settings import Estimator, FedIPS


@dataclass(frozen=True, eq=False)
class Given:
    """Known to a client when it computes credit.

    Attributes:
        clip: the largest weight of a click, see `clipping`.
        relevance: the estimator's relevance function F, float32 [features + 1], if there is one.
        other: probability, at all ranks or [K], of a click on a document that is examined and not relevant.
        relevant: likewise on one that is relevant.
        floor: the least that affine credit divides by, where a server says what that is.
    """

    clip: float = math.inf
    relevance: Float32s | None = None
    other: Float64s | float = 0.0
    relevant: Float64s | float = 1.0
    floor: float = 0.0

    @classmethod
    def of(cls, algorithm: FedIPS, estimation: Arrays, chosen: Arrays, heaviest: float = math.inf) -> Given:
        """What settings say, what the server sent for estimation and as the clip that it chose, and a client's own."""
        training, source = algorithm.training, algorithm.propensity
        clip = min(math.inf if training.clip is None else training.clip, heaviest)
        if chosen:
            clip = min(clip, float(chosen["clip"][0]))
        relevance = estimation.get("relevance")
        if isinstance(source, Estimator) and source.constants:
            other, relevant = estimation["constants"]
            return cls(clip, relevance, other, relevant, source.estimate_floor)
        return cls(clip, relevance, np.array(training.credit_other), np.array(training.credit_relevant))


def check_shape(records: Records, examination: Float64s) -> None:
    """Refuse examination of another shape than the clicks: compiled code would read beyond its end."""
    if examination.shape != records.log.clicks.shape:
        raise ValueError(f"examination: expected shape {records.log.clicks.shape}, found {examination.shape}")


def displayed(records: Records) -> Bools:
    """[impressions, K] is there a document?"""
    there: Bools = (records.display.shown >= 0)[records.log.queries]
    return there


@njit(nogil=True, cache=True, error_model="numpy")
def inverse(propensity: Float64s, clip: float) -> Float64s:
    """The weight of a click, 1 / propensity or the clip, whichever is less; 0 where the propensity is.

    >>> inverse(np.array([[1.0, 0.5, 0.1, 0.0]]), 5.0).tolist()
    [[1.0, 2.0, 5.0, 0.0]]
    """
    weights = np.empty(propensity.shape)
    given, found = propensity.ravel(), weights.ravel()
    for i in range(given.size):
        found[i] = min(1 / given[i], clip) if given[i] > 0 else 0.0
    return weights
