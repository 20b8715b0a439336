"""How good a ranker is by clicks that it was not trained on: how high it puts what was clicked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fultr.clicks.log import Records
from fultr.core.arrays import Float32s, Float64s
from fultr.federated.aggregate import lower_median
from fultr.rankers.model import Model


def judge_order(
    model: Model, weights: Float32s, records: Records, propensities: Float64s, rival: Float32s | None = None
) -> Float64s:
    """How high a ranker puts what was clicked: sums over clicks, each with weight 1 / propensity of its rank.

    A clicked document at rank r gains 1 / log2(1 + r), so that 1 is best. Only displayed documents are ordered, those
    with equal scores as displayed.

    Returns:
        [3]: sum of weights, and of weight x gain in the ranker's order and in the displayed one; [4] with a rival, the
        last in its order.
    """
    log, display = records.log, records.display
    rankers = np.stack([weights] if rival is None else [weights, rival])
    if not log.queries.size:
        return np.zeros(2 + len(rankers))
    weight = log.clicks / propensities
    shown = display.shown[log.queries]
    scores = model.scores(rankers, display.features[:, : model.features])
    values = np.where(shown >= 0, scores.T[:, shown], -np.inf)
    ranks = np.argsort(np.argsort(-values, axis=2, kind="stable"), axis=2) + 1
    ranked = (weight / np.log2(1 + ranks)).sum(axis=(1, 2))
    displayed = (weight / np.log2(1 + np.arange(1, shown.shape[1] + 1))).sum()
    return np.array([weight.sum(), ranked[0], displayed, *ranked[1:]])


@dataclass(frozen=True)
class Judgement:
    """How high clicked documents stand: mean gain over devices' held-out clicks, and its standard error.

    Attributes:
        ranked: in the order of w_t.
        displayed: in the order in which they were displayed.
        ranked_error: standard error over devices; None with fewer than two.
        displayed_error: likewise.
        devices: with held-out clicks; of a secure sum, all that are in it.
    """

    ranked: float
    displayed: float
    ranked_error: float | None
    displayed_error: float | None
    devices: int


_HEAVIEST = 2.0  # weight of one device's clicks, as a multiple of the median device's


def _bounded(rows: Sequence[Float64s]) -> Float64s:
    """The devices' sums such that none decides: gains from 0 to the best there is, and no weight far above others."""
    told = [row for row in rows if row[0] >= 1]  # a click weighs 1 / propensity
    if not told:
        return np.zeros((0, 4))
    sums = np.array(told)
    sums[:, 1:] = np.clip(sums[:, 1:], 0, sums[:, :1])
    sums *= np.minimum(1, _HEAVIEST * lower_median(sums[:, 0]) / sums[:, :1])
    return sums


def combined(rows: Sequence[Float64s]) -> Judgement | None:
    """The ratio of all devices' sums, each device as drawn from many; None without held-out clicks.

    No device decides it: gains count from 0 to the best there is, and a device weighs at most twice as much as the
    median one.

    >>> found = combined([np.array([2.0, 1.0, 1.0]), np.array([2.0, 2.0, 1.0])])
    >>> found.ranked, found.displayed, round(found.ranked_error, 4), found.displayed_error
    (0.75, 0.5, 0.25, 0.0)
    >>> combined([np.array([1e9, 1e9, 0.0]), np.array([3.0, 0.0, 3.0]), np.array([3.0, 0.0, 3.0])]).ranked
    0.5
    """
    sums = _bounded(rows)
    if not len(sums):
        return None
    weight = sums[:, 0].sum()
    means = sums[:, 1:].sum(axis=0) / weight
    left = sums[:, 1:] - means * sums[:, :1]
    n = len(sums)
    if n == 1:
        return Judgement(float(means[0]), float(means[1]), None, None, 1)
    errors = np.sqrt((left**2).sum(axis=0) * n / (n - 1)) / weight
    return Judgement(float(means[0]), float(means[1]), float(errors[0]), float(errors[1]), n)


def of_sum(row: Float64s, devices: int) -> Judgement | None:
    """What the sum over this many devices says, of which nobody knows the parts; None without held-out clicks.

    >>> of_sum(np.array([4.0, 3.0, 2.0]), devices=2)
    Judgement(ranked=0.75, displayed=0.5, ranked_error=None, displayed_error=None, devices=2)
    """
    weight, ranked, displayed = (float(value) for value in row[:3])
    return Judgement(ranked / weight, displayed / weight, None, None, devices) if weight > 0 else None


