"""Every model of rankers through the same cases."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnxruntime
import plain
import pytest

import fultr
from fultr.clicks.log import ClickLog, Records
from fultr.core.checks import SettingError
from fultr.core.errors import FultrError
from fultr.core.settings import build, flatten
from fultr.federated.federation import FederationSettings
from fultr.federated.fedips import Broadcast
from fultr.federated.messages import Task, check_said
from fultr.federated.settings import FedIPS
from fultr.federated.wire import read_task, task_bytes
from fultr.rankers.export import check_onnx, to_json, to_onnx
from fultr.rankers.model import MODELS, ModelSettings, built, model_named, own_settings
from fultr.rankers.plain import PLAIN, PlainRanker, parts_of, plain_size
from fultr.rankers.ranker import Ranker, digest_of
from fultr.rankers.training import training_with
from fultr.rankers.versions import Versions
from fultr.study.policy import display

FEATURES = 7
TRAINING = training_with("hinge", "rank", 0.05, 1)

# What to try of each model: settings that are not the defaults, if it has any.
TRIED: dict[str, tuple[ModelSettings, ...]] = {
    "linear": (ModelSettings("linear"),),
    "mlp": (ModelSettings("mlp", hidden=5), ModelSettings("mlp", hidden=3, hidden_layers=2)),
    "random-trees": (
        ModelSettings("random-trees", linear_rounds=0, tree_rounds=6, depth=3, trees=7),
        ModelSettings("random-trees", linear_rounds=1, tree_rounds=2, depth=2, trees=3),
    ),
    "histogram-trees": (ModelSettings("histogram-trees", linear_rounds=0, tree_rounds=7, depth=3),),
}
EVERY = [pytest.param(settings, id=f"{name}-{i}") for name, tried in TRIED.items() for i, settings in enumerate(tried)]


def test_every_model_is_tried_and_has_its_plain_form():
    assert list(TRIED) == list(PLAIN) == list(MODELS)
    assert all(settings.kind == name for name, tried in TRIED.items() for settings in tried)


@pytest.fixture(scope="module")
def data():
    return plain.random_data(np.random.default_rng(0), queries=30, features=FEATURES)


def random_weights(settings: ModelSettings, features: int, seed: int) -> np.ndarray:
    """Weights of every part that are not zero, of the sizes that a trained ranker's have."""
    gaussian = np.random.default_rng(seed).standard_normal(plain_size(settings, features))
    weights = (gaussian / features**0.5).astype(np.float32)
    if "tree_features" in (parts := parts_of(built(PLAIN, settings, features), weights)):  # which are whole numbers
        parts["tree_features"][:] = np.random.default_rng(seed).integers(0, features, parts["tree_features"].shape)
        grown = len(parts["tree_values"]) - (settings.trees if settings.kind == "random-trees" else 1)
        parts["head"][:] = (settings.linear_rounds, grown, seed)
        parts["tree_values"][grown:] = 0
    return weights


