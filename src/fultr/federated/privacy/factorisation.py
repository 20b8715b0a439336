"""Noise that is correlated over rounds: the square root of the matrix of running sums, cut to a band.

What is released are sums S_t of rounds, and what is learnt from them are mostly running sums. Release instead
y = C S + noise, with C lower triangular and Toeplitz, and take C^-1 y for the sums: the noise of a round then takes
back part of the earlier rounds' noise. C = A^(1/2), A being the matrix of running sums (Fichtenberger, Henzinger and
Upadhyay 2023), whose entries are c_j = (2j choose j) / 4^j, is within a constant of the best; cut to as many diagonals
as rounds lie between two participations of a device, these touch different rows (Kalinin and Lampert 2024).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fultr.core.arrays import Float64s


@lru_cache(maxsize=8)
def coefficients(band: int) -> tuple[float, ...]:
    """c_0 to c_(band - 1), of the first column of C.

    >>> coefficients(3)
    (1.0, 0.5, 0.375)
    """
    found = [1.0]
    for j in range(1, band):
        found.append(found[-1] * (2 * j - 1) / (2 * j))
    return tuple(found)


def band_of(participations: int, rounds_apart: int, rounds: int) -> int:
    """The diagonals that C has: all if nobody takes part twice."""
    return rounds if participations == 1 else min(rounds_apart, rounds)


def sensitivity(participations: int, rounds_apart: int, rounds: int) -> float:
    """How far C S moves, in units of the bound, if a device is added that takes part so often, and so far apart.

    A device that takes part in rounds whose columns of C share no row moves it by vectors that are orthogonal: their
    squared norms add up. The most of it fits into the rounds if the first participation is in the first.

    >>> sensitivity(1, 1, 1), sensitivity(4, 1, 10), round(sensitivity(1, 1, 200), 3)
    (1.0, 2.0, 1.659)
    """
    column = np.array(coefficients(band_of(participations, rounds_apart, rounds))) ** 2
    squared = 0.0
    for i in range(participations):
        squared += float(column[: max(rounds - i * rounds_apart, 0)].sum())
    return math.sqrt(squared)


def released_deviation(participations: int, rounds_apart: int, rounds: int) -> float:
    """The noise's standard deviation in the sum of the last of some rounds, as a multiple of that of y.

    >>> released_deviation(1, 1, 2) == math.sqrt(1 + 0.5**2)
    True
    """
    return float(np.linalg.norm(_inverse(participations, rounds_apart, rounds)))


def summed_deviation(participations: int, rounds_apart: int, rounds: int) -> float:
    """The same of the sum of all of some rounds.

    >>> summed_deviation(1, 1, 3) == math.sqrt(1 + 0.5**2 + 0.375**2), summed_deviation(3, 1, 4)
    (True, 2.0)
    """
    return float(np.linalg.norm(np.cumsum(_inverse(participations, rounds_apart, rounds))))


def _inverse(participations: int, rounds_apart: int, rounds: int) -> Float64s:
    """The first column of C^-1."""
    band, column = coefficients(band_of(participations, rounds_apart, rounds)), np.zeros((0, 1))
    for t in range(rounds):
        column = np.concatenate([column, solved(band, column, np.array([float(t == 0)]))[np.newaxis]])
    return column[:, 0]


def mixed(band: tuple[float, ...], sums: Float64s) -> Float64s:
    """The last row of C S, of the sums so far, the latest last."""
    last: Float64s = np.zeros(sums.shape[1:])
    for j, row in enumerate(sums[::-1][: len(band)]):
        last += band[j] * row
    return last


def solved(band: tuple[float, ...], before: Float64s, last: Float64s) -> Float64s:
    """The last row of C^-1 y, from its earlier rows and the last row of y.

    >>> solved((1.0, 0.5), np.array([[2.0]]), np.array([4.0])).tolist()
    [3.0]
    """
    found = last.copy()
    for j, row in enumerate(before[::-1][: len(band) - 1], start=1):
        found -= band[j] * row
    return found
