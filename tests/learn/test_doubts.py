"""What `UnbiasedRanker`, `PositionBias` and `fultr train` say of propensities that they estimated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from help.click_logs import CLEAN, LEARNT

import fultr
from fultr.clicks.compare import compare_rankers
from fultr.learn.whole_log import train_on_log


def with_features(scenario, seed=0):
    log = scenario.drawn(seed).log
    rng = np.random.default_rng(0)
    return replace(log, features=rng.random((log.pairs, 3)).astype(np.float32))


def as_table(log):
    """A row for each displayed document, shuffled pages and all."""
    page, rank = np.nonzero(log.shown)
    pair = log.documents[log.shown]
    return {
        "X": log.features[pair],
        "clicks": log.clicks[log.shown],
        "query": log.queries[page],
        "rank": rank + 1,
        "session": page,
        "document": pair,
    }


def test_training_says_whether_to_trust_what_it_estimated():
    """Page by page the order tells of feedback; without an order, nobody can say."""
    log = with_features(replace(LEARNT, pages=4000))
    report = train_on_log(log, model="linear").report
    assert report.trust == "do not trust"
    assert "rank changes follow clicks" in report.doubts[0]
    assert "Whether to trust them: do not trust.\n  - At the same rank" in str(report)
    table = as_table(log)
    mixed = np.random.default_rng(0).permutation(table["session"].max() + 1)[table["session"]]
    rows = np.lexsort((table["rank"], mixed))
    shuffled = {name: values[rows] for name, values in table.items()}
    ranker = fultr.UnbiasedRanker("linear", ordered=False).fit(**shuffled)
    assert ranker.report_.trust == "trust with care"
    assert any("Without the order of the pages" in one for one in ranker.report_.doubts)
    bias = fultr.PositionBias(draws=20, ordered=False).fit(**shuffled)
    assert bias.answer_ == "trust with care"
    assert fultr.PositionBias(draws=20).fit(**table).answer_ == "do not trust"


def test_training_has_no_doubts_about_a_sound_log():
    report = train_on_log(with_features(replace(CLEAN, pages=40_000)), model="linear").report
    assert (report.trust, report.doubts) == ("trust", ())
    assert "Whether to trust them: trust." in str(report)


@pytest.mark.parametrize("propensity", ["none", [1.0, 0.5, 0.3, 0.2, 0.2]])
def test_what_was_not_estimated_is_not_judged(propensity):
    log = with_features(replace(LEARNT, pages=500))
    report = train_on_log(log, model="linear", propensity=propensity).report
    assert (report.trust, report.doubts) == (None, ())
    assert "Whether to trust" not in str(report)


def test_rankers_are_not_compared_by_clicks_that_moved_documents():
    log = with_features(replace(LEARNT, pages=4000))
    better = {"logged": None, "other": np.random.default_rng(0).random(log.pairs)}
    said = compare_rankers(log, better, draws=50)
    assert said.difference.answer == "inconclusive"
    assert "rank changes follow clicks" in said.evaluation.refusal
    told = compare_rankers(log, better, draws=50, ordered=False)
    assert told.trust == "trust with care"
