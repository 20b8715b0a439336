"""No correction: a click is worth 1, whatever its propensity, as in the FedAvg baseline."""

from __future__ import annotations

import numpy as np

from fultr.clicks.log import Records
from fultr.core.arrays import Float64s
from fultr.federated.credit.given import Given


def credit(records: Records, examination: Float64s, given: Given) -> Float64s:
    """C."""
    return np.minimum(records.log.clicks, given.clip).astype(np.float64)
