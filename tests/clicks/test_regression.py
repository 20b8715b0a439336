"""The position-based model whose relevance follows from features, and logs that have features."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.optimize import check_grad

from fultr.cli.main import main
from fultr.clicks.bootstrap import bootstrap
from fultr.clicks.diagnosis import diagnose
from fultr.clicks.examination.methods import examination_by
from fultr.clicks.examination.regression import _loss, feature_model
from fultr.clicks.files import read_click_log
from fultr.clicks.impressions import ImpressionLog
from fultr.core.errors import FultrError

TRUTH = 1 / np.arange(1.0, 6)
WEIGHTS = np.array([1.0, -0.5, 0.0])


def log_of_features(seed: int, pages: int = 8000, examination=TRUTH, twice: bool = False) -> ImpressionLog:
    """Documents ranked by a noisy view of their relevance, which is logistic; each comes once, unless said."""
    rng = np.random.default_rng(seed)
    queries = np.arange(pages) // (2 if twice else 1)
    x = rng.standard_normal((pages, 8, 3))
    if twice:
        x[1::2] = x[::2]
    order = np.argsort(-(x @ WEIGHTS + rng.standard_normal((pages, 8))), axis=1)[:, : examination.size]
    shown = np.take_along_axis(x, order[:, :, np.newaxis], axis=1)
    clicks = rng.random(order.shape) < examination / (1 + np.exp(1 - shown @ WEIGHTS))
    return ImpressionLog.from_arrays(queries, order, clicks, features=shown)


def plain_log_likelihood(log: ImpressionLog, examination, relevance) -> float:
    total = 0.0
    for pairs, clicks in zip(log.documents.tolist(), log.clicks.tolist(), strict=True):
        for rank, (pair, click) in enumerate(zip(pairs, clicks, strict=True)):
            chance = examination[rank] * relevance[pair]
            total += math.log(chance if click else 1 - chance)
    return total


def test_the_likelihood_is_the_plain_one_and_at_its_highest():
    log = log_of_features(0, pages=300, twice=True)
    found = feature_model(log.cells(), ridge=0.0)
    best = plain_log_likelihood(log, found.examination, found.relevance)
    assert found.log_likelihood == pytest.approx(best)
    score = np.log(found.relevance / (1 - found.relevance))
    for rank in range(1, 5):
        for step in (-0.02, 0.02):
            moved = found.examination.copy()
            moved[rank] += step
            assert plain_log_likelihood(log, moved, found.relevance) < best
    for column in (np.ones(log.pairs), *log.features.T):
        for step in (-0.05, 0.05):
            assert plain_log_likelihood(log, found.examination, 1 / (1 + np.exp(-score - step * column))) < best


def test_the_gradient_is_that_of_the_likelihood():
    cells = log_of_features(1, pages=200, twice=True).cells()
    cells = replace(cells, copies=np.random.default_rng(0).integers(0, 3, cells.copies.size).astype(float))
    rest = (cells, cells.features, np.array([True, True, True, True, True]), 0.7)
    point = np.random.default_rng(2).standard_normal(8)
    error = check_grad(lambda z: _loss(z, *rest)[0], lambda z: _loss(z, *rest)[1], point)
    assert error < 1e-5 * np.linalg.norm(_loss(point, *rest)[1])


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_examination_is_found_though_no_document_moves(gamma):
    """Within 4 bootstrap standard errors, none of which is above a tenth of the truth."""
    truth = TRUTH**gamma
    log = log_of_features(3, examination=truth)
    drawn = bootstrap(log, lambda cells: examination_by("regression", cells), draws=24).values
    error = drawn.std(axis=0, ddof=1)[1:]
    assert np.all(error < 0.1 * truth[1:])
    assert np.all(np.abs(examination_by("regression", log.cells()) - truth)[1:] < 4 * error)


def test_features_make_up_for_interventions_with_care():
    log = log_of_features(4)
    without = diagnose(replace(log, features=None), draws=0)
    assert (without.method, without.conclusion.answer) == ("em", "do not trust")
    found = diagnose(log, draws=20)
    assert (found.method, found.conclusion.answer) == ("regression", "trust with care")
    assert "only features separate rank from relevance" in found.conclusion.reasons[0]
    assert found.others == {}  # without interventions, EM says what it was told
    low, high = found.draws.interval()
    assert np.all((low <= found.examination) & (found.examination <= high))
    assert -1 < found.identifiability.relevance_by_rank < -0.2


def test_where_documents_move_they_are_harvested():
    found = diagnose(log_of_features(5, twice=True), draws=20)
    assert found.method == "all-pairs"
    np.testing.assert_allclose(found.others["regression"], TRUTH, rtol=0.15)
    assert "regression" not in found.gaps


def test_features_that_do_not_vary_say_nothing():
    log = log_of_features(6, pages=2000)
    constant = replace(log, features=np.ones_like(log.features))
    found = feature_model(constant.cells())
    assert np.ptp(found.relevance) < 1e-9
    _, clicked = log.cells().by_rank()
    np.testing.assert_allclose(found.examination, clicked / clicked[0], rtol=1e-3)  # rank and relevance mixed


def test_a_method_without_its_features_says_so():
    log = replace(log_of_features(7, pages=50), features=None)
    with pytest.raises(FultrError, match="the log has no features; add a column features"):
        diagnose(log, "regression", draws=0)
    with pytest.raises(FultrError, match=r"features: expected \(2, 1\) vectors of one length"):
        ImpressionLog.from_arrays([1, 1], [[1], [2]], [[1], [0]], features=[[1.0], [2.0]])


TEXT = "query\tdocuments\tclicks\tfeatures\ncats\td1,d2\t1,0\t0.5 1,2 -3e-1\ncats\td2,d1\t0,1\t4 -.3, 0.5 1\n"


def test_files_with_features(tmp_path):
    (tmp_path / "log.tsv").write_text(TEXT)
    log = read_click_log(tmp_path / "log.tsv")
    expected = np.array([[0.5, 1.0], [3.0, -0.3]], np.float32)  # d2 differs from page to page: the mean
    np.testing.assert_array_equal(log.features, expected)
    table = {
        "query": ["cats", "cats"],
        "documents": [["d1", "d2"], ["d2", "d1"]],
        "clicks": [[1, 0], [0, 1]],
        "features": [[[0.5, 1.0], [2.0, -0.3]], [[4.0, -0.3], [0.5, 1.0]]],
    }
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    np.testing.assert_allclose(read_click_log(tmp_path / "log.parquet").features, expected, rtol=1e-6)
    (tmp_path / "one.csv").write_text("query,documents,clicks,features\na,d1|d2,1|0,0.5|2\na,d2|d1,0|1,2|0.5\n")
    np.testing.assert_array_equal(read_click_log(tmp_path / "one.csv").features, [[0.5], [2.0]])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "0.5 1,2 -3e-1",
            "0.5 1",
            "line 2: expected features for each document, found 'features of 1 for 2 documents'",
        ),
        (
            "0.5 1,2 -3e-1",
            "0.5 1,2",
            r"line 2: expected 2 features for each document, as for the first, found '\[2, 1\]'",
        ),
        ("4 -.3", "4 x", "line 3: expected finite features, found '4 x, 0.5 1'"),
        ("4 -.3", "4 nan", "line 3: expected finite features"),
        ("4 -.3", "4 1e999", "line 3: expected finite features"),
        ("4 -.3", "4 1e39", "line 3: expected finite features"),
        ("4 -.3, 0.5 1", "", "line 3: expected a list of features, found ''"),
    ],
)
def test_bad_features_are_named(tmp_path, old, new, said):
    (tmp_path / "log.tsv").write_text(TEXT.replace(old, new, 1))
    with pytest.raises(FultrError, match=said):
        read_click_log(tmp_path / "log.tsv")


def test_lists_of_one_level_are_no_features(tmp_path):
    table = {"query": ["a"], "documents": [["d"]], "clicks": [[1]], "features": [[0.5]]}
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    with pytest.raises(FultrError, match="expected lists of numbers in column features, found 'list<"):
        read_click_log(tmp_path / "log.parquet")


def test_empty_lists_are_no_features(tmp_path):
    kind = pa.list_(pa.list_(pa.float32()))
    table = pa.table({"query": ["a"], "documents": [["d"]], "clicks": [[1]], "features": pa.array([[[]]], kind)})
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(FultrError, match="row 1: expected at least one feature for each document"):
        read_click_log(tmp_path / "log.parquet")


def test_the_command_takes_features(tmp_path, capsys):
    log = log_of_features(8)
    rows = ["query\tdocuments\tclicks\tfeatures"]
    for page in range(log.impressions):
        pairs = log.documents[page]
        values = ",".join(" ".join(f"{v:.6g}" for v in log.features[pair]) for pair in pairs)
        rows.append(f"{page}\t{','.join(map(str, pairs))}\t{','.join(map(str, log.clicks[page]))}\t{values}")
    (tmp_path / "log.tsv").write_text("\n".join(rows) + "\n")
    with pytest.raises(SystemExit) as ended:
        main(["estimate", str(tmp_path / "log.tsv"), "--bootstrap", "20", "--figure", str(tmp_path / "curve.png")])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert "by regression; bootstrap over queries" in told
    assert "Conclusion: trust with care" in told
