"""Intervention harvesting: examination from documents that were shown at more than one rank.

Agarwal, Zaitsev, Wang, Li, Najork and Joachims (2019), Estimating Position Bias without Intrusive Interventions. Where
a ranker changes, or several are in use, a query's document is shown sometimes at rank k and sometimes at rank k'. Its
relevance is the same at both, so its clicks separate examination from relevance, without any model of relevance.

Estimation needs only sums for each pair of ranks (`PairCounts`), which add up over devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fultr.clicks.impressions import Cells
from fultr.clicks.log_kernels import add_linked, links_of
from fultr.core.arrays import Bools, Float64s, Int64s, UInt8s
from fultr.core.checks import check_choice
from fultr.core.errors import FultrError

Weighting = Literal["precision", "equal"]
_ADVICE = "randomise a little: swap two neighbours on some pages, or mix two versions of the ranker at random"
_FLOOR = 1e-9  # smallest share of non-clicks, so that the likelihood has a maximum inside p r < 1


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Weighted clicks and impressions of the documents that were shown at both ranks of a pair. They add: `a + b`.

    Attributes:
        clicks: [K, K], element (k, k') counts rank k, of the documents that were also shown at k'; 0 where k = k'.
        impressions: [K, K], likewise.
    """

    clicks: Float64s
    impressions: Float64s

    def __post_init__(self) -> None:
        if self.clicks.ndim != 2 or not self.clicks.shape == self.impressions.shape == self.clicks.shape[::-1]:
            raise FultrError(
                f"pair counts: expected two K x K arrays, found {self.clicks.shape}, {self.impressions.shape}"
            )
        if not (np.isfinite(self.clicks).all() and np.isfinite(self.impressions).all() and self.clicks.min() >= 0):
            raise FultrError("pair counts: expected finite numbers, at least 0")

    def shared_clicks(self) -> Float64s:
        """Clicks of pairs of ranks that both have impressions, since only those can be compared; 0 elsewhere."""
        return np.where((self.impressions > 0) & (self.impressions.T > 0), self.clicks, 0.0)

    def __add__(self, other: PairCounts) -> PairCounts:
        return PairCounts(self.clicks + other.clicks, self.impressions + other.impressions)


def pair_counts(cells: Cells, weighting: Weighting = "precision") -> PairCounts:
    """Pair counts of a log in which it is unknown how often each ranking was shown: observed frequencies stand in.

    A document with c clicks in n impressions at rank k, and c' in n' at k', adds v c / n to the clicks at k, v c' / n'
    to those at k', and v to the impressions at either, so that it weighs the same at both. "equal" has v = 1: every
    document counts equally, as in the paper. "precision" has v = n n' / (n + n'), the weights of Mantel and Haenszel
    (1959): documents that were shown often at both ranks count more. Both are consistent.

    >>> from fultr.clicks.impressions import ImpressionLog
    >>> log = ImpressionLog.from_arrays([1] * 3, [[7, 8], [8, 7], [8, 7]], [[1, 0], [1, 0], [0, 1]])
    >>> pair_counts(log.cells(), "equal").clicks.tolist()
    [[0.0, 1.5], [0.5, 0.0]]
    """
    check_choice("weighting", weighting, ("precision", "equal"))
    size = cells.ranks
    clicks, impressions = np.zeros(size * size), np.zeros(size * size)
    there = cells.impressions > 0
    for lag in range(1, size):  # cells are ordered by pair: a document's other ranks are the next few cells
        first = np.flatnonzero((cells.pair[lag:] == cells.pair[:-lag]) & there[lag:] & there[:-lag])
        if not first.size and lag == 1:
            break
        both = np.stack([first, first + lag])
        shown = cells.impressions[both]
        weight = cells.weight[first] * (shown.prod(axis=0) / shown.sum(axis=0) if weighting == "precision" else 1.0)
        ranks = cells.rank[both]
        at = (ranks * size + ranks[::-1]).ravel()
        clicks += np.bincount(at, (weight * cells.clicks[both] / shown).ravel(), size * size)
        impressions += np.bincount(at, np.tile(weight, 2), size * size)
    return PairCounts(clicks.reshape(size, size), impressions.reshape(size, size))


