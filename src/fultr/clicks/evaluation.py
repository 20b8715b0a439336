"""What a ranker would have got, from the clicks on another ranker's pages (counterfactual evaluation).

A page's documents are put in the order of the ranker to be judged. A click at rank k counts 1 / p_k, where p_k is the
examination of that rank: its mean is the document's relevance (Joachims, Swaminathan and Schnabel 2017). With trust
bias it counts (c - b_k) / p_k (Vardasbi, Oosterhuis and de Rijke 2020). A metric is the sum over documents of this
times what the metric gives to the document's new rank. Documents that a page did not display are not judged: there are
no clicks on them. So the log cannot tell what a ranker would have got that would have shown mostly others.

Three estimates:

- "ips": the mean over pages; unbiased if examination is right.
- "self-normalised": divided by what all clicks count: the metric per relevant document. A ratio of means, with less
  variance.
- "doubly-robust": clicks at ranks where 1 / p_k exceeds a clip count the clip; what is then missing is predicted by the
  relevance of the document on the other half of the log. Less variance than "ips", less bias than clipping alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from fultr.clicks.any_log import click_log
from fultr.clicks.bootstrap import Unit, units_of, usual_unit
from fultr.clicks.evaluated import ESTIMATORS, METRICS, Estimator, Evaluation, Examined, Metric, Value, interval_of
from fultr.clicks.impressions import ImpressionLog, summed
from fultr.clicks.weights import clip_for_half, effective
from fultr.core.arrays import Bools, Float64s, Int32s, Int64s
from fultr.core.checks import check_choice, check_number, check_seed, written
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, generator

LEAST_EFFECTIVE = 30  # clicks, after weighting: below, a mean's interval is not to be relied on
MOST_UNSEEN = 0.5  # of what a ranker would have shown: above, its pages are others than those that were clicked
LEAST_UNITS = 10  # users, queries or pages that the bootstrap resamples
_SMOOTHING = 1.0  # examined impressions at the log's mean relevance that every document begins with


def evaluate_from_clicks(
    log: ImpressionLog,
    rankers: Mapping[str, ArrayLike],
    examined: Examined | ArrayLike,
    *,
    metric: Metric = "dcg",
    estimator: Estimator = "ips",
    cutoff: int | None = None,
    clip: float | None = None,
    most_unseen: float = MOST_UNSEEN,
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
        most_unseen: refuse to answer if a larger share of what a ranker would have shown was not on the page; with 1,
            the question is only how well it orders what was.
        over: what the bootstrap resamples, see `usual_unit`.
        draws: of the bootstrap.
        seed: of the draws.

    >>> log = ImpressionLog.from_arrays([1, 2], [[7, 8], [9, 6]], [[0, 1], [1, 0]])
    >>> found = evaluate_from_clicks(log, {"swapped": [0, 1, 1, 0]}, [1.0, 0.5], metric="reciprocal")
    >>> [(value.name, value.mean) for value in found.values]  # displayed: 2 / 2 for the first page, 1 for the second
    [('displayed', 1.0), ('swapped', 1.25)]
    """
    log = click_log(log)
    check_choice("metric", metric, METRICS)
    check_choice("estimator", estimator, ESTIMATORS)
    check_seed(seed)
    check_number("bootstrap", draws, least=20, most=10**6, whole=True)
    if cutoff is not None:
        check_number("cutoff", cutoff, least=1, most=log.ranks, whole=True)
    if clip is not None:
        check_number("clip", clip, above=0)
    check_number("most_unseen", most_unseen, least=0, most=1)
    examined = examined if isinstance(examined, Examined) else Examined(numbers_of("examination", examined))
    check_rankers(rankers)
    if not log.clicks.any():
        raise FultrError("click log: no document was clicked, so no ranker can be judged; collect more clicks")
    _check_examined(examined, log.ranks, draws)
    if "displayed" in rankers:
        raise FultrError('rankers: "displayed" is the order that users saw; expected another name')
    noise = np.zeros(log.ranks) if examined.noise is None else examined.noise
    worth = np.where(log.shown, log.clicks - noise, 0.0)
    clicks = np.where(log.clicks, 1.0, 0.0).sum(axis=0)
    if estimator == "doubly-robust" and clip is None:
        clip = clip_for_half(clicks, examined.weights())
    over = over or usual_unit(log)
    unit = units_of(log, over)
    units = int(unit.max()) + 1
    scores = [None, *(_scores(log, name, given) for name, given in rankers.items())]
    places = [new_places(log, each) for each in scores]
    by_rank = _by_rank(log.ranks, metric, cutoff, examined.examination)
    gains = [by_rank[place] * log.shown for place in places]
    predicted = _relevance(log, worth, examined, unit) if estimator == "doubly-robust" else None
    totals = np.stack([_by_unit(log, gain, worth, predicted, examined, unit, units) for gain in gains])
    weighed = _by_unit(log, np.ones(log.documents.shape), worth, predicted, examined, unit, units)
    pages = np.bincount(unit, minlength=units).astype(np.float64)
    divisor = weighed if estimator == "self-normalised" else np.c_[np.zeros((units, log.ranks)), pages]
    weights = np.r_[examined.weights(clip), 1.0]
    below = float(divisor.sum(axis=0) @ weights)
    means = totals.sum(axis=1) @ weights / (below if below > 0 else np.nan)
    if examined.draws is None:
        drawn = _draw(totals, divisor, weights, draws, seed)
    else:
        drawn = _draw_anew(log, places, worth, examined.draws, metric, estimator, cutoff, clip, unit, units, seed)
    names = ("displayed", *rankers)
    values = tuple(Value(n, float(m), *interval_of(d, units)) for n, m, d in zip(names, means, drawn.T, strict=True))
    counted = effective(clicks, weights[:-1])
    unseen = (0.0, *(_unseen(log, each) for each in scores[1:] if each is not None))
    refusal = _refusal(clicks, examined, counted, units, over)
    if refusal is None and max(unseen) > most_unseen:
        worst = names[int(np.argmax(unseen))]
        refusal = (
            f"{max(unseen):.0%} of what {worst} would have shown was not on the page: the log cannot tell what it "
            "would have got."
        )
    total = int(clicks.sum())
    return Evaluation(
        metric, estimator, cutoff, clip, values, over, units, total, counted, unseen, refusal, means, drawn
    )


