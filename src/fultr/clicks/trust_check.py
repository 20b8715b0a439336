"""A check for trust bias: do higher ranks raise the clicks of poor documents more than those of good ones?

A position-based model says that a document's clicks fall from rank k to rank k' by the same factor whatever its
relevance. With trust bias (Agarwal, Wang, Li, Bendersky and Najork 2019, Addressing Trust Bias for Unbiased
Learning-to-Rank) poor documents are clicked at high ranks just because they are there, so their clicks fall by more.
No propensity, being one number per rank, can correct that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fultr.clicks.bootstrap import Unit, bootstrap
from fultr.clicks.examination.harvesting import all_pairs, pair_counts
from fultr.clicks.impressions import Cells, ImpressionLog
from fultr.core.arrays import Bools, Float64s
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, generator

LEAST_CLICKS = 50  # on less and on more relevant documents, at the higher and the lower rank: standard error .28


@dataclass(frozen=True)
class TrustBias:
    """What the check found.

    Attributes:
        excess: how much further the click rate of less relevant documents falls from the higher to the lower of two
            ranks than that of more relevant ones, as the logarithm of the ratio of the two falls: 0 if a position-based
            model holds, above 0 with trust bias.
        interval: its 95% bootstrap interval.
    """

    excess: float
    interval: tuple[float, float]

    @property
    def more(self) -> float:
        """The excess as a share: 0.1 if the factor by which clicks fall is a tenth larger."""
        return math.expm1(self.excess)

    @property
    def seen(self) -> bool:
        """Is it significant?"""
        return self.interval[0] > 0


def trust_bias(
    log: ImpressionLog,
    examination: Float64s,
    *,
    over: Unit | None = None,
    draws: int = 200,
    seed: int = 0,
    on_draw: Callable[[], None] = lambda: None,
) -> TrustBias | None:
    """Check a log by its documents that were shown at several ranks; None if too few of them were clicked.

    The pages are halved at random. Which documents of a half are less and which more relevant is taken from the other
    half: within one half, documents with lucky clicks would pass for relevant.

    Args:
        log: the log.
        examination: an estimate, by which documents' relevance is compared.
        over: what the bootstrap resamples; see `bootstrap`.
        draws: number of bootstrap draws.
        seed: of the halves and the draws.
        on_draw: called after each draw.
    """
    half = generator(seed, Purpose.HALVES).random(log.impressions) < 0.5
    if log.ranks == 1 or not 0 < half.sum() < half.size:
        return None
    halves = replace(  # a document counts as two, one per half
        log,
        documents=np.where(log.shown, log.documents + log.pairs * half[:, np.newaxis], -1).astype(np.int32),
        query_of_pair=np.tile(log.query_of_pair, 2),
        document_names=np.tile(log.document_names, 2),
        features=None,
    )
    poor, good = _groups(halves.cells(), examination)

    def falls(cells: Cells, least: float = 0.0) -> Float64s:
        """Logarithm of clicks over examination at the higher rank against the lower, poor minus good documents."""
        p = np.maximum(all_pairs(pair_counts(cells)), 1e-9)[:, np.newaxis]
        logs = []
        for group in (poor, good):
            clicks = pair_counts(replace(cells, copies=cells.copies * group)).clicks
            for side in (np.triu, np.tril):
                if side(clicks).sum() <= least:
                    raise FultrError("trust bias: too few clicks")
                logs.append(np.log(side(clicks / p).sum()))
        return np.array([(logs[0] - logs[1]) - (logs[2] - logs[3])])

    try:
        found = float(falls(halves.cells(), LEAST_CLICKS)[0])
    except FultrError:
        return None
    interval = bootstrap(halves, falls, over=over, draws=draws, seed=seed, on_draw=on_draw).interval()
    return None if interval is None else TrustBias(found, (float(interval[0][0]), float(interval[1][0])))


def _groups(halves: Cells, examination: Float64s) -> tuple[Bools, Bools]:
    """Less and more relevant documents, as the other half shows them, with equally many clicks there."""
    size = halves.copies.size
    examined = np.roll(halves.sum_by_pair(halves.impressions * examination[halves.rank]), size // 2)
    clicks = np.roll(halves.by_pair()[1], size // 2)
    known = (halves.ranks_of_pair() > 1) & (examined > 0)
    relevance = np.divide(clicks, examined, out=np.zeros(size), where=known)
    order = np.argsort(relevance, kind="stable")
    reached = np.cumsum(np.where(known, clicks, 0)[order])
    above = np.zeros(size, bool)
    above[order] = reached > reached[-1] / 2
    return known & ~above, known & above