def pair_counts_of_versions(clicks: UInt8s, ranks: Int64s, shares: ArrayLike | None = None) -> PairCounts:
    """Pair counts of impressions whose ranking was one of several versions, chosen at random with known shares.

    The weights of the paper: a click at rank k is divided by the share of versions that put the document there. No
    query needs to recur: a device's few impressions suffice, and it sends only their sum.

    Args:
        clicks: [impressions, K].
        ranks: [impressions, K, versions], at which rank, from 0, each version has the document that was displayed at
            each rank; -1, or K and more, if that version does not display it.
        shares: how often each version is chosen, [versions]; equally often if None.

    >>> swapped = [[[0, 1], [1, 0]]]  # the other version has the two documents in the other order
    >>> pair_counts_of_versions(np.array([[1, 0]], np.uint8), np.array(swapped)).clicks.tolist()
    [[0.0, 2.0], [0.0, 0.0]]
    """
    size, versions = clicks.shape[1], ranks.shape[2]
    share = np.full(versions, 1 / versions) if shares is None else np.asarray(shares, np.float64)
    if ranks.shape[:2] != clicks.shape or share.shape != (versions,) or abs(share.sum() - 1) > 1e-8:
        raise FultrError(
            f"versions: expected ranks of shape {clicks.shape} x versions and shares that add up to 1, "
            f"found {ranks.shape} and {share.sum():g}"
        )
    pairs = np.zeros((1, 2, size, size))
    impressions = np.arange(len(clicks), dtype=np.int32)
    add_linked(links_of(ranks, share), clicks, impressions, np.array([0, len(clicks)]), pairs)
    return PairCounts(*pairs[0])


def adjacent_pairs(counts: PairCounts) -> Float64s:
    """Examination relative to rank 1, chained from neighbouring ranks.

    >>> clicks = np.array([[0.0, 8.0, 5.0], [4.0, 0.0, 6.0], [1.0, 3.0, 0.0]])
    >>> adjacent_pairs(PairCounts(clicks, np.full((3, 3), 10.0))).tolist()
    [1.0, 0.5, 0.25]
    """
    ranks = counts.clicks.shape[0]
    if ranks == 1:
        return np.ones(1)
    _check_interventions(counts)
    examination = np.ones(ranks)
    for k in range(1, ranks):
        above, below = (k - 1, k), (k, k - 1)
        if not examination[k - 1] and not counts.clicks[k:].any() and counts.impressions[k:].any(axis=1).all():
            examination[k:] = 0
            break
        if not examination[k - 1] or not counts.clicks[above] or not counts.impressions[below]:
            lost = np.arange(k + 1, ranks + 1)
            raise FultrError(
                f"{_listed(lost)}: cannot be compared with rank 1: too few documents were shown at both ranks {k} and "
                f"{k + 1}, or clicked at rank {k}; use all pairs of ranks, collect more clicks, or {_ADVICE}"
            )
        rate = counts.clicks[below] / counts.impressions[below]
        examination[k] = examination[k - 1] * rate / (counts.clicks[above] / counts.impressions[above])
    return examination


def all_pairs(counts: PairCounts, *, tolerance: float = 1e-9, most: int = 200) -> Float64s:
    """Examination relative to rank 1, from all pairs of ranks by maximum likelihood, as in the paper.

    The documents of a pair of ranks have their own mean relevance r: clicks at k are taken as binomial with
    probability p_k r. The likelihood is concave in log p and log r. r is eliminated in closed form; what remains is
    Newton's method with the Laplacian of a graph of ranks.

    A rank at which none of these documents was clicked has examination 0. An estimate may lie above 1. Counts from
    which no finite one follows, in floating point, are a `FultrError`.

    >>> clicks = np.array([[0.0, 8.0, 4.0], [4.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    >>> all_pairs(PairCounts(clicks, np.full((3, 3), 10.0))).round(4).tolist()
    [1.0, 0.5, 0.5]
    """
    ranks = counts.clicks.shape[0]
    if ranks == 1:
        return np.ones(1)
    _check_interventions(counts)
    lost = unreachable_ranks(counts)
    if lost.size:
        raise FultrError(
            f"{_listed(lost)}: cannot be compared with rank 1: no clicked documents were shown both there and at "
            f"a rank linked to rank 1; collect more clicks, or {_ADVICE}"
        )
    shared = counts.shared_clicks()
    clicked = shared.any(axis=1)
    examination = np.zeros(ranks)
    examination[0] = 1.0
    if clicked.sum() == 1:
        return examination
    kept = np.ix_(clicked, clicked)
    c, n = shared[kept], counts.impressions[kept]
    edge = c + c.T > 0
    missed = np.where(edge, np.maximum(n - c, _FLOOR * n), 0)
    try:
        with np.errstate(all="ignore"):
            rates = c.sum(axis=1) / np.where(edge, n, 0).sum(axis=1)
            examination[clicked] = np.exp(_most_likely(np.log(rates / rates[0]), c, missed, edge, tolerance, most))
    except np.linalg.LinAlgError:
        examination[:] = np.nan
    if not np.isfinite(examination).all():
        raise FultrError(f"clicks at these ranks differ too much to be compared: collect more, or {_ADVICE}")
    return examination


