"""The personal layer: a few weights of a device's own, on top of the shared ranker. They never leave the device.

The score of a document is f(x) + delta . x, where f is the shared ranker and delta the layer. It is fitted to the
clicks of the device's log by a conditional logit: among the documents of an impression that were not clicked, the
clicked one is chosen with the odds

    exp(alpha f(x) + beta . x) / rank ** gamma,    delta = beta / alpha.

Alpha and gamma let the shared ranker and the position explain what they can; beta is what is left, with a normal prior
that keeps it small: of some spreads of that prior, the one with which held-out clicks are most likely. Then the layer
is judged: the log is cut into five parts by queries, and each part's clicks are
ranked with a layer that was fitted to the other four. It is used only if the clicked documents stand higher than in the
shared ranker's order, by more than chance explains (one-sided, 95%); see `PersonalLayer.used`.

A layer is kept in the log's file, in a table that the answers to a federation's tasks are not made from.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fultr.clicks.log import Records
from fultr.core.arrays import Bools, Float32s, Float64s, Int64s
from fultr.core.threads import one_blas_thread
from fultr.device.sqlite import transaction

LEAST_QUERIES = 30
"""Different queries with clicks from which a layer is judged at all."""

MOST_WEIGHTS = 100
"""Features that a layer has weights for, at most: those that differ most among displayed documents."""

_PARTS = 5
_SURE = 1.645  # standard errors: one-sided, 95%
_MOST_NUMBERS = 10_000_000  # features of displayed documents that a layer is fitted to; older impressions are left out
_SPREADS = (1.0, 0.3, 0.1, 0.03)  # of beta, before anything is known: the one that predicts held-out clicks best
_ALPHA, _GAMMA = (1.0, 3.0), (1.0, 1.0)  # mean and spread of each, before anything is known
_LEAST_ALPHA = 0.1
_MOST_WEIGHT = 5.0  # of a held-out click: rank ** gamma, at most
_STEPS = 30


@dataclass(frozen=True, eq=False)
class PersonalLayer:
    """A device's own weights, and how they were judged.

    Attributes:
        version: of the shared ranker that they are for.
        weights: by the names of features; 0 for those left out.
        difference: how much higher than in the shared order held-out clicked documents stand, in 1 / log2(1 + rank).
        error: its standard error.
        clicks: in the log when it was fitted.
        queries: different ones, with clicks.
        made: in seconds since 1970.
    """

    version: str
    weights: dict[str, float]
    difference: float
    error: float
    clicks: int
    queries: int
    made: float

    @property
    def used(self) -> bool:
        """Is it surely no worse than the shared ranker alone?

        >>> PersonalLayer("default", {"freshness": 0.4}, 0.05, 0.02, 300, 120, 0.0).used
        True
        >>> PersonalLayer("default", {"freshness": 0.4}, 0.03, 0.02, 300, 120, 0.0).used
        False
        """
        return self.queries >= LEAST_QUERIES and self.difference - _SURE * self.error > 0


class Clicked(NamedTuple):
    """Clicks with what was displayed: one row each.

    Attributes:
        features: [clicks, K, features] of the documents that the clicked one was chosen among, itself included.
        scores: [clicks, K], the shared ranker's.
        there: [clicks, K]: is there a document that was not clicked besides?
        ranks: [clicks], of the clicked document, from 0.
        queries: [clicks], the same for the same query.
    """

    features: Float64s
    scores: Float64s
    there: Bools
    ranks: Int64s
    queries: Int64s

    def take(self, chosen: Bools) -> Clicked:
        """Some of them."""
        features, scores, there, ranks, queries = self
        return Clicked(features[chosen], scores[chosen], there[chosen], ranks[chosen], queries[chosen])


class Fitted(NamedTuple):
    """What clicks say: delta and alpha, in the units of the shared ranker's scores; gamma, and its standard error."""

    delta: Float64s
    gamma: float
    error: float
    alpha: float = 1.0


