"""What users are shown: by the first logging policy, and by rankers that take its place as training goes on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numba import njit

from fultr.clicks.log import Display, aligned_rows
from fultr.clicks.settings import ClickModel
from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s
from fultr.core.threads import run_ranges
from fultr.data.ranking import RankingData
from fultr.rankers.metrics import GAINS, ideal_dcg, rank_discounts
from fultr.rankers.model import Model
from fultr.study.exploration import explored
from fultr.study.policy import best_documents
from fultr.study.settings import Showing
from fultr.study.users import attraction


@njit(nogil=True, cache=True)
def _ideal_dcgs(labels: Int32s, offsets: Int64s, gains: Float64s, discounts: Float64s) -> Float64s:
    out = np.empty(offsets.size - 1)
    for q in range(out.size):
        grades = labels[offsets[q] : offsets[q + 1]]
        out[q] = ideal_dcg(grades, min(discounts.size, grades.size), gains, discounts)
    return out


@dataclass(frozen=True, eq=False)
class Judged:
    """How good is what users are shown: NDCG@k by the grades that nobody in training is told.

    Attributes:
        data: the queries.
        k: ranks that count.
    """

    data: RankingData
    k: int

    @cached_property
    def _ideal(self) -> Float64s:
        most = min(self.k, int(np.diff(self.data.offsets).max()))
        return _ideal_dcgs(self.data.labels, self.data.offsets, GAINS, rank_discounts(most))

    def ndcg(self, documents: Int64s, queries: Int64s) -> Float64s:
        """NDCG@k of these rows of the data, [displayed, K], -1 for none; NaN for a query without a relevant document.

        >>> data = RankingData.from_arrays([[0.0]] * 3, labels=[0, 1, 0], query_ids=[1, 1, 1])
        >>> Judged(data, 5).ndcg(np.array([[1, 0], [0, 1], [0, 2]]), np.zeros(3, np.int64)).round(4).tolist()
        [1.0, 0.6309, 0.0]
        """
        top = documents[:, : self.k]
        gains = np.where(top >= 0, GAINS[self.data.labels[top]], 0.0)
        with np.errstate(invalid="ignore"):
            found: Float64s = (gains * rank_discounts(top.shape[1])).sum(axis=1) / self._ideal[queries]
        return found


@dataclass(frozen=True, eq=False)
class Shown:
    """What queries display, and how it appeals to users.

    Attributes:
        data: the training queries.
        click_model: how users click.
        judged: says how good it is.
        display: what each query displays, for each version in use.
        attraction: [versions x queries, K] probability of a click on what is examined.
        quality: [versions x queries] NDCG@k of what is displayed.
        names: of the versions in use.
        scores: [documents] of the latest version, where users explore; None: they do not.
        seed: of the order of documents with equal scores.
    """

    data: RankingData
    click_model: ClickModel
    judged: Judged
    display: Display
    attraction: Float64s
    quality: Float64s
    names: tuple[str, ...]
    scores: Float32s | None
    seed: int

    @classmethod
    def first(
        cls, data: RankingData, shown: Display, click_model: ClickModel, k: int, seed: int, scores: Float32s | None
    ) -> Shown:
        """By the first logging policies."""
        judged = Judged(data, k)
        names = tuple(f"policy {version}" for version in range(shown.versions))
        appeal = attraction(data, shown, click_model)
        return cls(data, click_model, judged, shown, appeal, _quality(judged, shown), names, scores, seed)

    def refreshed(self, version: int, model: Model, weights: Float32s, name: str, threads: int | None = None) -> Shown:
        """The same after a ranker has taken the place of a version.

        The features of what is displayed now overwrite those displayed before: the former value is of no more use.
        """
        data, before = self.data, self.display
        best = best_documents(
            data, model, weights, displayed=before.ranks, seed=self.seed, threads=threads, scores=self.scores
        )
        own = slice(version * data.queries, (version + 1) * data.queries)
        documents = before.documents.copy()
        documents[own] = best
        if before.features is data.features:  # pairs are all that was retrieved
            after = replace(before, shown=documents, documents=documents)
        else:
            _repack(data.features, before, own.start, best, threads)
            after = replace(before, documents=documents)
        names = (*self.names[:version], name, *self.names[version + 1 :])
        appeal = attraction(data, after, self.click_model)
        return replace(self, display=after, attraction=appeal, quality=_quality(self.judged, after), names=names)

    def explored(self, showing: Showing, drawn: Int64s, clients: Int64s, seed: int, round_: int) -> Display:
        """What clients who explore are shown for each of their queries, [clients, queries], in a round."""
        assert self.scores is not None
        documents = explored(
            showing, self.scores, self.data.offsets, self.display.documents, drawn, clients, seed=seed, round_=round_
        )
        there = documents >= 0
        offsets = np.r_[0, np.cumsum(there.sum(axis=1))]
        shown = np.where(there, offsets[:-1, np.newaxis] + np.arange(documents.shape[1]), -1)
        block = aligned_rows(int(offsets[-1]), self.data.width)
        _copy_changed(self.data.features, documents, np.full_like(documents, -1), shown, 0, 0, len(documents), block)
        return Display(block, offsets, shown, documents)


def _quality(judged: Judged, shown: Display) -> Float64s:
    queries = np.tile(np.arange(judged.data.queries), shown.versions)
    return judged.ndcg(shown.documents, queries)


def _repack(features: Float32s, before: Display, start: int, best: Int64s, threads: int | None) -> None:
    """Copy the features of what is displayed from now on, where it is another document than before."""

    def work(begin: int, end: int) -> None:
        _copy_changed(features, best, before.documents, before.shown, start, begin, end, before.features)

    run_ranges(work, best.shape[0], threads)


@njit(nogil=True, cache=True)
def _copy_changed(
    features: Float32s,
    best: Int64s,
    documents: Int64s,
    shown: Int64s,
    start: int,
    begin: int,
    end: int,
    block: Float32s,
) -> None:
    for q in range(begin, end):
        for rank in range(best.shape[1]):
            if best[q, rank] != documents[start + q, rank]:
                row, document = shown[start + q, rank], best[q, rank]
                for f in range(features.shape[1]):
                    block[row, f] = features[document, f]
