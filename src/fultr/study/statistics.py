"""Estimates from repeats: means with standard errors, ratios, fluctuations, and the rounds at which curves meet."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import stdtr, stdtrit

from fultr.core.arrays import Float64s, Int64s
from fultr.core.errors import FultrError

_NAN = float("nan")
_ROUNDING = 1e-12  # differences of NDCGs below this are rounding errors, which must not decide anything


@dataclass(frozen=True, eq=False)
class Measured:
    """The curves of one line: NDCG@k after `rounds` in every repeat.

    Attributes:
        rounds: where the curves were measured, ascending; a constant level (λLinear) has one point, round 0.
        ndcg: [repeats, points].
        shown: [repeats, points - 1] NDCG@k of what users were shown in the rounds that led to the points after the
            first, minus that of what the first logging policy shows for the same impressions; None: nothing was shown.
        repeats: the numbers of the repeats; None: from 0.

    >>> Measured(np.array([0, 10]), np.array([[0.4, 0.5], [0.4, 0.6]])).final.tolist()
    [0.5, 0.6]
    """

    rounds: Int64s
    ndcg: Float64s
    shown: Float64s | None = None
    repeats: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.rounds.ndim != 1 or not self.rounds.size or np.any(np.diff(self.rounds) <= 0) or self.rounds[0] < 0:
            raise FultrError(f"rounds: expected ascending numbers from 0, found {str(self.rounds)[:40]}")
        if self.ndcg.ndim != 2 or not len(self.ndcg) or self.ndcg.shape[1] != self.rounds.size:
            raise FultrError(f"ndcg: expected one or more repeats of {self.rounds.size}, found shape {self.ndcg.shape}")
        if not np.isfinite(self.ndcg).all():
            raise FultrError("ndcg: expected finite numbers, found NaN or infinity")
        if self.shown is not None and self.shown.shape != self.ndcg[:, 1:].shape:
            raise FultrError(f"shown: expected shape {self.ndcg[:, 1:].shape}, found {self.shown.shape}")
        if self.repeats is not None and len(self.repeats) != len(self.ndcg):
            raise FultrError(f"repeats: expected {len(self.ndcg)} numbers, found {len(self.repeats)}")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the repeats."""
        return tuple(range(len(self.ndcg))) if self.repeats is None else self.repeats

    def only(self, numbers: Iterable[int]) -> Measured:
        """The same line in some of its repeats.

        >>> line = Measured(np.array([0]), np.array([[0.4], [0.5], [0.6]]), repeats=(0, 3, 4))
        >>> line.only([3, 4]).final.tolist()
        [0.5, 0.6]
        """
        wanted = tuple(numbers)
        if wanted == self.numbers:
            return self
        rows = [self.numbers.index(number) for number in wanted]
        return Measured(self.rounds, self.ndcg[rows], None if self.shown is None else self.shown[rows], wanted)

    @property
    def final(self) -> Float64s:
        """NDCG@k after the last round, [repeats]."""
        return self.ndcg[:, -1]

    def at(self, t: float) -> Float64s:
        """NDCG@k after round t, [repeats], on straight lines between measured points."""
        return np.array([np.interp(t, self.rounds, curve) for curve in self.ndcg])


@dataclass(frozen=True)
class Estimate:
    """A mean over repeats and its standard error (NaN if there is one repeat only).

    Attributes:
        mean: over repeats.
        standard_error: of the mean.
        repeats: how many there are.
        skewness: of the values over repeats; 0 if they are all alike.

    >>> print(estimate(np.array([0.50, 0.52, 0.54])))
    0.5200 ± 0.0115
    """

    mean: float
    standard_error: float
    repeats: int
    skewness: float = 0.0

    def __str__(self) -> str:
        error = f" ± {self.standard_error:.4f}" if math.isfinite(self.standard_error) else ""
        return f"{self.mean:.4f}{error}"

    @property
    def errors_from_zero(self) -> float:
        """The mean in units of its standard error: Student's t; of an exact mean, infinity with its sign, or 0."""
        if self.standard_error == 0:
            return math.copysign(math.inf, self.mean) if self.mean else 0.0
        return self.mean / self.standard_error

    @property
    def p_value(self) -> float:
        """How likely a mean this far from 0, either way, would be if there were no difference (Student's t test)."""
        return float(2 * stdtr(self.repeats - 1, -abs(self.errors_from_zero))) if self.repeats > 1 else _NAN

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the mean by Student's t; NaNs if there is one repeat only."""
        reach = t_quantile(self.repeats) * self.standard_error
        return self.mean - reach, self.mean + reach

    def highest(self, among: int) -> float:
        """Upper end of the interval that, with as many others of its kind, covers all of their means (Bonferroni)."""
        return self.mean + t_quantile(self.repeats, among) * self.standard_error

    @property
    def is_skewed(self) -> bool:
        """Are the values so skewed that t intervals may be far from 95%?

        Three standard deviations of the skewness of as many normal values: .6% of normal samples are beyond. Six
        values or fewer are never.

        >>> estimate(np.array([0.01] * 9 + [-0.09])).is_skewed, estimate(np.arange(10.0)).is_skewed
        (True, False)
        """
        n = self.repeats
        return n > 6 and abs(self.skewness) > 3 * math.sqrt(6 * (n - 2) / ((n + 1) * (n + 3)))


