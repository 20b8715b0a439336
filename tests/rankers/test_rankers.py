"""Rankers in files."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import plain
import pytest

from fultr.core.errors import FultrError
from fultr.rankers.ranker import Ranker


@pytest.fixture
def ranker() -> Ranker:
    weights = np.random.default_rng(0).standard_normal(7).astype(np.float32) * np.float32(1e-7)
    return Ranker(weights, np.arange(1, 8), training={"seed": 3}, feature_names=tuple("gfedcba"))


def test_a_saved_ranker_is_the_same_to_the_last_bit(ranker, tmp_path):
    ranker.save(tmp_path / "r.json")
    again = Ranker.load(tmp_path / "r.json")
    np.testing.assert_array_equal(again.weights, ranker.weights)
    np.testing.assert_array_equal(again.feature_ids, ranker.feature_ids)
    assert again.training == {"seed": 3}
    assert again.feature_names == tuple("gfedcba")
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    data = plain.random_data(np.random.default_rng(0), features=7)
    np.testing.assert_array_equal(again.score(data), ranker.score(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: "not json", "found no JSON"),
        (lambda c: "[]", "expected a ranker saved by fultr"),
        (lambda c: json.dumps(c | {"format": "fultr ranker 99"}), "with format 'fultr ranker 1'"),
        (
            lambda c: json.dumps({k: v for k, v in c.items() if k != "weights"}),
            "file: weights is missing",
        ),
        (lambda c: json.dumps(c | {"weights": [1.0]}), "damaged ranker file"),
        (lambda c: json.dumps(c | {"weights": ["x"] * 7}), "damaged ranker file"),
        (lambda c: json.dumps(c | {"weights": ["0.5"] * 7}), "weights: expected a list of numbers"),
        (lambda c: json.dumps(c | {"weights": [True] * 7}), "weights: expected a list of numbers"),
        (lambda c: json.dumps(c | {"weights": [[0.5]] * 7}), "weights: expected a list of numbers"),
        (lambda c: json.dumps(c | {"feature_ids": [True, 2, 3, 4, 5, 6, 7]}), "expected ascending whole numbers"),
        (lambda c: json.dumps(c | {"feature_names": "abcdefg"}), "feature_names: expected a list of texts"),
        (lambda c: json.dumps(c | {"training": [["a", 1]]}), "training: expected a table"),
        (lambda c: json.dumps(c | {"weights": [1e300] * 7}), "a weight is not finite"),
        (lambda c: json.dumps(c | {"feature_ids": [10**30] * 7}), "damaged ranker file"),
        (lambda c: json.dumps(c | {"feature_ids": [7, 6, 5, 4, 3, 2, 1]}), "expected ascending whole numbers"),
        (lambda c: json.dumps(c | {"feature_ids": [1.5, 2, 3, 4, 5, 6, 7]}), "expected ascending whole numbers"),
        (lambda c: json.dumps(c | {"normalised": "false"}), "normalised: expected true or false"),
        (lambda c: json.dumps(c | {"feature_names": ["a"]}), "feature_names: expected 7 different names"),
        (lambda c: json.dumps(c | {"feature_names": ["a"] * 7}), "feature_names: expected 7 different names"),
        (lambda c: json.dumps(c | {"feature_names": [1, 2, 3, 4, 5, 6, 7]}), "feature_names: expected 7 different"),
        (
            lambda c: json.dumps(c | {"model": "cubic"}),
            "model: expected one of linear, mlp, random-trees, histogram-trees; found 'cubic'",
        ),
        (lambda c: "[" * 200_000, "found no JSON"),
        (lambda c: json.dumps(c | {"weights": [float("nan")] * 7}), "a weight is not finite"),
    ],
)
def test_bad_files_get_one_clear_line(ranker, tmp_path, change, message):
    path = tmp_path / "r.json"
    ranker.save(path)
    path.write_text(change(json.loads(path.read_text())))
    with pytest.raises(FultrError, match=message) as caught:
        Ranker.load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(FultrError, match=r"none.json: cannot be read: No such file"):
        Ranker.load(tmp_path / "none.json")


def test_data_with_other_features_is_refused(ranker):
    data = plain.random_data(np.random.default_rng(0), features=5)
    with pytest.raises(FultrError, match="trained on 7 features and the data has 5"):
        ranker.score(data)


def test_a_folder_that_cannot_be_written(ranker, tmp_path):
    with pytest.raises(FultrError, match="cannot be written"):
        ranker.save(tmp_path / "missing" / "r.json")


def test_arrays_and_frames_are_scored(ranker):
    rows = np.random.default_rng(0).random((4, 7)).astype(np.float32)
    expected = rows.astype(np.float64) @ ranker.weights.astype(np.float64)
    np.testing.assert_allclose(ranker.score(rows), expected, rtol=1e-6)
    named = Ranker(ranker.weights, ranker.feature_ids, feature_names=tuple("gfedcba"))
    frame = pd.DataFrame(rows, columns=list("gfedcba"))
    np.testing.assert_allclose(named.score(frame[list("abcdefg")]), expected, rtol=1e-6)
    for given, message in (
        (rows[:, :3], "features: expected the ranker's 7, found 3"),
        (frame[["a"]], "features: expected a column g, which the ranker scores by; found none"),
        ([1.0, 2.0], r"features: expected rows of numbers, found shape \(2,\)"),
        ("rows", "features: expected an array or a table of numbers, found str"),
        (None, "features: expected an array or a table of numbers, found NoneType"),
    ):
        with pytest.raises(FultrError, match=message):
            named.score(given)
    with pytest.raises(FultrError, match=r"rank: expected queries with their documents, .* found ndarray"):
        ranker.rank(rows)
