"""What is said about an estimate: weights, identifiability, intervals, trust bias and the conclusion."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from help.click_logs import BAD_LOGS, answers, random_log, simulated_log

from fultr.cli.estimate import as_dict
from fultr.clicks.bootstrap import bootstrap, units_of, usual_unit
from fultr.clicks.diagnosis import diagnose
from fultr.clicks.examination.methods import METHODS, examination_by
from fultr.clicks.identifiability import identifiability
from fultr.clicks.impressions import ImpressionLog
from fultr.clicks.weights import weights_of
from fultr.core.errors import FultrError

TRUTH = 1 / np.arange(1.0, 6)


def test_weights_by_hand():
    found = weights_of(np.array([900.0, 95.0, 5.0]), np.array([1.0, 0.5, 0.05]))
    total = 900 + 95 * 2 + 5 * 20
    assert found.clicks == 1000
    assert found.effective == pytest.approx(total**2 / (900 + 95 * 4 + 5 * 400))
    assert (found.largest, found.largest_rank) == (20, 3)
    assert found.heaviest_share == pytest.approx((5 * 20 + 5 * 2) / total)  # 10 clicks: the 5 at rank 3, and 5 others
    assert found.click_share == (0.9, 0.095, 0.005)
    assert found.weight_share == pytest.approx((900 / total, 190 / total, 100 / total))
    assert found.clip == 2  # with 20 the effective size is 432, below half of 1,000
    assert found.infinite == 0


def test_weights_without_examination_are_left_out():
    found = weights_of(np.array([10.0, 5.0]), np.array([1.0, 0.0]))
    assert (found.effective, found.infinite, found.weight_share) == (10, 5, (1, 0))
    nothing = weights_of(np.array([0.0, 0.0]), np.array([1.0, 0.5]))
    assert (nothing.clicks, nothing.effective, nothing.weight_share) == (0, 0, (0, 0))


def test_identifiability_by_hand():
    """Query 1: a and b change places on one page of three, c stays. Query 2: d and e stay."""
    log = ImpressionLog.from_arrays(
        [1, 1, 1, 2], [[1, 2, 3], [2, 1, 3], [1, 2, 3], [4, 5, -1]], [[1, 0, 0], [1, 0, 1], [0, 1, 0], [1, 0, 0]]
    )
    found = identifiability(log.cells(), np.array([1, 0.5, 0.3]))
    assert (found.documents, found.moved, found.moved_share) == (5, 2, 2 / 5)
    assert found.moved_impressions == 6 / 11
    assert found.unreachable == (3,)
    assert found.clicks_per_document == 5 / 4  # a 1, b 2, c 1, d 1
    assert found.relevance_by_rank is None


def test_relevance_is_seen_to_fall_with_rank():
    cells = simulated_log(0, examination=TRUTH).cells()
    found = identifiability(cells, TRUTH).relevance_by_rank
    assert found is not None
    assert found < -0.3
    assert identifiability(random_log(0, pages=2000).cells(), np.ones(4)).relevance_by_rank > -0.5
    always = ImpressionLog.from_arrays(np.arange(1200) % 12, [[1, 2]] * 1200, [[1, 1]] * 1200)
    assert identifiability(always.cells(), np.ones(2)).relevance_by_rank is None  # no variance


def test_a_bootstrap_spreads_as_logs_do():
    """The standard deviation over draws from one log, against that over 60 logs: within a third, at 60 and 200."""
    logs = [simulated_log(seed, examination=TRUTH, queries=300, pages=6000) for seed in range(60)]
    actual = np.array([examination_by("all-pairs", log.cells()) for log in logs]).std(axis=0, ddof=1)
    for over in ("queries", "pages"):
        drawn = bootstrap(logs[0], lambda cells: examination_by("all-pairs", cells), over=over)
        assert drawn.failed == 0
        ratio = drawn.values.std(axis=0, ddof=1)[1:] / actual[1:]
        assert np.all((ratio > 0.67) & (ratio < 1.6)), (over, ratio)


@pytest.mark.slow
def test_intervals_hold_the_truth():
    """95% intervals of 4 ranks in 40 logs: at least 140 of 160 hold (152 expected; ranks of a log go together)."""
    held = 0
    for seed in range(40):
        log = simulated_log(seed, examination=TRUTH, queries=200, pages=4000)
        interval = bootstrap(log, lambda cells: examination_by("all-pairs", cells), draws=100).interval()
        assert interval is not None
        held += int(((interval[0] <= TRUTH) & (interval[1] >= TRUTH))[1:].sum())
    assert 140 <= held <= 160


def test_draws_depend_on_seed_and_number_alone():
    log = random_log(0)

    def rates(cells):
        return cells.by_rank()[1]

    few, many = (bootstrap(log, rates, draws=draws, seed=3).values for draws in (20, 40))
    np.testing.assert_array_equal(few, many[:20])
    assert not np.array_equal(few, bootstrap(log, rates, draws=20, seed=4).values)


def test_queries_drawn_twice_count_twice():
    log = random_log(1)
    for over in ("queries", "pages"):
        shown = bootstrap(log, lambda cells: cells.by_rank()[0], over=over, draws=300).values
        error = shown.std(axis=0, ddof=1) / 300**0.5
        assert np.all(np.abs(shown.mean(axis=0) - log.cells().by_rank()[0]) < 4 * np.maximum(error, 1e-9))


def test_users_are_drawn_if_known():
    log = simulated_log(0, examination=TRUTH, pages=600, users=30)
    assert usual_unit(log) == "users"
    assert np.bincount(units_of(log, "users")).size == 30
    assert bootstrap(log, lambda cells: cells.by_rank()[1], draws=20).over == "users"
    assert usual_unit(replace(log, users=None)) == "queries"
    assert usual_unit(log.take(log.queries == 0)) in ("users", "pages")
    with pytest.raises(FultrError, match="does not say who searched"):
        units_of(replace(log, users=None), "users")


def test_failed_draws_are_counted():
    log = random_log(0)

    def sometimes(cells):
        if cells.by_rank()[1][0] % 2:
            raise FultrError("odd")
        return np.ones(1)

    drawn = bootstrap(log, sometimes, over="pages", draws=100)
    assert 0 < drawn.failed < 100
    assert len(drawn.values) == 100 - drawn.failed
    assert bootstrap(log, sometimes, draws=0).interval() is None


def reasons(log: ImpressionLog, **options) -> tuple[str, str, str]:
    said = diagnose(log, **{"draws": 60, **options}).conclusion
    return said.answer, " ".join(said.reasons), " ".join(said.advice)


def test_a_good_log_is_trusted():
    log = simulated_log(0, examination=TRUTH**0.7, queries=100, pages=40_000, versions=3)
    found = diagnose(log, draws=60)
    assert found.conclusion.answer == "trust", found.conclusion
    assert found.method == "all-pairs"
    assert set(found.others) == {"em"}
    assert any("never displayed" in line for line in found.conclusion.limits)
    np.testing.assert_allclose(found.examination, TRUTH**0.7, rtol=0.1)


def test_one_ranking_is_not_trusted():
    answer, why, advice = reasons(simulated_log(0, examination=TRUTH, versions=1))
    assert answer == "do not trust"
    assert "No document was shown at more than one rank" in why
    assert "EM depends on its start" in why
    assert "Randomise a little" in advice
    found = diagnose(simulated_log(0, examination=TRUTH, versions=1), draws=60)
    assert found.method == "em"
    assert found.draws.interval() is None
    assert any("cannot show" in line for line in found.conclusion.limits)


def test_a_short_log_is_not_trusted():
    answer, why, _ = reasons(simulated_log(0, examination=TRUTH, pages=60))
    assert answer == "do not trust"
    assert "clicks." in why


def test_few_interventions_need_care():
    """One query of 100 is shown in two orders."""
    log = simulated_log(0, examination=TRUTH**0.5, queries=100, pages=60_000, versions=1)
    documents = log.documents.copy()
    swapped = np.flatnonzero(log.queries < 2)[::2]
    documents[swapped] = np.roll(documents[swapped], 1, axis=1)
    few = ImpressionLog.from_arrays(log.queries, documents, log.clicks)
    answer, why, _ = reasons(few, over="pages")
    assert answer != "trust"
    assert "of the displayed results are documents that were shown at several ranks" in why


def test_em_with_few_clicks_per_document_is_not_trusted():
    log = simulated_log(0, examination=TRUTH, queries=1500, pages=4000)
    answer, why, advice = reasons(log, method="em", draws=20)
    assert answer == "do not trust"
    assert "EM overstates low ranks" in why
    assert "Use all-pairs (harvesting) instead" in advice
    assert "EM" not in reasons(log)[1]


def test_uneven_units_need_care():
    log = simulated_log(0, examination=TRUTH, queries=3, pages=20_000, versions=3)
    answer, why, _ = reasons(log)
    assert answer != "trust"
    assert "The queries, given their sizes, count as only" in why


def test_steep_examination_is_advised_to_be_clipped():
    steep = np.array([1.0, 0.3, 0.03, 0.01])
    answer, why, advice = reasons(simulated_log(0, examination=steep, queries=100, pages=60_000, versions=4))
    assert answer != "trust"
    assert "clicks count as" in why
    assert "Clip weights at" in advice


def test_examination_that_rises_is_noticed():
    rising = np.array([1.0, 0.4, 0.8])
    answer, why, _ = reasons(simulated_log(0, examination=rising, queries=100, versions=3))
    assert answer != "trust"
    assert "Rank 3 is examined significantly more than rank 2" in why


def test_one_rank_needs_no_correction():
    answer, why, _ = reasons(simulated_log(0, examination=np.ones(1), pages=2000))
    assert (answer, why) == ("trust", "Pages have only one rank: there is nothing to correct.")


def test_without_draws_there_is_no_trust():
    answer, why, _ = reasons(simulated_log(0, examination=TRUTH**0.5, queries=100), draws=0)
    assert answer != "trust"
    assert "There are no intervals" in why


@pytest.mark.parametrize("method", ["auto", *METHODS])
@pytest.mark.parametrize("name", BAD_LOGS)
def test_bad_logs_get_an_answer_or_an_error(name, method):
    log = BAD_LOGS[name]
    if method == "regression":
        log = replace(log, features=np.random.default_rng(0).random((log.pairs, 2), np.float32))
    if not answers(name, method):
        with pytest.raises(FultrError, match=r"^[^\n]*(collect more|randomise)[^\n]*$"):
            diagnose(log, method, draws=30)
        return
    told = json.loads(json.dumps(as_dict(diagnose(log, method, draws=30)), allow_nan=False))
    assert told["examination"][0] == 1
    assert told["conclusion"]["answer"] == "do not trust"
    assert told["conclusion"]["reasons"]


def test_a_method_that_is_not_there_is_refused():
    with pytest.raises(FultrError, match="method: expected one of auto, all-pairs, regression, em, adjacent"):
        diagnose(random_log(0), "magic")