def noised(moments: Float64s, deviation: float, devices: int) -> Judgement | None:
    """The judgement that noised sums over devices make; None if noise leaves nothing of the weight.

    Args:
        moments: [8] weight, gain in the ranker's order and in the displayed one, as shares of a bound; weight squared;
            weight x gain and gain squared, of the one and of the other.
        deviation: of the noise in each.
        devices: that the sums are expected to be of.

    >>> sums = 1000 * np.array([0.5, 0.25, 0.25, 0.25, 0.125, 0.0625, 0.125, 0.0625])  # all devices alike
    >>> found = noised(sums, deviation=5.0, devices=1000)
    >>> found.ranked, round(found.ranked_error, 4) == round(5 * (1 + 0.5**2) ** 0.5 / 500, 4)
    (0.5, True)
    """
    weight, *gains = moments[:3]
    if weight < 2 * deviation:
        return None
    means, errors = [], []
    for gain, product, squared in zip(gains, moments[4::2], moments[5::2], strict=True):
        mean = min(max(float(gain / weight), 0.0), 1.0)
        spread = max(float(squared - 2 * mean * product + mean**2 * moments[3]), 0.0)  # of devices about the mean
        means.append(mean)
        errors.append(float(np.sqrt(spread + deviation**2 * (1 + mean**2)) / weight))
    return Judgement(means[0], means[1], errors[0], errors[1], devices)


@dataclass(frozen=True)
class Comparison:
    """How much higher a candidate puts clicked documents than the stable version, on the same held-out clicks.

    Attributes:
        difference: mean gain in the candidate's order minus that in the stable version's.
        error: its standard error over devices.
        low: lower end of its 95% interval.
        high: upper end.
        devices: with held-out clicks.
        steady: is the verdict the same whichever device is left out? One that lies could not have decided it then.
    """

    difference: float
    error: float
    low: float
    high: float
    devices: int
    steady: bool = False

    def __str__(self) -> str:
        return f"{self.difference:+.4f} (95% interval {self.low:+.4f} to {self.high:+.4f}, {self.devices} devices)"


def compared(rows: Sequence[Float64s]) -> Comparison | None:
    """The ratio of all devices' sums, each device as drawn from many; None with fewer than three.

    A device that has much of the weight pulls the ratio towards itself, which makes its residual too small. So each
    squared residual is divided by 1 minus the device's share of the weight, and the degrees of freedom of Student's t
    are those of that sum: n - 1 for equal weights, fewer for unequal ones (Bell and McCaffrey, 2002, where the variance
    of a device's mean gain is taken as inverse to its weight).

    Args:
        rows: [4] for each device: sum of click weights, and of weight x gain in the candidate's order, in the displayed
            one and in the stable version's.

    >>> print(compared([np.array([2.0, 1.0, 1.0, stable]) for stable in (1.5, 1.1, 1.3)]))
    -0.1500 (95% interval -0.3984 to +0.0984, 3 devices)
    """
    sums = np.array([row for row in rows if row[0] > 0]).reshape(-1, 4)
    found = _compared(sums)
    if found is None or verdict(found) == "inconclusive":
        return found
    without = (_compared(np.delete(sums, i, axis=0)) for i in range(len(sums)))
    return replace(found, steady=all(verdict(other) == verdict(found) for other in without))


def _compared(sums: Float64s) -> Comparison | None:
    from scipy.special import stdtrit

    n = len(sums)
    if n < 3:
        return None
    total = sums[:, 0].sum()
    shares, gained = sums[:, 0] / total, sums[:, 1] - sums[:, 3]
    difference = float(gained.sum() / total)
    residuals = gained / total - difference * shares
    others = np.maximum(1 - shares, 1e-12)
    error = float(np.sqrt((residuals**2 / others).sum()))
    leverage = shares**2 / others
    pairs = 2 * (leverage[1:] * np.cumsum(leverage)[:-1]).sum()  # a sum of products: a difference would cancel
    reach = float(stdtrit(1 / ((shares**2).sum() + pairs), 0.975)) * error
    return Comparison(difference, error, difference - reach, difference + reach, n)


def verdict(comparison: Comparison | None) -> str:
    """What a comparison says of the candidate: "better" or "worse" if the whole interval is on one side of zero.

    >>> verdict(Comparison(-0.1, 0.01, -0.12, -0.08, 9)), verdict(Comparison(-0.1, 0.1, -0.3, 0.1, 9)), verdict(None)
    ('worse', 'inconclusive', 'inconclusive')
    """
    if comparison is None or comparison.low <= 0 <= comparison.high:
        return "inconclusive"
    return "better" if comparison.low > 0 else "worse"
