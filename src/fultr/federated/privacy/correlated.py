"""The server adds noise that later rounds take back in part: see `factorisation`.

With y_t = (C S)_t rounded to whole numbers, plus an exact discrete Gaussian, everything else is computed from the y_t
alone. A device that is added moves C S by at most `sensitivity` times the bound, and rounding and float64 together
move each number by less than 2 more, for which the noise is made larger: by some .03%.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fultr.core.arrays import Float64s
from fultr.federated.privacy.discrete_gaussian import discrete_gaussian
from fultr.federated.privacy.factorisation import coefficients, mixed, solved
from fultr.federated.privacy.randomness import Words
from fultr.federated.privacy.settings import MOST_ROUNDS, Privacy, noise_of
from fultr.federated.privacy.stage import Sums

_SCALE = 2**24


def scale(privacy: Privacy) -> int:
    """As for independent noise."""
    return _SCALE


def init(privacy: Privacy, size: int) -> Sums:
    """The sums of earlier rounds that C still reaches, as they were and as they were released."""
    return {"sums": np.zeros((0, size)), "released": np.zeros((0, size))}


def client(privacy: Privacy, rows: Float64s, draws: Sequence[Words]) -> Float64s:
    """As they are."""
    return rows


def server(privacy: Privacy, state: Sums, total: Float64s, words: Words) -> tuple[Sums, Float64s]:
    """The sum, with the noise of this round and what is taken back of that of earlier ones."""
    sums = np.concatenate([state["sums"], total[np.newaxis]])
    reach = len(sums) if privacy.participations == 1 else privacy.rounds_apart
    band = coefficients(reach)
    deviation = noise_of(privacy) * (_SCALE + 2 * math.sqrt(total.size * MOST_ROUNDS))
    last: Float64s = np.rint(mixed(band, sums))
    last += discrete_gaussian(max(round(deviation**2), 1), total.size, words)
    found = solved(band, state["released"], last)
    released = np.concatenate([state["released"], found[np.newaxis]])
    if privacy.participations > 1:
        kept = len(released) - min(len(released), reach - 1)
        sums, released = sums[kept:], released[kept:]
    return {"sums": sums, "released": released}, found
