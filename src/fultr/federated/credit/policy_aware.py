"""Policy-aware credit: several versions of the ranker make impressions, and each shows a document at a rank of its own.

A document that few versions show, or show where few look, has fewer chances of a click than its rank in one impression
says; it gets as much credit as if all had shown it at rank 1 (Oosterhuis and de Rijke 2020, Eq. 12).
"""

from __future__ import annotations

import numpy as np

from fultr.clicks.log import Records
from fultr.core.arrays import Float64s
from fultr.federated.credit.given import Given, check_shape, inverse


def credit(records: Records, examination: Float64s, given: Given) -> Float64s:
    """C / (mean over versions of the examination of the rank at which each has the document, 0 where it has it not).

    Versions are in use with equal shares. Summed over an impression's ranks, its mean is, for every document that any
    version displays, the probability of a click if it is examined; that of IPS is less, by the share of versions that
    display it. With a single version the two are the same.

    >>> from fultr.clicks.log import ClickLog, Display
    >>> documents = np.array([[0, 1], [1, 2]])  # of one query: the first version, and the second
    >>> display = Display.of_rows(np.zeros((3, 1), np.float32), documents, versions=2)
    >>> log = ClickLog(np.int32([0, 1]), np.uint8([[1, 1], [0, 1]]), np.array([0, 2]))
    >>> credit(Records(log, display), np.array([[1.0, 0.5], [1.0, 0.5]]), Given()).round(3).tolist()
    [[2.0, 1.333], [0.0, 4.0]]
    """
    check_shape(records, examination)
    ranks = records.display.other_ranks[records.log.queries]
    impressions = np.arange(len(ranks))[:, np.newaxis, np.newaxis]
    there = ranks >= 0
    shown = np.where(there, examination[impressions, np.where(there, ranks, 0)], 0.0)
    own = np.where(there.any(axis=2), shown.mean(axis=2), examination)
    return inverse(own, given.clip) * records.log.clicks
