"""Can the clicks of a log separate rank from relevance?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fultr.clicks.examination.document_em import document_em
from fultr.clicks.examination.harvesting import pair_counts, unreachable_ranks
from fultr.clicks.examination.methods import Method
from fultr.clicks.examination.regression import feature_model
from fultr.clicks.impressions import Cells
from fultr.core.arrays import Float64s

LEAST_IMPRESSIONS = 20  # of a document whose relevance is correlated with its rank
LEAST_DOCUMENTS = 10  # such documents, to correlate at all


@dataclass(frozen=True)
class Identifiability:
    """Can the clicks in this log separate rank from relevance?

    Attributes:
        documents: (query, document) pairs.
        moved: how many of them were shown at more than one rank.
        moved_impressions: their share of all displayed documents.
        unreachable: ranks, from 1, that no chain of clicked documents links to rank 1.
        relevance_by_rank: Spearman's correlation of documents' estimated relevance with their mean rank. Near -1 the
            ranking was good: rank and relevance are confounded, except for documents that moved. None: too few.
        clicks_per_document: mean clicks of a document that was clicked.
        start_gap: how far apart EM (or regression) ends when started from 1 / rank and from 1 everywhere.
    """

    documents: int
    moved: int
    moved_impressions: float
    unreachable: tuple[int, ...]
    relevance_by_rank: float | None
    clicks_per_document: float
    start_gap: float

    @property
    def moved_share(self) -> float:
        """Share of documents that were shown at more than one rank."""
        return self.moved / self.documents


def identifiability(cells: Cells, examination: Float64s, method: Method = "em") -> Identifiability:
    """Assess what a log can identify.

    Args:
        cells: its counts.
        examination: an estimate, used to estimate the documents' relevance.
        method: "regression" if relevance is modelled by features.
    """
    cells.check_clicks()
    shown, clicked = cells.by_pair()
    moved = cells.ranks_of_pair() > 1
    starts = (np.ones(cells.ranks), 1 / np.arange(1.0, cells.ranks + 1))
    fit = feature_model if method == "regression" else document_em
    ends = [fit(cells, start=start) for start in starts]
    return Identifiability(
        int((shown > 0).sum()),
        int(moved.sum()),
        float(shown[moved].sum() / shown.sum()),
        tuple(unreachable_ranks(pair_counts(cells)).tolist()) if cells.ranks > 1 else (),
        _relevance_by_rank(cells, examination, ends[0].relevance if method == "regression" else None),
        float(clicked.sum() / (clicked > 0).sum()),
        float(np.abs(ends[0].examination - ends[1].examination).max()),
    )


def _relevance_by_rank(cells: Cells, examination: Float64s, relevance: Float64s | None) -> float | None:
    """Spearman's correlation; relevance is taken from the clicks if it is not given."""
    shown, clicked = cells.by_pair()
    examined = cells.sum_by_pair(cells.impressions * examination[cells.rank])
    mean_rank = cells.sum_by_pair(cells.impressions * cells.rank) / np.maximum(shown, 1)
    kept = shown > 0
    if relevance is None:
        kept = (shown >= LEAST_IMPRESSIONS) & (examined > 0)
        relevance = np.divide(clicked, examined, out=np.zeros_like(clicked), where=kept)
    if kept.sum() < LEAST_DOCUMENTS:
        return None
    first, second = _ranked(relevance[kept]), _ranked(mean_rank[kept])
    if not np.ptp(first) or not np.ptp(second):
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _ranked(values: Float64s) -> Float64s:
    """Ranks of values; equal ones share the mean of theirs.

    >>> _ranked(np.array([0.5, 0.1, 0.5])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Float64s = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks
