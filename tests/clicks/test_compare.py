"""Which of two rankers would have got more clicks: on simulated logs, whose truth is known."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from help.commands import fultr

from fultr.clicks.any_log import click_log
from fultr.clicks.bootstrap import bootstrap
from fultr.clicks.compare import compare_rankers
from fultr.clicks.diagnosis import diagnose
from fultr.clicks.evaluated import Examined
from fultr.clicks.evaluation import evaluate_from_clicks
from fultr.clicks.examination.methods import examination_by
from fultr.clicks.impressions import ImpressionLog
from fultr.clicks.tables import table_of, write_click_log
from fultr.core.errors import FultrError
from fultr.rankers.click_logs import score_pairs
from fultr.rankers.ranker import Ranker

K, QUERIES, DOCUMENTS = 4, 40, 7
EXAMINATION = 1 / np.arange(1, K + 1)
_RANDOM = np.random.default_rng(0)
RELEVANCE = _RANDOM.beta(0.7, 1.5, (QUERIES, DOCUMENTS))
GOOD = RELEVANCE + 0.1 * _RANDOM.normal(size=RELEVANCE.shape)
POOR = 0.2 * RELEVANCE + _RANDOM.normal(size=RELEVANCE.shape)
POLICIES = np.stack([RELEVANCE + 0.5 * _RANDOM.normal(size=RELEVANCE.shape) for _ in range(2)])


def simulated(seed: int, users: int = 120, pages: int = 40) -> ImpressionLog:
    """Users of different activity; two policies at random; features are a good score and a poor one."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), rng.integers(1, 2 * pages, users))
    query, version = rng.integers(QUERIES, size=user.size), rng.integers(2, size=user.size)
    order = np.argsort(-POLICIES[version, query], axis=1)[:, :K]
    attraction = np.take_along_axis(RELEVANCE[query], order, axis=1)
    clicks = rng.random(order.shape) < EXAMINATION * attraction
    features = np.stack([np.take_along_axis(table[query], order, axis=1) for table in (GOOD, POOR)], axis=2)
    return ImpressionLog.from_arrays(query, order, clicks, user, features)


def truth(scores: np.ndarray | None) -> float:
    """Clicks per page of a ranker that reorders the pages of the two policies."""
    clicks = []
    for policy in POLICIES:
        order = np.argsort(-policy, axis=1)[:, :K]
        if scores is not None:
            again = np.argsort(-np.take_along_axis(scores, order, axis=1), axis=1)
            order = np.take_along_axis(order, again, axis=1)
        clicks.append((np.take_along_axis(RELEVANCE, order, axis=1) * EXAMINATION).sum(axis=1).mean())
    return float(np.mean(clicks))


def scores(log: ImpressionLog) -> dict[str, np.ndarray]:
    assert log.features is not None
    return {"good": log.features[:, 0], "poor": log.features[:, 1]}


def test_the_answer_is_right_and_the_displayed_order_is_what_was_clicked():
    log = simulated(1)
    found = compare_rankers(log, {"now": None, "good": scores(log)["good"]}, draws=100, most_unseen=1)
    assert found.difference.answer == "yes"
    assert (found.difference.better, found.difference.than) == ("good", "displayed")
    assert found.difference.low <= truth(GOOD) - truth(None) <= found.difference.high
    displayed = found.evaluation.values[0]
    assert displayed.mean == pytest.approx(log.clicks.sum() / log.impressions)  # p / p: whatever p is
    assert found.method == "all-pairs"
    back = compare_rankers(log, {"good": scores(log)["good"], "now": None}, draws=100, most_unseen=1)
    assert back.difference.answer == "no"
    assert back.difference.mean == -found.difference.mean


@pytest.mark.slow
def test_error_rates_with_examination_estimated_from_the_same_log():
    """16 logs, two questions each: intervals cover in 95% but for 3 standard errors, and no answer is wrong.

    docs/click-log-files.md has the rates over 200 logs.
    """
    covered: dict[str, list[bool]] = {"ips": [], "doubly-robust": []}
    answers = []
    for seed in range(16):
        log = simulated(seed, users=100, pages=30)
        found = examination_by("all-pairs", log.cells())
        drawn = bootstrap(log, lambda cells: examination_by("all-pairs", cells), draws=80, seed=seed)
        assert not drawn.failed
        examined = Examined(found, draws=drawn.values)
        for estimator, hits in covered.items():
            told = evaluate_from_clicks(
                log, scores(log), examined, metric="clicks", estimator=estimator, draws=80, seed=seed, most_unseen=1
            )
            for than, gap in (("displayed", truth(GOOD) - truth(None)), ("poor", truth(GOOD) - truth(POOR))):
                difference = told.better("good", than)
                hits.append(difference.low <= gap <= difference.high)
                answers.append(difference.answer)
    for hits in covered.values():
        assert np.mean(hits) > 0.95 - 3 * (0.95 * 0.05 / len(hits)) ** 0.5
    assert "no" not in answers
    assert answers.count("yes") > 0.9 * len(answers)