def check_rankers(rankers: object) -> None:
    """Refuse what is not a mapping from names to scores."""
    if not isinstance(rankers, Mapping):
        raise FultrError(f"rankers: expected scores by name, such as {{'new': scores}}; found {type(rankers).__name__}")


def _check_examined(examined: Examined, ranks: int, draws: int) -> None:
    for name, values in (("examination", examined.examination), ("noise", examined.noise)):
        if values is not None and (values.shape != (ranks,) or not np.isfinite(values).all() or values.min() < 0):
            raise FultrError(f"{name}: expected {ranks} numbers, one per rank, at least 0; found {values.tolist()}")
    if examined.draws is not None and examined.draws.shape != (draws, ranks):
        raise FultrError(f"examination: expected {draws} draws of {ranks} ranks, found {examined.draws.shape}")


def numbers_of(name: str, given: ArrayLike) -> Float64s:
    """Numbers in float64; what is none is refused.

    >>> numbers_of("examination", [1, 0.5]).tolist()
    [1.0, 0.5]
    """
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise FultrError(f"{name}: expected numbers, found {written(given)}") from None


def _scores(log: ImpressionLog, name: str, given: ArrayLike) -> Float64s:
    if hasattr(given, "predict") or hasattr(given, "weights"):
        raise FultrError(
            f"rankers: expected scores from {name}, found a ranker; fultr.score_pairs(ranker, log) gives them"
        )
    scores = numbers_of(f"rankers: {name}", given)
    if scores.shape != (log.pairs,) or not np.isfinite(scores).all():
        raise FultrError(
            f"rankers: expected a finite score from {name} for each of the log's {log.pairs} pairs of a query and a "
            f"document, found shape {scores.shape}; fultr.score_pairs(ranker, log) gives them"
        )
    return scores


def new_places(log: ImpressionLog, scores: Float64s | None) -> Int64s:
    """The rank of each displayed document under a ranker, from 0, [impressions, K]."""
    place: Int64s = np.broadcast_to(np.arange(log.ranks), log.documents.shape)
    if scores is not None:
        key = np.where(log.shown, -scores[log.documents], np.inf)
        order = np.argsort(key, axis=1, kind="stable")
        place = np.empty(order.shape, np.int64)
        np.put_along_axis(place, order, np.arange(log.ranks)[np.newaxis], axis=1)
    return place


def _by_rank(ranks: int, metric: Metric, cutoff: int | None, examination: Float64s) -> Float64s:
    """What the metric gives to a relevant document at each rank, [K]."""
    last = ranks if cutoff is None else cutoff
    rank = np.arange(1, ranks + 1)
    gains = {
        "dcg": 1 / np.log2(1 + rank),
        "reciprocal": 1 / rank,
        "precision": np.full(ranks, 1 / last),
        "clicks": examination,
        "rank": rank.astype(np.float64),
    }[metric]
    return np.where(rank <= last, gains, 0.0)


