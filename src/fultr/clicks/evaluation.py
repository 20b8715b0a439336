"""What a ranker would have got, from the clicks on another ranker's pages (counterfactual evaluation).

A page's documents are put in the order of the ranker to be judged. A click at rank k counts 1 / p_k, where p_k is the
examination of that rank: its mean is the document's relevance (Joachims, Swaminathan and Schnabel 2017). With trust
bias it counts (c - b_k) / p_k (Vardasbi, Oosterhuis and de Rijke 2020). A metric is the sum over documents of this
times what the metric gives to the document's new rank. Documents that a page did not display are not judged: there are
no clicks on them.

Three estimates:

- "ips": the mean over pages; unbiased if examination is right.
- "self-normalised": divided by what all clicks count: the metric per relevant document. A ratio of means, with less
  variance.
- "doubly-robust": clicks at ranks where 1 / p_k exceeds a clip count the clip; what is then missing is predicted by the
  relevance of the document on the other half of the log. Less variance than "ips", less bias than clipping alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from fultr.clicks.bootstrap import Unit, units_of, usual_unit
from fultr.clicks.impressions import ImpressionLog, summed
from fultr.core.arrays import Float64s, Int32s, Int64s
from fultr.core.checks import check_choice, check_number, check_seed
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, generator

Metric: TypeAlias = Literal["dcg", "reciprocal", "precision", "clicks", "rank"]
Estimator: TypeAlias = Literal["ips", "self-normalised", "doubly-robust"]
METRICS: tuple[Metric, ...] = get_args(Metric)
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)

LEAST_EFFECTIVE = 30  # clicks, after weighting: below, a mean's interval is not to be relied on
LEAST_UNITS = 10  # users, queries or pages that the bootstrap resamples
_SMOOTHING = 1.0  # examined impressions at the log's mean relevance that every document begins with


@dataclass(frozen=True, eq=False)
class Examined:
    """How users examine ranks: what clicks are corrected by.

    Attributes:
        examination: [K], relative to rank 1; with trust bias, how much more a relevant document is clicked.
        noise: [K], how often a document that is not relevant is clicked; None: never.
        draws: [draws, K], examination in each draw of a bootstrap over the same units and with the same seed, where it
            was estimated from the same log; None: it is known.

    >>> Examined(np.array([1.0, 0.5])).weights().tolist()
    [1.0, 2.0]
    """

    examination: Float64s
    noise: Float64s | None = None
    draws: Float64s | None = None

    def weights(self, clip: float | None = None, draw: int | None = None) -> Float64s:
        """What a click at each rank counts, [K]: 0 where nothing is examined."""
        p = self.examination if draw is None or self.draws is None else self.draws[draw]
        weights = np.divide(1.0, p, out=np.zeros(p.size), where=p > 0)
        return weights if clip is None else np.minimum(weights, clip)


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
        low, high = _interval(gaps)
        sure = self.refusal is None
        answer: Literal["yes", "no", "inconclusive"] = (
            "yes" if sure and low > 0 else "no" if sure and high < 0 else "inconclusive"
        )
        return Difference(name, than, mean, low, high, answer)


def evaluate_from_clicks(
    log: ImpressionLog,
    rankers: Mapping[str, ArrayLike],
    examined: Examined | ArrayLike,
    *,
    metric: Metric = "dcg",
    estimator: Estimator = "ips",
    cutoff: int | None = None,
    clip: float | None = None,
    over: Unit | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Estimate from a click log what rankers would have got on its pages.

    Args:
        log: the click log.
        rankers: by name, the score of each (query, document) pair of the log, [pairs]; equal scores keep their order.
        examined: examination of each rank, [K], or `Examined`.
        metric: "dcg": 1 / log2(1 + rank) for each relevant document; "reciprocal": 1 / rank; "precision": 1 / cutoff
            above it; "clicks": those that the users of this log would have made; "rank": that of relevant documents,
            the lower the better.
        estimator: see above.
        cutoff: ranks below it count nothing; None: all ranks count.
        clip: the largest weight of a click; None: for "doubly-robust" what keeps half of the clicks' number effective,
            for the others no limit.
        over: what the bootstrap resamples, see `usual_unit`.
        draws: of the bootstrap.
        seed: of the draws.

    >>> log = ImpressionLog.from_arrays([1, 2], [[7, 8], [9, 6]], [[0, 1], [1, 0]])
    >>> found = evaluate_from_clicks(log, {"swapped": [0, 1, 1, 0]}, [1.0, 0.5], metric="reciprocal")
    >>> [(value.name, value.mean) for value in found.values]  # displayed: 2 / 2 for the first page, 1 for the second
    [('displayed', 1.0), ('swapped', 1.25)]
    """
    check_choice("metric", metric, METRICS)
    check_choice("estimator", estimator, ESTIMATORS)
    check_seed(seed)
    check_number("bootstrap", draws, least=20, most=10**6, whole=True)
    if cutoff is not None:
        check_number("cutoff", cutoff, least=1, most=log.ranks, whole=True)
    if clip is not None:
        check_number("clip", clip, above=0)
    examined = examined if isinstance(examined, Examined) else Examined(np.asarray(examined, np.float64))
    _check_examined(examined, log.ranks, draws)
    if "displayed" in rankers:
        raise FultrError('rankers: "displayed" is the order that users saw; expected another name')
    noise = np.zeros(log.ranks) if examined.noise is None else examined.noise
    worth = np.where(log.shown, log.clicks - noise, 0.0)
    clicks = np.where(log.clicks, 1.0, 0.0).sum(axis=0)
    if estimator == "doubly-robust" and clip is None:
        clip = _clip_for_half(clicks, examined.weights())
    over = over or usual_unit(log)
    unit = units_of(log, over)
    units = int(unit.max()) + 1
    gains = [_gains(log, None, metric, cutoff, examined)]
    gains += [_gains(log, _scores(log, name, given), metric, cutoff, examined) for name, given in rankers.items()]
    predicted = _relevance(log, worth, examined, unit) if estimator == "doubly-robust" else None
    totals = np.stack([_by_unit(log, gain, worth, predicted, examined, unit, units) for gain in gains])
    weighed = _by_unit(log, np.ones(log.documents.shape), worth, predicted, examined, unit, units)
    pages = np.bincount(unit, minlength=units).astype(np.float64)
    divisor = weighed if estimator == "self-normalised" else np.c_[np.zeros((units, log.ranks)), pages]
    weights = np.r_[examined.weights(clip), 1.0]
    means = totals.sum(axis=1) @ weights / (divisor.sum(axis=0) @ weights)
    drawn = _draw(totals, divisor, examined, clip, draws, seed)
    names = ("displayed", *rankers)
    values = tuple(Value(n, float(m), *_interval(d)) for n, m, d in zip(names, means, drawn.T, strict=True))
    effective = _effective(clicks, weights[:-1])
    refusal = _refusal(clicks, examined, effective, units, over)
    total = int(clicks.sum())
    return Evaluation(metric, estimator, cutoff, clip, values, over, units, total, effective, refusal, means, drawn)


