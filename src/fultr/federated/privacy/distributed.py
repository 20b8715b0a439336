"""Each device adds its share of the noise before anything is added up.

The shares are exact discrete Gaussians whose variances add up to that of the noise over `honest` devices; the sum of
such shares is all but a discrete Gaussian itself (Kairouz, Liu and Steinke 2021). The bound is divided into parts so
fine that a share has a deviation of 2^12 of them: the difference is then far below any delta.

The server must not see a device's vector, which has a share of the noise alone: only secure sums, of at least `honest`
devices. Devices refuse to help with one of fewer (`least_survivors`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fultr.core.arrays import Float64s
from fultr.core.errors import FultrError
from fultr.federated.privacy.discrete_gaussian import discrete_gaussian_rows
from fultr.federated.privacy.randomness import Words
from fultr.federated.privacy.settings import Privacy, noise_of
from fultr.federated.privacy.stage import Sums

SHARE = 2**12
"""Deviation of one device's share of the noise."""

_FINEST = 2**24


def scale(privacy: Privacy) -> int:
    """As many parts as make the deviation of a device's share of the noise 2^12 of them; at most 2^24."""
    return max(1, min(_FINEST, int(SHARE * math.sqrt(_honest(privacy)) / noise_of(privacy))))


def init(privacy: Privacy, size: int) -> Sums:
    """Nothing."""
    return {}


def client(privacy: Privacy, rows: Float64s, draws: Sequence[Words]) -> Float64s:
    """With their shares of the noise."""
    noise = discrete_gaussian_rows(share_variance(privacy), rows.shape[1], draws)
    return rows + noise.astype(np.float64)


def server(privacy: Privacy, state: Sums, total: Float64s, words: Words) -> tuple[Sums, Float64s]:
    """As it is: the noise is in it."""
    return state, total


def share_variance(privacy: Privacy) -> int:
    """The variance of one device's share: that of all over the number of honest devices, rounded up."""
    return math.ceil((noise_of(privacy) * scale(privacy)) ** 2 / _honest(privacy))


def least_survivors(privacy: Privacy | None) -> int:
    """Of a secure sum, whose noise falls short with fewer; 0 where devices add none.

    >>> least_survivors(Privacy("distributed", epsilon=1, honest=90)), least_survivors(None)
    (90, 0)
    """
    return _honest(privacy) if privacy is not None and privacy.mode == "distributed" else 0


def _honest(privacy: Privacy) -> int:
    if privacy.honest is None:
        raise FultrError("honest: expected how many devices of a cohort can be relied on to add their share of noise")
    return privacy.honest
