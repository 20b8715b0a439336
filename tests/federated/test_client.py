"""The cohort kernel against a plain transcription of Algorithm 1."""

from __future__ import annotations

import itertools

import numpy as np
import plain
import pytest
from help.training import updates
from hypothesis import given, settings
from hypothesis import strategies as st

from fultr.clicks.log import ClickLog, Records
from fultr.core.errors import FultrError
from fultr.data.ranking import RankingData
from fultr.federated.settings import LocalTraining
from fultr.rankers.linear import Linear
from fultr.rankers.losses import BOUND_NO_RANK, LOSSES
from fultr.rankers.training import training_with
from fultr.study.policy import display


def random_log(rng: np.random.Generator, shown, clients: int, impressions: int, click_rate: float) -> ClickLog:
    """Some clients have no impression, some no click; queries and clicks are repeated."""
    counts = rng.integers(0, impressions + 1, clients)
    queries = rng.integers(0, shown.queries, counts.sum()).astype(np.int32)
    clicks = (rng.random((queries.size, shown.ranks)) < click_rate) & (shown.shown[queries] >= 0)
    return ClickLog(queries, clicks.astype(np.uint8), np.r_[0, np.cumsum(counts)])


def check(seed, queries, features, most, ranks, pairs, training, clients=4, impressions=6, click_rate=0.3) -> None:
    rng = np.random.default_rng(seed)
    data = plain.random_data(rng, queries, features, most)
    shown = display(data, rng.standard_normal(features).astype(np.float32), displayed=ranks, pairs=pairs)
    log = random_log(rng, shown, clients, impressions, click_rate)
    weights = (0.5 * rng.standard_normal(features)).astype(np.float32)
    propensities = rng.uniform(0.05, 1, (clients, ranks))
    expected = np.zeros(features)
    scale = 0.0
    for u in range(clients):
        begin, end = log.offsets[u], log.offsets[u + 1]
        one = ClickLog(log.queries[begin:end], log.clicks[begin:end], np.array([0, end - begin]))
        [update], [replied] = updates(one, shown, propensities[u : u + 1], weights, training)
        wanted = plain.client_update(plain.impressions_of(log, u), shown, propensities[u], weights, training)
        assert replied == bool(one.clicks.any())
        reach = 1 + np.abs(weights).max() + np.abs(wanted).max()
        np.testing.assert_allclose(update, wanted, rtol=2e-4, atol=2e-6 * reach)
        expected += update
        scale = max(scale, reach)
    [total], _ = updates(log, shown, propensities, weights, training)
    np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12 * scale)
    single, trained = updates(log, shown, propensities, weights, training, rows=clients)
    np.testing.assert_array_equal(trained, log.clicks_by_client() > 0)
    np.testing.assert_allclose(single.sum(axis=0), expected, rtol=1e-12, atol=1e-12 * scale)


@pytest.mark.parametrize(
    ("loss", "metric", "pairs", "clip", "epochs"),
    [
        case
        for case in itertools.product(LOSSES, ["rank", "dcg"], ["displayed", "retrieved"], [None, 3.0], [1, 3])
        if case[1] == "rank" or case[0] not in BOUND_NO_RANK
    ],
)
def test_equals_plain_algorithm_for_every_option(loss, metric, pairs, clip, epochs):
    training = LocalTraining(0.013, loss, metric, clip, epochs)
    for seed in range(5):
        check(seed, queries=8, features=11, most=12, ranks=5, pairs=pairs, training=training)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    queries=st.integers(1, 6),
    features=st.integers(1, 70),
    most=st.integers(1, 14),
    ranks=st.integers(1, 11),
    pairs=st.sampled_from(["displayed", "retrieved"]),
    click_rate=st.sampled_from([0.0, 0.2, 1.0]),
    loss=st.sampled_from(list(LOSSES)),
)
def test_equals_plain_algorithm_for_any_shape(seed, queries, features, most, ranks, pairs, click_rate, loss):
    training = LocalTraining(0.007, loss)
    check(seed, queries, features, most, ranks, pairs, training, clients=3, impressions=4, click_rate=click_rate)


