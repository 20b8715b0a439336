"""Checks of how rankers and users behave: feedback, trust bias, cascades; and what is concluded from them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from help.click_logs import CASCADING, CLEAN, LEARNT, LEARNT_ONCE, TRUSTING, UNEVEN, random_log, simulated_log
from scipy.stats import binom

from fultr.clicks.cascade_check import stopping
from fultr.clicks.diagnosis import diagnose
from fultr.clicks.examination.affine import affine_em
from fultr.clicks.examination.methods import examination_by
from fultr.clicks.feedback_check import feedback
from fultr.clicks.findings import on_feedback, on_stopping, on_trust
from fultr.clicks.impressions import ImpressionLog
from fultr.clicks.strata import contrast, deviation
from fultr.clicks.trust_check import trust_bias
from fultr.core.errors import FultrError
from fultr.study.click_scenarios import Scenario
from fultr.study.verdict_rates import rates

TRUTH = 1 / np.arange(1.0, 6)


def check_trust(scenario: Scenario, seed: int):
    log, _ = scenario.drawn(seed)
    found = trust_bias(log, examination_by("all-pairs", log.cells()), seed=seed)
    assert found is not None
    return found


def test_deviations_are_those_of_all_permutations():
    """Against the mean and variance over 4,000 shuffles within strata, by their standard errors."""
    rng = np.random.default_rng(0)
    strata = rng.integers(6, size=60)
    clicks = (rng.random(60) < 0.4).astype(float)
    scores = rng.standard_normal(60)
    first, second = scores > 0.2, scores < -0.2
    found, compared = deviation(strata, clicks, scores), contrast(strata, clicks, first, second)
    sums, gaps = [], []
    for _ in range(4000):
        shuffled = clicks.copy()
        for one in range(6):
            shuffled[strata == one] = rng.permutation(shuffled[strata == one])
        sums.append(deviation(strata, shuffled, scores).sum)
        two = contrast(strata, shuffled, first, second)
        gaps.append(two.first - two.second)
    assert abs(np.mean(sums)) < 4 * np.std(sums) / 4000**0.5
    assert np.var(sums) == pytest.approx(found.variance, rel=4 * (2 / 4000) ** 0.5)
    cubes = (np.array(sums) - np.mean(sums)) ** 3
    assert abs(np.mean(cubes) - found.third) < 4 * np.std(cubes) / 4000**0.5
    assert abs(np.mean(gaps)) < 4 * np.std(gaps) / 4000**0.5
    assert found.z == pytest.approx(found.sum / np.std(sums), rel=0.1)
    assert compared.ratio is not None


def test_rare_deviations_have_the_probability_of_counting_them():
    """100 strata of 100, one click each, one impression that counts: hits are binomial, of 100 and 1 / 100."""
    strata, scores = np.repeat(np.arange(100), 100), np.tile(np.arange(100.0) == 0, 100).astype(float)
    for hits in (3, 4, 5, 6):
        clicks = np.tile(np.arange(100.0) == 1, (100, 1))
        clicks[:hits] = np.arange(100) == 0
        found = deviation(strata, clicks.ravel().astype(float), scores)
        between = binom.sf(hits, 100, 0.01), binom.sf(hits - 1, 100, 0.01)  # as if half of a hit were possible
        assert between[0] < found.chance / 2 < between[1]
        assert math.erfc(found.z / 2**0.5) / 2 < 0.6 * found.chance / 2
    rng = np.random.default_rng(0)
    chances = [
        deviation(rng.integers(40, size=400), (rng.random(400) < 0.1) * 1.0, (rng.random(400) < 0.05) * 1.0).chance
        for _ in range(2000)
    ]
    assert np.mean(np.array(chances) < 0.05) < 0.05 + 4 * (0.05 * 0.95 / 2000) ** 0.5


def test_strata_with_nothing_to_compare_say_nothing():
    found = deviation(np.zeros(4, int), np.array([1.0, 0, 1, 0]), np.full(4, 0.1) * 3)
    assert (found.sum, found.variance, found.third, found.z, found.chance) == (0, 0, 0, 0, 1)
    nothing = contrast(np.arange(4), np.ones(4), np.arange(4) < 2, np.arange(4) >= 2)
    assert (nothing.ratio, nothing.error, nothing.z) == (None, None, 0)


def test_feedback_by_hand():
    """Document 7 is at rank 1, 1, 2, 2, 1: clicked before it moved down, and before it moved up."""
    log = ImpressionLog.from_arrays(
        [1] * 5, [[7, 8], [7, 8], [8, 7], [8, 7], [7, 8]], [[0, 0], [1, 0], [0, 0], [0, 1], [0, 0]]
    )
    found = feedback(log)
    assert found is not None
    # 8 had no click. How high is 7 on the next page, 2 at rank 1 and 1 at rank 2? From rank 1 on pages 0 and 1: 2, 1;
    # from rank 2 on pages 2 and 3: 1, 2. The second of each was clicked: 1 / 2 too low and 1 / 2 too high.
    # On the two pages after that: 1 and (1 + 2) / 2 from rank 1, the second clicked, so 1 / 4 too high of 1 / 4
    assert found.z == pytest.approx(1)
    assert (found.ahead, found.of_user) == ((2, 3), False)
    assert found.chance == pytest.approx(3 * math.erfc(0.5**0.5))  # three stretches of pages
    assert found.ratio is None  # at the same rank, it was never both higher and lower later
    assert found.once == 0
    assert found.spread is None
    assert feedback(log.take(np.arange(2))) is None  # nothing moved
    assert feedback(log.take(np.arange(3))).once == 1
    gone = ImpressionLog.from_arrays([1] * 3, [[7, 8], [7, 9], [7, 8]], np.ones((3, 2)))
    assert feedback(gone) is not None  # off the page is down


def test_clicks_that_count_later_are_noticed():
    """A ranker sorted by the clicks of 12 to 7 pages ago: clicks go with ranks 8 to 15 pages on, or 4 to 7."""
    rng = np.random.default_rng(0)
    pages, clicks = [], []
    for at in range(4000):
        made = np.zeros(4)
        for page, clicked in zip(pages[max(at - 12, 0) : max(at - 6, 0)], clicks[max(at - 12, 0) :], strict=False):
            made[page] += clicked
        pages.append(np.lexsort((rng.random(4), -made)))
        clicks.append((rng.random(4) < [0.4, 0.2, 0.15, 0.1]).astype(int))
    found = feedback(ImpressionLog.from_arrays([1] * 4000, pages, clicks))
    assert found.compared
    assert found.ahead == (8, 15)
    assert found.ratio > 1.5
    (finding,) = on_feedback(found, True)
    assert "if it was higher 8 to 15 pages of the query later" in finding.reason
    assert finding.answer == "do not trust"


def test_rankers_that_learn_for_each_user_are_noticed():
    """Each of 20 users finds on top what they clicked; the next page of the query is another user's."""
    log, truth = replace(LEARNT, pages=20_000, updates=200, users=20, taste=0.5).drawn(0)
    found = diagnose(log, draws=20)
    assert (found.feedback.of_user, found.conclusion.answer) == (True, "do not trust")
    assert abs(found.examination[-1] / truth[-1] - 1) > 0.2
    assert "of the same user and query later" in found.conclusion.reasons[0]
    assert feedback(replace(log, users=None)).chance > 1e-4


