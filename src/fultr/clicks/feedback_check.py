"""A check for feedback: do clicks on a document move it to another rank?

Harvesting compares a document's clicks at two ranks. That is fair if its rank changed for reasons other than those
clicks. Where a ranker learns from clicks, a document moves up after lucky clicks and down after unlucky ones; so the
clicks at the lower rank are too many, those at the higher too few, and low ranks come out too high, without limit.

At the same rank, a document was then clicked more often before it was high than before it was low. If its ranks do not
depend on clicks, it was not, whatever its relevance and the examination of the rank: the check is exact for every click
model in which a click depends on query, document and rank (`fultr.clicks.strata`). A ranker may learn at once, or only
from what happened days ago; so a click is compared with the document's ranks on the next page of the query, on the two
after it, the four after these, and so on. A ranker may also learn for each user what this user clicks; so the same is
looked for among the pages of a user and query.

Documents that moved only once, as when a version of the ranker replaced another, have no such comparison. If clicks
moved them, they were selected: those that rose had clicks enough, those that sank had few. So the numbers of clicks
before the move vary less between documents than those after it. If clicks did not, both vary as relevance does.

All of it takes the impressions of a query to be in the order in which they happened.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from fultr.clicks.impressions import ImpressionLog, summed
from fultr.clicks.strata import Contrast, Deviation, contrast, deviation
from fultr.core.arrays import Float64s, Int64s

ALARMS = 0.01  # share of logs without feedback in which ranks seem to follow clicks
LIMIT_SPREAD = -3.17  # Student's t with 19 degrees of freedom: another .0025 of logs
LEAST_CLICKS = 50  # weighted, before moves and after: with fewer, how they vary is unknown
_POWER = 0.84  # standard deviations: 80% power


@dataclass(frozen=True)
class Feedback:
    """What the check found.

    Attributes:
        z: by standard deviations, how far clicks go with how high the document is later; 0 without feedback. Of all
            stretches of later pages the one that is least likely by chance.
        ahead: that stretch: from which to which of the next pages.
        of_user: are these pages of the same user and query, not of the query?
        chance: how often a log without feedback has a stretch of pages that is as unlikely.
        spread: how much less clicks vary between documents before their only move than after it: the logarithm of the
            ratio of E[r^2] / E[r]^2, in standard errors; 0 without feedback, negative with it. None if too few moved.
        ratio: clicks on a document before it is higher, in that stretch, relative to before it is lower, at the same
            rank; None if no document has both.
        error: standard error of the ratio's logarithm; likewise.
        hidden: the error of the curve that this log would not have shown, as a share: half the logarithm of the ratio
            that is found with a probability of 80%, as low and high ranks share it; None if no document has both.
        once: share of what harvesting compares that is of documents which moved from one of two ranks to the other
            once and never back; only the others can show that moves come without clicks.
    """

    z: float
    ahead: tuple[int, int]
    of_user: bool
    chance: float
    spread: float | None
    ratio: float | None
    error: float | None
    hidden: float | None
    once: float

    @property
    def seen(self) -> bool:
        """Is it significant?"""
        return self.compared or self.selected

    @property
    def compared(self) -> bool:
        """Do clicks at the same rank go with later ranks?"""
        return self.chance < ALARMS

    @property
    def selected(self) -> bool:
        """Do clicks vary less before moves than after them?"""
        return self.spread is not None and self.spread < LIMIT_SPREAD

    @property
    def size(self) -> float:
        """How large it may be: the end of the 95% interval of the ratio's logarithm that is further from 0."""
        return abs(math.log(self.ratio)) + 1.96 * self.error if self.ratio and self.error else math.inf


def feedback(log: ImpressionLog) -> Feedback | None:
    """Check a log whose impressions are in the order in which they happened; None if no document changed its rank.

    A document that is not on a page is below its last rank.

    >>> pages = [[7, 8], [7, 8], [8, 7], [8, 7], [7, 8], [7, 8]] * 40  # the clicked one is on top next time
    >>> clicks = [[1, 0], [0, 1], [1, 0], [0, 1], [1, 0], [1, 0]] * 40
    >>> found = feedback(ImpressionLog.from_arrays([1] * 240, pages, clicks))
    >>> found.seen, found.ahead, found.once
    (True, (1, 1), 0.0)
    """
    by_query = _displayed(log, log.queries.astype(np.int64))
    stretches = [(one, False) for one in _stretches(by_query)]
    if log.ranks == 1 or not any(one.moved for one, _ in stretches):
        return None
    if log.users is not None:
        searcher = log.users.astype(np.int64) * log.query_names.size + log.queries
        stretches += [(one, True) for one in _stretches(_displayed(log, np.unique(searcher, return_inverse=True)[1]))]
    most, of_user = min(stretches, key=lambda one: (one[0].deviation.chance, -abs(one[0].deviation.z)))
    limit = NormalDist().inv_cdf(1 - ALARMS / 2 / len(stretches))
    errors = [one.compared.error for one, _ in stretches if one.compared.error]  # None or 0: no click, or every one
    single = _single_moves(by_query)
    return Feedback(
        most.deviation.z,
        most.ahead,
        of_user,
        min(most.deviation.chance * len(stretches), 1.0),
        _spread(by_query, single),
        most.compared.ratio or None,
        most.compared.error,
        (limit + _POWER) * min(errors) / 2 if errors else None,
        single.share,
    )


