"""Clipping, as a function of credit: less variance for some bias (Swaminathan and Joachims 2015, clipped IPS)."""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Float64s


def clipped(credit: Float64s, most: float | None) -> Float64s:
    """Credit above `most` counts as this; None: no clipping, which keeps the estimate unbiased.

    >>> clipped(np.array([[0.0, 7.0]]), 5.0).tolist()
    [[0.0, 5.0]]
    """
    return credit if most is None else np.minimum(credit, most)
