"""How well estimated examination predicts the clicks in another log, compared with two models that need none.

Every model gives each displayed document of the other log a probability of a click:

- "rank": the click rate of its rank.
- "document": the click rate of the (query, document) pair.
- a position-based model: examination of its rank x relevance of the pair, which is its clicks over the sum of the
  examination of its impressions.

Rates are smoothed: a pair's with `smoothing` extra impressions at its query's rate, a query's with as many at the rate
of the whole log. So a pair that is not in the log gets its query's rate, and a pair of an unknown query the log's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fultr.clicks.impressions import ImpressionLog, summed
from fultr.core.arrays import Float64s
from fultr.core.checks import check_number
from fultr.core.errors import FultrError

_LEAST = 1e-6  # no click counts as impossible or certain


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model predicts for a held-out log.

    Attributes:
        name: of the model.
        by_impression: [impressions] log-likelihood of each page's clicks, natural logarithm.
        perplexity: [K] at each rank, 2 to the mean of -log2 of the probability of what happened: 1 is certainty, 2 a
            coin toss; 1 for a rank without documents.
    """

    name: str
    by_impression: Float64s
    perplexity: Float64s

    @property
    def log_likelihood(self) -> float:
        """Mean log-likelihood of a page."""
        return float(self.by_impression.mean())


@dataclass(frozen=True)
class Gain:
    """By how much one model predicts a page better than another: mean difference of log-likelihoods.

    Attributes:
        mean: over pages.
        by_page: its standard error if pages are independent.
        by_query: its standard error if only queries are (each query's pages are taken together).
    """

    mean: float
    by_page: float
    by_query: float


def predict(
    log: ImpressionLog,
    held_out: ImpressionLog,
    examination: Mapping[str, Float64s],
    *,
    smoothing: float = 1.0,
) -> dict[str, Prediction]:
    """Predict a held-out log with "rank", "document", and a position-based model for each examination given.

    Args:
        log: the log that rates are taken from.
        held_out: the log to predict.
        examination: [K], for each model's name.
        smoothing: see above.

    >>> log = ImpressionLog.from_arrays([1, 1], [[7, 8], [8, 7]], [[1, 0], [0, 0]])
    >>> found = predict(log, log, {"position-based": np.array([1.0, 0.5])})
    >>> {name: round(one.log_likelihood, 3) for name, one in found.items()}
    {'rank': -0.794, 'document': -0.794, 'position-based': -0.575}
    """
    check_number("smoothing", smoothing, above=0)
    if held_out.ranks > log.ranks:
        raise FultrError(
            f"held-out log: has pages of {held_out.ranks} documents, the log only of {log.ranks}: nothing is known "
            f"about rank {log.ranks + 1}"
        )
    shown, clicked = log.cells().by_rank()
    overall = clicked.sum() / shown.sum()
    rates = (clicked + smoothing * overall) / (shown + smoothing)
    size = held_out.ranks
    chances = {"rank": np.broadcast_to(rates[:size], held_out.documents.shape)}
    for name, p in {"document": np.ones(log.ranks), **examination}.items():
        if p.shape != (log.ranks,):
            raise FultrError(f"examination {name!r}: expected {log.ranks} numbers, one per rank; found {p.size}")
        chances[name] = p[:size] * _relevance(log, held_out, p, smoothing)
    return {name: _judged(name, held_out, chance) for name, chance in chances.items()}


def _relevance(log: ImpressionLog, held_out: ImpressionLog, p: Float64s, smoothing: float) -> Float64s:
    """Relevance of each displayed document of the held-out log, [impressions, K]: clicks over examined impressions."""
    cells = log.cells()
    examined = cells.sum_by_pair(cells.impressions * p[cells.rank])
    clicks = cells.by_pair()[1]
    query_examined = summed(examined, log.query_of_pair, log.query_names.size)
    query_clicks = summed(clicks, log.query_of_pair, log.query_names.size)
    overall = clicks.sum() / max(examined.sum(), 1.0)
    by_query = (query_clicks + smoothing * overall) / (query_examined + smoothing)
    by_pair = (clicks + smoothing * by_query[log.query_of_pair]) / (examined + smoothing)
    query_in, pair_in = held_out.numbers_in(log)
    fallback = np.where(query_in >= 0, by_query[query_in], overall)[held_out.queries]
    pair = np.where(held_out.shown, pair_in[held_out.documents], -1)
    return np.where(pair >= 0, by_pair[pair], fallback[:, np.newaxis])


def _judged(name: str, log: ImpressionLog, chance: Float64s) -> Prediction:
    chance = np.clip(chance, _LEAST, 1 - _LEAST)
    entries = np.where(log.shown, np.where(log.clicks == 1, np.log(chance), np.log1p(-chance)), 0.0)
    shown = log.shown.sum(axis=0)
    return Prediction(name, entries.sum(axis=1), np.exp(-entries.sum(axis=0) / np.maximum(shown, 1)))


def gain(better: Prediction, worse: Prediction, log: ImpressionLog) -> Gain:
    """How much better one prediction of a log is than another, with standard errors."""
    difference = better.by_impression - worse.by_impression
    mean = float(difference.mean())
    sums = np.bincount(log.queries, difference - mean)
    by_page = float(np.sqrt(((difference - mean) ** 2).sum())) / difference.size
    return Gain(mean, by_page, float(np.sqrt((sums**2).sum())) / difference.size)