def _check_examined(examined: Examined, ranks: int, draws: int) -> None:
    for name, values in (("examination", examined.examination), ("noise", examined.noise)):
        if values is not None and (values.shape != (ranks,) or not np.isfinite(values).all() or values.min() < 0):
            raise FultrError(f"{name}: expected {ranks} numbers, one per rank, at least 0; found {values.tolist()}")
    if examined.draws is not None and examined.draws.shape != (draws, ranks):
        raise FultrError(f"examination: expected {draws} draws of {ranks} ranks, found {examined.draws.shape}")


def _scores(log: ImpressionLog, name: str, given: ArrayLike) -> Float64s:
    scores = np.asarray(given, np.float64)
    if scores.shape != (log.pairs,) or not np.isfinite(scores).all():
        raise FultrError(f"rankers: expected a finite score of each of the {log.pairs} pairs from {name}")
    return scores


def _gains(
    log: ImpressionLog, scores: Float64s | None, metric: Metric, cutoff: int | None, examined: Examined
) -> Float64s:
    """What the metric gives to each displayed document at its rank under a ranker, [impressions, K]; 0 for none."""
    place = np.broadcast_to(np.arange(log.ranks), log.documents.shape)
    if scores is not None:
        key = np.where(log.shown, -scores[log.documents], np.inf)
        order = np.argsort(key, axis=1, kind="stable")
        place = np.empty(order.shape, np.int64)
        np.put_along_axis(place, order, np.arange(log.ranks)[np.newaxis], axis=1)
    last = log.ranks if cutoff is None else cutoff
    rank = np.arange(1, log.ranks + 1)
    by_rank = {
        "dcg": 1 / np.log2(1 + rank),
        "reciprocal": 1 / rank,
        "precision": np.full(log.ranks, 1 / last),
        "clicks": examined.examination,
        "rank": rank.astype(np.float64),
    }[metric]
    gains: Float64s = np.where(rank <= last, by_rank, 0.0)[place] * log.shown
    return gains