@dataclass(frozen=True, eq=False)
class _Displayed:
    """All displayed documents, by document and then by time: the number of the page among those of its group.

    Attributes:
        pair: which document of which group it is.
        rank: from 0.
        cells: distinct pair * K + rank, ascending.
        cell: which of them it is.
        clicks: 0 or 1.
        page: number of the page in its group.
        pages: how many pages the group has.
        ranks: K.
    """

    pair: Int64s
    rank: Int64s
    cells: Int64s
    cell: Int64s
    clicks: Float64s
    page: Int64s
    pages: Int64s
    ranks: int


def _displayed(log: ImpressionLog, group: Int64s) -> _Displayed:
    """Documents in the order of their group's pages, for groups of pages that are of one query each."""
    entry, rank = np.nonzero(log.shown)
    pages = np.bincount(group)
    page = np.empty(log.impressions, np.int64)
    page[np.argsort(group, kind="stable")] = np.arange(log.impressions) - np.repeat(np.cumsum(pages) - pages, pages)
    pair = np.unique(group[entry] * log.pairs + log.documents[log.shown], return_inverse=True)[1]
    order = np.argsort(pair, kind="stable")
    entry, rank, pair = entry[order], rank[order], pair[order]
    cells, cell = np.unique(pair * log.ranks + rank, return_inverse=True)
    clicks = log.clicks[log.shown][order].astype(np.float64)
    return _Displayed(pair, rank, cells, cell, clicks, page[entry], pages[group[entry]], log.ranks)


@dataclass(frozen=True)
class _Stretch:
    """Clicks at the same rank against how high the document is on some of the next pages.

    Attributes:
        ahead: on which of them, from and to.
        deviation: do clicks go with it?
        compared: clicks on documents that are higher there than now, and on those that are lower.
        moved: is any of them?
    """

    ahead: tuple[int, int]
    deviation: Deviation
    compared: Contrast
    moved: bool


def _stretches(shown: _Displayed) -> Iterator[_Stretch]:
    """The next page of the group, the two after it, the four after these, and so on."""
    span = 2 * int(shown.pages.max()) + 1
    time = shown.pair * span + shown.page
    now = (shown.ranks - shown.rank).astype(np.float64)  # how high it is: 0 if it is not on the page
    high = np.r_[0.0, np.cumsum(now)]
    first = 1
    while first < shown.pages.max():
        begin, end = shown.page + first, np.minimum(shown.page + 2 * first, shown.pages)
        there = begin < end
        from_, to = (np.searchsorted(time, (shown.pair * span + page)[there]) for page in (begin, end))
        later = (high[to] - high[from_]) / (end - begin)[there]
        cell, clicks, change = shown.cell[there], shown.clicks[there], later - now[there]
        up, down = change > 0, change < 0
        yield _Stretch(
            (first, 2 * first - 1),
            deviation(cell, clicks, later),
            contrast(cell, clicks, up, down),
            bool(np.any(up | down)),
        )
        first *= 2


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


def _single_moves(displayed: _Displayed) -> _Single:
    size = displayed.cells.size
    time = np.arange(displayed.pair.size)
    first, final = np.full(size, time.size), np.full(size, -1)
    np.minimum.at(first, displayed.cell, time)
    np.maximum.at(final, displayed.cell, time)
    shown = np.bincount(displayed.cell, minlength=size).astype(np.float64)
    pair = displayed.cells // displayed.ranks
    whole, found = 0.0, []
    for lag in range(1, displayed.ranks):  # cells are ordered by pair: a document's other ranks are the next few cells
        a = np.flatnonzero(pair[lag:] == pair[:-lag])
        weight = shown[a] * shown[a + lag] / (shown[a] + shown[a + lag])
        whole += float(weight.sum())
        for before, after in ((a, a + lag), (a + lag, a)):
            once = final[before] < first[after]
            found.append((before[once], after[once], weight[once]))
    before, after, weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return _Single(before, after, weights, float(weights.sum()) / whole if whole else 1.0)


def _spread(displayed: _Displayed, single: _Single) -> float | None:
    """How much less relevance seems to vary before moves than after, by a jackknife over groups of documents.

    c (c - 1) / (n (n - 1)) has mean p^2 r^2 and c / n has mean p r. So over the documents that moved from k to j, the
    mean of the former over the square of the mean of the latter is E[r^2] / E[r]^2, at k before and at j after.
    """
    cells, ranks = displayed.cells, displayed.ranks
    shown = np.bincount(displayed.cell, minlength=cells.size).astype(np.float64)
    clicked = np.bincount(displayed.cell, displayed.clicks, cells.size)
    kept = (shown[single.before] > 1) & (shown[single.after] > 1)
    before, after, weight = single.before[kept], single.after[kept], single.weight[kept]
    groups, size = 20, ranks**2
    at = ((cells[before] // ranks) % groups) * size + (cells[before] % ranks) * ranks + cells[after] % ranks

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