@pytest.mark.slow
def test_ranks_rarely_seem_to_follow_clicks():
    """Of 600 logs without feedback, 1% seem to have it: at most 14, which is 3.3 standard deviations more."""
    kinds = (CLEAN, replace(CLEAN, versions=10, in_turn=True), replace(CLEAN, users=20, taste=0.5))
    found = [feedback(replace(kind, pages=2000).drawn(seed).log) for kind in kinds for seed in range(200)]
    assert sum(one.compared for one in found) <= 14
    chances = np.array([one.chance for one in found])
    assert (chances < 0.2).mean() < 0.2 + 4 * (0.2 * 0.8 / 600) ** 0.5


def test_rankers_that_learn_from_clicks_are_not_trusted():
    """The curve is more than twice too high at the last rank, and its interval tells nothing of it."""
    for scenario in (LEARNT, replace(LEARNT, pages=4000), LEARNT_ONCE):
        log, truth = scenario.drawn(1)
        found = diagnose(log, draws=20)
        assert found.examination[-1] > 2 * truth[-1]
        assert found.conclusion.answer == "do not trust"
        (finding,) = (one for one in found.conclusion.findings if one.about == "feedback")
        assert "too high at low ranks" in finding.reason


def test_feedback_needs_the_order():
    log, _ = LEARNT.drawn(2)
    assert feedback(log).seen
    mixed = log.take(np.random.default_rng(0).permutation(log.impressions))
    assert not feedback(mixed).seen
    said = diagnose(mixed, draws=20, ordered=False)
    assert said.feedback is None
    assert said.conclusion.answer != "trust"
    assert any("Without the order of the pages" in reason for reason in said.conclusion.reasons)


