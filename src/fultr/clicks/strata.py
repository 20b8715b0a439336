"""Exact comparisons within strata: is a click more likely where a score is higher, among exchangeable impressions?

A stratum is a set of impressions in which, under the model to be checked, every click has the same probability: the
same document of a query at the same rank, say. Whatever that probability is, the clicks of a stratum are exchangeable,
so the mean and the variance of a sum over them are those of all permutations (Mantel and Haenszel 1959). Nothing about
relevance or examination has to be estimated, and small strata do no harm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc, gammaincc

from fultr.clicks.impressions import summed
from fultr.core.arrays import Bools, Float64s, Int64s

_SYMMETRIC = 1e-3  # skewness below which the normal distribution will do


@dataclass(frozen=True)
class Deviation:
    """A sum minus its mean over all permutations within strata, and their variance and third central moment.

    They add over separate strata.
    """

    sum: float
    variance: float
    third: float

    def __add__(self, other: Deviation) -> Deviation:
        return Deviation(self.sum + other.sum, self.variance + other.variance, self.third + other.third)

    @property
    def z(self) -> float:
        """In standard deviations; 0 if nothing varies."""
        return self.sum / self.variance**0.5 if self.variance > 0 else 0.0

    @property
    def chance(self) -> float:
        """Probability of a sum as far off, on either side, by the gamma distribution with the same three moments.

        Where clicks are rare, or few impressions have a score of their own, a normal distribution has too thin a tail.
        """
        skewness = self.third / self.variance**1.5 if self.variance > 0 else 0.0
        if abs(skewness) < _SYMMETRIC:
            return math.erfc(abs(self.z) / 2**0.5)
        shape = 4 / skewness**2
        at = max(shape + math.copysign(self.z, self.z * skewness) * shape**0.5, 0.0)
        return min(2 * float(min(gammainc(shape, at), gammaincc(shape, at))), 1.0)


def deviation(strata: Int64s, clicks: Float64s, scores: Float64s) -> Deviation:
    """How far clicks go with scores within strata.

    Args:
        strata: of each impression, from 0.
        clicks: of each impression, 0 or 1.
        scores: of each impression; they must not depend on the clicks under the model to be checked.

    >>> deviation(np.array([0, 0, 0, 1]), np.array([1.0, 0, 0, 1]), np.array([3.0, 0, 0, 9]))  # 3 - 1, of 3, 0, 0
    Deviation(sum=2.0, variance=2.0, third=2.0)
    """
    size = int(strata.max(initial=-1)) + 1
    n = summed(np.ones(strata.size), strata, size)
    centred = scores - (summed(scores, strata, size) / np.maximum(n, 1))[strata]
    squares, spread = summed(scores**2, strata, size), summed(centred**2, strata, size)
    varied = (n > 1) & (spread > 1e-9 * squares)  # not equal but for rounding
    clicked, off = summed(clicks, strata, size), summed(clicks * centred, strata, size)
    cubes, n, c = summed(centred**3, strata, size)[varied], n[varied], clicked[varied]
    variance = c * (n - c) / (n * (n - 1))
    third = np.where(n > 2, variance * (n - 2 * c) / np.maximum(n - 2, 1), 0.0)
    return Deviation(float(off[varied].sum()), float((variance * spread[varied]).sum()), float((third * cubes).sum()))


@dataclass(frozen=True)
class Contrast:
    """Clicks of two groups of impressions, weighed so that both have the same strata. They add over separate strata.

    Attributes:
        first: weighted clicks of the first group.
        second: of the second.
        variance: of first - second if both are equally likely to be clicked.
    """

    first: float
    second: float
    variance: float

    def __add__(self, other: Contrast) -> Contrast:
        return Contrast(self.first + other.first, self.second + other.second, self.variance + other.variance)

    @property
    def ratio(self) -> float | None:
        """How much likelier a click is in the first group; None if no stratum with clicks has both."""
        return self.first / self.second if self.second > 0 else None

    @property
    def error(self) -> float | None:
        """Standard error of the ratio's logarithm, near a ratio of 1; None if no stratum with clicks has both."""
        mean = (self.first + self.second) / 2
        return self.variance**0.5 / mean if mean > 0 else None

    @property
    def z(self) -> float:
        """The difference in standard deviations; 0 if nothing varies."""
        return (self.first - self.second) / self.variance**0.5 if self.variance > 0 else 0.0


def contrast(strata: Int64s, clicks: Float64s, first: Bools, second: Bools) -> Contrast:
    """Compare the clicks of two groups within strata, by the weights of Mantel and Haenszel.

    >>> both = contrast(np.zeros(4, int), np.array([1.0, 1, 1, 0]), np.arange(4) < 2, np.arange(4) >= 2)
    >>> both.ratio, round(both.variance, 6)  # 2 of 2 against 1 of 2; 3 of 4 clicked: variance 3 x 1 x 2 x 2 / (4^2 x 3)
    (2.0, 0.25)
    """
    size = int(strata.max(initial=-1)) + 1
    n_1, n_2 = summed(first.astype(np.float64), strata, size), summed(second.astype(np.float64), strata, size)
    c_1, c_2 = summed(clicks * first, strata, size), summed(clicks * second, strata, size)
    both = (n_1 > 0) & (n_2 > 0)
    n_1, n_2, c_1, c_2 = n_1[both], n_2[both], c_1[both], c_2[both]
    n, clicked = n_1 + n_2, c_1 + c_2
    variance = clicked * (n - clicked) * n_1 * n_2 / (n * n * (n - 1))
    return Contrast(float((c_1 * n_2 / n).sum()), float((c_2 * n_1 / n).sum()), float(variance.sum()))
