"""No client counts for more than a multiple of the usual one, and one far beyond that for next to nothing.

What is usual is a running median: of the medians over clients of the latest rounds, so that a single round in which
adversaries are the majority does not move it. Norms are compared name by name.

An update of norm n beyond the limit L is scaled to L * L / n: the further beyond, the less it counts, as in
redescending M-estimators (Hampel 1974). Scaled to L itself, an adversary that sends too much would always have a
client's full weight. What a client sends for the estimation of examination is scaled to the limit, since those who
search much have much to tell; all of it by the same factor, which leaves ratios, such as examined to impressions, the
client's own.

Of a secure sum nobody sees the parts. There the mean over its clients is compared with the usual one, by the same rule
with a multiple of its own: a round that is far out of line is not what training follows. It does not bound what one
client moves within that, and clients that lie in every round are usual after a few of them.
"""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Arrays, Float64s
from fultr.federated.aggregate import lower_median, norms_of, summed
from fultr.federated.combining import Aggregation
from fultr.federated.privacy.stage import Sums

_ROUNDS = 5  # whose medians are remembered


def total(settings: Aggregation, state: Arrays, rows: Sums) -> tuple[Sums, Arrays]:
    """The ordered sums of what is left of each client, and the medians of the latest rounds, by name."""
    norms = {name: norms_of(each) for name, each in rows.items()}
    factors, remembered = _factors(settings.clip_multiple, state, norms)
    return {name: summed(_scaled(each, factors[name])) for name, each in rows.items()}, remembered


def of_sum(settings: Aggregation, state: Arrays, total: Sums, clients: float) -> tuple[Sums, Arrays]:
    """What is left of a sum whose mean over this many clients is longer than usual."""
    norms = {name: norms_of(array[np.newaxis]) / clients for name, array in total.items()}
    factors, remembered = _factors(settings.step_multiple, state, norms)
    return {name: array * factors[name][0] for name, array in total.items()}, remembered


def _factors(multiple: float, state: Arrays, norms: Sums) -> tuple[Sums, Arrays]:
    """What rows of some norms are multiplied by, and the medians of the latest rounds, by name."""
    remembered = dict(state)
    of_update = np.ones(len(norms["update"]))
    of_estimation = np.ones_like(of_update)
    for name, lengths in norms.items():
        if (lengths > 0).any():
            latest = lower_median(lengths[lengths > 0])
            remembered[name] = np.append(state.get(name, np.empty(0)), latest)[-_ROUNDS:]
        if name in remembered:
            most = multiple * lower_median(remembered[name])
            factors = np.divide(most, lengths, out=np.ones_like(lengths), where=lengths > most)
            if name == "update":
                of_update = factors**2
            else:
                of_estimation = np.minimum(of_estimation, factors)
    return {name: of_update if name == "update" else of_estimation for name in norms}, remembered


def _scaled(rows: Float64s, factors: Float64s) -> Float64s:
    return rows * factors.reshape(-1, *(1,) * (rows.ndim - 1))