def test_versions_in_turn_cannot_be_told_from_learning():
    log, _ = replace(CLEAN, versions=2, in_turn=True).drawn(0)
    found = feedback(log)
    assert (found.once, found.seen) == (1, False)
    (finding,) = on_feedback(found, True)
    assert (finding.about, finding.answer) == ("power", "trust with care")
    assert "changed rank once and never back" in finding.reason


def test_documents_that_sink_after_clicks_are_noticed():
    """A ranker that shows something new after a click: the other direction."""
    rng = np.random.default_rng(0)
    order, pages, clicks = [0, 1, 2], [], []
    for _ in range(3000):
        pages.append(list(order))
        clicks.append((rng.random(3) < 0.3).astype(int))
        order = sorted(order, key=lambda one: (clicks[-1][pages[-1].index(one)], rng.random()))
    found = feedback(ImpressionLog.from_arrays([1] * 3000, pages, clicks))
    assert found.z < -5
    assert found.ratio < 1
    (finding,) = on_feedback(found, True)
    assert "so the curve is wrong." in finding.reason


def test_trust_bias_is_seen_where_it_is():
    for seed in range(3):
        found = check_trust(TRUSTING, seed)
        assert found.seen
        assert found.error > 0.15
    log, truth = TRUSTING.drawn(0)
    said = diagnose(log, draws=20)
    assert said.examination[-1] < 0.8 * truth[-1]
    assert said.conclusion.answer != "trust"
    assert "users trust high ranks" in " ".join(said.conclusion.reasons)
    assert "affine credit" in " ".join(said.conclusion.advice)


@pytest.mark.slow
def test_queries_that_differ_are_not_taken_for_trust_bias():
    """Over 24 logs each: the mean excess is 0 within 4 standard errors, and at most 2 alarms, of .24 expected.

    With 1,000 queries documents have few clicks: were the pages not halved, lucky documents would pass for relevant.
    """
    for scenario in (CLEAN, replace(CLEAN, queries=1000), UNEVEN):
        found = [check_trust(replace(scenario, pages=10_000), seed) for seed in range(24)]
        excess = [one.excess for one in found]
        assert abs(np.mean(excess)) < 4 * np.std(excess, ddof=1) / 24**0.5
        assert sum(one.seen or one.reversed for one in found) <= 2
        z = [one.z for one in found]
        assert 0.6 < np.std(z, ddof=1) < 1.5


def test_small_logs_say_what_they_could_not_have_shown():
    found = check_trust(replace(TRUSTING, pages=1500), 1)  # of which it sees nothing
    assert found.hidden is None or found.hidden > 0.25
    assert not found.seen
    (finding,) = on_trust(found)
    assert finding.answer == "trust with care"
    assert finding.reason.startswith("This log could not have shown")
    larger = check_trust(replace(CLEAN, pages=40_000), 0)
    assert larger.hidden < 0.25
    assert not list(on_trust(larger))


def test_trust_bias_is_not_guessed_from_few_clicks():
    assert trust_bias(simulated_log(0, examination=TRUTH, pages=60), TRUTH) is None
    assert trust_bias(simulated_log(0, examination=TRUTH, versions=1), TRUTH) is None
    assert trust_bias(simulated_log(0, examination=np.ones(1), pages=100), np.ones(1)) is None


def test_advice_is_proportionate_to_the_error():
    found = check_trust(TRUSTING, 0)
    answers = [next(on_trust(replace(found, error=error))).answer for error in (0.01, 0.2, 0.5)]
    assert answers == ["trust", "trust with care", "do not trust"]
    assert "from the table" in next(on_trust(replace(found, error=0.5))).advice
    assert "documents need more clicks" in next(on_trust(replace(found, error=0.5), affine=False)).advice
    unknown = next(on_trust(replace(found, error=math.inf)))
    assert unknown.answer == "do not trust"
    assert "off by more than this check can measure" in unknown.reason
    reverse = replace(found, z=-5.0, excess=-0.1)
    assert next(on_trust(reverse)).answer == "do not trust"