@pytest.mark.parametrize("pairs", ["displayed", "retrieved"])
@pytest.mark.parametrize("loss", LOSSES)
def test_equals_the_plain_algorithm_for_credit_of_either_sign(loss, pairs):
    """Documents that were not clicked may have credit, too, and less than none; those with 0 take no step."""
    training = LocalTraining(0.013, loss, epochs=2)
    how = training_with(training.loss, training.metric, training.client_rate, training.epochs)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        data = plain.random_data(rng, 8, 11, 12)
        shown = display(data, rng.standard_normal(11).astype(np.float32), displayed=6, pairs=pairs)
        log = random_log(rng, shown, 3, 6, 0.3)
        there = shown.shown[log.queries] >= 0
        credit = np.where(there & (rng.random(there.shape) < 0.7), rng.normal(0, 2, there.shape), 0.0)
        weights = (0.5 * rng.standard_normal(11)).astype(np.float32)
        totals, trained = np.zeros((3, 11)), np.zeros((3, 1))
        Linear(11).add_updates(Records(log, shown), credit, weights, how, totals, trained)
        for u, (begin, end) in enumerate(itertools.pairwise(log.offsets)):
            impressions = [
                (int(log.queries[i]), [(int(k), float(credit[i, k])) for k in np.flatnonzero(credit[i])])
                for i in range(begin, end)
            ]
            wanted = plain.credited_update(impressions, shown, weights, training)
            reach = 1 + np.abs(weights).max() + np.abs(wanted).max()
            np.testing.assert_allclose(totals[u], wanted, rtol=2e-4, atol=2e-6 * reach)
            assert trained[u, 0] == credit[begin:end].any()


def test_negative_credit_by_hand():
    """Two documents, scores 0: what has credit -1/2 loses, the other gains, by eta / 2 times their difference."""
    data = RankingData.from_arrays([[1.0, 0.0], [0.0, 1.0]], labels=[0, 1], query_ids=[1, 1])
    shown = display(data, np.float32([1, 0]), displayed=2)
    log = ClickLog(np.int32([0]), np.uint8([[0, 0]]), np.array([0, 1]))
    total, how = np.zeros((1, 2)), training_with("hinge", "rank", 0.125, 1)
    Linear(2).add_updates(
        Records(log, shown), np.array([[0.0, -0.5]]), np.zeros(2, np.float32), how, total, np.zeros((1, 1))
    )
    assert total.tolist() == [[0.125 / 2, -0.125 / 2]]


def test_hinge_step_by_hand():
    """Two documents, scores 0: the clicked one gains, the other loses, by eta / p times their difference."""
    data = RankingData.from_arrays([[1.0, 0.0], [0.0, 1.0]], labels=[0, 1], query_ids=[1, 1])
    shown = display(data, np.float32([1, 0]), displayed=2)  # document 0 at rank 1, document 1 at rank 2
    log = ClickLog(np.int32([0]), np.uint8([[0, 1]]), np.array([0, 1]))
    [total], _ = updates(log, shown, np.array([[1.0, 0.25]]), np.zeros(2, np.float32), LocalTraining(0.125))
    assert total.tolist() == [-0.125 / 0.25, 0.125 / 0.25]


def test_no_gradient_from_a_lone_document():
    data = RankingData.from_arrays([[1.0], [2.0]], labels=[0, 1], query_ids=[1, 2])
    shown = display(data, np.float32([1]), displayed=5)
    log = ClickLog(np.int32([0, 1]), np.uint8([[1, 0, 0, 0, 0]] * 2), np.array([0, 2]))
    for loss in LOSSES:
        [total], _ = updates(log, shown, np.ones((1, 5)), np.zeros(1, np.float32), LocalTraining(loss=loss))
        assert total.tolist() == [0.0]


def test_softmax_step_by_hand():
    """Two documents, scores 0: each has half; the clicked one gains eta / p times half of their difference / ln 2."""
    data = RankingData.from_arrays([[1.0, 0.0], [0.0, 1.0]], labels=[0, 1], query_ids=[1, 1])
    shown = display(data, np.float32([1, 0]), displayed=2)
    log = ClickLog(np.int32([0]), np.uint8([[0, 1]]), np.array([0, 1]))
    training = LocalTraining(0.125, "softmax")
    [total], _ = updates(log, shown, np.array([[1.0, 0.25]]), np.zeros(2, np.float32), training)
    step = 0.125 / 0.25 * 0.5 / np.log(2)
    np.testing.assert_allclose(total, [-step, step], rtol=1e-6)


def test_softmax_bounds_no_rank():
    with pytest.raises(FultrError, match="metric: expected rank with the softmax loss"):
        LocalTraining(loss="softmax", metric="dcg")


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_extreme_weights_give_no_nan(loss):
    rng = np.random.default_rng(0)
    data = plain.random_data(rng, 5, 3)
    shown = display(data, np.ones(3, np.float32))
    log = random_log(rng, shown, 3, 5, 0.5)
    [total], _ = updates(log, shown, np.ones((3, 5)), np.float32([1e4, -1e4, 3e3]), LocalTraining(0.1, loss))
    assert np.isfinite(total).all()
