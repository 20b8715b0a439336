"""A check for feedback: do clicks on a document move it to another rank?

Harvesting compares a document's clicks at two ranks. That is fair if its rank changed for reasons other than those
clicks. Where a ranker learns from clicks, a document moves up after lucky clicks and down after unlucky ones; so the
clicks at the lower rank are too many, those at the higher too few, and low ranks come out too high, without limit.

At the same rank, a document's clicks before it moved up are then more than before it moved down. If rank changes do not
depend on clicks, they are equally likely, whatever its relevance and the examination of the rank, so the check is exact
for every click model in which a click depends on query, document and rank (`fultr.clicks.strata`).

Documents that moved only once, as when a version of the ranker replaced another, have no such comparison. If clicks
moved them, they were selected: those that rose had clicks enough, those that sank had few. So the numbers of clicks
before the move vary less between documents than those after it. If clicks did not, both vary as relevance does.

All of it takes the impressions of a query to be in the order in which they happened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fultr.clicks.impressions import ImpressionLog, summed
from fultr.clicks.strata import contrast, deviation
from fultr.core.arrays import Bools, Float64s, Int64s

LIMIT = (
    2.81  # standard deviations: .0025 in each of four tails, and another .0025 below, so false alarms in 1.25% of logs
)
LIMIT_SPREAD = -3.17  # Student's t with 19 degrees of freedom: .0025
LEAST_CLICKS = 50  # weighted, before moves and after: with fewer, how they vary is unknown
_POWER = 0.84  # standard deviations: 80% power


@dataclass(frozen=True)
class Feedback:
    """What the check found.

    Attributes:
        stretch: by standard deviations, how far clicks go with the direction of a document's next move, over all of its
            impressions since the last move, the shorter the stretch the more each counts; 0 without feedback.
        last: the same, with only the last impression before a move: does a click make it come sooner?
        spread: how much less clicks vary between documents before their only move than after it: the logarithm of the
            ratio of E[r^2] / E[r]^2, in standard errors; 0 without feedback, negative with it. None if too few moved.
        ratio: clicks on a document before it moves up, relative to before it moves down, at the same rank; None if no
            document has both.
        hidden: the error of the curve that this log would not have shown, as a share: half the logarithm of the ratio
            that is found with a probability of 80%, as low and high ranks share it; None if no document has both.
        once: share of what harvesting compares that is of documents which moved from one of two ranks to the other
            once and never back; only the others can show that moves come without clicks.
    """

    stretch: float
    last: float
    spread: float | None
    ratio: float | None
    hidden: float | None
    once: float

    @property
    def seen(self) -> bool:
        """Is it significant?"""
        return self.compared or self.selected

    @property
    def compared(self) -> bool:
        """Do clicks at the same rank go with the direction of the next move?"""
        return max(abs(self.stretch), abs(self.last)) > LIMIT

    @property
    def selected(self) -> bool:
        """Do clicks vary less before moves than after them?"""
        return self.spread is not None and self.spread < LIMIT_SPREAD

    @property
    def size(self) -> float:
        """How large it is: the logarithm of the ratio without its sign; infinite if there is none to compare."""
        return math.inf if not self.ratio else abs(math.log(self.ratio))


def feedback(log: ImpressionLog) -> Feedback | None:
    """Check a log whose impressions are in the order in which they happened; None if no document changed its rank.

    A document that is not on the query's next page has moved down.

    >>> pages = [[7, 8], [7, 8], [8, 7], [8, 7], [7, 8], [7, 8]] * 40  # the clicked one is on top next time
    >>> clicks = [[1, 0], [0, 1], [1, 0], [0, 1], [1, 0], [1, 0]] * 40
    >>> found = feedback(ImpressionLog.from_arrays([1] * 240, pages, clicks))
    >>> found.seen, found.once
    (True, 0.0)
    """
    moves = _moves(log)
    if not moves.direction.any():
        return None
    up, down = moves.direction > 0, moves.direction < 0
    single = _single_moves(log, moves)
    compared = contrast(moves.cell, moves.clicks, up, down)
    error = compared.error
    if error == 0:
        error = None  # every click or none
    return Feedback(
        deviation(moves.cell, moves.clicks, moves.direction / np.sqrt(moves.length)).z,
        deviation(moves.cell, moves.clicks, np.where(moves.last, moves.direction, 0.0)).z,
        _spread(log, moves, single),
        compared.ratio or None,
        None if error is None else (LIMIT + _POWER) * error / 2,
        single.share,
    )


@dataclass(frozen=True, eq=False)
class _Moves:
    """All displayed documents, by pair and then by time, and where they go from there.

    Attributes:
        pair: which document it is.
        rank: from 0.
        cell: number of the (pair, rank).
        clicks: 0 or 1.
        direction: of its next move, 1 up, -1 down, 0 if it does not move any more.
        length: impressions in a row at this rank.
        last: is this the last of them?
    """

    pair: Int64s
    rank: Int64s
    cell: Int64s
    clicks: Float64s
    direction: Float64s
    length: Float64s
    last: Bools


def _moves(log: ImpressionLog) -> _Moves:
    page, rank = np.nonzero(log.shown)
    pair = log.documents[log.shown].astype(np.int64)
    order = np.argsort(pair, kind="stable")
    page, rank, pair = page[order], rank[order], pair[order]
    pages = np.bincount(log.queries)
    at = np.empty(log.impressions, np.int64)  # number of a page among those of its query
    starts = np.cumsum(pages) - pages
    at[np.argsort(log.queries, kind="stable")] = np.arange(log.impressions) - np.repeat(starts, pages)
    more = at[page] < pages[log.queries[page]] - 1
    follows = np.r_[(pair[1:] == pair[:-1]) & (at[page[1:]] == at[page[:-1]] + 1), False]
    following = np.where(follows, np.r_[rank[1:], 0], log.ranks)
    move = np.where(more, np.sign(rank - following), 0).astype(np.float64)
    last = ~follows | (following != rank)
    stretch = np.cumsum(np.r_[0, last[:-1]])
    return _Moves(
        pair,
        rank,
        log.cell_of_entry[1][order],
        log.clicks[log.shown][order].astype(np.float64),
        move[last][stretch],
        np.bincount(stretch)[stretch].astype(np.float64),
        last,
    )


@dataclass(frozen=True, eq=False)
class _Single:
    """Comparisons of a document at two ranks, of which it had one before the other.

    Attributes:
        before: number of the cell that came first.
        after: number of the other.
        weight: in harvesting.
        share: of the weight of all comparisons.
    """

    before: Int64s
    after: Int64s
    weight: Float64s
    share: float


def _single_moves(log: ImpressionLog, moves: _Moves) -> _Single:
    size = log.cell_of_entry[0].size
    time = np.arange(moves.pair.size)
    first, final = np.full(size, time.size), np.full(size, -1)
    np.minimum.at(first, moves.cell, time)
    np.maximum.at(final, moves.cell, time)
    shown = np.bincount(moves.cell, minlength=size).astype(np.float64)
    pair = log.cell_of_entry[0] // log.ranks
    whole, found = 0.0, []
    for lag in range(1, log.ranks):  # cells are ordered by pair: a document's other ranks are the next few cells
        a = np.flatnonzero(pair[lag:] == pair[:-lag])
        weight = shown[a] * shown[a + lag] / (shown[a] + shown[a + lag])
        whole += float(weight.sum())
        for before, after in ((a, a + lag), (a + lag, a)):
            once = final[before] < first[after]
            found.append((before[once], after[once], weight[once]))
    before, after, weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return _Single(before, after, weights, float(weights.sum()) / whole if whole else 1.0)


def _spread(log: ImpressionLog, moves: _Moves, single: _Single) -> float | None:
    """How much less relevance seems to vary before moves than after, by a jackknife over groups of documents.

    c (c - 1) / (n (n - 1)) has mean p^2 r^2 and c / n has mean p r. So over the documents that moved from k to j, the
    mean of the former over the square of the mean of the latter is E[r^2] / E[r]^2, at k before and at j after.
    """
    cells = log.cell_of_entry[0]
    shown = np.bincount(moves.cell, minlength=cells.size).astype(np.float64)
    clicked = np.bincount(moves.cell, moves.clicks, cells.size)
    kept = (shown[single.before] > 1) & (shown[single.after] > 1)
    before, after, weight = single.before[kept], single.after[kept], single.weight[kept]
    groups, size = 20, log.ranks**2
    at = (
        ((cells[before] // log.ranks) % groups) * size
        + (cells[before] % log.ranks) * log.ranks
        + cells[after] % log.ranks
    )

    def sums(values: Float64s) -> Float64s:
        return summed(values, at, groups * size).reshape(groups, size)

    weights = sums(weight)
    rates = np.stack([sums(weight * clicked[c] / shown[c]) for c in (before, after)])
    squares = np.stack(
        [sums(weight * clicked[c] * (clicked[c] - 1) / (shown[c] * (shown[c] - 1))) for c in (before, after)]
    )
    if rates.sum(axis=(1, 2)).min() < LEAST_CLICKS:
        return None

    def statistic(without: int | None) -> float:
        part = np.ones(groups, bool)
        if without is not None:
            part[without] = False
        w, rate, square = weights[part].sum(axis=0), rates[:, part].sum(axis=1), squares[:, part].sum(axis=1)
        both = rate.min(axis=0) > 0
        varied = square[:, both] * w[both] / rate[:, both] ** 2
        first, second = (varied * rate[:, both].min(axis=0)).sum(axis=1)
        return math.log(first / second) if min(first, second) > 0 else math.nan

    parts = np.array([statistic(group) for group in range(groups)])
    error = math.sqrt((groups - 1) / groups * float(((parts - parts.mean()) ** 2).sum()))
    return statistic(None) / error if math.isfinite(error) and error > 0 else None
