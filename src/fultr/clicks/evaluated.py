"""What an evaluation from clicks finds: values of rankers, their differences, and how sure they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from scipy.special import ndtr, stdtrit

from fultr.clicks.bootstrap import Unit
from fultr.core.arrays import Float64s
from fultr.core.checks import check_choice

Metric: TypeAlias = Literal["dcg", "reciprocal", "precision", "clicks", "rank"]
Estimator: TypeAlias = Literal["ips", "self-normalised", "doubly-robust"]
METRICS: tuple[Metric, ...] = get_args(Metric)
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


@dataclass(frozen=True, eq=False)
class Examined:
    """How users examine ranks: what clicks are corrected by.

    Attributes:
        examination: [K], relative to rank 1; with trust bias, how much more a relevant document is clicked.
        noise: [K], how often a document that is not relevant is clicked; None: never.
        draws: [draws, K], examination in each draw of a bootstrap over the same units and with the same seed, where it
            was estimated from the same log, NaN where that failed; None: it is known.

    >>> Examined(np.array([1.0, 0.5])).weights().tolist()
    [1.0, 2.0]
    """

    examination: Float64s
    noise: Float64s | None = None
    draws: Float64s | None = None

    def __post_init__(self) -> None:
        for name in ("examination", "noise", "draws"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, np.asarray(value, np.float64))

    def weights(self, clip: float | None = None) -> Float64s:
        """What a click at each rank counts, [K]: 0 where nothing is examined."""
        p = self.examination
        weights = np.divide(1.0, p, out=np.zeros(p.size), where=p > 0)
        return weights if clip is None else np.minimum(weights, clip)

    def never(self, clicks: Float64s) -> str | None:
        """The first rank that has clicks, [K], though nothing is examined there, in words.

        >>> Examined(np.array([1.0, 0.0])).never(np.array([3.0, 2.0]))
        'Rank 2 has clicks, but its examination is 0'
        """
        ranks = np.flatnonzero((self.examination <= 0) & (clicks > 0))
        return f"Rank {ranks[0] + 1} has clicks, but its examination is 0" if ranks.size else None


@dataclass(frozen=True)
class Value:
    """What a ranker would have got.

    Attributes:
        name: of the ranker.
        mean: of the metric.
        low: lower end of its 95% interval.
        high: upper end.
    """

    name: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """Is one ranker better than another? Paired: both are judged on the same pages in every draw.

    Attributes:
        better: the ranker that is asked about.
        than: the other.
        mean: by how much; positive if it is better.
        low: lower end of the 95% interval.
        high: upper end.
        answer: "yes" if the interval is above 0, "no" if below, else "inconclusive".
    """

    better: str
    than: str
    mean: float
    low: float
    high: float
    answer: Literal["yes", "no", "inconclusive"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What some rankers would have got on the pages of a log.

    Attributes:
        metric: what was estimated.
        estimator: how.
        cutoff: ranks that count; None: all.
        clip: the largest weight; None: no limit.
        values: of each ranker, and "displayed", the order that users saw.
        over: what the bootstrap resampled.
        units: how many of them there are.
        clicks: how many there are.
        effective: how many clicks of equal weight would tell as much.
        unseen: of what each ranker would have shown, of all documents that the log has for the query, the share that
            was not on the page; 0 for "displayed".
        refusal: why the log cannot tell; None if it can.
        means: [rankers], as `values`.
        draws: [draws, rankers], likewise.
    """

    metric: Metric
    estimator: Estimator
    cutoff: int | None
    clip: float | None
    values: tuple[Value, ...]
    over: Unit
    units: int
    clicks: int
    effective: float
    unseen: tuple[float, ...]
    refusal: str | None
    means: Float64s
    draws: Float64s

    def better(self, name: str, than: str = "displayed") -> Difference:
        """Is one ranker better than another?"""
        names = [value.name for value in self.values]
        for one in (name, than):
            check_choice("ranker", one, names)
        sign = -1.0 if self.metric == "rank" else 1.0
        a, b = names.index(name), names.index(than)
        gaps = sign * (self.draws[:, a] - self.draws[:, b])
        mean = sign * float(self.means[a] - self.means[b])
        low, high = interval_of(gaps, self.units)
        sure = self.refusal is None
        answer: Literal["yes", "no", "inconclusive"] = (
            "yes" if sure and low > 0 else "no" if sure and high < 0 else "inconclusive"
        )
        return Difference(name, than, mean, low, high, answer)


def interval_of(values: Float64s, units: int) -> tuple[float, float]:
    """The 95% interval of a number from its draws; NaN draws do not count.

    Draws of few units vary too little: percentiles are further out, as far as Student's t distribution and an unbiased
    variance are (Hesterberg 2015, "What teachers should know about the bootstrap", 5.3, expanded percentiles).

    >>> low, high = interval_of(np.arange(1001.0), 10)
    >>> round(low), round(high)
    (9, 991)
    """
    kept = values[np.isfinite(values)]
    if not kept.size or units < 2:
        return float("nan"), float("nan")
    outside = 100 * float(ndtr(stdtrit(units - 1, 0.025) * math.sqrt(units / (units - 1))))
    low, high = np.percentile(kept, (outside, 100 - outside))
    return float(low), float(high)
