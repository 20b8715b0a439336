"""Every model of rankers through the same cases."""

from __future__ import annotations

import numpy as np
import plain
import pytest

import fultr
from fultr.clicks.log import ClickLog, Records
from fultr.rankers.model import MODELS, model_named
from fultr.rankers.plain import PLAIN
from fultr.rankers.ranker import Ranker
from fultr.rankers.training import training_with
from fultr.study.policy import display

FEATURES = 7
TRAINING = training_with("hinge", "rank", 0.05, 1)


@pytest.fixture(scope="module")
def data():
    return plain.random_data(np.random.default_rng(0), queries=30, features=FEATURES)


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_one_flat_float32_vector(name):
    model = model_named(name, FEATURES)
    for weights in (model.initial(), model.initial(seed=3)):
        assert weights.shape == (model.size,)
        assert weights.dtype == np.float32
        assert np.isfinite(weights).all()
    assert not np.array_equal(model.initial(seed=3), model.initial(seed=4))
    np.testing.assert_array_equal(model.initial(seed=3), model.initial(seed=3))


@pytest.mark.parametrize("name", MODELS)
def test_a_ranker_scores_the_same_alone_among_others_and_with_any_threads(name, data):
    model = model_named(name, FEATURES)
    weights = np.stack([model.initial(seed) for seed in range(5)])
    together = model.scores(weights, data.features, threads=1)
    assert together.shape == (data.documents, 5)
    np.testing.assert_array_equal(model.scores(weights, data.features, threads=3), together)
    np.testing.assert_array_equal(model.scores(weights[2:3], data.features)[:, 0], together[:, 2])
    np.testing.assert_array_equal(model.scores(weights, data.features[4:9]), together[4:9])


def test_every_model_has_its_plain_form():
    assert list(PLAIN) == list(MODELS)


@pytest.mark.parametrize("features", [1, 7, 64, 519])
@pytest.mark.parametrize("name", MODELS)
def test_the_plain_form_scores_the_same_up_to_rounding(name, features):
    """What a device computes with NumPy alone: another order only where scores differ by less than rounding."""
    model, rng = model_named(name, features), np.random.default_rng(features)
    assert PLAIN[name].size(features) == model.size
    weights = model.initial(seed=1)
    rows = rng.standard_normal((400, features)).astype(np.float32)
    rows[200:300] = rows[100:200]
    own = PLAIN[name].scores(weights, rows)
    compiled = model.scores(weights[np.newaxis], rows)[:, 0]
    assert own.dtype == np.float32
    np.testing.assert_array_equal(own[200:300], own[100:200])  # equal documents, equal scores
    np.testing.assert_array_equal(PLAIN[name].scores(weights, rows[150:151]), own[150:151])
    # For float32 sums in any order: n 2^-24 of the sum of absolute products.
    bound = (features + 2) * 2.0**-24 * float((np.abs(rows) @ np.abs(weights)).max())
    assert np.abs(own - compiled).max() <= bound
    order, other = np.argsort(-own, kind="stable"), np.argsort(-compiled, kind="stable")
    assert np.abs(own[order] - own[other]).max() <= 2 * bound


def records_of(data, clients: int, click_rate: float) -> Records:
    rng = np.random.default_rng(1)
    shown = display(data, rng.standard_normal(FEATURES).astype(np.float32))
    queries = rng.integers(0, shown.queries, 4 * clients).astype(np.int32)
    clicks = (rng.random((queries.size, shown.ranks)) < click_rate) & (shown.shown[queries] >= 0)
    return Records(ClickLog(queries, clicks.astype(np.uint8), np.arange(clients + 1) * 4), shown)


@pytest.mark.parametrize("name", MODELS)
def test_updates_add_up_and_clients_without_credit_send_none(name, data):
    model, records = model_named(name, FEATURES), records_of(data, 6, 0.3)
    credit = records.log.clicks.astype(np.float64)
    credit[:4] = 0  # the first client's
    weights = model.initial(seed=1)
    single, had = np.zeros((6, model.size)), np.zeros((6, 1))
    model.add_updates(records, credit, weights, TRAINING, single, had)
    assert not single[0].any()
    assert had[0] == 0
    assert single[1:].any(axis=1).all()
    total, count = np.zeros((1, model.size)), np.zeros((1, 1))
    model.add_updates(records, credit, weights, TRAINING, total, count)
    added = np.zeros(model.size)
    for row in single:
        added += row
    np.testing.assert_array_equal(total[0], added)
    assert count[0] == had.sum()
    np.testing.assert_array_equal(weights, model.initial(seed=1))  # the weights themselves stay


@pytest.mark.parametrize("name", MODELS)
def test_training_on_clicks_raises_what_was_clicked(name, data):
    """After many steps on one clicked document it has the best score of its list."""
    model, records = model_named(name, FEATURES), records_of(data, 1, 0.0)
    query = int(np.flatnonzero((records.display.shown >= 0).sum(axis=1) == 5)[0])
    log = ClickLog(np.full(300, query, np.int32), np.tile(np.uint8([0, 0, 0, 1, 0]), (300, 1)), np.array([0, 300]))
    weights, total = model.initial(seed=1), np.zeros((1, model.size))
    model.add_updates(Records(log, records.display), log.clicks * 1.0, weights, TRAINING, total, np.zeros((1, 1)))
    rows = records.display.features[records.display.shown[query], :FEATURES]
    scores = model.scores((weights + total[0]).astype(np.float32)[np.newaxis], np.ascontiguousarray(rows))[:, 0]
    assert scores.argmax() == 3


@pytest.mark.parametrize("name", MODELS)
def test_a_ranker_of_the_model_is_trained_saved_and_read(name, tmp_path):
    data = fultr.load("synthetic")
    run = fultr.simulate(data, fultr.FedIPS(model=name), clients=30, rounds=2)
    run.ranker.save(tmp_path / "ranker.json")
    back = Ranker.load(tmp_path / "ranker.json")
    assert back.model == name
    assert back.weights.tobytes() == run.ranker.weights.tobytes()
    np.testing.assert_array_equal(back.score(data.test), run.ranker.score(data.test))
