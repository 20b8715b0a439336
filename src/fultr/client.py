"""One device: SGD on the propensity-weighted pairwise loss of its own click log (Algorithm 1, lines 5 to 9).

For each clicked document d, in the order of the log,

    w <- w - eta_l / p * grad of h_{q,d}(w)

with h as in Eq. 4 of the paper: the sum over d' in D_q of max(0, 1 - (f_w(q, d) - f_w(q, d'))). The update is w minus
the weights that the round began with.

What the paper leaves open, and how it is read here: Algorithm 1's loop shows neither the click indicator nor
1 / |Q_u|, so a step is made for each click and not divided by the number of queries; and h counts d' = d, which adds
1 to h and nothing to its gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numba import njit

from fultr.checks import check_choice, check_number
from fultr.clicks import ClickLog
from fultr.linear import FAST, add_scaled, dot
from fultr.policy import Display
from fultr.prefetch import prefetch_rows
from fultr.types import Float32s, Float64s, Int32s, Int64s, UInt8s

LOSSES = ("hinge", "logistic")
METRICS = ("rank", "dcg")
_AHEAD = 2  # how many clicked impressions ahead features are fetched


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains.

    Attributes:
        learning_rate: eta_l.
        loss: what bounds "d' ranks above d": "hinge", max(0, 1 - x), or "logistic", log2(1 + exp(-x)), x being the
            score of d minus the score of d'. Both are 1 at x = 0 and at least 1 below.
        metric: the additive metric g of Eq. 2 that is optimised: "rank", g(r) = r (the paper's), or "dcg",
            g(r) = -1 / log2(1 + r). As 1 + h bounds the rank of d, g(1 + h) bounds g(rank) for both, and a
            step's gradient is g'(1 + h) times the gradient of h.
        clip: weights 1 / p above this count as this; None: no clipping, which keeps the estimate unbiased.
        epochs: passes over the log.
    """

    learning_rate: float = 0.01
    loss: Literal["hinge", "logistic"] = "hinge"
    metric: Literal["rank", "dcg"] = "rank"
    clip: float | None = None
    epochs: int = 1

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, above=0)
        check_choice("loss", self.loss, LOSSES)
        check_choice("metric", self.metric, METRICS)
        if self.clip is not None:
            check_number("clip", self.clip, above=0)
        check_number("epochs", self.epochs, least=1, whole=True)


@njit(nogil=True, cache=True)
def _metric_slope(metric: int, h: float) -> float:
    """g'(1 + h): 1 for the rank; for g(r) = -1 / log2(1 + r), ln 2 / ((2 + h) ln(2 + h)^2)."""
    if metric == 0:
        return 1.0
    return np.log(2.0) / ((2 + h) * np.log(2 + h) ** 2)


@njit(nogil=True, cache=True)
def _loss_and_pulls(scores: Float32s, documents: int, clicked: int, loss: int, pulls: Float32s) -> float:
    """Return h of the clicked document; write minus its derivative by each document's score to `pulls`."""
    h = 0.0
    total = np.float32(0)
    for d in range(documents):  # d' = d too: it adds 1 to h, and its pulls cancel
        margin = np.float64(scores[clicked]) - np.float64(scores[d])
        if loss == 0:
            pull = np.float32(margin < 1)
            h += max(0.0, 1 - margin)
        else:
            pull = np.float32(1 / ((1 + np.exp(margin)) * np.log(2.0)))
            h += (max(0.0, -margin) + np.log1p(np.exp(-abs(margin)))) / np.log(2.0)
        pulls[d] = -pull
        total += pull
    pulls[clicked] += total
    return h


@njit(nogil=True, cache=True, fastmath=FAST)
def _change_and_score_five(
    features: Float32s,
    weights: Float32s,
    c0: np.float32,
    c1: np.float32,
    c2: np.float32,
    c3: np.float32,
    c4: np.float32,
    y0: int,
    y1: int,
    y2: int,
    y3: int,
    y4: int,
    x0: int,
    x1: int,
    x2: int,
    x3: int,
    x4: int,
) -> Any:
    """Add rows y, times c, to the weights and return their products with rows x, in one pass over the weights."""
    s0 = s1 = s2 = s3 = s4 = np.float32(0)
    for f in range(weights.size):
        w = weights[f] + (
            c0 * features[y0, f]
            + c1 * features[y1, f]
            + c2 * features[y2, f]
            + c3 * features[y3, f]
            + c4 * features[y4, f]
        )
        weights[f] = w
        s0 += features[x0, f] * w
        s1 += features[x1, f] * w
        s2 += features[x2, f] * w
        s3 += features[x3, f] * w
        s4 += features[x4, f] * w
    return s0, s1, s2, s3, s4


