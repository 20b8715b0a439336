"""No client counts for more than a multiple of the usual one: its update, and its sums, are scaled down to that.

What is usual is a running median: of the medians over clients of the latest rounds, so that a single round in which
adversaries are the majority does not move it. Norms are compared name by name. All that a client sends for the
estimation of examination is scaled by the same factor, which leaves ratios, such as examined to impressions, its own.
"""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Arrays, Float64s
from fultr.federated.aggregate import lower_median, norms_of, summed
from fultr.federated.privacy.stage import Sums
from fultr.federated.settings import Aggregation

_ROUNDS = 5  # whose medians are remembered


def total(settings: Aggregation, state: Arrays, rows: Sums) -> tuple[Sums, Arrays]:
    """The ordered sums of what is left of each client, and the medians of the latest rounds, by name."""
    factors, remembered = {}, dict(state)
    for name, each in rows.items():
        norms = norms_of(each)
        said = norms > 0
        if said.any():
            earlier = state.get(name, np.empty(0))
            remembered[name] = np.append(earlier, lower_median(norms[said]))[-_ROUNDS:]
        factors[name] = np.ones(len(each))
        if name in remembered:
            most = settings.clip_multiple * lower_median(remembered[name])
            np.divide(most, norms, out=factors[name], where=norms > most)
    of_estimation = [factor for name, factor in factors.items() if name != "update"]
    if of_estimation:
        shared = np.min(of_estimation, axis=0)
        factors = {name: factors[name] if name == "update" else shared for name in rows}
    return {name: summed(_scaled(each, factors[name])) for name, each in rows.items()}, remembered


def _scaled(rows: Float64s, factors: Float64s) -> Float64s:
    return rows * factors.reshape(-1, *(1,) * (rows.ndim - 1))