def estimate(values: Float64s) -> Estimate:
    """Mean and standard error of one number per repeat.

    >>> low, high = estimate(np.array([0.50, 0.52, 0.54])).interval
    >>> print(f"{low:.3f} to {high:.3f}")
    0.470 to 0.570
    """
    if values.size == 1:
        return Estimate(float(values[0]), _NAN, 1)
    mean = float(values.mean())
    if np.ptp(values) == 0:  # whose standard deviation may be a rounding error
        return Estimate(mean, 0.0, values.size)
    spread = float(values.std(ddof=1))
    skewness = float((((values - mean) / values.std()) ** 3).mean())
    return Estimate(mean, spread / values.size**0.5, values.size, skewness)


def t_quantile(repeats: int, among: int = 1) -> float:
    """How many standard errors a 95% interval reaches to either side; NaN for a single repeat.

    One of several intervals that cover all of their means at once, in 95% of cases, reaches further.

    >>> round(t_quantile(10), 3), round(t_quantile(10, among=50), 3)
    (2.262, 4.781)
    """
    return float(stdtrit(repeats - 1, 1 - 0.025 / among)) if repeats > 1 else _NAN


def exact(values: Float64s) -> Float64s:
    """The values without rounding errors or -0."""
    return np.round(values / _ROUNDING) * _ROUNDING + 0.0


def fieller(part: Float64s, whole: Float64s) -> tuple[float, float]:
    """The 95% interval of mean(part) / mean(whole), paired; mean(whole) must differ from 0 by its own interval.

    Fieller (1954) keeps the ratios r for which a t test does not reject that part - r whole is 0. In the distance from
    the estimate that is a quadratic inequality, whose discriminant is never negative.
    """
    mean = whole.mean()
    rest = part - part.mean() / mean * whole  # of mean 0
    (rest_rest, rest_whole), (_, whole_whole) = np.cov(rest, whole) / whole.size * t_quantile(whole.size) ** 2
    square = mean**2 - whole_whole
    root = math.sqrt(rest_whole**2 + square * rest_rest)
    low, high = exact(part.mean() / mean + np.array([-root - rest_whole, root - rest_whole]) / square)
    return float(low), float(high)


def fluctuation(rounds: Int64s, ndcg: Float64s) -> Float64s:
    """Standard deviation of a curve's noise, [repeats]: each four points in a row against the parabola nearest to them.

    A parabola leaves nothing, and a trend next to nothing if it is close to one over each four points in a row. For
    equal steps, these are third differences / sqrt(20).
    """
    apart = (fours := sliding_window_view(rounds, 4).astype(float))[:, :, None] - fours[:, None, :]
    weights = 1 / (apart / apart.max(axis=(1, 2), keepdims=True) + np.eye(4)).prod(axis=2)  # divided differences
    weights /= np.sqrt((weights**2).sum(axis=1, keepdims=True))
    off = np.einsum("rpk,pk->rp", sliding_window_view(ndcg, 4, axis=1), weights)
    return np.sqrt((off**2).mean(axis=1))


def reached(rounds: Int64s, curves: Float64s, goals: Float64s) -> Float64s:
    """When each curve first reaches its goal, on straight lines between points; infinite if it never does."""
    there = curves >= goals[:, None] - _ROUNDING
    first, rows = there.argmax(axis=1), np.arange(len(curves))
    before = np.maximum(first - 1, 0)
    rise, missing = curves[rows, first] - curves[rows, before], goals - curves[rows, before]
    part = np.divide(missing, rise, out=np.ones_like(rise), where=rise > 0).clip(0, 1)
    return np.where(there.any(axis=1), rounds[before] + part * (rounds[first] - rounds[before]), np.inf)


def arrivals(line: Measured, goals: Float64s) -> tuple[float, float, float]:
    """When the mean curve first reaches the mean goal, between the ends of its 95% interval: earliest, itself, latest.

    At the earliest arrival the curve is no longer surely short of the goal, by a paired t test; from the latest on it
    is surely beyond it at every point. Where it truly is at the goal, it seems surely short of it in 2.5% of cases: in
    all others, the earliest arrival is no later than the true one. Where it truly is short of it, it seems surely
    beyond it in 2.5% of cases, but at one of many such points more often: hence at every point. Both are infinite for
    a single repeat.

    >>> line = Measured(np.array([0, 10]), np.array([[0.4, 0.5], [0.41, 0.5], [0.39, 0.5]]))
    >>> [round(t, 2) for t in arrivals(line, line.final - 0.02)]
    [7.34, 8.0, 8.4]
    """
    over = line.ndcg - goals[:, None]
    mean, reach = over.mean(axis=0), np.full(line.rounds.size, _NAN)
    if len(over) > 1:
        reach = t_quantile(len(over)) * over.std(axis=0, ddof=1) / len(over) ** 0.5
    ends = np.array([mean + reach, mean, mean - reach])
    if (below := np.flatnonzero(ends[2] < -_ROUNDING)).size:
        ends[2, : below[-1]] = ends[2, below[-1]]  # beyond it before that was not yet to stay
    early, itself, late = reached(line.rounds, ends, np.zeros(3)).tolist()
    return early, itself, late


def expected_by_chance(claims: int) -> str:
    """How many of this many verdicts would be "holds" if none of the claims were true: each is in about 2.5% at worst.

    That is what t intervals promise of repeats that differ as normal numbers do; of very skewed ones they do not.

    >>> expected_by_chance(38), expected_by_chance(4)
    ('1', '0.1')
    """
    expected = 0.025 * claims  # one end of a 95% interval decides
    return f"{expected:.0f}" if expected >= 0.95 else f"{expected:.1g}"