def test_equal_rankers_are_not_told_apart():
    log = simulated(3)
    good = scores(log)["good"]
    found = compare_rankers(log, {"a": good, "b": 2 * good}, examination=EXAMINATION, draws=50, most_unseen=1)
    assert (found.difference.mean, found.difference.answer) == (0, "inconclusive")
    assert (found.method, found.trust) == (None, None)


def test_a_ranker_that_shows_what_the_page_did_not():
    """Of four documents, a page has two; the ranker wants two that only every second page has."""
    shown = np.tile([[1, 2], [3, 4]], (300, 1))
    clicks = np.random.default_rng(0).random(shown.shape) < [0.5, 0.2]
    log = ImpressionLog.from_arrays([1] * 600, shown, clicks, np.arange(600) % 50)
    wants = {"wants 3 and 4": np.where(log.document_names >= 3, 1.0, 0.0)}
    found = compare_rankers(log, {"now": None, **wants}, examination=[1, 0.5], draws=50)
    assert found.evaluation.unseen == (0.0, 0.5)
    assert found.evaluation.refusal is None
    found = compare_rankers(log, {"now": None, **wants}, examination=[1, 0.5], draws=50, most_unseen=0.4)
    assert found.difference.answer == "inconclusive"
    assert found.evaluation.refusal == (
        "50% of what wants 3 and 4 would have shown was not on the page: the log cannot tell what it would have got."
    )


def test_examination_that_cannot_be_estimated_is_no_answer():
    shown = np.tile([[1, 2]], (600, 1))  # always the same order: rank and relevance are one
    clicks = np.random.default_rng(0).random(shown.shape) < [0.6, 0.2]
    log = ImpressionLog.from_arrays([1] * 600, shown, clicks, np.arange(600) % 50)
    found = compare_rankers(log, {"now": None, "swapped": log.document_names.astype(float)}, draws=50)
    assert found.trust == "do not trust"
    assert found.difference.answer == "inconclusive"
    assert str(found.evaluation.refusal).startswith("The examination of ranks cannot be estimated from this log: ")


def test_rankers_without_names_are_refused():
    log = simulated(5)
    with pytest.raises(FultrError, match=r"rankers: expected scores by name, such as \{'new': scores\}; found list"):
        compare_rankers(log, [None, np.ones(log.pairs)])


def test_features_are_found_by_name_or_number():
    log = simulated(5)
    assert log.features is not None
    both = Ranker(np.float32([1, 2]), np.array([3, 8]), normalised=False)
    plain = log.features @ np.float32([1, 2])
    np.testing.assert_allclose(score_pairs(both, log), plain, rtol=1e-6)
    swapped = click_log(
        table_of(log).rename_columns(["user", "session", "query", "document", "rank", "click", "f8", "f3"])
    )
    assert swapped.feature_names == ("f8", "f3")
    crossed = swapped.features @ np.float32([2, 1])
    np.testing.assert_allclose(score_pairs(both, swapped), crossed, rtol=1e-6)
    with pytest.raises(FultrError, match="expected the ranker's feature 'b', found no such column"):
        score_pairs(Ranker(np.float32([1, 2]), np.array([1, 2]), False, feature_names=("f3", "b")), swapped)
    with pytest.raises(
        FultrError, match="expected the ranker's feature 'f5', found no such column"
    ):  # not f3, nor id 3
        score_pairs(Ranker(np.float32([1, 2]), np.array([3, 8]), False, feature_names=("f5", "f8")), swapped)
    other = Ranker(np.float32([1, 2]), np.array([3, 8]), False, feature_names=("feature_3", "F8"))
    np.testing.assert_allclose(score_pairs(other, swapped), crossed, rtol=1e-6)  # these names say their ids
    with pytest.raises(FultrError, match="expected the ranker's 1 features, found 2"):
        score_pairs(Ranker(np.float32([1]), np.array([1]), False), log)
    scaled = Ranker(np.float32([1, 0]), np.array([1, 2]))
    with pytest.raises(FultrError, match=r"features scaled to \[0, 1\] within each query, found .* have them scaled"):
        score_pairs(scaled, log)
    found = score_pairs(scaled, log, scale=True)
    for query in range(QUERIES):
        own = found[log.query_of_pair == query]
        assert (own.min(), own.max()) == (0, 1)


