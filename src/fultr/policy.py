"""The logging policy f_0: the ranker that was in production when the clicks were made, and what it displays.

Section 4, Logging policy: a linear ranker trained with full information on a random 1% of the queries. The paper does
not say more; how strong the policy is hangs on epochs, learning rate, initial weights and the loss's reduction, and so
does the size of FedIPS's advantage. The defaults were fixed from the policy's own NDCG alone (docs/effect.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numba import njit

from fultr.checks import check_choice, check_number
from fultr.data import RankingData
from fultr.errors import FultrError
from fultr.linear import score_rows
from fultr.metrics import tie_key, top_documents
from fultr.streams import Purpose, generator
from fultr.supervised import Objective, train_epoch
from fultr.threads import run_ranges
from fultr.types import Float32s, Int64s

_POLICY_TIES = int(Purpose.POLICY_TIES)


@dataclass(frozen=True)
class PolicySettings:
    """How the logging policy is trained.

    Attributes:
        fraction: share of the training queries that it sees, at least one query.
        epochs: passes over them.
        batch: queries a step.
        learning_rate: of SGD.
        initial: weights at the start: all "zero", or "random" from a standard Gaussian.
        reduction: a query's loss is the "sum" or the "mean" over its pairs of documents.
    """

    fraction: float = 0.01
    epochs: int = 50
    batch: int = 16
    learning_rate: float = 0.1
    initial: Literal["zero", "random"] = "random"
    reduction: Literal["sum", "mean"] = "sum"

    def __post_init__(self) -> None:
        check_number("fraction", self.fraction, above=0, most=1)
        check_number("epochs", self.epochs, least=0, whole=True)
        check_number("batch", self.batch, least=1, whole=True)
        check_number("learning_rate", self.learning_rate, above=0)
        check_choice("initial", self.initial, ("zero", "random"))
        check_choice("reduction", self.reduction, ("sum", "mean"))


def train_policy(
    train: RankingData, settings: PolicySettings = PolicySettings(), seed: int = 0, version: int = 0
) -> Float32s:
    """Weights of a logging policy: pairwise hinge loss on a random sample of the training queries.

    Versions of a seed have samples, first weights and orders of their own.

    >>> data = RankingData.from_arrays([[0.0, 1.0], [1.0, 0.0]], labels=[0, 1], query_ids=[1, 1])
    >>> weights = train_policy(data, PolicySettings(fraction=1.0, initial="zero"))
    >>> bool(weights[0] > 0 > weights[1])
    True
    """
    sampled = generator(seed, Purpose.POLICY_SAMPLE, version).choice(
        train.queries, size=max(1, round(settings.fraction * train.queries)), replace=False
    )
    if settings.initial == "zero":
        weights = np.zeros(train.width, np.float32)
    else:
        weights = generator(seed, Purpose.POLICY_WEIGHTS, version).standard_normal(train.width, np.float32)
    shuffle = generator(seed, Purpose.POLICY_BATCHES, version)
    for _ in range(settings.epochs):
        train_epoch(
            train,
            weights,
            shuffle.permutation(sampled),
            batch=settings.batch,
            learning_rate=settings.learning_rate,
            objective=Objective.HINGE_SUM if settings.reduction == "sum" else Objective.HINGE_MEAN,
        )
    return weights


@njit(nogil=True, cache=True)
def _top_rows(
    features: Float32s,
    offsets: Int64s,
    query_ids: Int64s,
    weights: Float32s,
    seed: int,
    begin: int,
    end: int,
    shown: Int64s,
) -> None:
    for q in range(begin, end):
        first, last = offsets[q], offsets[q + 1]
        scores = np.empty((last - first, 1), np.float32)
        score_rows(features, weights, first, last, scores)
        keys = np.empty(last - first, np.uint64)
        for d in range(last - first):
            keys[d] = tie_key(seed, _POLICY_TIES, query_ids[q], d)
        shown[q] = -1
        top_documents(scores[:, 0].copy(), keys, shown[q])


def top_positions(
    data: RankingData, weights: Float32s, *, displayed: int = 5, seed: int = 0, threads: int | None = None
) -> Int64s:
    """The documents that a ranker displays for each query, as positions within the query: [queries, K], best first.

    Ties are broken by a random key of (seed, query id, position). A query with fewer than K documents displays them
    all; its row ends in -1.

    >>> data = RankingData.from_arrays([[3.0], [7.0], [5.0], [1.0]], labels=[0, 1, 0, 1], query_ids=[1, 1, 1, 2])
    >>> top_positions(data, np.float32([1]), displayed=2).tolist()
    [[1, 2], [0, -1]]
    """
    check_number("displayed", displayed, least=1, most=1000, whole=True)
    shown = np.empty((data.queries, displayed), np.int64)
    row = np.ascontiguousarray(weights[np.newaxis], np.float32)

    def work(begin: int, end: int) -> None:
        _top_rows(data.features, data.offsets, data.query_ids, row, seed, begin, end, shown)

    run_ranges(work, data.queries, threads)
    return shown


@dataclass(frozen=True, eq=False)
class Display:
    """What each query displays, and the documents that its pairs are formed with.

    Attributes:
        features: float32 [rows, features or more]; columns past the features are 0.
        offsets: int64 [queries + 1]: the rows that query q's clicked documents are compared with.
        shown: int64 [queries, K]: the row displayed at each rank; -1 past the last document.
        documents: int64 [queries, K]: the same as rows of the data set.
        versions: how many logging policies are in use; query q of version v has number v x queries + q.
        recorded_ranks: `other_ranks`, where a log recorded them and nobody has the versions' rankings.
    """

    features: Float32s
    offsets: Int64s
    shown: Int64s
    documents: Int64s
    versions: int = 1
    recorded_ranks: Int64s | None = None

    @cached_property
    def other_ranks(self) -> Int64s:
        """[queries, K, versions] at which rank each version has the document displayed at each rank; -1: nowhere."""
        if self.recorded_ranks is not None:
            return self.recorded_ranks
        queries = self.queries // self.versions
        shown = self.documents.reshape(self.versions, queries, self.ranks)
        found = np.full((self.versions, queries, self.ranks, self.versions), -1)
        for v in range(self.versions):
            same = (self.documents.reshape(self.versions, queries, self.ranks, 1) == shown[v][:, np.newaxis]) & (
                self.documents.reshape(self.versions, queries, self.ranks, 1) >= 0
            )
            found[..., v] = np.where(same.any(axis=3), same.argmax(axis=3), -1)
        return found.reshape(self.queries, self.ranks, self.versions)

    @cached_property
    def longest(self) -> int:
        """The largest number of documents that a clicked one is compared with."""
        return int(np.diff(self.offsets).max(initial=0))

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return self.shown.shape[0]

    @property
    def ranks(self) -> int:
        """How many documents a query displays at most: K."""
        return self.shown.shape[1]


def display(
    data: RankingData,
    policy: Float32s,
    *,
    displayed: int = 5,
    pairs: Literal["displayed", "retrieved"] = "displayed",
    seed: int = 0,
    threads: int | None = None,
) -> Display:
    """What the logging policy displays for each query.

    Args:
        data: the queries.
        policy: weights of the logging policy, [features]; or of several versions of it, [versions, features].
        displayed: K.
        pairs: the documents D_q that a clicked one is compared with: the "displayed" ones (their features are copied
            into one block of at most queries x K rows), or all "retrieved" ones (nothing is copied).
        seed: of the random order of documents with equal scores.
        threads: how many threads to use; all cores if None.
    """
    check_choice("pairs", pairs, ("displayed", "retrieved"))
    versions = np.atleast_2d(policy)
    positions = np.concatenate(
        [top_positions(data, version, displayed=displayed, seed=seed, threads=threads) for version in versions]
    )
    there = positions >= 0
    documents = np.where(there, np.tile(data.offsets[:-1, np.newaxis], (len(versions), 1)) + positions, -1)
    if pairs == "retrieved":
        if len(versions) > 1:
            raise FultrError("pairs: retrieved documents go with a single logging policy, found several versions")
        return Display(data.features, data.offsets, documents, documents)
    offsets = np.r_[0, np.cumsum(there.sum(axis=1))]
    shown = np.where(there, offsets[:-1, np.newaxis] + np.arange(displayed), -1)
    return Display(packed(data.features, documents[there]), offsets, shown, documents, len(versions))


def packed(features: Float32s, rows: Int64s) -> Float32s:
    """The given rows, copied to lie one after the other, each padded with zeros to whole cache lines."""
    lines = -(-features.shape[1] // 16)
    memory = np.zeros(rows.size * lines * 16 + 16, np.float32)
    skip = -(memory.ctypes.data // 4) % 16
    block = memory[skip : skip + rows.size * lines * 16].reshape(rows.size, lines * 16)
    block[:, : features.shape[1]] = features[rows]
    return block
