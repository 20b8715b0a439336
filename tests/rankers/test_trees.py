"""Rankers with trees: against pooled training, and what clients and files may hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import plain
import pytest
from plain import trees as plain_trees

from fultr.clicks.log import ClickLog, Display, Records
from fultr.core.errors import FultrError
from fultr.rankers.forest import forest_parts, read_forest
from fultr.rankers.model import ModelSettings, model_named
from fultr.rankers.training import training_with
from fultr.rankers.tree_growth import best_split, bin_bounds, drawn_columns, leaf_values
from fultr.rankers.trees import RandomTrees
from fultr.study.policy import display

FEATURES, CLIENTS = 6, 5
PENALTY, LEAST, SHRINKAGE, LIMIT = 0.02, 0.03, 0.5, 1.5
POOLED = {"shrinkage": SHRINKAGE, "leaf_penalty": PENALTY, "leaf_least": LEAST, "document_limit": LIMIT}


def model_of(kind: str, linear_rounds: int, tree_rounds: int, depth: int = 4, **settings) -> Any:
    """A model for documents with six features."""
    return model_named(
        ModelSettings(kind, linear_rounds=linear_rounds, tree_rounds=tree_rounds, depth=depth, **settings), FEATURES
    )


def some_records(seed: int, click_rate: float = 0.4) -> tuple[Records, np.ndarray]:
    """A cohort's records, and credit of either sign, larger than the limit for some documents."""
    rng = np.random.default_rng(seed)
    shown = display(plain.random_data(rng, 12, FEATURES), rng.standard_normal(FEATURES).astype(np.float32))
    queries = rng.integers(0, shown.queries, 4 * CLIENTS).astype(np.int32)
    clicks = (rng.random((queries.size, shown.ranks)) < click_rate) & (shown.shown[queries] >= 0)
    log = ClickLog(queries, clicks.astype(np.uint8), np.arange(CLIENTS + 1) * 4)
    return Records(log, shown), clicks * rng.uniform(-0.2, 3.0, clicks.shape)


def lists_of(records: Records, credit: np.ndarray) -> list:
    """The same as plain lists: features of each impression, and (place, credit) pairs."""
    display_, found = records.display, []
    for query, row in zip(records.log.queries, credit, strict=True):
        first, last = display_.offsets[query], display_.offsets[query + 1]
        credits = [(int(display_.shown[query, rank] - first), row[rank]) for rank in np.flatnonzero(row)]
        found.append((display_.features[first:last, :FEATURES], credits))
    return found


def summed(model, records, credit, weights, loss="logistic") -> np.ndarray:
    """What all clients send, in a row each, and its sum over them."""
    rows, trained = np.zeros((CLIENTS, model.update_size)), np.zeros((CLIENTS, 1))
    model.add_updates(records, credit, weights, training_with(loss, "rank", 0.1, 1), rows, trained)
    return rows


@pytest.mark.parametrize("loss", ["hinge", "logistic", "softmax"])
def test_random_trees_are_those_of_pooled_training(loss):
    model = model_of("random-trees", 0, 3, 3, trees=4, **POOLED)
    linear = np.random.default_rng(0).standard_normal(FEATURES).astype(np.float32)
    weights, grown = model.initial(seed=1, linear=linear), []
    for t in range(3):
        records, credit = some_records(t)
        forest = read_forest(weights, FEATURES, 3)
        given = plain_trees.documents(lists_of(records, credit), linear, grown, loss, LIMIT)
        for tree in range(4 * t, 4 * t + 4):
            splits = list(zip(forest.features[tree].tolist(), forest.thresholds[tree].tolist(), strict=True))
            grown.append(plain_trees.fitted(given, splits, SHRINKAGE / 2, PENALTY, LEAST))  # root of four trees
        weights = model.grown(weights, summed(model, records, credit, weights, loss).mean(axis=0))
    found = read_forest(weights, FEATURES, 3)
    assert (found.steps, found.grown) == (3, 12)
    np.testing.assert_allclose(found.values, [tree.values for tree in grown], rtol=1e-4, atol=1e-6)
    assert np.abs(found.values).max() > 0.05
    rows = records.display.features[:, :FEATURES]
    scores = model.scores(weights[np.newaxis], np.ascontiguousarray(rows))[:, 0]
    np.testing.assert_allclose(scores, [plain_trees.score(x, linear, grown) for x in rows], rtol=1e-4, atol=1e-5)