def test_tables_are_click_logs():
    """diagnose(df) and friends: the same as from the log, or one clear line."""
    log = simulated(6, users=20, pages=10)
    table = table_of(log)
    for given in (table, table.to_pandas(), pl.from_arrow(table), table_of(log, "pages"), table.to_pydict()):
        found = click_log(given)
        assert np.array_equal(found.clicks, log.clicks)
        assert diagnose(given, draws=0).examination == pytest.approx(diagnose(log, draws=0).examination)
    bad = table.to_pandas()
    bad.loc[7, "rank"] = 9
    for given, message in (
        (bad, r"click log, rank, row 7: expected rank \d next on this page, found 9"),
        (pd.DataFrame({"a": [1]}), "click log: expected columns query, documents and clicks; there is no query in 'a'"),
        (table.slice(0, 0), "click log: expected rows, found none"),
        (
            pd.DataFrame({"query": [1, None], "rank": [1, 1], "click": [0, 0], "f1": [1, 2]}),
            "row 1: expected a value in",
        ),
        (
            pd.DataFrame({"query": [1, 2], "rank": [1, 1], "click": [0, 0], "f1": [1, None]}),
            "click log, row 1: expected a value in column f1, found none",
        ),
        (3, "click log: expected a click log .* found int"),
        (np.ones((3, 2)), "click log: expected a click log .* found ndarray"),
        ({"query": [1], "rank": [1, 2], "click": [0]}, "click log: expected columns with values of one type each"),
    ):
        with pytest.raises(FultrError, match=message):
            diagnose(given)
    with pytest.raises(FultrError, match="click log: features: expected names of columns, found 5"):
        click_log(table, features=5)
    sparse = pd.DataFrame({"query": [1, 1], "rank": [1, 2], "click": [0, 1], "f1": pd.arrays.SparseArray([0.0, 2])})
    assert click_log(sparse).features.tolist() == [[0], [2]]
    flags = pa.table({"query": [1, 1], "rank": [1, 2], "click": [True, False], "f1": [True, False], "f2": [0.5, 2]})
    assert click_log(flags).features.tolist() == [[1, 0.5], [0, 2]]


def test_the_command(tmp_path):
    log = simulated(7)
    write_click_log(log, tmp_path / "log.tsv")
    for name, weights in (("good", [1, 0]), ("poor", [0, 1])):
        Ranker(np.float32(weights), np.array([1, 2]), normalised=False).save(tmp_path / f"{name}.json")
    done = fultr(
        *("compare", "log.tsv", "poor.json", "good.json", "--bootstrap", 40, "--figure", "c.png", "--most-unseen", 1),
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    assert "Would good.json get more clicks than poor.json? Yes (+" in done.out
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    told = fultr(
        *("compare", "log.tsv", "logged", "good.json", "--bootstrap", 40, "--metric", "rank", "--json"),
        *("--examination", "1,.5,.333,.25", "--most-unseen", 1),
        cwd=tmp_path,
    )
    found = json.loads(told.out)
    assert (found["answer"], found["difference"]["better"], found["difference"]["than"]) == (
        "yes",
        "good.json",
        "logged",
    )
    assert found["rankers"]["good.json"]["mean"] < found["rankers"]["logged"]["mean"]  # ranks: the lower the better
    write_click_log(replace(log, clicks=0 * log.clicks), tmp_path / "silent.tsv")
    asked = ("logged", "good.json", "--examination", "1,.5,.3,.2", "--estimator", "self-normalised", "--json")
    silent = fultr("compare", "silent.tsv", *asked, cwd=tmp_path)
    assert (silent.code, silent.out, silent.err.count("\n")) == (2, "", 1)
    assert "no document was clicked" in silent.err
    for arguments, message in (
        (["logged", "logged"], "expected two different rankers, found logged twice"),
        (["logged", "none.json"], "none.json: cannot be read: No such file or directory"),
        (["logged", "good.json", "--examination", "1,2"], "--examination: expected 4 numbers above 0 and at most 1"),
        (["logged", "good.json", "--examination", "a"], "--examination: expected numbers with commas between them"),
        (["logged", "good.json", "--figure", "c.gif"], "--figure: expected a file that ends with .png, .svg or .pdf"),
    ):
        done = fultr("compare", "log.tsv", *arguments, cwd=tmp_path)
        assert done.code == 2
        assert message in done.err