def clicked_of(records: Records, features: Float32s, scores: Float64s, queries: Int64s) -> Clicked:
    """The clicks of a log, the latest first.

    Args:
        records: of the log.
        features: the rows of `records.display.features`, without padding.
        scores: the shared ranker's, of these.
        queries: of each impression, a number that is the same for the same query.
    """
    display, log = records.display, records.log
    width = features.shape[1]
    shown = display.shown[log.queries]
    impressions, ranks = np.nonzero(log.clicks)
    several = ((shown >= 0) & (log.clicks == 0)).any(axis=1)[impressions]  # else there was nothing to choose among
    most = max(1, _MOST_NUMBERS // max(1, shown.shape[1] * width))
    latest = np.argsort(-impressions[several], kind="stable")[:most]
    impressions, ranks = impressions[several][latest], ranks[several][latest]
    rows = shown[impressions]
    there = (rows >= 0) & ((log.clicks[impressions] == 0) | (np.arange(rows.shape[1]) == ranks[:, np.newaxis]))
    at = np.where(there, rows, 0)
    return Clicked(features[at].astype(np.float64), scores[at], there, ranks, queries[impressions])


def fit(clicked: Clicked, spread: float = _SPREADS[0]) -> Fitted:
    """The layer that clicks speak for: the largest posterior density, by Newton's method.

    Args:
        clicked: the clicks.
        spread: of the weights, before anything is known.

    >>> random = np.random.default_rng(0)
    >>> features = random.random((2000, 2, 1))
    >>> ranks = (random.random(2000) < 1 / (1 + np.exp(-2 * (features[:, 1, 0] - features[:, 0, 0])))).astype(int)
    >>> there, scores = np.ones((2000, 2), bool), random.random((2000, 2))
    >>> bool(fit(Clicked(features, scores, there, ranks, np.arange(2000))).delta[0] > 0)
    True
    """
    clicks, size, width = clicked.features.shape
    if not clicks:
        return Fitted(np.zeros(width), *_GAMMA)
    unit = _spread(clicked.scores[:, :, np.newaxis], clicked.there)[0] or 1.0
    # The parameters: alpha (of scores that have a spread of 1), gamma, beta.
    rows = np.concatenate(
        [
            (clicked.scores / unit)[:, :, np.newaxis],
            np.broadcast_to(-np.log(np.arange(1, size + 1))[:, np.newaxis], (clicks, size, 1)),
            clicked.features,
        ],
        axis=2,
    )
    before = np.r_[_ALPHA[0], _GAMMA[0], np.zeros(width)]
    certain = 1 / np.r_[_ALPHA[1], _GAMMA[1], np.full(width, spread)] ** 2
    chosen = rows[np.arange(clicks), clicked.ranks]
    at = before.copy()
    worth, shares = _worth(at, rows, chosen, clicked.there, before, certain)
    for _ in range(_STEPS):
        mean = np.einsum("ck,ckp->cp", shares, rows)
        slope = (chosen - mean).sum(axis=0) - certain * (at - before)
        around = (np.sqrt(shares)[:, :, np.newaxis] * (rows - mean[:, np.newaxis])).reshape(-1, at.size)
        curvature = around.T @ around + np.diag(certain)
        step = np.linalg.solve(curvature, slope)
        if slope @ step < 1e-9 * (1 + abs(worth)):
            break
        size_of_step = 1.0
        while size_of_step > 1e-6:
            tried = at + size_of_step * step
            found, among = _worth(tried, rows, chosen, clicked.there, before, certain)
            if found > worth:
                at, worth, shares = tried, found, among
                break
            size_of_step /= 2
        else:
            break
    error = math.sqrt(np.linalg.inv(curvature)[1, 1])
    alpha = max(float(at[0]), _LEAST_ALPHA) / unit
    return Fitted(at[2:] / alpha, float(at[1]), error, alpha)


def _worth(
    at: Float64s, rows: Float64s, chosen: Float64s, there: Bools, before: Float64s, certain: Float64s
) -> tuple[float, Float64s]:
    """The logarithm of the posterior density, and how likely each document is to be the clicked one."""
    values = np.where(there, rows @ at, -np.inf)
    largest = values.max(axis=1, keepdims=True)
    odds = np.exp(values - largest)
    total = odds.sum(axis=1, keepdims=True)
    likelihood = (chosen @ at - largest[:, 0] - np.log(total[:, 0])).sum()
    return float(likelihood - 0.5 * (certain * (at - before) ** 2).sum()), odds / total


def best_spread(clicked: Clicked) -> float:
    """The spread of the prior with which a layer that is fitted to four parts predicts the clicks of the fifth best."""
    parts = [(clicked.take(~held), clicked.take(held)) for held in _held_out(clicked)]
    return max(_SPREADS, key=lambda spread: sum(_likelihood(fit(own, spread), other) for own, other in parts))


def _held_out(clicked: Clicked) -> Iterator[Bools]:
    """The clicks of each part by queries, where there are others too."""
    for part in range(_PARTS):
        held = clicked.queries % _PARTS == part
        if held.any() and not held.all():
            yield held


def _likelihood(fitted: Fitted, clicked: Clicked) -> float:
    """The logarithm of how likely clicks are, given a layer."""
    ranks = np.arange(1, clicked.scores.shape[1] + 1)
    values = fitted.alpha * (clicked.scores + clicked.features @ fitted.delta) - fitted.gamma * np.log(ranks)
    values = np.where(clicked.there, values, -np.inf)
    largest = values.max(axis=1)
    own = values[np.arange(len(values)), clicked.ranks]
    return float((own - largest - np.log(np.exp(values - largest[:, np.newaxis]).sum(axis=1))).sum())


def judge(clicked: Clicked, spread: float = _SPREADS[0]) -> tuple[float, float]:
    """How much higher held-out clicked documents stand with a layer than without, and the standard error of that.

    A click at displayed rank r weighs r ** gamma, 5 at most: seen as often as at rank 1. Gamma is that of the other
    parts, minus and plus two standard errors: too small a gamma favours the order that was displayed, too large a one
    favours another. What speaks less for the layer counts.
    """
    weights, gains = np.zeros((2, len(clicked.ranks))), np.zeros(len(clicked.ranks))
    for held in _held_out(clicked):
        fitted, own = fit(clicked.take(~held), spread), clicked.take(held)
        for side, gamma in enumerate((fitted.gamma - 2 * fitted.error, fitted.gamma + 2 * fitted.error)):
            weights[side, held] = np.minimum((own.ranks + 1.0) ** max(0.0, gamma), _MOST_WEIGHT)
        gains[held] = _gain(own.scores + own.features @ fitted.delta, own) - _gain(own.scores, own)
    if not weights.any():
        return 0.0, 0.0
    _, query = np.unique(clicked.queries, return_inverse=True)
    return min((_mean(gains, side, query) for side in weights), key=lambda found: found[0] - _SURE * found[1])


def _mean(gains: Float64s, weights: Float64s, query: Int64s) -> tuple[float, float]:
    """The weighted mean, and its standard error if queries are drawn from many: of a ratio of sums over queries."""
    by_query, weight = np.bincount(query, weights * gains), np.bincount(query, weights)
    mean = by_query.sum() / weight.sum()
    left, many = by_query - mean * weight, len(weight)
    return float(mean), float(math.sqrt((left**2).sum() * many / max(1, many - 1)) / weight.sum())


def _gain(scores: Float64s, clicked: Clicked) -> Float64s:
    """1 / log2(1 + rank) of the clicked documents by scores; among equal ones, as displayed."""
    own = scores[np.arange(len(scores)), clicked.ranks][:, np.newaxis]
    before = np.arange(scores.shape[1]) < clicked.ranks[:, np.newaxis]
    above = clicked.there & ((scores > own) | ((scores == own) & before))
    gains: Float64s = 1 / np.log2(2 + above.sum(axis=1))
    return gains


@one_blas_thread()
def layer_of(
    clicked: Clicked, names: list[str], normalised: bool, version: str, clicks: int, now: float
) -> PersonalLayer:
    """Fit a layer to clicks, and judge it.

    Args:
        clicked: the clicks.
        names: of the features.
        normalised: are these scaled to [0, 1]? Otherwise they are measured by their spread here.
        version: of the shared ranker.
        clicks: in the log.
        now: in seconds since 1970.
    """
    queries = len(np.unique(clicked.queries))
    if queries < LEAST_QUERIES or not np.isfinite(clicked.scores).all():
        return PersonalLayer(version, {}, 0.0, 0.0, clicks, queries, now)
    spread = _spread(clicked.features, clicked.there)
    columns = np.sort(np.argsort(-spread, kind="stable")[:MOST_WEIGHTS])
    columns = columns[spread[columns] > 0]
    units = np.ones(len(columns)) if normalised else spread[columns]
    clicked = clicked._replace(features=clicked.features[:, :, columns] / units)
    best = best_spread(clicked)
    delta = fit(clicked, best).delta / units
    difference, error = judge(clicked, best)
    weights = {
        names[column]: float(np.float32(weight)) for column, weight in zip(columns, delta, strict=True) if weight
    }
    return PersonalLayer(version, weights, difference, error, clicks, queries, now)


def _spread(values: Float64s, there: Bools) -> Float64s:
    """The standard deviation of each feature within impressions: [features] of [clicks, K, features]."""
    weight = there[:, :, np.newaxis] / np.maximum(1, there.sum(axis=1))[:, np.newaxis, np.newaxis]
    mean = (values * weight).sum(axis=1, keepdims=True)
    spread: Float64s = np.sqrt((((values - mean) ** 2) * weight).sum(axis=1).mean(axis=0))
    return spread


# In the log's file


def read_layer(connection: sqlite3.Connection) -> PersonalLayer | None:
    """The layer that a log has; None if it has none, or one that is not as it was written."""
    row = connection.execute("SELECT layer FROM personal").fetchone()
    if row is None:
        return None
    try:
        told = json.loads(row[0])
        numbers = [*told["weights"].values(), told["difference"], told["error"], told["made"]]
        if all(math.isfinite(number) for number in numbers):
            return PersonalLayer(**told)
    except (TypeError, ValueError, KeyError, AttributeError):
        pass
    return None


class Extent(NamedTuple):
    """What a layer was fitted to: the last impression, and how many there were up to it."""

    last: int
    impressions: int


def extent_of(connection: sqlite3.Connection) -> Extent:
    """All that a log holds."""
    return Extent(*connection.execute("SELECT coalesce(max(id), 0), count(*) FROM impressions").fetchone())


def keep_layer(connection: sqlite3.Connection, layer: PersonalLayer, fitted_to: Extent) -> bool:
    """Keep a layer in place of the one before; False if something was forgotten since it was fitted."""
    with transaction(connection):
        left = connection.execute("SELECT count(*) FROM impressions WHERE id <= ?", (fitted_to.last,)).fetchone()[0]
        if left != fitted_to.impressions:
            return False
        connection.execute("DELETE FROM personal")
        connection.execute("INSERT INTO personal VALUES (1, ?, ?)", (layer.made, json.dumps(vars(layer))))
    return True


def drop_layer(connection: sqlite3.Connection) -> None:
    """Forget the layer."""
    connection.execute("DELETE FROM personal")
