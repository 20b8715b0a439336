"""Exported rankers score as the ranker does: ONNX by onnxruntime, JSON by a port that knows nothing but its words."""

from __future__ import annotations

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from help.commands import fultr

from fultr.core.errors import FultrError
from fultr.data.letor.reader import read_letor
from fultr.data.load import load
from fultr.data.ranking import RankingData
from fultr.rankers.export import check_onnx, to_json, to_onnx
from fultr.rankers.metrics import ranking
from fultr.rankers.ranker import Ranker, digest_of
from fultr.rankers.versions import Version, Versions


def ranker_for(feature_ids, normalised: bool = True, seed: int = 0) -> Ranker:
    ids = np.asarray(feature_ids, np.int64)
    weights = np.random.default_rng(seed).standard_normal(ids.size).astype(np.float32)
    return Ranker(weights, ids, normalised)


def raw_data(queries: int, features: int, most: int = 40) -> RankingData:
    """Features of many magnitudes, among them constant ones, and sparse ones; 1 to `most` documents per query."""
    rng = np.random.default_rng(features)
    sizes = rng.integers(1, most + 1, queries)
    sizes[0] = 1
    values = rng.standard_normal((sizes.sum(), features)) * 10.0 ** rng.integers(-3, 4, features)
    values[:, ::5] = rng.integers(0, 2, values[:, ::5].shape)
    values[:, 3::7] = np.repeat(rng.standard_normal(queries), sizes)[:, None]
    return RankingData.from_arrays(values, np.zeros(sizes.sum(), int), np.repeat(np.arange(queries), sizes))


def run_onnx(model: bytes, data: RankingData) -> np.ndarray:
    """Scores of raw data, query by query, as a phone asks for them."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    bounds = zip(data.offsets[:-1], data.offsets[1:], strict=True)
    return np.concatenate([session.run(None, {"features": data.features[a:b]})[0] for a, b in bounds])


def check_agreement(ranker: Ranker, raw: RankingData) -> None:
    """Scores differ by no more than float32 rounding, and documents change places only where they are that close."""
    data = raw.normalise() if ranker.normalised else raw
    ours, theirs = ranker.score(data), run_onnx(to_onnx(ranker), raw)
    assert theirs.dtype == np.float32
    assert theirs.shape == ours.shape
    # n products and n sums, each rounded to within 2^-24 of itself: n 2^-24 sum |w x|, and one rounding of theirs.
    bound = (data.width + 2) * 2.0**-24 * (np.abs(data.features.astype(np.float64)) @ np.abs(ranker.weights))
    assert np.all(np.abs(theirs.astype(np.float64) - ours) <= bound)
    order, other = ranking(ours, data), ranking(theirs, data)
    moved = order != other
    assert np.all(np.abs(ours[order].astype(np.float64) - ours[other])[moved] <= (bound[order] + bound[other])[moved])
    assert moved.mean() < 0.01


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize(("queries", "features"), [(1, 1), (50, 2), (200, 46), (100, 519)])
def test_onnxruntime_agrees_with_our_scores(queries, features, normalised):
    raw = raw_data(queries, features)
    check_agreement(ranker_for(raw.feature_ids, normalised), raw)


def test_onnxruntime_agrees_on_generated_data():
    test = load("synthetic", cache=False).test
    check_agreement(ranker_for(test.feature_ids), test)


@pytest.mark.parametrize("name", ["mq2008", "mslr-sample"])
def test_onnxruntime_agrees_on_real_data(real_data, name):
    file = next(path for path in sorted(real_data(name).rglob("*test*")) if path.is_file())
    raw = read_letor(file)
    for normalised in (True, False):
        check_agreement(ranker_for(raw.feature_ids, normalised), raw)


def test_normalisation_is_the_same_to_the_last_bit():
    """A ranker with one weight of 1 gives back that feature's normalised value."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((300, 6)).astype(np.float32)
    values[:, 1] = rng.integers(0, 2**31, 300, dtype=np.int32).view(np.float32)  # any positive float32, NaN too
    values[:, 2] = 7.25
    values[:, 3] = np.where(values[:, 0] > 0, np.float32(3.4e38), np.float32(-3.4e38))  # the span is no float32
    values[:, 4] *= np.float32(1e-42)
    values[:, 5] = np.float32(1) + rng.integers(0, 2, 300) * np.float32(2**-23)
    values[~np.isfinite(values)] = 1
    raw = RankingData.from_arrays(values, np.zeros(300, int), np.repeat([1, 2, 3], [1, 2, 297]))
    expected = raw.normalise().features
    for feature in range(6):
        weights = np.zeros(6, np.float32)
        weights[feature] = 1
        found = run_onnx(to_onnx(Ranker(weights, raw.feature_ids)), raw)
        np.testing.assert_array_equal(found, expected[:, feature])
    assert expected[1:, [0, 1, 3, 4, 5]].max() == 1
    assert not expected[:, 2].any()


def test_one_document_and_constant_features_score_zero():
    ranker = Ranker(np.float32([3, -2]), np.array([1, 2]))
    session = onnxruntime.InferenceSession(to_onnx(ranker), providers=["CPUExecutionProvider"])
    assert session.run(None, {"features": np.float32([[5, 6]])})[0].tolist() == [0]
    # Feature 1 is constant: only -2 x feature 2 counts, which is 0, 1/2 and 1 of its range.
    found = session.run(None, {"features": np.float32([[5, 10], [5, 20], [5, 30]])})[0]
    assert found.tolist() == [0, -1, -2]
    raw = onnxruntime.InferenceSession(to_onnx(Ranker(ranker.weights, ranker.feature_ids, normalised=False)))
    assert raw.run(None, {"features": np.float32([[5, 6]])})[0].tolist() == [3 * 5 - 2 * 6]


@pytest.fixture
def version(tmp_path) -> Version:
    names = [f"naïve {i}" for i in range(12)]
    ranker = ranker_for(np.arange(12) * 3 + 1)
    return Versions(tmp_path / "versions").write(
        ranker, parent=None, configuration={}, metrics={}, feature_names=names
    )  # fmt: skip


def test_the_model_is_valid_and_tells_what_it_is(version):
    model = onnx.load_from_string(to_onnx(version))
    onnx.checker.check_model(model, full_check=True)
    told = {entry.key: entry.value for entry in model.metadata_props}
    assert told["version"] == version.name
    assert told["digest"] == version.digest
    assert json.loads(told["feature_ids"]) == version.ranker.feature_ids.tolist()
    assert json.loads(told["feature_names"]) == list(version.ranker.feature_names)
    assert json.loads(told["normalised"]) is True
    assert to_onnx(version) == to_onnx(version)
    plain = onnx.load_from_string(to_onnx(version.ranker))
    told = {entry.key: entry.value for entry in plain.metadata_props}
    assert json.loads(told["feature_names"]) == list(version.ranker.feature_names)  # they are the ranker's own
    assert (told["version"], told["digest"]) == ("", digest_of(version.ranker.to_content()))
    assert "ReduceMin" not in str(onnx.load_from_string(to_onnx(ranker_for([1, 2], normalised=False))).graph)


def port(content: dict, documents: list[list[float]]) -> list[float]:
    """What an application does, by the words of `how_to_score`, in the numbers that JSON has."""
    columns = list(zip(*documents, strict=True))
    lowest, highest = [min(c) for c in columns], [max(c) for c in columns]
    scores = []
    for row in documents:
        values = row
        if content["normalised"]:
            values = [(x - a) / (b - a) if b > a else 0 for x, a, b in zip(row, lowest, highest, strict=True)]
        scores.append(sum(w * x for w, x in zip(content["weights"], values, strict=True)))
    return scores


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("features", [1, 2, 46, 519])
def test_a_port_of_the_json_can_check_itself(features, normalised):
    ranker = ranker_for(np.arange(1, features + 1), normalised)
    content = json.loads(to_json(ranker))
    example = content["example"]
    difference = np.abs(np.array(port(content, example["features"])) - example["scores"])
    assert np.all(difference <= example["tolerance"])
    rows = np.float32(example["features"])
    data = RankingData.from_arrays(rows, [0] * 3, [1] * 3)
    ours = ranker.score(data.normalise() if normalised else data)
    assert np.all(np.abs(ours - np.array(example["scores"])) <= example["tolerance"])
    assert np.ptp(example["scores"]) > 1000 * example["tolerance"]  # a wrong port is found out
    if normalised:
        wrong = port(content | {"normalised": False}, example["features"])
        assert np.abs(np.array(wrong) - example["scores"]).max() > 1000 * example["tolerance"]
    if features > 4:
        assert len({row[4] for row in example["features"]}) == 1  # a constant feature is among them


