"""No correction: a click is worth 1, whatever its propensity, as in the FedAvg baseline."""

from __future__ import annotations

import numpy as np

from fultr.clicks.log import Records
from fultr.core.arrays import Float32s, Float64s


def credit(records: Records, examination: Float64s, relevance: Float32s | None = None) -> Float64s:
    """C."""
    return records.log.clicks.astype(np.float64)