def _relevance(log: ImpressionLog, worth: Float64s, examined: Examined, unit: Int32s | Int64s) -> Float64s:
    """The relevance of each displayed document as the other half of the units shows it, [impressions, K]."""
    relevance = np.zeros(log.documents.shape)
    p = np.where(log.shown, examined.examination, 0.0)
    for half in (0, 1):
        own, other = unit % 2 == half, unit % 2 != half
        shown, pairs = log.shown & other[:, np.newaxis], log.documents
        made = summed(worth[shown], pairs[shown], log.pairs)
        seen = summed(p[shown], pairs[shown], log.pairs)
        overall = made.sum() / max(seen.sum(), 1e-9)
        by_pair = (made + _SMOOTHING * overall) / (seen + _SMOOTHING)
        relevance[own] = np.where(log.shown[own], by_pair[pairs[own]], 0.0)
    return relevance


def _by_unit(
    log: ImpressionLog,
    gains: Float64s,
    worth: Float64s,
    predicted: Float64s | None,
    examined: Examined,
    unit: Int32s | Int64s,
    units: int,
) -> Float64s:
    """Sums of each unit, [units, K + 1]: what the weight of each rank is to be multiplied by, and what is added."""
    left = worth if predicted is None else worth - np.where(log.shown, examined.examination, 0.0) * predicted
    columns = [np.bincount(unit, gains[:, k] * left[:, k], units) for k in range(log.ranks)]
    fixed = np.zeros(units) if predicted is None else np.bincount(unit, (gains * predicted).sum(axis=1), units)
    return np.stack([*columns, fixed], axis=1)


def _draw(
    totals: Float64s, divisor: Float64s, examined: Examined, clip: float | None, draws: int, seed: int
) -> Float64s:
    """The metric in every draw, [draws, rankers]."""
    units = divisor.shape[0]
    found = np.empty((draws, len(totals)))
    for draw in range(draws):
        chosen = generator(seed, Purpose.BOOTSTRAP, draw).integers(units, size=units)
        times = np.bincount(chosen, minlength=units).astype(np.float64)
        weights = np.r_[examined.weights(clip, draw), 1.0]
        below = times @ divisor @ weights
        found[draw] = (times @ totals) @ weights / below if below > 0 else np.nan
    return found


def _interval(values: Float64s) -> tuple[float, float]:
    kept = values[np.isfinite(values)]
    if not kept.size:
        return float("nan"), float("nan")
    low, high = np.percentile(kept, (2.5, 97.5))
    return float(low), float(high)


def _effective(clicks: Float64s, weights: Float64s) -> float:
    squares = float((clicks * weights**2).sum())
    return float((clicks * weights).sum()) ** 2 / squares if squares else 0.0


def _clip_for_half(clicks: Float64s, weights: Float64s) -> float | None:
    """The largest clip with which the clicks count as at least half of their number; None if none is needed."""
    for clip in sorted(set(weights[clicks > 0].tolist()), reverse=True):
        if _effective(clicks, np.minimum(weights, clip)) >= clicks.sum() / 2:
            return None if clip >= weights[clicks > 0].max() else float(clip)
    return None


def _refusal(clicks: Float64s, examined: Examined, effective: float, units: int, over: Unit) -> str | None:
    """Why the log cannot tell."""
    unseen = np.flatnonzero((examined.examination <= 0) & (clicks > 0))
    if unseen.size:
        return f"Rank {unseen[0] + 1} has clicks, but its examination is 0: no weight makes up for that."
    if units < LEAST_UNITS:
        return f"There are only {units} {over} to resample: intervals would be too narrow."
    if effective < LEAST_EFFECTIVE:
        return f"After weighting, {clicks.sum():.0f} clicks count as {effective:.0f}: too few to tell."
    return None