def _unseen(log: ImpressionLog, scores: Float64s) -> float:
    """Of what a ranker would have shown, the share that was not on the page; of equal scores, the page's come first."""
    order = np.lexsort((-scores, log.query_of_pair))
    query, sorted_ = log.query_of_pair[order], scores[order]
    begins = np.searchsorted(query, np.arange(log.query_names.size))
    better = np.empty(log.pairs, np.int64)  # documents of the query with higher scores
    better[order] = _run_starts(np.r_[True, (np.diff(query) != 0) | (np.diff(sorted_) != 0)]) - begins[query]
    on_page = np.sort(np.where(log.shown, -scores[log.documents], np.inf), axis=1)
    other = np.c_[np.ones(len(on_page), bool), on_page[:, 1:] != on_page[:, :-1]]
    tied = np.arange(log.ranks) - _run_starts(other)  # documents of the page with the same score that are above
    place = np.sort(np.where(log.shown, better[log.documents], log.pairs), axis=1) + tied
    lengths = log.shown.sum(axis=1)
    return 1 - float((place < lengths[:, np.newaxis]).sum() / lengths.sum())


def _run_starts(begins: Bools) -> Int64s:
    """The place where each run along the last axis began, for each of its places."""
    at = np.where(begins, np.arange(begins.shape[-1]), 0)
    starts: Int64s = np.maximum.accumulate(at, axis=-1)
    return starts


def _relevance(log: ImpressionLog, worth: Float64s, examined: Examined, unit: Int32s | Int64s) -> Float64s:
    """The relevance of each displayed document as the other half of the units shows it, [impressions, K]."""
    relevance = np.zeros(log.documents.shape)
    p = np.where(log.shown, examined.examination, 0.0)
    for half in (0, 1):
        own, other = unit % 2 == half, unit % 2 != half
        shown, pairs = log.shown & other[:, np.newaxis], log.documents
        made = summed(worth[shown], pairs[shown], log.pairs)
        seen = summed(p[shown], pairs[shown], log.pairs)
        relevance[own] = np.where(log.shown[own], _smoothed(made, seen)[pairs[own]], 0.0)
    return relevance


def _smoothed(made: Float64s, seen: Float64s) -> Float64s:
    """The relevance of each pair from what its clicks count and how often it was examined."""
    overall = made.sum() / max(seen.sum(), 1e-9)
    return (made + _SMOOTHING * overall) / (seen + _SMOOTHING)


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


def _draw(totals: Float64s, divisor: Float64s, weights: Float64s, draws: int, seed: int) -> Float64s:
    """The metric in every draw, [draws, rankers], with the same weights."""
    found = np.empty((draws, len(totals)))
    for draw in range(draws):
        times = _times(seed, draw, len(divisor))
        below = times @ divisor @ weights
        found[draw] = (times @ totals) @ weights / below if below > 0 else np.nan
    return found


def _times(seed: int, draw: int, units: int) -> Float64s:
    """How often each unit is drawn, as in `fultr.clicks.bootstrap`."""
    chosen = generator(seed, Purpose.BOOTSTRAP, draw).integers(units, size=units)
    return np.bincount(chosen, minlength=units).astype(np.float64)


def _draw_anew(
    log: ImpressionLog,
    places: Sequence[Int64s],
    worth: Float64s,
    examination: Float64s,
    metric: Metric,
    estimator: Estimator,
    cutoff: int | None,
    clip: float | None,
    unit: Int32s | Int64s,
    units: int,
    seed: int,
) -> Float64s:
    """The metric in every draw, [draws, rankers], each with an examination of its own, [draws, K]."""
    robust = estimator == "doubly-robust"
    page, old = np.nonzero(log.shown if robust else worth)  # where there is nothing to count, nothing is lost
    made, pair, new = worth[page, old], log.documents[page, old], [place[page, old] for place in places]
    owner = unit[page]
    found = np.full((len(examination), len(places)), np.nan)
    for draw, p in enumerate(examination):
        times = _times(seed, draw, units)
        if np.isnan(p).any():
            continue
        each = times[owner]
        weights = Examined(p).weights(clip)
        credit = made * weights[old]
        if robust:
            predicted = np.empty(credit.size)
            for half in (0, 1):
                own, other = owner % 2 == half, owner % 2 != half
                predicted[own] = _smoothed(
                    summed((each * made)[other], pair[other], log.pairs),
                    summed((each * p[old])[other], pair[other], log.pairs),
                )[pair[own]]
            credit += (1 - p * weights)[old] * predicted
        gains = _by_rank(log.ranks, metric, cutoff, p)
        below = float(each @ credit) if estimator == "self-normalised" else float(times[unit].sum())
        found[draw] = [float(each @ (gains[at] * credit)) / below if below > 0 else np.nan for at in new]
    return found


def _refusal(clicks: Float64s, examined: Examined, counted: float, units: int, over: Unit) -> str | None:
    """Why the log cannot tell."""
    unseen = examined.never(clicks)
    if unseen:
        return f"{unseen}: no weight makes up for that."
    if units < LEAST_UNITS:
        return f"There are only {units} {over} to resample: intervals would be too narrow."
    if counted < LEAST_EFFECTIVE:
        return f"After weighting, {clicks.sum():.0f} clicks count as {counted:.0f}: too few to tell."
    return None
