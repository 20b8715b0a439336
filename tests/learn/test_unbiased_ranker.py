"""`UnbiasedRanker`: tables of any kind in, a ranker out."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numba import njit
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from sklearn.base import clone

import fultr
from fultr.core.errors import FultrError
from fultr.learn.pooled import Pooled
from fultr.learn.training import folds_of
from fultr.learn.whole_log import train_on_log

WIDTH = 4


def click_log(pages=2000, queries=200, ranks=4, seed=0):
    """A log whose relevance is a step of feature 0 plus a line in feature 1; rank k has examination 1 / k."""
    rng = np.random.default_rng(seed)
    documents = rng.random((queries, 8, WIDTH)).astype(np.float32)
    query = rng.integers(queries, size=pages)
    policy = documents[..., 1] + 0.3 * documents[..., 2]
    order = np.argsort(-policy, axis=1)[:, :ranks]
    shown = order[query]
    swap = rng.random(pages) < 0.5  # so that documents move
    shown[swap] = rng.permuted(shown[swap], axis=1)
    x = documents[query[:, np.newaxis], shown]
    relevance = np.clip(0.1 + 0.6 * (x[..., 0] > 0.5) + 0.2 * x[..., 1], 0, 1)
    clicks = rng.random(relevance.shape) < relevance / np.arange(1, ranks + 1)
    rank = np.tile(np.arange(1, ranks + 1), pages)
    page = np.repeat(np.arange(pages), ranks)
    return {
        "X": x.reshape(-1, WIDTH),
        "clicks": clicks.ravel().astype(int),
        "query": np.repeat(query, ranks),
        "rank": rank,
        "session": page,
    }


def fit(log, model="trees", **parameters):
    given = {name: log[name] for name in ("query", "rank", "session")}
    return fultr.UnbiasedRanker(model, **parameters).fit(log["X"], log["clicks"], **given)


@pytest.fixture(scope="module")
def log():
    return click_log()


@pytest.fixture(scope="module")
def fitted(log):
    return fit(log)


@pytest.mark.parametrize("estimator", [fultr.UnbiasedRanker("linear"), fultr.PositionBias(draws=0)], ids=repr)
def test_fitting_says_at_a_terminal_or_in_a_notebook_that_it_compiles(log, estimator, monkeypatch, capsys):
    """Here it always does: the clicks are a column that compiles something when it is read."""

    class Column:
        def __len__(self):
            return len(log["clicks"])

        def __array__(self, *_, **__):
            njit(lambda x: x + 1)(2)
            return log["clicks"]

    given = {name: log[name] for name in ("query", "rank", "session")}
    estimator.fit(log["X"], Column(), **given)
    assert capsys.readouterr().err == ""
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    estimator.fit(log["X"], Column(), **given)
    assert capsys.readouterr().err.count("Compiling, once after an installation: about") == 1


def test_it_learns_what_is_relevant_and_how_ranks_are_examined(log, fitted):
    """Relevance is learnt to the order of documents that differ in feature 0, though the policy ignored it."""
    assert_allclose(fitted.examination_, 1 / np.arange(1, 5), atol=0.08)
    low, high = np.full((50, WIDTH), 0.5), np.full((50, WIDTH), 0.5)
    low[:, 0], high[:, 0] = np.linspace(0.01, 0.45, 50), np.linspace(0.55, 0.99, 50)
    assert fitted.predict(low).max() < fitted.predict(high).min()


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_other_models_learn_it_too(log, model):
    ranker = fit(log, model)
    low, high = np.full((1, WIDTH), 0.5), np.full((1, WIDTH), 0.5)
    low[0, 0], high[0, 0] = 0.1, 0.9
    assert ranker.predict(low)[0] < ranker.predict(high)[0]
    assert ranker.report_.held_out > 0.05


def test_tables_of_every_kind_give_the_same_ranker(log, fitted):
    names = [f"f{i}" for i in range(WIDTH)]
    frame = pd.DataFrame(log["X"], columns=names)
    for table in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), csr_matrix(log["X"]), log["X"].tolist()):
        ranker = fit({**log, "X": table})
        assert_array_equal(ranker.ranker_.weights, fitted.ranker_.weights)
        assert_array_equal(ranker.predict(table), fitted.predict(log["X"]))
    for table in (pd.DataFrame(log["X"]), pd.DataFrame.sparse.from_spmatrix(csr_matrix(log["X"]))):  # columns 0, 1, ...
        assert_array_equal(fit({**log, "X": table}).ranker_.weights, fitted.ranker_.weights)
    named = fit({**log, "X": frame})
    assert named.feature_names_in_.tolist() == names == list(named.ranker_.feature_names)


def test_ids_of_any_type_and_rows_in_any_order(log, fitted):
    order = np.random.default_rng(1).permutation(len(log["X"]))
    mixed = {name: values[order] for name, values in log.items()}
    mixed["query"] = [("query", int(q)) if q % 2 else f"query {q}" for q in mixed["query"]]
    assert_allclose(fit(mixed).examination_, fitted.examination_, rtol=1e-6)
    tuples = [("query", int(q)) for q in log["query"]]
    assert_allclose(fit({**log, "query": tuples}).examination_, fitted.examination_, rtol=1e-6)
    assert_array_equal(fitted.rank(log["X"], tuples), fitted.rank(log["X"], log["query"]))


@pytest.mark.parametrize("model", ["linear", "trees"])
def test_no_bit_depends_on_what_ids_are_held_in_or_on_the_order_of_rows(model):
    """Numbers, lists, texts and floats of the same ids, and rows in another order: the same folds, the same ranker."""
    log = click_log(pages=400)
    log["query"] = log["query"] * 7919 % 211  # texts have another order than numbers
    plain = fit(log, model, ordered=False)
    query, order = log["query"], np.random.default_rng(1).permutation(len(log["X"]))
    forms = [query.tolist(), query.astype(str), query.astype(float), pd.Series(query).astype(str), pa.array(query)]
    for other in (
        *({**log, "query": form} for form in forms),
        {name: values[order] for name, values in log.items()},
        {**{name: values[order] for name, values in log.items()}, "query": query[order].astype(str).tolist()},
    ):
        found = fit(other, model, ordered=False)
        assert found.ranker_.weights.tobytes() == plain.ranker_.weights.tobytes()
        assert found.report_ == plain.report_


@pytest.mark.parametrize("over", ["users", "queries", "pages"])
def test_no_draw_depends_on_what_ids_are_held_in_or_on_the_order_of_rows(over):
    log = click_log(pages=400)
    log["user"] = np.repeat(np.random.default_rng(2).integers(40, size=400) * 7919 % 211, 4)
    names, order = ("query", "rank", "session", "user"), np.random.default_rng(1).permutation(len(log["X"]))

    def fitted(log):
        given = {name: log[name] for name in names}
        return fultr.PositionBias(draws=20, over=over, ordered=False).fit(log["X"], log["clicks"], **given)

    plain = fitted(log)
    texts = {**log, "query": log["query"].astype(str), "user": log["user"].tolist()}
    for other in (texts, {name: values[order] for name, values in log.items()}):
        found = fitted(other)
        assert found.examination_.tobytes() == plain.examination_.tobytes()
        assert found.interval_.tobytes() == plain.interval_.tobytes()
        assert str(found) == str(plain)


@pytest.mark.parametrize("kind", [float, str, "datetime64[D]", "datetime64[ns]"])
def test_a_log_is_known_again_whatever_its_ids_are_held_in(kind):
    log = click_log(pages=60)
    frame = pd.DataFrame({"query": log["query"].astype(kind), "rank": log["rank"], "click": log["clicks"]})
    frame["f1"] = log["X"][:, 0]
    ranker = fultr.UnbiasedRanker("linear", propensity=[1, 0.5, 0.3, 0.2])
    ranker.fit(frame[["f1"]], frame["click"], query=frame["query"], rank=frame["rank"])
    assert fultr.trained_on(ranker, frame) is True


def test_features_of_any_scale(log):
    """A linear ranker and trees rank alike whether a feature is in [0, 1] or around 10^6."""
    scale, shift = np.array([1e6, 1e-6, 1, 1]), np.array([3e6, 0, 0, -5])
    for model in ("trees", "linear", "mlp"):
        plain = fit(log, model).predict(log["X"])
        moved = fit({**log, "X": log["X"] * scale + shift}, model).predict(log["X"] * scale + shift)
        assert np.corrcoef(plain, moved)[0, 1] > 0.98, model


def test_seeds_may_be_generators(log):
    drawn = [fit(log, "mlp", random_state=np.random.RandomState(3)) for _ in range(2)]
    assert_array_equal(drawn[0].ranker_.weights, drawn[1].ranker_.weights)
    other = fit(log, "mlp", random_state=np.random.default_rng(3))
    assert not np.array_equal(drawn[0].ranker_.weights, other.ranker_.weights)


def test_results_do_not_depend_on_threads(log, fitted):
    for jobs in (1, 3, -1):
        assert_array_equal(fit(log, n_jobs=jobs).ranker_.weights, fitted.ranker_.weights)


def test_ranks_and_scores_agree(log, fitted):
    scores, places = fitted.predict(log["X"]), fitted.rank(log["X"], log["session"])
    for page in range(20):
        rows = log["session"] == page
        assert_array_equal(np.argsort(-scores[rows], kind="stable"), np.argsort(places[rows]))
        assert sorted(places[rows]) == [1, 2, 3, 4]


def test_score_needs_no_grades_and_prefers_the_better_ranker(log, fitted):
    other = click_log(seed=5)
    given = {name: other[name] for name in ("query", "rank", "session")}
    blind = fit({**log, "X": np.c_[log["X"][:, :0], np.random.default_rng(2).random(log["X"].shape)]})
    assert blind.score(other["X"], other["clicks"], **given) < fitted.score(other["X"], other["clicks"], **given) <= 1


def test_rankers_of_different_propensities_have_the_same_measure(log, fitted):
    """One that takes clicks as they are prefers what was on top, and must not be measured by clicks as they are."""
    other = click_log(seed=5)
    given = {name: other[name] for name in ("query", "rank", "session")}
    biased = fit(log, propensity="none")
    values = fultr.pages_of(other["X"], other["clicks"], **given).log
    scores = fultr.score_pairs(fitted, values)
    examination = fultr.PositionBias("all-pairs", draws=0).fit(other["X"], other["clicks"], **given).examination_
    for ranker in (fitted, biased):
        scores = fultr.score_pairs(ranker, values)
        found = fultr.evaluate_from_clicks(values, {"a": scores}, examination, estimator="self-normalised", draws=20)
        assert_allclose(ranker.score(other["X"], other["clicks"], **given), found.values[1].mean, rtol=1e-6)
    asked = dict(given, propensity="none")
    plain = fultr.evaluate_from_clicks(values, {"a": scores}, np.ones(4), estimator="self-normalised", draws=20)
    assert_allclose(biased.score(other["X"], other["clicks"], **asked), plain.values[1].mean, rtol=1e-6)


def test_weights_of_rows_count_clicks(log, fitted):
    given = {name: log[name] for name in ("query", "rank", "session")}
    with pytest.raises(ValueError, match="propensity: Rank 2 has clicks, but its examination is 0: no weight makes up"):
        fitted.score(log["X"], log["clicks"], **given, propensity=[1, 0, 0, 0])
    twice = np.where(log["session"] < 1000, 2.0, 1.0)
    again = np.r_[np.flatnonzero(log["session"] < 1000), np.arange(len(log["X"]))]
    known = {"propensity": 1 / np.arange(1, 5)}
    weighted = fitted.score(log["X"], log["clicks"], **given, **known, sample_weight=twice)
    doubled = {name: values[again] for name, values in given.items()}
    doubled["session"] = np.where(np.arange(again.size) < 4000, doubled["session"], doubled["session"] + 10_000)
    repeated = fitted.score(log["X"][again], log["clicks"][again], **doubled, **known)
    assert_allclose(weighted, repeated, rtol=1e-9)
    with pytest.raises(FultrError, match="sample_weight: expected numbers from 0"):
        fitted.score(log["X"], log["clicks"], **given, sample_weight=0 * twice)


def test_a_saved_ranker_scores_alike(log, fitted, tmp_path):
    fitted.ranker_.save(tmp_path / "ranker.json")
    plain = fultr.Ranker.load(tmp_path / "ranker.json").plain.scores(log["X"][:100])
    assert_allclose(plain, fitted.predict(log["X"][:100]), rtol=1e-4, atol=1e-5)


def test_propensities(log):
    assert fit(log, propensity="none").examination_.tolist() == [1, 1, 1, 1]
    assert fit(log, propensity=[2, 1, 0.5, 0.5, 9]).examination_.tolist() == [1, 0.5, 0.25, 0.25]
    assert fit(log, propensity=None).report_.propensity == "none"
    assert fit(log, propensity="regression").report_.propensity == "regression"
    bias = fultr.PositionBias("adjacent", draws=0)
    assert fit(log, propensity=bias).report_.propensity == "adjacent"
    fitted = clone(bias).fit(log["X"], log["clicks"], query=log["query"], rank=log["rank"])
    assert_array_equal(fit(log, propensity=fitted).examination_, fitted.examination_)
    assert "regression" not in str(fit(log).report_)


def test_the_report_says_what_was_chosen(fitted):
    told = str(fitted.report_)
    assert "2,000 pages of 200 queries" in told
    assert "trees" in told
    assert "shown at several ranks" in told


def test_normalising_by_query_needs_the_query(log):
    ranker = fit(log, normalise="query")
    assert ranker.ranker_.normalised
    with pytest.raises(FultrError, match="query: expected an id"):
        ranker.predict(log["X"])
    assert (
        ranker.rank(log["X"][:4], log["query"][:4]).tolist() == ranker.rank(log["X"][:4] * 7, log["query"][:4]).tolist()
    )


def test_small_logs_are_trained_on_without_holding_out(log):
    few = log["session"] < 5
    ranker = fit({name: values[few] for name, values in log.items()}, propensity=1 / np.arange(1, 5))
    assert ranker.report_.held_out is None
    assert "too few queries" in str(ranker.report_)


def test_queries_of_one_document_say_nothing(log):
    one = log["rank"] == 1
    alone = {**{name: values[one] for name, values in log.items()}, "query": np.arange(one.sum())}
    ranker = fit(alone, "linear", propensity=[1.0])
    assert "No query with clicks has several documents" in str(ranker.report_)
    assert np.ptp(ranker.predict(log["X"])) == 0


@pytest.mark.parametrize("propensity", ["auto", "none", [1, 0.5, 0.3, 0.2]])
@pytest.mark.parametrize("federated", [False, True])
def test_there_is_nothing_to_learn_without_clicks(log, propensity, federated):
    with pytest.raises(FultrError, match="click log: no document was clicked, so there is nothing to train on"):
        fit({**log, "clicks": 0 * log["clicks"]}, propensity=propensity, federated=federated)


def test_what_is_said_to_be_normalised_must_be(log):
    pages = fultr.pages_of(log["X"], log["clicks"], query=log["query"], rank=log["rank"], session=log["session"]).log
    pages = replace(pages, features=pages.features * np.float32([1, 1, 3, 1]), feature_names=("f1", "f2", "f4", "f7"))
    with pytest.raises(
        FultrError, match=r"features that are scaled to \[0, 1\] within .* found [12]\.\d+ in feature f4"
    ):
        train_on_log(pages, model="linear", normalised=True)


def test_no_more_folds_than_queries_that_tell(log):
    """Of 100 folds for 30 queries, 70 would hold nothing out, and count in the mean all the same."""
    few = log["query"] < 30
    ranker = fit({name: values[few] for name, values in log.items()}, "linear", folds=100)
    assert ranker.report_.folds == 30
    assert all(part.size for _, part in folds_of(Pooled.of(_logged(log, few), np.ones(4)), 100, 0))


def _logged(log, rows):
    given = {name: log[name][rows] for name in ("query", "rank", "session")}
    return fultr.pages_of(log["X"][rows], log["clicks"][rows], **given).log


@pytest.mark.parametrize(
    ("kind", "names"),
    [(np.array, "12"), (lambda x: pd.DataFrame(x, columns=list("abcd")), "bc"), (csr_matrix, "12")],
)
def test_columns_that_float32_cuts_are_reported(log, kind, names):
    """Times in seconds and in milliseconds, of a day and of a minute: there are 128 s and 131 s between float32."""
    x = log["X"] * np.array([1, 86_400, 60_000, 1]) + np.array([0, 1.7e9, 1.7e12, 2000])
    x[:, 3] = x[:, 3].round()
    ranker = fit({**log, "X": kind(x)}, "linear")
    said = [note for note in ranker.report_.notes if note.startswith("Column")]
    assert [note.split(":")[0] for note in said] == [f"Column {name}" for name in names]
    assert "float32 leaves 1 of 800 different values; subtract a constant from it first." in said[1]
    assert said[1] in str(ranker.report_)
    moved = x - np.array([0, 1.7e9, 1.7e12, 0])
    assert not any(note.startswith("Column") for note in fit({**log, "X": kind(moved)}, "linear").report_.notes)


def test_clone_and_parameters(fitted):
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    assert not hasattr(again, "ranker_")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clicks": 2}, "clicks, row 0: expected 0 or 1, found 2"),
        ({"rank": 0}, "rank, row 0: expected a whole number"),
        ({"X": np.nan}, "NaN"),
        ({"query": None}, "query: expected a value for each row"),
    ],
)
def test_bad_input_is_one_line(log, change, says):
    given = {name: values[:8].copy() for name, values in log.items()}
    for name, value in change.items():
        if value is None:
            given[name] = None
        elif given[name].ndim == 2:
            given[name][0, 0] = value
        else:
            given[name][0] = value
    with pytest.raises(ValueError, match=says):
        fit(given)


@pytest.mark.parametrize("model", ["trees", "linear", "mlp"])
def test_no_rows_have_no_scores(log, fitted, model):
    ranker = fitted if model == "trees" else fit(log, model)
    for empty in (log["X"][:0], csr_matrix(log["X"][:0]), pd.DataFrame(log["X"][:0])):
        assert ranker.predict(empty).shape == ranker.rank(empty, []).shape == (0,)
        with pytest.raises(ValueError, match="click log: expected rows, found none"):
            fit({**{name: values[:0] for name, values in log.items()}, "X": empty})
    scaled = fit(log, "linear", normalise="query")
    assert scaled.predict(log["X"][:0], query=[]).shape == (0,)


def _at(table, value, kind=float):
    changed = table[:80].astype(kind)
    changed[17, 1] = value
    return changed


CELL = "features, row 17, column 1: expected a"


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda x: _at(x, np.nan), f"{CELL} finite number, found NaN"),
        (lambda x: _at(x, np.inf), f"{CELL} finite number, found inf"),
        (lambda x: _at(x, 1e39), f"{CELL} finite number, found 1e+39"),
        (lambda x: csr_matrix(_at(x, np.nan)), f"{CELL} finite number, found NaN"),
        (lambda x: _at(x, "word", object), f"{CELL} number: could not convert string to float: 'word'"),
        (lambda x: _at(x, {}, object), f"{CELL} number: float() argument must be a string or a real number"),
        (lambda x: x[:80].astype("M8[s]"), "features: expected numbers, found values of type datetime64[s]"),
        (lambda x: x[:80].astype(complex), "features: expected numbers, found values of type complex128; Complex data"),
        (lambda x: np.zeros(80, [("a", float)]), "features: expected rows of numbers, found shape (80,); Reshape your"),
        (lambda x: x[:80, :, None], "features: expected rows of numbers, found shape (80, 4, 1)"),
        (lambda x: x[:80, :0], "features: found 0 feature(s) (shape=(80, 0)) while a minimum of 1 is required."),
        (lambda x: x[:80, :2], "features: X has 2 features, but UnbiasedRanker is expecting 4 features as input"),
        (lambda x: pd.DataFrame(x[:80], columns=list("bacd")), "features: The feature names should match those that"),
        (lambda x: pd.DataFrame(x[:80, :3], columns=list("abc")), "features: The feature names should match those"),
    ],
)
def test_bad_features_are_one_line(log, made, says):
    table = made(log["X"])
    names = pd.DataFrame(log["X"], columns=list("abcd")) if isinstance(table, pd.DataFrame) else log["X"]
    ranker = fit({**log, "X": names}, "linear", propensity="none")
    with pytest.raises(fultr.FultrError) as caught:
        ranker.predict(table)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"model": "tree"}, "model: expected one of trees"),
        ({"propensity": "guess"}, "propensity: expected one of auto"),
        ({"propensity": [1, 0.5]}, "propensity: expected 4 numbers"),
        ({"propensity": fultr.Estimator("pooled")}, "propensity: pooled is estimated in the rounds of a federation"),
        ({"propensity": "em", "federated": True}, "propensity: expected one of auto, none, personal"),
        ({"propensity": [1, 0, 0, 0]}, "propensity: Rank 2 has clicks, but its examination is 0: no weight makes up"),
        ({"propensity": [1, 0, 0, 0], "federated": True}, "propensity: expected numbers above 0"),
        ({"propensity": [1, 0.5], "federated": True}, "propensity: expected 4 numbers"),
        ({"folds": 1}, "folds: expected"),
        ({"n_jobs": 0}, "n_jobs: expected"),
        ({"random_state": -1}, "random_state: expected"),
    ],
)
def test_bad_parameters_are_one_line(log, parameters, says):
    with pytest.raises(ValueError, match=says):
        fit(log, **parameters)


def test_a_log_without_clicks_is_refused(log):
    with pytest.raises(ValueError, match="no document was clicked"):
        fit({**log, "clicks": np.zeros_like(log["clicks"])})


def test_columns_called_by_numbers_are_found_whatever_their_order():
    log = click_log(pages=300)
    given = {name: log[name] for name in ("query", "rank", "session")}
    table = pd.DataFrame(log["X"], columns=["f5", "f12", "f2", "f3"])
    ranker = fultr.UnbiasedRanker("linear", propensity=[1, 0.5, 0.3, 0.2]).fit(table, log["clicks"], **given)
    assert ranker.ranker_.feature_names == ("f2", "f3", "f5", "f12")
    assert ranker.ranker_.feature_ids.tolist() == [2, 3, 5, 12]
    assert_allclose(ranker.predict(table), ranker.ranker_.score(table), rtol=1e-4, atol=1e-5)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        assert_array_equal(ranker.predict(table), ranker.predict(log["X"]))
    pages = fultr.pages_of(table, log["clicks"], **given).log
    assert ranker.score(table, log["clicks"], **given) > 0.5
    assert_allclose(fultr.score_pairs(ranker, pages), ranker.ranker_.score(pages.features[:, [2, 3, 0, 1]]), rtol=1e-6)
