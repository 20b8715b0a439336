"""Self-normalised credit: each client's clicks are worth 1 on average, whatever its propensities.

Where a few clients divide by small numbers, their updates drown those of all others. Here a client's clicks have the
same total worth as without correction, shared out among them in proportion to 1 / p (Swaminathan and Joachims 2015b).
"""

from __future__ import annotations

import numpy as np

from fultr.clicks.log import Records
from fultr.core.arrays import Float64s
from fultr.federated.credit.given import Given
from fultr.federated.credit.ips import credit as ips


def credit(records: Records, examination: Float64s, given: Given) -> Float64s:
    """C / p, at most the clip, over the client's mean of that over its clicks.

    A client's means are in proportion to the probabilities of a click if examined, the better the more clicks it has:
    the estimate is consistent, and biased.

    >>> from fultr.clicks.log import ClickLog, Display
    >>> log = ClickLog(np.int32([0, 0]), np.uint8([[0, 1], [1, 0]]), np.array([0, 2]))
    >>> display = Display(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array([[0, 1]]), np.array([[0, 1]]))
    >>> credit(Records(log, display), np.array([[1.0, 0.25], [1.0, 0.25]]), Given()).tolist()
    [[0.0, 1.6], [0.4, 0.0]]
    """
    worth, log = ips(records, examination, given), records.log
    factors = np.ones(log.clients)
    for u in range(log.clients):  # each by itself, so that its factor does not depend on the clients beside it
        total = worth[log.offsets[u] : log.offsets[u + 1]].sum()
        if total > 0:
            factors[u] = log.clicks[log.offsets[u] : log.offsets[u + 1]].sum() / total
    return worth * np.repeat(factors, np.diff(log.offsets))[:, np.newaxis]
