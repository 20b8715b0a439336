"""The server adds independent noise to the sum of each round: an exact discrete Gaussian."""

from __future__ import annotations

from collections.abc import Sequence

from fultr.core.arrays import Float64s
from fultr.federated.privacy.discrete_gaussian import discrete_gaussian
from fultr.federated.privacy.randomness import Words
from fultr.federated.privacy.settings import Privacy, noise_of
from fultr.federated.privacy.stage import Sums

_SCALE = 2**24


def scale(privacy: Privacy) -> int:
    """So fine that rounding to it changes nothing, and sums are exact in float64 up to 2^29 devices."""
    return _SCALE


def init(privacy: Privacy, size: int) -> Sums:
    """Nothing."""
    return {}


def client(privacy: Privacy, rows: Float64s, draws: Sequence[Words]) -> Float64s:
    """As they are."""
    return rows


def server(privacy: Privacy, state: Sums, total: Float64s, words: Words) -> tuple[Sums, Float64s]:
    """The sum, with noise of `noise_multiplier` times the bound."""
    deviation = noise_of(privacy) * _SCALE
    return state, total + discrete_gaussian(max(round(deviation**2), 1), total.size, words)
