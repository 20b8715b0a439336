"""Inverse propensity scoring: a click is worth 1 / p (Eq. 3 of the paper), everything else nothing."""

from __future__ import annotations

import numpy as np
from numba import njit

from fultr.clicks.log import Records
from fultr.core.arrays import Float64s, UInt8s
from fultr.federated.credit.given import Given, check_shape


@njit(nogil=True, cache=True, error_model="numpy")
def _inverse(clicks: UInt8s, examination: Float64s, clip: float) -> Float64s:
    credit = np.empty(clicks.shape)
    made, probability, worth = clicks.ravel(), examination.ravel(), credit.ravel()
    for i in range(made.size):  # without branches, which could not be predicted; nothing is examined where 1 / 0
        inverse = min(1 / probability[i], clip)
        worth[i] = inverse if made[i] else 0.0
    return credit


def credit(records: Records, examination: Float64s, given: Given) -> Float64s:
    """C / p, at most the clip. Its mean is the probability of a click on the document if it is examined.

    >>> from fultr.clicks.log import ClickLog, Display
    >>> log = ClickLog(np.int32([0, 0]), np.uint8([[0, 1], [1, 0]]), np.array([0, 2]))
    >>> display = Display(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array([[0, 1]]), np.array([[0, 1]]))
    >>> credit(Records(log, display), np.array([[1.0, 0.5], [1.0, 0.5]]), Given()).tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    check_shape(records, examination)
    return _inverse(records.log.clicks, examination, given.clip)