def _most_likely(log_p: Float64s, c: Float64s, missed: Float64s, edge: Bools, tolerance: float, most: int) -> Float64s:
    """Newton's method for `all_pairs`; a `LinAlgError` where a step is not finite."""
    likelihood, gradient, laplacian = _profile(log_p, c, missed, edge)
    for _ in range(most):
        step = np.r_[0.0, np.linalg.solve(laplacian[1:, 1:], gradient[1:])]
        if not np.isfinite(step).all():
            raise np.linalg.LinAlgError("not finite")
        step /= max(1.0, float(np.abs(step).max()) / 2)
        while True:
            new = _profile(log_p + step, c, missed, edge)
            if new[0] >= likelihood or np.abs(step).max() < tolerance:
                break
            step /= 2
        log_p = log_p + step
        likelihood, gradient, laplacian = new
        if np.abs(step).max() < tolerance:
            break
    return log_p


def _profile(log_p: Float64s, c: Float64s, missed: Float64s, edge: Bools) -> tuple[float, Float64s, Float64s]:
    """Log-likelihood at the best r of every pair of ranks, its gradient by log p, and its Hessian's negative."""
    p = np.exp(log_p)[:, np.newaxis]
    both = c + c.T
    square = (both + missed + missed.T) * p * p.T  # r solves: square r^2 - linear r + both = 0
    linear = both * (p + p.T) + missed * p + missed.T * p.T
    root = np.sqrt(np.maximum(linear**2 - 4 * square * both, 0))
    r = np.divide(2 * both, linear + root, out=np.zeros_like(both), where=edge)
    chance = np.clip(p * r, 1e-300, 1 - 1e-12)
    likelihood = float((c * np.log(chance) + missed * np.log1p(-chance)).sum())
    odds = missed * chance / (1 - chance)
    gradient = (c - odds).sum(axis=1)
    curvature = odds / (1 - chance)
    total = curvature + curvature.T
    tie = np.divide(curvature * curvature.T, total, out=np.zeros_like(total), where=total > 0)
    return likelihood, gradient, np.diag(tie.sum(axis=1)) - tie


def unreachable_ranks(counts: PairCounts) -> Int64s:
    """Ranks, from 1, whose examination relative to rank 1 the counts do not determine.

    A rank without clicks is determined if it shares documents with another. Ranks with clicks can be compared if, as in
    a tournament, there is a path from each to the other over pairs of ranks in which the latter has clicks.
    """
    shared = counts.shared_clicks()
    clicked = shared.sum(axis=1) > 0
    if not clicked[0]:
        return np.arange(1, clicked.size + 1)
    way = np.eye(clicked.size) + (shared > 0)
    for _ in range(int(clicked.size).bit_length()):
        way = np.minimum(way @ way, 1.0)  # paths twice as long
    reached: Bools = (way[0] > 0) & (way[:, 0] > 0)
    reached = reached | (~clicked & np.any(counts.impressions > 0, axis=1))
    return np.flatnonzero(~reached) + 1


def _check_interventions(counts: PairCounts) -> None:
    if not counts.impressions.any():
        raise FultrError(f"no document was shown at more than one rank, so clicks cannot separate rank from "
                         f"relevance: {_ADVICE}")  # fmt: skip
    if not counts.shared_clicks().any():
        raise FultrError("no document that was shown at more than one rank was ever clicked: collect more clicks")
    if not counts.shared_clicks()[0].any():
        raise FultrError(
            f"rank 1: no document that was shown there and elsewhere was clicked there, so nothing can be compared "
            f"with it: collect more clicks, or {_ADVICE}"
        )


def _listed(ranks: Int64s) -> str:
    return f"rank{'s' if ranks.size > 1 else ''} {', '.join(map(str, ranks))}"