@njit(nogil=True, cache=True)
def _change_and_score(
    features: Float32s,
    weights: Float32s,
    changed: int,
    changed_end: int,
    changes: Float32s,
    scored: int,
    scored_end: int,
    scores: Float32s,
) -> None:
    """Add rows `changed` to `changed_end`, times `changes`, to the weights; then score rows `scored` to `scored_end`.

    The first five rows of either go through one pass over the weights; where there are fewer, the last row is
    repeated, with change 0.
    """
    for row in range(changed + 5, changed_end):
        add_scaled(weights, changes[row - changed], features[row])
    n, last = changed_end - changed, changed_end - 1
    end = scored_end - 1
    zero = np.float32(0)
    scores[0], scores[1], scores[2], scores[3], scores[4] = _change_and_score_five(
        features,
        weights,
        changes[0],
        changes[1] if n > 1 else zero,
        changes[2] if n > 2 else zero,
        changes[3] if n > 3 else zero,
        changes[4] if n > 4 else zero,
        changed,
        min(changed + 1, last),
        min(changed + 2, last),
        min(changed + 3, last),
        min(changed + 4, last),
        scored,
        min(scored + 1, end),
        min(scored + 2, end),
        min(scored + 3, end),
        min(scored + 4, end),
    )
    for row in range(scored + 5, scored_end):
        scores[row - scored] = dot(features[row], weights)


@njit(nogil=True, cache=True)
def _next_clicked(clicks: UInt8s, i: int) -> int:
    """The first impression from i on that has a click; past the last if there is none."""
    while i < clicks.shape[0]:
        for rank in range(clicks.shape[1]):
            if clicks[i, rank]:
                return i
        i += 1
    return i


@njit(nogil=True, cache=True)
def _train_client(
    features: Float32s,
    row_offsets: Int64s,
    shown: Int64s,
    queries: Int32s,
    clicks: UInt8s,
    begin: int,
    finish: int,
    propensities: Float64s,
    learning_rate: float,
    loss: int,
    metric: int,
    clip: float,
    epochs: int,
    weights: Float32s,
    scores: Float32s,
    changes: Float32s,
    cursors: Int64s,
) -> None:
    """Algorithm 1, lines 5 to 8, for one client's impressions, `begin` to `finish` of the log; changes `weights`.

    The change that a click makes is applied in the pass over the weights that scores the next click's documents.
    """
    changed, changed_end = 0, 1
    changes[0] = 0
    for _ in range(epochs):
        for i in range(begin, finish):
            q = queries[i]
            first, end = row_offsets[q], row_offsets[q + 1]
            if i == cursors[0]:  # the first epoch gets here: fetch what a later click will need
                cursors[0] = _next_clicked(clicks, i + 1)
                cursors[1] = _next_clicked(clicks, cursors[1] + 1)
                if cursors[1] < queries.size:
                    soon = queries[cursors[1]]
                    prefetch_rows(features, row_offsets[soon], row_offsets[soon + 1])
            for rank in range(clicks.shape[1]):
                if clicks[i, rank]:
                    _change_and_score(features, weights, changed, changed_end, changes, first, end, scores)
                    h = _loss_and_pulls(scores, end - first, shown[q, rank] - first, loss, changes)
                    propensity = propensities[(i - begin) % propensities.shape[0], rank]
                    step = learning_rate * min(1 / propensity, clip) * _metric_slope(metric, h)
                    for d in range(end - first):
                        changes[d] *= np.float32(step)
                    changed, changed_end = first, end
    for row in range(changed, changed_end):
        add_scaled(weights, changes[row - changed], features[row])


@njit(nogil=True, cache=True)
def _train_clients(
    features: Float32s,
    row_offsets: Int64s,
    shown: Int64s,
    longest: int,
    queries: Int32s,
    clicks: UInt8s,
    log_offsets: Int64s,
    propensities: Float64s,
    weights: Float32s,
    learning_rate: float,
    loss: int,
    metric: int,
    clip: float,
    epochs: int,
    total: Float64s,
) -> int:
    repliers = 0
    local = np.zeros(features.shape[1], np.float32)  # rows may be padded with zeros
    scores = np.empty(max(longest, 5), np.float32)
    changes = np.empty(max(longest, 5), np.float32)
    cursors = np.full(2, _next_clicked(clicks, 0))  # the next impression with a click, and the one to fetch
    for _ in range(_AHEAD):
        cursors[1] = _next_clicked(clicks, cursors[1] + 1)
    for u in range(log_offsets.size - 1):
        begin, end = log_offsets[u], log_offsets[u + 1]
        local[: weights.size] = weights
        _train_client(
            features,
            row_offsets,
            shown,
            queries,
            clicks,
            begin,
            end,
            propensities[u],
            learning_rate,
            loss,
            metric,
            clip,
            epochs,
            local,
            scores,
            changes,
            cursors,
        )
        for f in range(weights.size):
            total[f] += local[f] - weights[f]
        if clicks[begin:end].any():
            repliers += 1
    return repliers


def add_updates(
    log: ClickLog,
    display: Display,
    propensities: Float64s,
    weights: Float32s,
    training: LocalTraining,
    total: Float64s,
) -> int:
    """Train each client of `log` from the same `weights`; add their updates, in order, to `total`.

    Args:
        log: the clients' impressions.
        display: what the queries displayed.
        propensities: [clients, K], what a click at each rank is divided by; or [clients, parts, K], where impression
            i of a client belongs to part i mod parts.
        weights: w_t, float32 [features].
        training: how a client trains.
        total: float64 [features], added to.

    Returns:
        How many clients had a click.
    """
    return _train_clients(
        display.features,
        display.offsets,
        display.shown,
        display.longest,
        log.queries,
        log.clicks,
        log.offsets,
        propensities if propensities.ndim == 3 else propensities[:, np.newaxis],
        weights,
        training.learning_rate,
        LOSSES.index(training.loss),
        METRICS.index(training.metric),
        np.inf if training.clip is None else training.clip,
        training.epochs,
        total,
    )
