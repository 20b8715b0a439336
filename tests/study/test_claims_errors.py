"""Verdicts that must not be given: by chance, by the shape of a curve, or by where it was measured."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fultr.core.errors import FultrError
from fultr.study.claims import Claim, judge
from fultr.study.error_rates import CASES, FLAT, SATURATING, Case
from fultr.study.statistics import Measured, arrivals, estimate, fluctuation, t_quantile

UNSURE = "inconclusive"
SIGNS = np.array([-1.0, 1.0] * 5)  # noise over 10 repeats, of mean 0 and standard error 1/3
HARD = [case for case in CASES if case.hard]


def claim(kind: str, lines: str, than: str = "", **more: float) -> Claim:
    return Claim("so it is", kind, tuple(lines.split()), tuple(than.split()), **more)


def finals(values: np.ndarray) -> Measured:
    return Measured(np.array([0]), np.asarray(values, float)[:, None])


def alike(*values: float) -> np.ndarray:
    """A curve that is the same in ten repeats."""
    return np.tile(values, (10, 1))


def shows(shown: np.ndarray) -> dict[str, Measured]:
    """A line whose users were shown so much better than by the first policy, [repeats, points]."""
    points = shown.shape[1] + 1
    return {"a": Measured(10 * np.arange(points), np.full((len(shown), points), 0.5), shown)}


def most(trials: int) -> float:
    """The highest share of trials that 2.5% may come to."""
    return 0.025 + 4 * math.sqrt(0.025 * 0.975 / trials)


@pytest.mark.parametrize("repeats", [3, 10])
@pytest.mark.parametrize("case", HARD, ids=lambda case: f"{case.claim.kind}: {case.about}")
def test_chance_alone_does_not_refute_a_true_claim(case, repeats):
    """With one comparison of many at its own 95% interval: shows-no-worse in 30%, ends-above in 9%."""
    assert case.rates(repeats, 200)[1] <= most(200)


def test_one_of_many_comparisons_must_be_surer_than_one_alone_to_refute_a_claim():
    below = 0.5 + 0.0025 * SIGNS + 0.0024  # b minus a: .0024 with a standard error of .00083, t = 2.88
    lines = {"a": finals(np.full(10, 0.5)), "b": finals(below)} | {f"c{i}": finals(np.full(10, 0.4)) for i in range(9)}
    few, many = (claim("ends-above", "a", than, margin=0.0) for than in ("b", " ".join([*lines][1:])))
    assert t_quantile(10) < 2.88 < t_quantile(10, among=10)
    alone, among = judge(few, lines), judge(many, lines)
    assert (alone.answer, among.answer) == ("does not hold", UNSURE)
    assert (alone.effect, alone.low, alone.high) == (among.effect, among.low, among.high)
    said = "; as one of 10 comparisons, it refutes the claim only if its 99.5% interval does so, too."
    assert among.detail.endswith(said)
    assert said not in alone.detail
    lines["b"] = finals(below + 0.002)  # t = 5.3
    assert judge(many, lines).answer == "does not hold"


def test_a_quantile_among_several_is_bonferronis():
    assert t_quantile(7, among=50) == pytest.approx(stats.t(6).isf(0.025 / 50))
    values = np.random.default_rng(1).normal(size=7)
    upper = stats.ttest_1samp(values, 0).confidence_interval(1 - 0.05 / 50).high
    assert estimate(values).highest(50) == pytest.approx(upper)
    assert estimate(values).highest(1) == estimate(values).interval[1]


def test_growth_begins_at_the_first_point_from_since_on():
    """b gains until round 45 and neither does after it: the point at 40, nearest to the middle, is before that."""
    rounds = np.array([0, 40, 80, 100])
    lines = {
        "a": Measured(rounds, alike(0.5, 0.545, 0.55, 0.55)),
        "b": Measured(rounds, alike(0.5, 0.57, 0.6, 0.6)),
    }
    verdict = judge(claim("grows-less", "a", "b"), lines)
    assert (verdict.answer, verdict.effect) == ("does not hold", 0)
    assert verdict.detail.startswith("b's growth from round 80 to 100 minus a's is")
    earlier = judge(claim("grows-less", "a", "b", since=0.4), lines)
    assert (earlier.answer, earlier.effect) == ("holds", pytest.approx(0.03 - 0.005))


def test_growth_is_compared_between_rounds_at_which_both_lines_were_measured():
    often, seldom = np.arange(0, 501, 10), np.array([0, 200, 400, 500])
    lines = {"a": Measured(often, alike(*often / 5000)), "b": Measured(seldom, alike(*seldom / 5000))}
    verdict = judge(claim("grows-less", "a", "b"), lines)  # from 250 to 500, b would gain more from 200 on
    assert (verdict.answer, verdict.effect) == ("does not hold", 0)
    assert verdict.detail.startswith("b's growth from round 400 to 500 minus a's is")


def test_growth_that_was_not_measured_since_then_is_not_judged():
    ends = np.array([0, 100])
    lines = {"a": Measured(ends, alike(0.5, 0.55)), "b": Measured(ends, alike(0.5, 0.6))}
    verdict = judge(claim("grows-less", "a", "b", since=0.1), lines)
    assert verdict.answer == UNSURE
    assert verdict.detail == "a and b have 1 measured rounds in common since 10% of them; 2 are needed."


def test_the_first_point_is_never_before_since():
    """50% of 101 rounds are 50.5."""
    rounds = np.array([0, 50, 51, 101])
    lines = {
        "a": Measured(rounds, alike(0.5, 0.5, 0.5, 0.5)),
        "b": Measured(rounds, alike(0.5, 0.5, 0.6, 0.6)),
    }
    assert judge(claim("grows-less", "a", "b"), lines).effect == 0


def test_a_bend_is_not_noise():
    """The same noise on a line that bends and on one that is flat, measured every 25 rounds."""
    rounds = [*range(0, 501, 25)]
    lines = {"a": SATURATING, "b": FLAT}
    noisier = Case(claim("fluctuates-more", "a", "b"), lines, "", noise={"a": 1 / 30, "b": 1 / 30})
    every = Case(**{**vars(noisier), "measured": dict.fromkeys(lines, rounds)})
    assert every.rates(10, 200)[0] <= most(200)  # second differences: 75%


def test_a_bend_leaves_little_where_points_are_as_dense_as_fluctuations_need():
    """0.5 + .1 (1 - exp(-5s)) over the second half of the rounds at ten points: a tenth of a noise of .0003."""
    share = np.linspace(0.5, 1, 10)
    assert fluctuation(np.arange(10), 0.5 + 0.1 * (1 - np.exp(-5 * share))[None])[0] < 0.00003


def test_noise_is_not_judged_from_few_points():
    rng = np.random.default_rng(3)

    def verdict(points: int):
        rounds = np.arange(points)
        loud, quiet = (0.5 + size * rng.standard_normal((10, points)) for size in (0.01, 0.001))
        lines = {"a": Measured(rounds, loud), "b": Measured(rounds, quiet)}
        return judge(claim("fluctuates-more", "a", "b", since=0.0), lines)

    assert verdict(10).answer == "holds"
    few = verdict(9)
    assert few.answer == UNSURE
    assert few.detail == "a and b have 9 measured rounds in common since 0% of them; 10 are needed."


def test_the_latest_arrival_is_where_the_curve_is_beyond_its_goal_for_good():
    """At round 10 it is surely .02 beyond, and below again at the next point: straight lines reach it in round 35."""
    over = np.array([-0.1, 0.02, -0.02, -0.01, 0.01])
    line = Measured(np.arange(0, 50, 10), 0.5 + over + 0.001 * SIGNS[:, None] * [0, 1, 0, 0, 0])
    early, itself, late = arrivals(line, np.full(10, 0.5))
    assert (itself, late) == (pytest.approx(10 * 0.1 / 0.12), pytest.approx(35))
    assert early < itself


@pytest.mark.parametrize("repeats", [2, 3, 6, 8, 10, 30, 100])
def test_normal_repeats_are_seldom_called_skewed(repeats):
    random = np.random.default_rng(repeats)
    called = np.mean([estimate(random.standard_normal(repeats)).is_skewed for _ in range(4000)])
    assert called <= 0.01
    assert called == 0 or repeats > 6


def test_skewness_is_scipys():
    values = np.random.default_rng(2).exponential(size=12)
    assert estimate(values).skewness == pytest.approx(stats.skew(values))
    assert estimate(np.full(12, 0.1)).skewness == 0
    assert not estimate(np.array([0.5])).is_skewed
    assert not estimate(np.array([0.1, 0.3])).is_skewed  # whose skewness is a rounding error


def test_a_verdict_warns_of_repeats_of_which_one_collapsed():
    """Nine repeats of ten at .6 and one at .5: (n - 2) / sqrt(n - 1) = 8 / 3 is the largest skewness there can be."""
    lines = {"a": finals(np.r_[np.full(9, 0.6), 0.5]), "b": finals(np.full(10, 0.5))}
    said = " Repeats differ very unevenly (skewness -2.7): the interval may be far from 95%."
    for made in (claim("ends-above", "a", "b"), claim("gains-little", "a", "b")):
        assert judge(made, lines).detail.endswith(said)
    lines["a"] = finals(0.6 + 0.1 * SIGNS)
    assert "unevenly" not in judge(claim("ends-above", "a", "b"), lines).detail


def test_what_is_shown_is_judged_from_where_it_can_differ():
    """The ranker first becomes the logging policy after round 20: the first two points are 0 in all repeats."""
    shown = np.c_[0 * SIGNS, 0 * SIGNS, 0.02 + 0.001 * SIGNS, 0.03 + 0.001 * SIGNS]
    verdict = judge(claim("shows-no-worse", "a"), shows(shown))
    assert (verdict.answer, verdict.effect) == ("holds", pytest.approx(0.02))
    assert "at its worst in round 30, +0.0200 NDCG" in verdict.detail
    later = shown.copy()
    later[:, 3] = 0  # not a leading one
    assert judge(claim("shows-no-worse", "a"), shows(later)).effect == 0
    never = judge(claim("shows-no-worse", "a"), shows(0 * shown))
    assert (never.answer, never.effect) == ("holds", 0)


def test_points_at_which_nobody_was_shown_anything_are_left_out():
    shown = np.c_[0 * SIGNS, -0.01 + 0.001 * SIGNS, 0.02 + 0.001 * SIGNS, 0.03 + 0.001 * SIGNS]
    made = claim("shows-no-worse", "a")
    assert judge(made, shows(shown)).answer == "does not hold"
    shown[4, 1] = shown[7, 3] = np.nan
    verdict = judge(made, shows(shown))
    assert (verdict.answer, verdict.effect) == ("holds", pytest.approx(0.02))
    assert verdict.detail.endswith("; in the last one it is 0.0200 ± 0.0003.")
    nothing = judge(made, shows(np.full((10, 4), np.nan)))
    assert nothing.answer == UNSURE
    assert nothing.detail == "a has no point at which users of every repeat were shown something."


def test_a_line_is_not_compared_with_itself():
    message = 'than: expected other lines than the claim\'s own, found the text "a"'
    for kind in ("ends-above", "gains-little", "grows-less", "fluctuates-more", "crosses", "reaches-sooner"):
        with pytest.raises(FultrError, match=f"^{message}$"):
            claim(kind, "a", "a")
    with pytest.raises(FultrError, match=f"^{message}$"):
        claim("goes-part", "a", "b a")
    assert claim("matters-more", "a b", "a c").than == ("a", "c")
    assert claim("drops-less", "a b", "a c").than == ("a", "c")
