"""Neural rankers against plain versions; `tests/contracts/test_models.py` has what every model must do."""

from __future__ import annotations

from functools import partial

import numpy as np
import plain
import pytest
from plain.networks import network_scores, network_update

import fultr
from fultr.clicks.log import ClickLog, Records
from fultr.data.ranking import RankingData, Splits
from fultr.federated.settings import FedIPS, LocalTraining, ServerOptimiser
from fultr.rankers.mlp import MLP
from fultr.rankers.model import ModelSettings
from fultr.rankers.plain import PlainRanker, parts_of
from fultr.rankers.training import training_with
from fultr.study.policy import display

SHAPES = [(7, 5, 1), (3, 1, 1), (6, 4, 2)]


def some_weights(shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(MLP(*shape).size).astype(np.float32) * np.float32(0.5)


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_equal_the_plain_network(shape):
    rows = np.random.default_rng(1).standard_normal((150, shape[0])).astype(np.float32)
    weights = some_weights(shape)
    expected = network_scores(rows.astype(np.float64), weights.astype(np.float64), *shape[1:])
    np.testing.assert_allclose(MLP(*shape).scores(weights[np.newaxis], rows)[:, 0], expected, rtol=1e-4, atol=1e-5)
    settings = ModelSettings("mlp", *shape[1:])
    np.testing.assert_allclose(PlainRanker.of(settings, shape[0], weights).scores(rows), expected, rtol=1e-6)


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
@pytest.mark.parametrize("pairs", ["displayed", "retrieved"])
@pytest.mark.parametrize("shape", SHAPES)
def test_updates_equal_the_plain_algorithm(shape, pairs, loss):
    """Every click is a step down the gradient, which the plain version finds by differences in float64."""
    rng = np.random.default_rng(2)
    data = plain.random_data(rng, queries=12, features=shape[0])
    shown = display(data, rng.standard_normal(shape[0]).astype(np.float32), pairs=pairs)
    queries = rng.integers(0, 12, 8).astype(np.int32)
    clicks = ((rng.random((8, 5)) < 0.4) & (shown.shown[queries] >= 0)).astype(np.uint8)
    log = ClickLog(queries, clicks, np.array([0, 3, 8]))
    weights, model = some_weights(shape), MLP(*shape)
    totals, trained = np.zeros((2, model.size)), np.zeros((2, 1))
    training = training_with(loss, "rank", 0.1, 1)
    model.add_updates(Records(log, shown), clicks * 1.5, weights, training, totals, trained)
    for client in range(2):
        impressions = plain.impressions_of(log, client)
        expected = network_update(impressions, shown, 1.5, weights, shape, partial(plain.h, loss=loss), 0.1)
        assert np.abs(expected).max() > 0.01
        np.testing.assert_allclose(totals[client], expected, atol=2e-5)
    assert trained.tolist() == [[1], [1]]


def test_epochs_are_passes_over_the_log():
    shape, rng = (4, 3, 1), np.random.default_rng(3)
    data = plain.random_data(rng, queries=5, features=4)
    shown = display(data, np.ones(4, np.float32))
    once = ClickLog(np.arange(5, dtype=np.int32), (shown.shown >= 0) * np.uint8([1, 0, 1, 0, 0]), np.array([0, 5]))
    twice = ClickLog(np.tile(once.queries, 2), np.tile(once.clicks, (2, 1)), np.array([0, 10]))
    model, weights, updates = MLP(*shape), some_weights(shape), np.zeros((2, 1, MLP(*shape).size))
    for log, epochs, update in ((once, 2, updates[0]), (twice, 1, updates[1])):
        training = training_with("hinge", "dcg", 0.05, epochs)
        model.add_updates(Records(log, shown), log.clicks * 1.0, weights, training, update, np.zeros((1, 1)))
    np.testing.assert_array_equal(*updates)
    assert updates.any()


def test_hidden_weights_are_random_and_the_rest_starts_at_zero():
    model = MLP(200, 64, 2)
    parts = parts_of(model.plain, model.initial(seed=3))
    assert not any(parts[name].any() for name in ("weights", "second_bias", "output"))
    corners = np.stack([np.minimum(0, parts["hidden"]).sum(axis=1), np.maximum(0, parts["hidden"]).sum(axis=1)])
    assert (corners[0] < -parts["hidden_bias"]).all()  # each unit's plane passes between two corners of the unit cube
    assert (-parts["hidden_bias"] < corners[1]).all()
    for name, inputs in (("hidden", 200), ("second", 64)):
        values = parts[name].ravel().astype(np.float64)  # variance 2 / inputs: standard errors of mean and variance
        assert abs(values.mean()) < 4 * (2 / inputs / values.size) ** 0.5
        assert abs(values.var() * inputs / 2 - 1) < 4 * (2 / values.size) ** 0.5
    assert not np.array_equal(model.initial(seed=3), model.initial(seed=4))


def test_it_learns_what_no_linear_ranker_can():
    """Relevant are documents whose only feature is near the middle of its range."""
    rng = np.random.default_rng(4)
    values = rng.random(2000)
    grades = np.where(np.abs(values - 0.5) < 0.15, 4, 0)
    data = RankingData.from_arrays(values[:, np.newaxis], grades, np.repeat(np.arange(200), 10))
    data = data.take(np.flatnonzero([grades[10 * q : 10 * q + 10].any() for q in range(200)]))
    splits = Splits(data, data, data, "middle", True)
    found = {}
    for model in ("linear", "mlp"):
        algorithm = FedIPS(LocalTraining(0.05, "softmax"), ServerOptimiser("adam", 0.05), model=model)
        settings = dict(clients=100, rounds=60, displayed=10, evaluate_every=60, splits=("test",))
        found[model] = fultr.simulate(splits, algorithm, **settings).curve.ndcg["test"][-1]
    assert found["mlp"] > 0.95 > 0.8 > found["linear"]