def test_the_json_tells_what_it_is(version):
    content = json.loads(to_json(version))
    assert (content["format"], content["version"]) == ("fultr phone ranker 1", version.name)
    assert content["digest"] == version.digest
    assert content["feature_ids"] == version.ranker.feature_ids.tolist()
    assert content["feature_names"] == list(version.ranker.feature_names)
    np.testing.assert_array_equal(np.float32(content["weights"]), version.ranker.weights)
    assert any("lowest" in sentence for sentence in content["how_to_score"])
    plain = json.loads(to_json(ranker_for([1, 2], normalised=False)))
    assert (plain["version"], plain["normalised"], plain["feature_names"]) == (None, False, ["1", "2"])
    assert not any("lowest" in sentence for sentence in plain["how_to_score"])


def test_a_model_of_another_ranker_is_found_out():
    ranker, other = ranker_for(range(1, 20)), ranker_for(range(1, 20), seed=1)
    assert check_onnx(to_onnx(ranker), ranker) < 1e-5
    raw = Ranker(ranker.weights, ranker.feature_ids, normalised=False)
    for model in (to_onnx(other), to_onnx(raw)):
        with pytest.raises(FultrError, match=r"the ONNX model's scores differ from fultr's by .*: do not use it"):
            check_onnx(model, ranker)


@pytest.mark.parametrize("export", [to_onnx, to_json])
def test_weights_that_are_not_finite_are_refused(export):
    with pytest.raises(FultrError, match="training diverged"):
        export(Ranker(np.float32([np.inf]), np.array([1])))


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_extra_one_line_says_what_to_install(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(FultrError, match=rf"{package}: not installed; pip install 'fultr\[export\]'"):
        check_onnx(to_onnx(ranker_for([1])), ranker_for([1]))


def test_the_command_writes_files_and_to_pipes(version, tmp_path):
    where = f"versions@{version.name}"
    done = fultr("export", where, "--to", "onnx", "--out", "ranker.onnx", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "Checked with onnxruntime: its scores and fultr's differ by at most " in done.err
    assert (tmp_path / "ranker.onnx").read_bytes() == to_onnx(version)
    assert fultr("export", where, "--to", "onnx", cwd=tmp_path).bytes == to_onnx(version)
    done = fultr("export", "versions/@latest", "--to", "json", cwd=tmp_path)
    assert (done.out, done.err) == (to_json(version), "")
    version.ranker.save(tmp_path / "ranker.json")
    assert fultr("export", "ranker.json", "--to", "json", "--out", "phone.json", cwd=tmp_path).code == 0
    assert (tmp_path / "phone.json").read_text() == to_json(version.ranker)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ranker.json"], "Missing option '--to'"),
        (["ranker.json", "--to", "pickle"], "'pickle' is not one of 'onnx', 'json'"),
        (["none.json", "--to", "json"], "none.json: cannot be read: No such file"),
        (["ranker.json", "--to", "json", "--out", "none/x.json"], "none/x.json: cannot be written: No such file"),
        (["phone.json", "--to", "json"], "phone.json: expected a ranker saved by fultr"),
    ],
)
def test_bad_usage_gets_one_line_and_code_2(arguments, message, tmp_path):
    ranker_for([1, 2]).save(tmp_path / "ranker.json")
    (tmp_path / "phone.json").write_text(to_json(ranker_for([1, 2])))
    done = fultr("export", *arguments, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1
