"""Doubly robust credit: what clipping takes away, the estimator's relevance function puts back (Oosterhuis 2023)."""

from __future__ import annotations

import numpy as np
from numba import njit

from fultr.clicks.log import Records
from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s, UInt8s
from fultr.federated.credit.given import Given, check_shape
from fultr.rankers.linear_kernels import dot


@njit(nogil=True, cache=True, error_model="numpy")
def _corrected(
    clicks: UInt8s,
    examination: Float64s,
    queries: Int32s,
    shown: Int64s,
    features: Float32s,
    slope: Float32s,
    intercept: np.float32,
    clip: float,
) -> Float64s:
    credit = np.zeros(clicks.shape)
    for i in range(queries.size):
        for k in range(clicks.shape[1]):
            row = shown[queries[i], k]
            if row < 0:
                continue
            likely = 1 / (1 + np.exp(-np.float64(dot(features[row], slope) + intercept)))
            p = examination[i, k]
            weight = min(1 / p, clip) if p > 0 else 0.0
            credit[i, k] = likely + weight * (clicks[i, k] - p * likely)
    return credit


def credit(records: Records, examination: Float64s, given: Given) -> Float64s:
    """F + w (c - p F), for all displayed documents, with w = 1 / p or the clip, whichever is less.

    F is the probability of a click on an examined document, as the estimator of examination has it. The mean is the
    true one where w = 1 / p, whatever F says, and where F is right, whatever w is. Without a clip it is c / p.
    """
    check_shape(records, examination)
    if given.relevance is None:
        raise ValueError("doubly-robust: expected a relevance function")
    features = records.display.features
    slope = np.zeros(features.shape[1], np.float32)  # rows may be padded with zeros
    slope[: given.relevance.size - 1] = given.relevance[:-1]
    log = records.log
    return _corrected(
        log.clicks,
        examination,
        log.queries,
        records.display.shown,
        features,
        slope,
        given.relevance[-1],
        given.clip,
    )
