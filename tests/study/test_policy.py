"""The logging policy and full-information training against plain loops."""

from __future__ import annotations

import numpy as np
import plain
import pytest
from sklearn.metrics import ndcg_score

from fultr.core.errors import FultrError
from fultr.data.ranking import RankingData
from fultr.rankers.model import model_named
from fultr.rankers.supervised import Objective, train_epoch
from fultr.study.policy import best_documents, display, train_policy
from fultr.study.settings import PolicySettings


def hinge_gradient(data, w, q, mean):
    rows = range(data.offsets[q], data.offsets[q + 1])
    x, y = data.features.astype(np.float64), data.labels
    pairs = [(i, j) for i in rows for j in rows if y[i] > y[j]]
    total = sum((x[j] - x[i] for i, j in pairs if x[i] @ w - x[j] @ w < 1), np.zeros(w.size))
    return total / len(pairs) if mean and pairs else total


def lambda_gradient(data, w, q):
    """LambdaRank: for each pair, what swapping the two would change in NDCG, by doing the swap."""
    rows = np.arange(data.offsets[q], data.offsets[q + 1])
    gains = 2.0 ** data.labels[rows] - 1
    if gains.max() == 0 or rows.size == 1:
        return np.zeros(w.size)
    x = data.features[rows].astype(np.float64)
    scores = x @ w
    order = np.argsort(-scores)
    places = np.empty(rows.size)
    places[order] = np.arange(rows.size, 0, -1)  # higher is better
    total = np.zeros(w.size)
    before = ndcg_score([gains], [places])
    for i in range(rows.size):
        for j in range(rows.size):
            if gains[i] > gains[j]:
                swapped = places.copy()
                swapped[[i, j]] = swapped[[j, i]]
                change = abs(ndcg_score([gains], [swapped]) - before)
                total += change / (1 + np.exp(scores[i] - scores[j])) * (x[j] - x[i])
    return total


@pytest.mark.parametrize("objective", list(Objective))
def test_an_epoch_equals_plain_mini_batch_sgd(objective):
    rng = np.random.default_rng(int(objective))
    data = plain.random_data(rng, queries=13, features=5)
    jitter = rng.random(data.features.shape).astype(np.float32)
    data = RankingData(data.features + jitter, data.labels, data.offsets, data.query_ids, data.feature_ids)
    start = rng.standard_normal(5).astype(np.float32)
    order = rng.permutation(13)
    w = start.astype(np.float64)
    for batch in (order[:4], order[4:8], order[8:12], order[12:]):
        if objective is Objective.LAMBDARANK:
            gradients = [lambda_gradient(data, w, q) for q in batch]
        else:
            gradients = [hinge_gradient(data, w, q, objective is Objective.HINGE_MEAN) for q in batch]
        w = w - 0.05 * np.mean(gradients, axis=0)
    found = start.copy()
    train_epoch(data, found, order, batch=4, learning_rate=0.05, objective=objective)
    np.testing.assert_allclose(found, w, rtol=1e-4, atol=1e-5)


def test_display_is_the_top_of_the_policy():
    rng = np.random.default_rng(0)
    data = plain.random_data(rng, queries=40)
    policy = rng.standard_normal(data.width).astype(np.float32)
    for pairs in ("displayed", "retrieved"):
        shown = display(data, policy, displayed=4, pairs=pairs)
        for q in range(data.queries):
            rows = np.arange(data.offsets[q], data.offsets[q + 1])
            there = shown.documents[q][shown.documents[q] >= 0]
            scores = data.features @ policy
            assert there.size == min(4, rows.size)
            assert set(there) <= set(rows)
            assert (np.diff(scores[there]) <= 1e-5).all()
            assert scores[there].min() >= np.sort(scores[rows])[::-1][: there.size].min() - 1e-5
            np.testing.assert_array_equal(
                shown.features[shown.shown[q][: there.size], : data.width], data.features[there]
            )
            compared = shown.offsets[q + 1] - shown.offsets[q]
            assert compared == (there.size if pairs == "displayed" else rows.size)


def test_retrieved_pairs_copy_nothing_and_padding_is_zero():
    data = plain.random_data(np.random.default_rng(0), queries=5, features=5)
    assert display(data, np.zeros(5, np.float32), pairs="retrieved").features is data.features
    packed = display(data, np.zeros(5, np.float32)).features
    assert packed.shape[1] == 16
    assert packed.ctypes.data % 64 == 0
    assert not packed[:, 5:].any()


def test_ties_are_broken_by_the_seed_not_by_file_order():
    n = 3000
    data = RankingData.from_arrays(np.zeros((n * 4, 1)), np.zeros(n * 4), np.repeat(np.arange(n), 4))

    def shown(**options):
        found = best_documents(data, model_named("linear", 1), np.zeros(1, np.float32), displayed=1, **options)
        return found[:, 0] - data.offsets[:-1]

    first = shown(seed=0)
    for position in range(4):
        assert abs((first == position).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / n)
    again = shown(seed=0, threads=1)
    other = shown(seed=1)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_policy_depends_on_its_settings_and_seed_alone():
    data = plain.random_data(np.random.default_rng(0), queries=200)
    settings = PolicySettings(policy_fraction=0.05, policy_epochs=3)
    np.testing.assert_array_equal(train_policy(data, settings, 1), train_policy(data, settings, 1))
    assert not np.array_equal(train_policy(data, settings, 1), train_policy(data, settings, 2))
    start = train_policy(data, PolicySettings(policy_epochs=0, policy_initial="zero"))
    assert not start.any()
    assert train_policy(data, PolicySettings(policy_epochs=0, policy_initial="random")).std() > 0


def test_bad_settings_are_named():
    with pytest.raises(FultrError, match="policy_fraction: expected a number, above 0, at most 1, found 0"):
        PolicySettings(policy_fraction=0)
    with pytest.raises(FultrError, match='policy_reduction: expected one of sum, mean; found "max"'):
        PolicySettings(policy_reduction="max")