def rounding(settings: ModelSettings, features: int, weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """By how much float32 sums in any order may differ: (additions in a row) 2^-24 of all that is added, in size."""
    model, parts = PlainRanker.of(settings, features, weights)
    steps = sum(shape[-1] + 2 for shape in model.parts.values())
    return steps * 2.0**-24 * model.magnitudes(parts, rows.astype(np.float64))


@pytest.mark.parametrize("settings", EVERY)
def test_weights_are_one_flat_float32_vector(settings):
    model = model_named(settings, FEATURES)
    assert model.size == plain_size(settings, FEATURES)
    given = np.arange(FEATURES, dtype=np.float32)
    for weights in (model.initial(), model.initial(3), model.initial(3, given)):
        assert weights.shape == (model.size,)
        assert weights.dtype == np.float32
        assert np.isfinite(weights).all()
    np.testing.assert_array_equal(model.initial(3), model.initial(3))
    model.initial(3, given)[:] = 7
    assert given.tolist() == list(range(FEATURES))  # not the same memory


@pytest.mark.parametrize("settings", EVERY)
def test_it_starts_as_the_linear_ranker_that_it_is_given(settings, data):
    model = model_named(settings, FEATURES)
    linear = random_weights(ModelSettings("linear"), FEATURES, 1)
    expected = model_named("linear", FEATURES).scores(linear[np.newaxis], data.features)
    found = model.scores(model.initial(5, linear)[np.newaxis], data.features)
    bound = rounding(ModelSettings("linear"), FEATURES, linear, data.features)
    assert (np.abs(found - expected)[:, 0] <= bound).all()
    assert not model.scores(model.initial(5)[np.newaxis], data.features).any()


@pytest.mark.parametrize("settings", EVERY)
def test_a_ranker_scores_the_same_alone_among_others_and_with_any_threads(settings, data):
    model = model_named(settings, FEATURES)
    weights = np.stack([random_weights(settings, FEATURES, seed) for seed in range(5)])
    together = model.scores(weights, data.features, threads=1)
    assert together.shape == (data.documents, 5)
    np.testing.assert_array_equal(model.scores(weights, data.features, threads=3), together)
    np.testing.assert_array_equal(model.scores(weights[2:3], data.features)[:, 0], together[:, 2])
    np.testing.assert_array_equal(model.scores(weights, data.features[4:9]), together[4:9])
    np.testing.assert_array_equal(model.scores(weights, data.features[8:9]), together[8:9])
    assert model.scores(weights, data.features[:0]).shape == (0, 5)


@pytest.mark.parametrize("features", [1, 7, 64, 519])
@pytest.mark.parametrize("settings", EVERY)
def test_the_plain_form_scores_the_same_up_to_rounding(settings, features):
    """What a device computes with NumPy alone: another order only where scores differ by less than rounding."""
    model, rng = model_named(settings, features), np.random.default_rng(features)
    weights = random_weights(settings, features, 1)
    rows = rng.standard_normal((400, features)).astype(np.float32)
    rows[200:300] = rows[100:200]
    ranker = PlainRanker.of(settings, features, weights)
    own = ranker.scores(rows)
    compiled = model.scores(weights[np.newaxis], rows)[:, 0]
    assert own.dtype == np.float32
    np.testing.assert_array_equal(own[200:300], own[100:200])  # equal documents, equal scores
    np.testing.assert_array_equal(compiled[200:300], compiled[100:200])
    np.testing.assert_array_equal(ranker.scores(rows[150:151]), own[150:151])
    bound = rounding(settings, features, weights, rows)
    assert (np.abs(own - compiled) <= bound).all()
    order, other = np.argsort(-own, kind="stable"), np.argsort(-compiled, kind="stable")
    assert (np.abs(own[order] - own[other]) <= bound[order] + bound[other]).all()


def records_of(data, clients: int, click_rate: float) -> Records:
    rng = np.random.default_rng(1)
    shown = display(data, rng.standard_normal(FEATURES).astype(np.float32))
    queries = rng.integers(0, shown.queries, 4 * clients).astype(np.int32)
    clicks = (rng.random((queries.size, shown.ranks)) < click_rate) & (shown.shown[queries] >= 0)
    return Records(ClickLog(queries, clicks.astype(np.uint8), np.arange(clients + 1) * 4), shown)


@pytest.mark.parametrize("settings", EVERY)
def test_updates_add_up_and_clients_without_credit_send_none(settings, data):
    model, records = model_named(settings, FEATURES), records_of(data, 6, 0.3)
    credit = records.log.clicks.astype(np.float64)
    credit[:4] = 0  # the first client's
    weights = random_weights(settings, FEATURES, 1)
    single, had = np.zeros((6, model.update_size)), np.zeros((6, 1))
    model.add_updates(records, credit, weights, TRAINING, single, had)
    assert not single[0].any()
    assert had[0] == 0
    assert single[1:].any(axis=1).all()
    total, count = np.zeros((1, model.update_size)), np.zeros((1, 1))
    model.add_updates(records, credit, weights, TRAINING, total, count)
    added = np.zeros(model.update_size)
    for row in single:
        added += row
    np.testing.assert_array_equal(total[0], added)
    assert count[0] == had.sum()
    np.testing.assert_array_equal(weights, random_weights(settings, FEATURES, 1))  # the weights themselves stay


@pytest.mark.parametrize("settings", EVERY)
def test_no_clicks_and_a_single_document_change_nothing(settings, data):
    """A document alone in its list is above no other, and its clicks teach nothing, but count."""
    model, records = model_named(settings, FEATURES), records_of(data, 3, 0.5)
    weights = random_weights(settings, FEATURES, 2)
    update, trained = np.zeros((1, model.update_size)), np.zeros((1, 1))
    nothing = np.zeros(records.log.clicks.shape)
    model.add_updates(records, nothing, weights, TRAINING, update, trained)
    assert not update.any()
    assert trained == 0
    empty = Records(ClickLog(np.empty(0, np.int32), np.empty((0, 5), np.uint8), np.zeros(3, np.int64)), records.display)
    model.add_updates(empty, np.empty((0, 5)), weights, TRAINING, update, trained)
    assert not update.any()
    one = plain.random_data(np.random.default_rng(3), queries=4, features=FEATURES, most=1)
    alone = display(one, np.zeros(FEATURES, np.float32))
    assert (np.diff(alone.offsets) == 1).all()
    log = ClickLog(np.arange(4, dtype=np.int32), np.uint8([[1, 0, 0, 0, 0]] * 4), np.array([0, 4]))
    model.add_updates(Records(log, alone), log.clicks * 2.0, weights, TRAINING, update, trained)
    assert np.abs(update).max() <= 2.0**-24 * 5
    assert trained == 1


@pytest.mark.parametrize("settings", EVERY)
def test_training_on_clicks_raises_what_was_clicked(settings, data):
    """After many steps on one clicked document it has the best score of its list."""
    model, records = model_named(settings, FEATURES), records_of(data, 1, 0.0)
    query = int(np.flatnonzero((records.display.shown >= 0).sum(axis=1) == 5)[0])
    log = ClickLog(np.full(300, query, np.int32), np.tile(np.uint8([0, 0, 0, 1, 0]), (300, 1)), np.array([0, 300]))
    weights = model.initial(1)
    for _ in range(6):
        total = np.zeros((1, model.update_size))
        model.add_updates(Records(log, records.display), log.clicks * 1.0, weights, TRAINING, total, np.zeros((1, 1)))
        stepped = model.stepped(weights)
        weights = weights.copy()
        weights[:stepped] += total[0, :stepped]
        weights = model.grown(weights, total[0])
    rows = records.display.features[records.display.shown[query], :FEATURES]
    scores = model.scores(weights[np.newaxis], np.ascontiguousarray(rows))[:, 0]
    assert scores.argmax() == 3


@pytest.mark.parametrize("settings", EVERY)
def test_a_run_has_the_same_bits_with_any_number_of_threads_and_is_saved_and_read(settings, tmp_path):
    data = fultr.load("synthetic")
    algorithm = fultr.FedIPS(model=settings)
    run = fultr.simulate(data, algorithm, clients=300, rounds=2, threads=1)
    again = fultr.simulate(data, algorithm, clients=300, rounds=2, threads=3)
    assert again.ranker.weights.tobytes() == run.ranker.weights.tobytes()
    assert again.curve.ndcg["test"].tolist() == run.curve.ndcg["test"].tolist()
    assert not np.array_equal(run.ranker.weights, model_named(settings, 64).initial())
    run.ranker.save(tmp_path / "ranker.json")
    back = Ranker.load(tmp_path / "ranker.json")
    assert built(PLAIN, back.model, 64) == built(PLAIN, settings, 64)
    assert back.weights.tobytes() == run.ranker.weights.tobytes()
    np.testing.assert_array_equal(back.score(data.test), run.ranker.score(data.test))
    version = Versions(tmp_path / "versions").write(run.ranker, parent=None, configuration={}, metrics={})
    found = Versions(tmp_path / "versions").read("latest")
    assert built(PLAIN, found.ranker.model, 64) == built(PLAIN, settings, 64)
    content = json.loads((tmp_path / "versions" / f"{found.name}.json").read_text())
    assert found.digest == version.digest == digest_of(content)


def ranker_of(settings: ModelSettings, features: int, normalised: bool = True) -> Ranker:
    return Ranker(random_weights(settings, features, 4), np.arange(1, features + 1), normalised, {}, settings)


@pytest.mark.parametrize("settings", EVERY)
def test_a_file_of_another_shape_is_refused(settings):
    content = ranker_of(settings, FEATURES).to_content()
    for damage, says in (
        ({"weights": content["weights"][:-1]}, "weights: expected"),
        ({"weights": [*content["weights"][:-1], None]}, "damaged ranker file"),
        ({"weights": [*content["weights"][:-1], 1e99]}, "a weight is not finite"),
        ({"model": "oracle"}, "model: expected one of linear"),
        ({"model_settings": {"layers": 10**9}}, "model_settings: expected"),
        ({"model_settings": [1]}, "model_settings: expected"),
    ):
        with pytest.raises(FultrError, match=rf"^ranker.json: damaged ranker file: .*{says}|^ranker.json: {says}"):
            Ranker.from_content({**content, **damage}, "ranker.json")
    for name in content.get("model_settings", {}):
        for value in (-1, "many", 10**9, None):
            damaged = {**content, "model_settings": {**content["model_settings"], name: value}}
            with pytest.raises(FultrError, match=rf"damaged ranker file: .*{name}: expected"):
                Ranker.from_content(damaged, "ranker.json")


@pytest.mark.parametrize("settings", EVERY)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_not_written(settings, value):
    ranker = ranker_of(settings, FEATURES)
    weights = ranker.weights.copy()
    weights[-1] = value
    for write in (Ranker.to_content, to_onnx, to_json):
        with pytest.raises(FultrError, match="training diverged"):
            write(replace(ranker, weights=weights))


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("features", [1, 46])
@pytest.mark.parametrize("settings", EVERY)
def test_onnx_scores_as_the_plain_form_does(settings, features, normalised):
    ranker = ranker_of(settings, features, normalised)
    exported = to_onnx(ranker)
    check_onnx(exported, ranker)
    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    rows = np.random.default_rng(5).standard_normal((30, features)).astype(np.float32)
    rows[7] = rows[3]
    for part in (rows, rows[:1]):
        found = session.run(["scores"], {"features": part})[0]
        x = fultr.rankers.plain.scaled(part) if normalised else part
        own = ranker.plain.scores(x)
        assert (np.abs(found - own) <= 2 * rounding(settings, features, ranker.weights, x)).all()


@pytest.mark.parametrize("settings", EVERY)
def test_json_holds_every_part_and_an_example(settings):
    ranker = ranker_of(settings, FEATURES)
    content = json.loads(to_json(ranker))
    parts = ranker.plain.model.parts
    assert content["model"] == settings.kind
    for name, shape in parts.items():
        assert np.shape(content[name]) == shape
    together = np.concatenate([np.ravel(content[name]) for name in parts])
    np.testing.assert_array_equal(np.float32(together), ranker.weights)
    rows = fultr.rankers.plain.scaled(np.float32(content["example"]["features"]))
    difference = np.abs(ranker.plain.scores(rows) - np.array(content["example"]["scores"]))
    assert (difference <= content["example"]["tolerance"]).all()
    assert np.ptp(content["example"]["scores"]) > 10 * content["example"]["tolerance"]
    assert set(ranker.plain.model.words()) <= set(content["how_to_score"])


@pytest.mark.parametrize("settings", EVERY)
def test_devices_are_told_the_model(settings):
    """Settings travel with a task, stand in federation.toml by name, and bound what a device would have to hold."""
    algorithm = FedIPS(model=settings, propensity="none")
    assert build(FedIPS, flatten(algorithm)) == algorithm
    own = {name: getattr(settings, name) for name in own_settings(MODELS[settings.kind])}
    given = FederationSettings.of({"features": FEATURES, "model": settings.kind, **own})
    assert given.model == settings
    assert FederationSettings.of(given.as_mapping()) == given
    weights = random_weights(settings, FEATURES, 6)
    task = Task(0, algorithm, Broadcast(weights, {}, {}), "schema", FEATURES, 5)
    read = read_task(task_bytes(task))
    assert read.algorithm.model == settings
    assert read.arrays()["update"] == ((read.model.update_size,), np.float32)
    with pytest.raises(SettingError, match="model: expected at most 1,000,000 weights"):
        plain_size(settings, 1_000_001)
    with pytest.raises(FultrError):
        check_said(replace(task, features=10**9))