def test_clicks_without_examination_are_noticed_or_named():
    """Every 20th result is clicked anyway: noticed in a long log; a short one says what it could not have shown."""
    log, truth = replace(CLEAN, pages=200_000, slips=0.05).drawn(0)
    found = diagnose(log, draws=20)
    assert found.examination[-1] > 1.3 * truth[-1]
    assert found.trust_bias.reversed
    assert found.trust_bias.slips == pytest.approx(found.examination[-1] / truth[-1] - 1, rel=0.5)
    assert found.conclusion.answer == "do not trust"
    small = diagnose(replace(CLEAN, pages=20_000).drawn(0).log, draws=20)
    assert small.trust_bias.hidden_slips is None or small.trust_bias.hidden_slips > 0.25
    assert any("by bots or by accident" in one for one in small.conclusion.limits)
    maybe = replace(small.trust_bias, z=-2.2, excess=-0.02, slips=0.5)
    (finding,) = on_trust(maybe)
    assert (finding.about, finding.answer) == ("power", "trust with care")
    assert "off by more than a third" in finding.reason
    assert finding not in on_trust(replace(maybe, slips=0.1))


def test_cascades_are_seen_and_measured():
    """The measure is the model's parameter, within its interval's width."""
    for continues in (0.0, 0.6, 0.9):
        log, _ = replace(CASCADING, continues=continues).drawn(0)
        found = stopping(log)
        assert found.seen
        low, high = found.interval
        assert low - 0.5 * (high - low) <= continues <= high + 0.5 * (high - low)
        (finding,) = on_stopping(found)
        assert finding.answer == ("trust with care" if continues > 0.5 else "do not trust")
    assert diagnose(CASCADING.drawn(1).log, draws=20).conclusion.answer != "trust"


def test_patience_is_no_cascade():
    """Users who scan down, and differ: clicks of a page go together, but no user stops at a click."""
    z = [stopping(replace(CLEAN, scans=True, patience=0.5, pages=8000).drawn(seed).log).z for seed in range(12)]
    assert abs(np.mean(z)) < 4 / 12**0.5
    assert min(z) > -3.5


def test_pages_that_differ_can_hide_a_cascade():
    """On every other page users click whatever they see: a click above makes another likely."""
    rng = np.random.default_rng(0)
    pages = np.array([rng.permutation(5) for _ in range(4000)])
    chance = np.where(rng.random((4000, 1)) < 0.5, 0.6, 0.1)
    found = stopping(ImpressionLog.from_arrays([1] * 4000, pages, rng.random(pages.shape) < chance))
    assert found.together
    (finding,) = on_stopping(found)
    assert (finding.about, finding.answer) == ("power", "trust with care")


def test_stopping_by_hand():
    """Rank 2: clicked on 1 of 4 pages with a click above, on 3 of 4 without."""
    log = ImpressionLog.from_arrays([1] * 8, [[7, 8]] * 8, [[1, 1]] + [[1, 0]] * 3 + [[0, 1]] * 3 + [[0, 0]])
    assert stopping(log).continues == pytest.approx((1 / 4) / (3 / 4))
    assert stopping(random_log(0)) is not None
    assert stopping(simulated_log(0, examination=np.ones(1), pages=100)) is None


def test_affine_clicks_are_estimated():
    """alpha_k = p_k (1 - t / k) and beta_k = p_k t / k up to a multiple of alpha, within a tenth."""
    log, _ = replace(TRUSTING, pages=60_000, queries=60).drawn(0)
    trusted = 0.4 * TRUTH
    alpha, beta = TRUTH * (1 - trusted), TRUTH * trusted
    found = affine_em(log.cells())
    np.testing.assert_allclose(found.alpha, alpha / alpha[0], rtol=0.1)
    np.testing.assert_allclose(found.beta, beta - (beta / alpha).min() * alpha, atol=0.03)
    none = affine_em(replace(CLEAN, pages=60_000, queries=60).drawn(0).log.cells())
    assert none.beta.max() < 0.03
    np.testing.assert_allclose(none.alpha, TRUTH, rtol=0.1)
    with pytest.raises(FultrError, match="clicked at every rank"):
        affine_em(ImpressionLog.from_arrays([1] * 2, [[7, 8], [8, 7]], [[1, 0], [1, 0]]).cells())


@pytest.mark.slow
def test_error_rates_of_verdicts():
    """40 logs each: at most 6 false alarms where 2 are expected, and no trust where it is not deserved."""
    assert rates(replace(CLEAN, pages=5000), 40, draws=20).alarms <= 6
    assert rates(replace(UNEVEN, pages=5000), 40, draws=20).alarms <= 6
    learnt = rates(replace(LEARNT, pages=5000), 10, draws=20)
    assert learnt.answers["do not trust"] == 10
    assert learnt.ratio > 2
    assert rates(replace(TRUSTING, pages=5000), 10, draws=20).answers["trust"] <= 1
    assert rates(replace(CASCADING, pages=5000), 10, draws=20).answers["trust"] == 0
