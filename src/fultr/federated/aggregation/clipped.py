"""No client counts for more than a multiple of the usual one, and one far beyond that for next to nothing.

What is usual is a running median: of the medians over clients of the latest rounds, so that a single round in which
adversaries are the majority does not move it. Norms are compared name by name.

An update of norm n beyond the limit L is scaled to L * L / n: the further beyond, the less it counts, as in
redescending M-estimators (Hampel 1974). Scaled to L itself, an adversary that sends too much would always have a
client's full weight. What a client sends for the estimation of examination is scaled to the limit, since those who
search much have much to tell; all of it by the same factor, which leaves ratios, such as examined to impressions, the
client's own.
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
    remembered = dict(state)
    scaling = {"update": np.ones(len(rows["update"]))}
    of_estimation = np.ones_like(scaling["update"])
    for name, each in rows.items():
        norms = norms_of(each)
        if (norms > 0).any():
            latest = lower_median(norms[norms > 0])
            remembered[name] = np.append(state.get(name, np.empty(0)), latest)[-_ROUNDS:]
        if name in remembered:
            most = settings.clip_multiple * lower_median(remembered[name])
            factors = np.divide(most, norms, out=np.ones_like(norms), where=norms > most)
            if name == "update":
                scaling[name] = factors**2
            else:
                of_estimation = np.minimum(of_estimation, factors)
    return {name: summed(_scaled(each, scaling.get(name, of_estimation))) for name, each in rows.items()}, remembered


def _scaled(rows: Float64s, factors: Float64s) -> Float64s:
    return rows * factors.reshape(-1, *(1,) * (rows.ndim - 1))
