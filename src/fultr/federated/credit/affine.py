"""Affine credit: what clicks on irrelevant documents add is taken off again (Vardasbi et al. 2020, Eq. 10)."""

from __future__ import annotations

import numpy as np

from fultr.clicks.log import Records
from fultr.core.arrays import Float64s
from fultr.federated.credit.given import Given, check_shape, displayed, inverse


def credit(records: Records, examination: Float64s, given: Given) -> Float64s:
    """(c / p - other) / (relevant - other), for all displayed documents, clicked or not; its mean is relevance.

    A click at rank k has probability beta_k + alpha_k r, r being 1 for relevant documents and 0 for others, with
    beta_k = p other_k and alpha_k = p (relevant_k - other_k): the same as (c - beta_k) / alpha_k. Constants that are
    the same at every rank are click noise; those that fall with the rank are trust bias. The weight 1 / alpha_k is at
    most the clip. A document that cannot have been examined has credit 0: nothing is known of it.

    >>> from fultr.clicks.log import ClickLog, Display
    >>> log = ClickLog(np.int32([0]), np.uint8([[0, 1]]), np.array([0, 1]))
    >>> display = Display(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array([[0, 1]]), np.array([[0, 1]]))
    >>> noise = Given(other=0.2)
    >>> credit(Records(log, display), np.array([[1.0, 0.5]]), noise).round(3).tolist()
    [[-0.25, 2.25]]
    """
    check_shape(records, examination)
    weights = inverse(np.maximum(examination * (given.relevant - given.other), given.floor), given.clip)
    return np.where(displayed(records), weights * (records.log.clicks - examination * given.other), 0.0)