def test_histogram_trees_are_those_of_pooled_training():
    model = model_of("histogram-trees", 0, 4, 2, bins=8, columns=0.6, **POOLED)
    linear = np.random.default_rng(0).standard_normal(FEATURES).astype(np.float32)
    weights, grown, splits = model.initial(seed=2, linear=linear), [], []
    for t in range(4):
        records, credit = some_records(10 + t)
        given = plain_trees.documents(lists_of(records, credit), linear, grown, "softmax", LIMIT)
        columns = drawn_columns(read_forest(weights, FEATURES, 2).seed, len(grown), 4, FEATURES).tolist()
        bounds = [float(bound) for bound in bin_bounds(8)]
        splits.append(plain_trees.best_split(given, splits, columns, bounds, PENALTY, LEAST))
        if len(splits) == 2:
            grown.append(plain_trees.fitted(given, splits, SHRINKAGE, PENALTY, LEAST))
            splits = []
        weights = model.grown(weights, summed(model, records, credit, weights, "softmax").mean(axis=0))
    found = read_forest(weights, FEATURES, 2)
    assert found.grown == 2
    wanted = [[feature for feature, _ in tree.splits] for tree in grown]
    assert found.features.tolist() == wanted
    np.testing.assert_array_equal(found.thresholds, np.float32([[bound for _, bound in tree.splits] for tree in grown]))
    np.testing.assert_allclose(found.values, [tree.values for tree in grown], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", [model_of("random-trees", 1, 2, trees=3), model_of("histogram-trees", 1, 8)])
def test_what_a_client_sends_is_bounded_by_its_documents(model):
    """In each tree, or column, a displayed document of an impression adds at most the limit, to G as to H."""
    records, credit = some_records(3)
    weights = model.grown(model.initial(), np.zeros(model.update_size))  # past the linear round
    limited = replace(model, document_limit=0.25)
    rows = summed(limited, records, 1000 * credit, weights)[:, : math.prod(model.sums)]
    sums = rows.reshape(CLIENTS, *model.sums)
    displayed = [(records.display.shown[records.log.queries[4 * u : 4 * u + 4]] >= 0).sum() for u in range(CLIENTS)]
    parts = model.sums[0] if isinstance(model, RandomTrees) else model.sums[1]
    most = 0.1 * 0.25 / math.sqrt(parts)  # client_rate x limit, as long as linear updates
    assert (np.abs(sums[..., 0]) <= sums[..., 1] * (1 + 1e-6) + 1e-12).all()
    whole = sums[..., 1].reshape(CLIENTS, -1).sum(axis=1) / parts
    assert (whole <= most * np.array(displayed) * (1 + 1e-6)).all()
    assert (whole > 0).all()


def test_linear_rounds_come_first_and_then_the_linear_weights_stay():
    model = model_of("random-trees", 2, 2, 2, trees=3)
    weights, records = model.initial(seed=4), some_records(5)
    for t in range(6):
        update = summed(model, *records, weights).mean(axis=0)
        stepped = model.stepped(weights)
        assert stepped == (FEATURES if t < 2 else 0)
        assert update[:FEATURES].any() == (t < 4)  # nothing is sent once all trees are grown
        before = weights
        weights = model.grown(weights, update)
        np.testing.assert_array_equal(weights[:FEATURES], before[:FEATURES])
        assert read_forest(weights, FEATURES, 2).grown == 3 * min(max(t - 1, 0), 2)


def test_seeds_draw_different_splits_and_the_same_seed_the_same():
    model = model_of("random-trees", 0, 1)
    one, other, again = (read_forest(model.initial(seed), FEATURES, 4) for seed in (0, 1, 0))
    assert not np.array_equal(one.features[:30], other.features[:30])
    np.testing.assert_array_equal(one.features, again.features)
    np.testing.assert_array_equal(one.thresholds, again.thresholds)


def test_a_leaf_without_enough_curvature_and_noise_below_zero_give_no_value():
    sums = np.array([[[5.0, -1.0], [1.0, 0.5], [2.0, 9.5]]])
    np.testing.assert_allclose(leaf_values(sums, penalty=0.1, least=0.1), [[0, 0, 2 / (9.5 + 0.1 * 10)]])
    np.testing.assert_array_equal(leaf_values(np.zeros((1, 2, 2)), 0.1, 0.1), np.zeros((1, 2)))
    column, bound, leaves = best_split(np.zeros((2, 3, 4, 2)), 0.1, 0.1)
    assert (column, bound) == (0, 0)
    assert not leaves.any()


def test_scores_of_rounds_share_their_trees_and_forget_others():
    """Rankers with the trees of the one before them, fewer of them, and others altogether: each as if alone."""
    model, rng = model_of("random-trees", 0, 4, 3, trees=5), np.random.default_rng(0)
    rounds = [model.initial(seed=0)]
    for _ in range(4):
        rounds.append(model.grown(rounds[-1], rng.random(model.update_size)))
    other = model.grown(model.initial(seed=9), rng.random(model.update_size))
    rankers = np.stack([*rounds, other, rounds[2], rounds[4]])
    rows = rng.random((70, FEATURES)).astype(np.float32)
    together = model.scores(rankers, rows)
    assert len({tuple(column) for column in together.T}) == 6
    for i, weights in enumerate(rankers):
        np.testing.assert_array_equal(model.scores(weights[np.newaxis], rows[:1])[0], together[:1, i])
        np.testing.assert_array_equal(model.scores(weights[np.newaxis], rows)[:, 0], together[:, i])


def test_remembered_scores_are_those_of_the_current_ranker_and_display():
    """The same records after a round, after another ranker, and after another display."""
    model, (records, credit) = model_of("random-trees", 0, 4, 3, trees=5), some_records(6)
    moved = replace(records, display=replace(records.display, features=records.display.features[::-1].copy()))
    first = model.grown(model.initial(), summed(model, records, credit, model.initial()).mean(axis=0))
    expected = {}
    for name, weights, given in (
        ("first", first, records),
        ("start", model.initial(), records),
        ("moved", first, moved),
    ):
        expected[name] = summed(model, copied(given), credit, weights)  # a display that nothing is remembered of
    again = model.grown(first, summed(model, records, credit, first).mean(axis=0))
    summed(model, records, credit, again)
    np.testing.assert_array_equal(summed(model, records, credit, first), expected["first"])
    np.testing.assert_array_equal(summed(model, moved, credit, first), expected["moved"])
    np.testing.assert_array_equal(summed(model, records, credit, model.initial()), expected["start"])


def copied(records: Records) -> Records:
    """The same with other arrays."""
    shown: Display = records.display
    return replace(records, display=replace(shown, features=shown.features.copy()))


@pytest.mark.parametrize(
    ("part", "value"),
    [("tree_features", -1), ("tree_features", FEATURES), ("tree_features", 0.5), ("head", 999), ("head", np.nan)],
)
def test_a_vector_that_names_what_is_not_there_is_refused(part, value):
    """Compiled code reads features by the numbers in it."""
    model, (records, credit) = model_of("random-trees", 0, 2, 2, trees=3), some_records(7)
    weights = model.initial()
    forest_parts(weights, FEATURES, 2)[part].reshape(-1)[1] = value
    with pytest.raises(FultrError, match="trees: expected"):
        summed(model, records, credit, weights)
    with pytest.raises(FultrError, match="trees: expected"):
        model.scores(weights[np.newaxis], records.display.features)
