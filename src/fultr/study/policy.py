"""The logging policy f_0: the ranker that was in production when the clicks were made, and what it displays.

Section 4, Logging policy: a linear ranker trained with full information on a random 1% of the queries. The paper does
not say more; how strong the policy is hangs on epochs, learning rate, initial weights and the loss's reduction, and so
does the size of FedIPS's advantage. The defaults were fixed from the policy's own NDCG alone (docs/effect.md).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit

from fultr.clicks.log import Display
from fultr.core.arrays import Float32s, Int64s
from fultr.core.checks import check_choice, check_number
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, generator
from fultr.core.threads import chunk_bounds, run_chunks
from fultr.data.ranking import RankingData
from fultr.rankers.metrics import tie_key, top_documents
from fultr.rankers.model import Model, ModelSettings, model_named
from fultr.rankers.supervised import Objective, train_epoch
from fultr.study.settings import PolicySettings

_POLICY_TIES = int(Purpose.POLICY_TIES)


def train_policy(
    train: RankingData, settings: PolicySettings = PolicySettings(), seed: int = 0, version: int = 0
) -> Float32s:
    """Weights of a logging policy: pairwise hinge loss on a random sample of the training queries.

    Versions of a seed have samples, first weights and orders of their own.

    >>> data = RankingData.from_arrays([[0.0, 1.0], [1.0, 0.0]], labels=[0, 1], query_ids=[1, 1])
    >>> weights = train_policy(data, PolicySettings(policy_fraction=1.0, policy_initial="zero"))
    >>> bool(weights[0] > 0 > weights[1])
    True
    """
    sampled = generator(seed, Purpose.POLICY_SAMPLE, version).choice(
        train.queries, size=max(1, round(settings.policy_fraction * train.queries)), replace=False
    )
    if settings.policy_initial == "zero":
        weights = np.zeros(train.width, np.float32)
    else:
        weights = generator(seed, Purpose.POLICY_WEIGHTS, version).standard_normal(train.width, np.float32)
    shuffle = generator(seed, Purpose.POLICY_BATCHES, version)
    for _ in range(settings.policy_epochs):
        train_epoch(
            train,
            weights,
            shuffle.permutation(sampled),
            batch=settings.policy_batch,
            learning_rate=settings.policy_rate,
            objective=Objective.HINGE_SUM if settings.policy_reduction == "sum" else Objective.HINGE_MEAN,
        )
    return weights


@njit(nogil=True, cache=True)
def _top_rows(
    scores: Float32s, offsets: Int64s, query_ids: Int64s, seed: int, begin: int, end: int, shown: Int64s
) -> None:
    """Positions of the best documents of queries `begin` to `end`, whose scores are given from the first one's on."""
    start = offsets[begin]
    for q in range(begin, end):
        first, last = offsets[q], offsets[q + 1]
        keys = np.empty(last - first, np.uint64)
        for d in range(last - first):
            keys[d] = tie_key(seed, _POLICY_TIES, query_ids[q], d)
        shown[q] = -1
        top_documents(scores[first - start : last - start], keys, shown[q])


def best_documents(
    data: RankingData,
    model: Model,
    weights: Float32s,
    *,
    displayed: int = 5,
    seed: int = 0,
    threads: int | None = None,
    scores: Float32s | None = None,
) -> Int64s:
    """The rows of the best documents of each query under a ranker: [queries, K], best first.

    Ties are broken by a random key of (seed, query id, position). A query with fewer than K documents displays them
    all; its row ends in -1. Documents are scored in blocks.

    Args:
        data: the queries.
        model: of the ranker.
        weights: of the ranker.
        displayed: K.
        seed: of the random order of documents with equal scores.
        threads: how many threads to use; all cores if None.
        scores: float32 [documents], written if given.

    >>> data = RankingData.from_arrays([[3.0], [7.0], [5.0], [1.0]], labels=[0, 1, 0, 1], query_ids=[1, 1, 1, 2])
    >>> best_documents(data, model_named("linear", 1), np.float32([1]), displayed=2).tolist()
    [[1, 2], [3, -1]]
    """
    check_number("displayed", displayed, least=1, most=1000, whole=True)
    shown = np.empty((data.queries, displayed), np.int64)
    given = np.ascontiguousarray(weights[np.newaxis], np.float32)

    def work(begin: int, end: int) -> None:
        rows = slice(data.offsets[begin], data.offsets[end])
        found = model.scores(given, data.features[rows], threads=1)[:, 0]
        if scores is not None:
            scores[rows] = found
        _top_rows(found, data.offsets, data.query_ids, seed, begin, end, shown)

    bounds = chunk_bounds(data.queries, 256)  # whose scores are held at a time, whatever the number of threads
    run_chunks(lambda i: work(*bounds[i]), len(bounds), threads)
    return np.where(shown >= 0, data.offsets[:-1, np.newaxis] + shown, -1)


def display(
    data: RankingData,
    policy: Float32s,
    *,
    displayed: int = 5,
    pairs: Literal["displayed", "retrieved"] = "displayed",
    seed: int = 0,
    threads: int | None = None,
    model: ModelSettings | str = "linear",
) -> Display:
    """What the logging policy displays for each query.

    Args:
        data: the queries.
        policy: weights of the logging policy, [size]; or of several versions of it, [versions, size].
        displayed: K.
        pairs: the documents D_q that a clicked one is compared with: the "displayed" ones (their features are copied
            into one block of at most queries x K rows), or all "retrieved" ones (nothing is copied).
        seed: of the random order of documents with equal scores.
        threads: how many threads to use; all cores if None.
        model: of the logging policy; `train_policy` trains a linear one.
    """
    check_choice("pairs", pairs, ("displayed", "retrieved"))
    versions, ranker = np.atleast_2d(policy), model_named(model, data.width)
    documents = np.concatenate(
        [best_documents(data, ranker, each, displayed=displayed, seed=seed, threads=threads) for each in versions]
    )
    if pairs == "retrieved":
        if len(versions) > 1:
            raise FultrError("pairs: retrieved documents go with a single logging policy, found several versions")
        return Display(data.features, data.offsets, documents, documents)
    return Display.of_rows(data.features, documents, len(versions))
