"""Verdicts on made-up curves whose answers are known."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fultr.core.errors import FultrError
from fultr.study.claims import KINDS, Claim, Verdict, judge
from fultr.study.error_rates import CASES
from fultr.study.statistics import Estimate, Measured, estimate, fieller, fluctuation

UNSURE = "inconclusive"
ROUNDS = np.arange(0, 501, 50)  # 11 points
SHARE = ROUNDS / 500
FINE = np.arange(0, 501, 25)  # 11 points from the middle on
SIGNS = np.array([-1.0, 1.0] * 5)  # noise over 10 repeats, of mean 0 and standard error 1/3
NOISE = {"sure": 0.001 * SIGNS, "unsure": 0.3 * SIGNS, "exact": 0 * SIGNS, "single": np.zeros(1)}


def curve(shape: np.ndarray, noise: np.ndarray | None = None, rounds: np.ndarray = ROUNDS) -> Measured:
    """Repeats of one curve, each lifted by its noise at all points but the first."""
    lift = np.zeros(1) if noise is None else noise
    later = np.arange(len(rounds)) > 0 if len(rounds) > 1 else np.ones(1)
    return Measured(rounds, np.asarray(shape, float) + lift[:, None] * later)


def finals(values: np.ndarray) -> Measured:
    """A level: one point, round 0."""
    return Measured(np.array([0]), np.asarray(values, float)[:, None])


def levels(noise: np.ndarray, **means: float) -> dict[str, Measured]:
    """Lines of one point; the noise is the first one's, so that it stays in paired differences."""
    return {
        name: finals(mean + (noise if i == 0 else np.zeros(noise.size))) for i, (name, mean) in enumerate(means.items())
    }


def claim(kind: str, lines: str, than: str = "", **more: float) -> Claim:
    return Claim("so it is", kind, tuple(lines.split()), tuple(than.split()), **more)


def zigzag(size: float, noise: np.ndarray) -> Measured:
    """A parabola with alternating noise, whose size varies by repeats."""
    sizes = size * np.exp(noise)
    return Measured(FINE, 0.5 + 0.1 * (FINE / 500) ** 2 + sizes[:, None] * (-1.0) ** np.arange(FINE.size))


def shown(difference: np.ndarray, noise: np.ndarray) -> Measured:
    """A line whose users were shown so much better than by the first policy."""
    return replace(curve(RISE, noise), shown=difference + noise[:, None])


# Per kind: a claim, and how to make lines from noise of which it does and does not hold.
RISE = 0.4 + 0.1 * SHARE
KNEE = 0.4 + 0.1 * np.minimum(4 * SHARE, 1)  # at its end from round 150 on
LATE = 0.45 + 0.2 * (SHARE - 0.25)  # crosses 0.45 after round 125
MADE = {
    "ends-above": (
        claim("ends-above", "a", "b c"),
        lambda noise: levels(noise, a=0.53, b=0.5, c=0.51),
        lambda noise: levels(noise, a=0.53, b=0.5, c=0.55),
    ),
    "gains-little": (
        claim("gains-little", "a", "b"),
        lambda noise: levels(noise, a=0.505, b=0.5),
        lambda noise: levels(noise, a=0.515, b=0.5),
    ),
    "goes-part": (
        claim("goes-part", "x", "low high"),
        lambda noise: levels(noise, x=0.59, low=0.5, high=0.6),
        lambda noise: levels(noise, x=0.57, low=0.5, high=0.6),
    ),
    "keeps-growing": (
        claim("keeps-growing", "a", since=0.0),
        lambda noise: {"a": Measured(ROUNDS, RISE + noise[:, None] * SHARE)},
        lambda noise: {"a": Measured(ROUNDS, 0.4 + noise[:, None] * SHARE)},
    ),
    "grows-less": (
        claim("grows-less", "a", "b", since=0.0),
        lambda noise: {"a": curve(RISE, noise), "b": curve(0.3 + 2 * (RISE - 0.4), 0 * noise)},
        lambda noise: {"a": curve(RISE, noise), "b": curve(0.3 + (RISE - 0.4) / 2, 0 * noise)},
    ),
    "drops-less": (
        claim("drops-less", "a1 a2 a3", "b1 b2"),
        lambda noise: levels(noise, a1=0.55, a2=0.54, a3=0.54, b1=0.55, b2=0.45),
        lambda noise: levels(noise, a1=0.55, a2=0.54, a3=0.45, b1=0.55, b2=0.54),
    ),
    "fluctuates-more": (
        claim("fluctuates-more", "a c", "b"),
        lambda noise: {"a": zigzag(0.004, 10 * noise), "c": zigzag(0.008, 0 * noise), "b": zigzag(0.002, 0 * noise)},
        lambda noise: {"a": zigzag(0.004, 0 * noise), "c": zigzag(0.001, 10 * noise), "b": zigzag(0.002, 0 * noise)},
    ),
    "crosses": (
        claim("crosses", "a", "b", since=0.3),
        lambda noise: {"a": curve(LATE, noise), "b": curve(np.full(11, 0.45), 0 * noise)},
        lambda noise: {"a": curve(LATE - 0.08, noise), "b": curve(np.full(11, 0.45), 0 * noise)},
    ),
    "reaches-sooner": (
        claim("reaches-sooner", "a", "b"),
        lambda noise: {"a": curve(RISE + 0.02 * SHARE, noise), "b": curve(RISE, 0 * noise)},
        lambda noise: {"a": curve(RISE - 0.02 * SHARE, noise), "b": curve(RISE, 0 * noise)},
    ),
    "matters-more": (
        claim("matters-more", "a1 a2", "b1 b2"),
        lambda noise: levels(noise, a1=0.5, a2=0.56, b1=0.5, b2=0.53),
        lambda noise: levels(noise, a1=0.5, a2=0.53, b1=0.5, b2=0.56),
    ),
    "shows-no-worse": (
        claim("shows-no-worse", "a"),
        lambda noise: {"a": shown(0.03 * SHARE[1:] - 0.005, noise)},  # at its worst in round 50: -.002
        lambda noise: {"a": shown(0.03 * SHARE[1:] - 0.011, noise)},  # -.008
    ),
}


def test_every_kind_is_tested_and_says_what_it_does():
    assert list(MADE) == sorted(MADE, key=list(KINDS).index)
    assert set(MADE) == set(KINDS)
    assert all(kind.does.endswith(".") and "\n" not in kind.does for kind in KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", NOISE)
def test_answers(kind, noise):
    made, right, wrong = MADE[kind]
    for lines, answer in ((right, "holds"), (wrong, "does not hold")):
        verdict = judge(made, lines(NOISE[noise]))
        assert verdict.answer == (answer if noise in ("sure", "exact") else UNSURE), verdict
        assert not math.isnan(verdict.effect)
        assert verdict.claim is made
        if noise == "single":
            assert math.isnan(verdict.low)
            assert math.isnan(verdict.high)
            assert math.isnan(verdict.p_value)
            assert verdict.test == "none: a single repeat"
        else:
            assert verdict.test.endswith(" over 10 repeats")
        if noise == "sure":
            assert verdict.low <= verdict.effect <= verdict.high
        if noise == "exact":
            assert verdict.low == pytest.approx(verdict.effect, abs=1e-12)
            assert verdict.high == pytest.approx(verdict.effect, abs=1e-12)
        assert "nan" not in verdict.detail
        assert verdict.detail.endswith(".")
        json.dumps(verdict.as_dict(), allow_nan=False)


@pytest.mark.parametrize("repeats", [1, 2, 10])
@pytest.mark.parametrize("kind", KINDS)
def test_lines_compared_with_their_equals(kind, repeats):
    """A line is not above, nor sooner, nor noisier than itself; two repeats tell, one never does."""
    made, right, _ = MADE[kind]
    same = Measured(FINE, np.tile(0.4 + 0.1 * FINE / 500, (repeats, 1)) + np.linspace(0, 0.1, repeats)[:, None])
    verdict = judge(made, dict.fromkeys(right(np.zeros(repeats)), same))
    unsure = dict.fromkeys(("goes-part", "shows-no-worse"), UNSURE)  # without a gap; without anything shown
    expected = {"gains-little": "holds", "keeps-growing": "holds", **unsure}.get(kind, "does not hold")
    assert verdict.answer == (UNSURE if repeats == 1 else expected)


@pytest.fixture
def random_finals():
    rng = np.random.default_rng(1)
    base = rng.normal(0.5, 0.02, 12)
    return {
        "a": base + rng.normal(0.02, 0.01, 12),
        "b": base,
        "c": base + rng.normal(0.01, 0.01, 12),
        "d": base + rng.normal(0.04, 0.01, 12),
    }


def against_scipy(verdict: Verdict, values: np.ndarray, null: float = 0.0) -> None:
    test = stats.ttest_1samp(values, null)
    interval = test.confidence_interval(0.95)
    assert verdict.effect == pytest.approx(values.mean(), rel=1e-9)
    assert verdict.low == pytest.approx(interval.low, rel=1e-9)
    assert verdict.high == pytest.approx(interval.high, rel=1e-9)
    assert verdict.p_value == pytest.approx(test.pvalue, rel=1e-6)  # as steep as a power of t


def test_paired_intervals_and_p_values_are_scipys(random_finals):
    lines = {name: finals(values) for name, values in random_finals.items()}
    a, b, c, d = random_finals.values()
    verdict = judge(claim("ends-above", "a", "b"), lines)
    against_scipy(verdict, a - b)
    assert verdict.p_value == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-6)
    against_scipy(judge(claim("gains-little", "a", "b", margin=0.015), lines), a - b, 0.015)
    against_scipy(judge(claim("drops-less", "a b", "d c"), lines), (d - c) - (a - b))
    against_scipy(judge(claim("matters-more", "b d", "b c"), lines), (d - b) - (c - b))
    curves = {n: Measured(np.array([0, 5, 10]), np.c_[v / 2, v / 3, v]) for n, v in random_finals.items()}
    later = {
        "a": Measured(np.array([0, 5, 8, 10]), np.c_[0 * a, 0 * a, 2 * a, 3 * a - 0.5])
    }  # grows by 2a, then a - .5
    verdict = judge(claim("keeps-growing", "a", margin=0.01), later)
    against_scipy(verdict, a - 0.5, 0.01)
    verdict = judge(claim("grows-less", "a", "d", since=0.1), curves)  # from the first point after 10%, round 5
    against_scipy(verdict, (d - d / 3) - (a - a / 3))


def test_an_estimate_is_scipys():
    values = np.random.default_rng(2).normal(0.1, 1, 7)
    found, test = estimate(values), stats.ttest_1samp(values, 0)
    assert found.errors_from_zero == pytest.approx(test.statistic)
    assert found.p_value == pytest.approx(test.pvalue)
    assert found.interval == pytest.approx(tuple(test.confidence_interval()))


def test_an_estimate_without_error_goes_by_its_sign():
    assert estimate(np.full(3, 0.1)).standard_error == 0
    assert Estimate(0.1, 0.0, 3).p_value == 0
    assert Estimate(-0.1, 0.0, 3).errors_from_zero == -math.inf
    assert Estimate(0.0, 0.0, 3).p_value == 1
    assert str(estimate(np.array([0.5]))) == "0.5000"
    assert math.isnan(estimate(np.array([0.5])).p_value)


def test_all_comparisons_must_hold_and_the_figures_are_of_the_worst():
    noisy = 0.55 + 0.1 * SIGNS
    lines = {"a": finals(0.6 + 0 * SIGNS), "b": finals(0.59 + 0.001 * SIGNS), "c": finals(noisy)}
    assert judge(claim("ends-above", "a", "b"), lines).answer == "holds"
    verdict = judge(claim("ends-above", "a", "b c"), lines)
    assert verdict.answer == UNSURE
    assert verdict.effect == pytest.approx(0.6 - 0.55)  # larger than over b, but the one that is unsure
    assert "a minus c" in verdict.detail
    lines["d"] = finals(0.61 + 0.001 * SIGNS)
    assert judge(claim("ends-above", "a", "b c d"), lines).answer == "does not hold"


def test_a_difference_too_small_to_matter():
    lines = {"a": finals(0.5005 + 0.001 * SIGNS), "b": finals(0.5 + 0 * SIGNS)}  # 0.0005 ± 0.001/3, t = 1.5
    verdict = judge(claim("ends-above", "a", "b"), lines)
    assert verdict.answer == "does not hold"
    assert verdict.detail.endswith(", less than the 0.002 that would matter.")
    assert judge(claim("ends-above", "a", "b", margin=0.0), lines).answer == UNSURE


def test_rounding_errors_decide_nothing():
    lines = {"a": finals(np.full(5, 0.1 + 0.2)), "b": finals(np.full(5, 0.3))}
    assert lines["a"].final[0] > lines["b"].final[0]
    verdict = judge(claim("ends-above", "a", "b"), lines)
    assert (verdict.answer, verdict.effect, verdict.p_value) == ("does not hold", 0, 1)


def test_margins_and_since_as_claimed():
    lines = levels(NOISE["sure"], x=0.57, low=0.5, high=0.6)
    assert judge(claim("goes-part", "x", "low high", margin=0.6), lines).answer == "holds"
    assert judge(claim("gains-little", "x", "low", margin=0.08), lines).answer == "holds"
    sooner = {"a": curve(RISE + 0.02 * SHARE, NOISE["sure"]), "b": curve(RISE, NOISE["exact"])}
    assert judge(claim("reaches-sooner", "a", "b", margin=0.5), sooner).answer == "does not hold"


def test_growth_must_exceed_the_margin_in_each_half_of_the_rounds_from_since_on():
    """RISE gains .03 from round 250 to 400, the first measured point after 375, and .02 from there."""
    knee, rise = {"a": curve(KNEE, NOISE["sure"])}, {"a": curve(RISE, NOISE["sure"])}
    assert judge(claim("keeps-growing", "a"), knee).answer == "does not hold"
    verdict = judge(claim("keeps-growing", "a", since=0.1), knee)  # it grows from round 50 to 300, but not after that
    assert (verdict.answer, verdict.effect) == ("does not hold", pytest.approx(0))
    assert verdict.detail.startswith("a's growth from round 300 to 500 is +0.0000 NDCG")
    assert verdict.detail.endswith("; more than 0.001 counts as growth.")
    found = {margin: judge(claim("keeps-growing", "a", margin=margin), rise) for margin in (0.0, 0.0199, 0.02, 0.0201)}
    answers = ["holds", "holds", "does not hold", "does not hold"]  # all repeats rise alike: there is no doubt
    assert [verdict.answer for verdict in found.values()] == answers
    assert all(verdict.effect == pytest.approx(0.02) for verdict in found.values())


@pytest.mark.parametrize("every", [5, 10, 25, 50, 100, 125])
@pytest.mark.parametrize("stop", [0.5, 0.6, 0.75])
def test_a_line_that_levels_off_does_not_keep_growing_however_seldom_it_is_measured(every, stop):
    """Without noise the slightest rise after the first point of the last quarter would count."""
    rounds = np.arange(0, 501, every)
    level = {"a": curve(0.4 + 0.1 * np.minimum(rounds / 500 / stop, 1), NOISE["exact"], rounds)}
    assert judge(claim("keeps-growing", "a", margin=0.0), level).answer == "does not hold"


def test_growth_that_was_not_measured_in_the_last_quarter_is_not_judged():
    rounds = np.array([0, 250, 370, 500])
    verdict = judge(claim("keeps-growing", "a"), {"a": curve(0.4 + rounds / 5000, NOISE["sure"], rounds)})
    assert verdict.answer == UNSURE
    assert verdict.detail == "a was not measured within both halves of its rounds from 50% on."


def test_fieller_by_hand():
    """The ends are the ratios at which the paired t test is at its 5% point."""
    rng = np.random.default_rng(3)
    whole = rng.normal(1, 0.3, 8)
    part = 0.7 * whole + rng.normal(0, 0.2, 8)
    for ratio in fieller(part, whole):
        assert stats.ttest_1samp(part - ratio * whole, 0).pvalue == pytest.approx(0.05, rel=1e-6)


def test_fieller_covers_as_often_as_it_says():
    rng = np.random.default_rng(4)
    trials, repeats, ratio = 4000, 6, 0.7
    whole = rng.normal(1, 0.1, (trials, repeats))  # 24 standard errors from 0: the interval exists always
    part = rng.normal(ratio, 0.2, (trials, repeats)) + 0.5 * (whole - 1)
    ends = np.array([fieller(p, w) for p, w in zip(part, whole, strict=True)])
    covered = ((ends[:, 0] <= ratio) & (ratio <= ends[:, 1])).mean()
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / trials)


def test_a_way_that_may_be_none_cannot_be_divided():
    high = finals(0.51 + 0.1 * SIGNS)
    lines = {"x": finals(0.505 + 0 * SIGNS), "low": finals(0.5 + 0 * SIGNS), "high": high}
    verdict = judge(claim("goes-part", "x", "low high"), lines)
    assert verdict.answer == UNSURE
    assert verdict.effect == pytest.approx(0.005 / 0.01)
    assert math.isnan(verdict.low)
    verdict = judge(claim("goes-part", "x", "low high"), lines | {"high": lines["low"]})
    assert verdict.answer == UNSURE
    assert verdict.detail == "high ends where low does: there is no gap between them."
    below = lines | {"high": finals(0.4 + 0.001 * SIGNS)}
    assert judge(claim("goes-part", "x", "low high"), below).answer == "does not hold"


def test_fluctuation_is_the_noise_and_ignores_the_trend():
    rng = np.random.default_rng(5)
    rounds = np.concatenate([np.arange(0, 1000, 2), np.arange(1000, 3000, 5)])  # uneven
    sigma, repeats = 0.01, 200
    trend = 0.5 - 0.2 * np.exp(-rounds / 500)
    assert fluctuation(rounds, trend[None])[0] < 1e-3 * sigma
    squares = fluctuation(rounds, trend + rng.normal(0, sigma, (repeats, rounds.size))) ** 2
    assert abs(squares.mean() - sigma**2) < 4 * squares.std(ddof=1) / math.sqrt(repeats)
    even = rng.normal(0, 1, (1, 9))
    expected = math.sqrt((np.diff(even, 3) ** 2).mean() / 20)
    assert fluctuation(np.arange(9), even)[0] == pytest.approx(expected)
    uneven = np.array([0, 1, 5, 7, 20])
    assert fluctuation(uneven, (0.3 - 0.2 * uneven + 0.1 * uneven**2)[None])[0] < 1e-12  # a parabola leaves nothing


def test_fluctuations_as_a_ratio():
    rng = np.random.default_rng(6)
    a, b = 0.1 * rng.normal(size=10), 0.1 * rng.normal(size=10)
    lines = {"a": zigzag(0.003, a), "b": zigzag(0.002, b)}
    verdict = judge(claim("fluctuates-more", "a", "b"), lines)
    test = stats.ttest_1samp(math.log(1.5) + a - b, 0)
    assert verdict.effect == pytest.approx(1.5 * math.exp((a - b).mean()))
    assert (verdict.low, verdict.high) == pytest.approx(tuple(np.exp(test.confidence_interval())))
    assert verdict.p_value == pytest.approx(test.pvalue)
    assert verdict.unit == "times"


def test_curves_that_do_not_fluctuate():
    still, noisy = curve(np.full(21, 0.5), NOISE["sure"], FINE), zigzag(0.002, NOISE["sure"])
    assert judge(claim("fluctuates-more", "a", "b"), {"a": still, "b": still}).answer == "does not hold"
    assert judge(claim("fluctuates-more", "a", "b"), {"a": noisy, "b": still}).answer == "holds"
    assert judge(claim("fluctuates-more", "a", "b"), {"a": still, "b": noisy}).answer == "does not hold"


def test_a_crossing_is_judged_at_half_and_twice_the_claimed_round_and_at_the_end():
    """Over at round 50, under again at 100, even at 150 and over from 200 on."""
    gap = np.array([0, 1, -1, 0, 1, 2, 3, 4, 5, 6, 7]) * 0.01
    lines = {"a": curve(0.5 + gap, NOISE["sure"]), "b": curve(np.full(11, 0.5), NOISE["exact"])}
    verdict = judge(claim("crosses", "a", "b", since=0.4), lines)
    assert (verdict.answer, verdict.unit) == ("holds", "NDCG")
    assert verdict.effect == pytest.approx(0.01)  # at round 100; 0.05 at 400, 0.07 at the end
    assert verdict.detail.startswith("b minus a at round 100 is +0.0100 NDCG")
    said = "; on average a is above b from round 200 on, where the claim says about 200 of 500."
    assert verdict.detail.endswith(said)
    early = judge(claim("crosses", "a", "b", since=0.2), lines)  # at round 50 it is over already
    assert (early.answer, early.effect) == ("does not hold", pytest.approx(-0.01))
    never = judge(claim("crosses", "b", "a"), lines)
    assert never.answer == "does not hold"
    assert "never to the end" in never.detail


def test_crossings_are_looked_for_at_common_rounds():
    a = curve(LATE, NOISE["sure"])
    coarse = np.array([0, 100, 300, 500, 700])
    b = curve(np.full(5, 0.45), NOISE["exact"], coarse)
    verdict = judge(claim("crosses", "a", "b", since=0.4), {"a": a, "b": b})
    assert "from round 300 on, where the claim says about 200 of 500." in verdict.detail  # 150 for all rounds of a


def test_reaching_is_judged_where_the_other_arrives_at_its_end():
    """b ends at 0.5 and is within .002 of it after 98% of the rounds, where a, 0.4 + 0.12 share, has 0.5176."""
    lines = {"a": curve(0.4 + 0.12 * SHARE, NOISE["sure"]), "b": curve(RISE, NOISE["exact"])}
    verdict = judge(claim("reaches-sooner", "a", "b"), lines)
    assert verdict.answer == "holds"
    assert verdict.effect == pytest.approx(0.4 + 0.12 * 0.98 - 0.498)
    assert verdict.detail.startswith("At round 490, 100% of what b takes to its end, a minus that end is +0.0196 NDCG")
    said = "; on average a is there in 408 rounds, b itself in 490 (95% interval 490 to 490)."  # .098 / .12 of them
    assert verdict.detail.endswith(said)
    half = judge(claim("reaches-sooner", "a", "b", margin=0.5), lines)
    assert (half.answer, half.effect) == ("does not hold", pytest.approx(0.4 + 0.12 * 0.49 - 0.498))
    same = judge(claim("reaches-sooner", "b2", "b"), lines | {"b2": lines["b"]})
    assert (same.answer, same.effect) == ("does not hold", 0)


def test_a_slower_line_does_not_arrive_sooner_because_the_other_levels_off():
    """KNEE is at its end after a quarter of the rounds; a rises to the same end, and beyond it, in all of them."""
    lines = {"a": curve(0.4 + 0.12 * SHARE, NOISE["sure"]), "b": curve(KNEE, NOISE["exact"])}
    verdict = judge(claim("reaches-sooner", "a", "b"), lines)
    assert verdict.answer == "does not hold"
    said = "; on average a is there in 408 rounds, b itself in 145 (95% interval 145 to 145)."
    assert verdict.detail.endswith(said)
    never = judge(claim("reaches-sooner", "a", "b"), lines | {"a": curve(RISE - 0.02, NOISE["sure"])})
    assert "; on average a is there not within its 500 rounds, b itself in 145 (" in never.detail
    flat = judge(claim("reaches-sooner", "b", "a"), lines | {"a": curve(np.full(11, 0.4), NOISE["sure"])})
    assert flat.detail == "a is at its end from the beginning: there is nothing to reach sooner."


def test_reaching_sooner_takes_into_account_that_the_arrival_of_the_other_is_not_known():
    """a needs 150 rounds in every repeat, b 150, 150 and 300: its mean is there in 282, .1 (1 - t / 300) / 3 = .002.

    That b was slower in one repeat of three says nothing, although a is surely there in round 282.
    """
    rounds = np.arange(0, 501, 10)
    needed = np.array([[150], [150], [300]])
    lines = {
        "a": Measured(rounds, np.tile(0.4 + 0.1 * np.minimum(rounds / 150, 1), (3, 1))),
        "b": Measured(rounds, 0.4 + 0.1 * np.minimum(rounds / needed, 1)),
    }
    verdict = judge(claim("reaches-sooner", "a", "b"), lines)
    assert verdict.answer == UNSURE
    assert verdict.detail.startswith("At round 282, 100% of what b takes to its end, a minus that end is +0.0020 NDCG")
    slow = {**lines, "b": Measured(rounds, lines["b"].ndcg[[2, 2, 2]])}
    assert judge(claim("reaches-sooner", "a", "b"), slow).answer == "holds"


def test_reaching_sooner_is_judged_at_the_ends_of_the_arrivals_interval():
    """b rises by .1 to .5, with a bump of up to .1 in the middle that varies by repeats; a rises evenly to .6."""
    rng = np.random.default_rng(7)
    bumps, lifts = rng.uniform(0.05, 0.1, 8), rng.normal(0, 0.001, 8)
    b = RISE + bumps[:, None] * (4 * SHARE * (1 - SHARE))
    a = 0.4 + 0.2 * SHARE + lifts[:, None]
    lines = {"a": Measured(ROUNDS, a), "b": Measured(ROUNDS, b)}
    verdict = judge(claim("reaches-sooner", "a", "b", margin=0.5), lines)
    rounds, over = ROUNDS[1:-1], (b - b[:, -1:] + 0.002)[:, 1:-1]  # without the ends, where all repeats are alike
    short = [stats.ttest_1samp(values, 0).confidence_interval() for values in over.T]
    ends = []
    for bounds in ([one.high for one in short], [one.low for one in short]):
        k = int(np.argmax(np.array(bounds) >= 0))
        part = -bounds[k - 1] / (bounds[k] - bounds[k - 1])
        arrival = 0.5 * (rounds[k - 1] + 50 * part)
        ends.append(0.4 + 0.2 * arrival / 500 + lifts - 0.498)
    early, late = (stats.ttest_1samp(values, 0).confidence_interval() for values in ends)
    assert verdict.low == pytest.approx(early.low, rel=1e-6)
    assert verdict.high == pytest.approx(late.high, rel=1e-6)
    assert verdict.low < verdict.effect < verdict.high
    assert math.isnan(verdict.p_value)


def test_a_line_that_may_be_at_its_end_from_the_beginning_cannot_be_compared_with():
    lines = {"a": curve(RISE + 0.2, NOISE["sure"]), "b": curve(0.4 + 0.01 * SHARE, 0.1 * SIGNS)}
    verdict = judge(claim("reaches-sooner", "a", "b"), lines)
    assert verdict.answer == UNSURE
    assert verdict.detail == "b may be at its end from the beginning: there is nothing to reach sooner."


def test_a_collapse_in_the_middle_is_seen():
    lines = levels(NOISE["sure"], a1=0.55, a2=0.45, a3=0.55, b1=0.55, b2=0.5)
    verdict = judge(claim("drops-less", "a1 a2 a3", "b1 b2"), lines)
    assert (verdict.answer, verdict.effect) == ("does not hold", pytest.approx(0.05 - 0.1))
    assert "minus that from a1 to a2" in verdict.detail


def test_a_difference_surely_below_the_margin_does_not_hold_even_if_it_is_surely_above_zero():
    lines = {"a": finals(0.5012 + 0.0001 * SIGNS), "b": finals(0.5 + 0 * SIGNS)}
    verdict = judge(claim("ends-above", "a", "b"), lines)
    assert verdict.low > 0
    assert verdict.answer == "does not hold"
    assert judge(claim("ends-above", "a", "b", margin=0.001), lines).answer == "holds"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.claim.kind}: {case.about}")
def test_how_often_claims_are_said_to_hold(case):
    """A false one in at most 5% of 1,000 trials; a true one more often with more repeats, and mostly with 30.

    A true one is said not to hold in at most 5%, too. Where repeats are not normal, t intervals do not promise this.
    """
    (few, more, many), refuted = zip(*(case.rates(repeats, 1000) for repeats in (3, 10, 30)), strict=True)
    if case.true:
        assert max(refuted) <= 0.05  # 5 standard errors above 2.5%
        assert case.hard or few < more or more == 1
        assert case.hard or many >= 0.7  # 3 standard errors below 75%, the lowest power of the table
    elif case.uneven:
        assert max(few, more) > 0.05
    else:
        assert max(few, more, many) <= 0.05


@pytest.mark.parametrize(
    "made",
    [
        claim("keeps-growing", "level"),
        claim("grows-less", "curve", "level"),
        claim("fluctuates-more", "curve", "level"),
        claim("fluctuates-more", "curve", "other", since=0.9),
        claim("crosses", "curve", "level"),
        claim("reaches-sooner", "curve", "level"),
    ],
    ids=lambda made: f"{made.kind} {made.since}",
)
def test_too_few_points(made):
    noise = NOISE["sure"]
    lines = {"curve": curve(RISE, noise), "other": curve(RISE, noise), "level": finals(0.5 + noise)}
    verdict = judge(made, lines)
    assert verdict.answer == UNSURE
    assert verdict.test == "none"
    assert math.isnan(verdict.effect)
    assert verdict.detail.endswith(".")
    json.dumps(verdict.as_dict(), allow_nan=False)


def test_finals_of_lines_with_different_rounds():
    lines = {"a": curve(RISE, NOISE["sure"]), "level": finals(0.45 + 0 * SIGNS)}
    assert judge(claim("ends-above", "a", "level"), lines).effect == pytest.approx(0.5 - 0.45)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (dict(kind="x"), r'kind: expected one of ends-above, .*; found "x"'),
        (dict(kind=["x"]), r'kind: expected one of ends-above, .*; found the list \["x"\]'),
        (dict(kind="ends-above", lines=()), "lines: expected 1 for a claim of kind ends-above, found 0"),
        (dict(kind="ends-above", than=()), "than: expected 1 or more for a claim of kind ends-above, found 0"),
        (dict(kind="keeps-growing"), "than: expected 0 for a claim of kind keeps-growing, found 1"),
        (dict(kind="goes-part"), "than: expected 2 for a claim of kind goes-part, found 1"),
        (dict(kind="drops-less"), "lines: expected 2 or more for a claim of kind drops-less, found 1"),
        (dict(kind="ends-above", margin=-0.1), "margin: expected a number, at least 0.0, at most 1.0, found -0.1"),
        (dict(kind="ends-above", margin=math.nan), "margin: expected a number, at least 0.0, at most 1.0, found nan"),
        (
            dict(kind="ends-above", margin="x"),
            'margin: expected a number, at least 0.0, at most 1.0, found the text "x"',
        ),
        (dict(kind="fluctuates-more", margin=0.5), "margin: expected a number, at least 1.0, .* found 0.5"),
        (dict(kind="ends-above", since=0.5), "since: expected none for a claim of kind ends-above, found 0.5"),
        (dict(kind="crosses", since=1.0), "since: expected a number, at least 0, below 1, found 1.0"),
    ],
)
def test_bad_claims(made, message):
    with pytest.raises(FultrError, match=f"^{message}$"):
        Claim(**{"says": "so it is", "lines": ("a",), "than": ("b",), **made})


def test_lines_that_cannot_be_compared():
    lines = {"a": finals(np.full(3, 0.5)), "b": finals(np.full(2, 0.5))}
    with pytest.raises(FultrError, match=r"^claim 'so it is': there is no line 'c'$"):
        judge(claim("ends-above", "a", "c"), lines)
    with pytest.raises(FultrError, match=r"^claim 'so it is': a has 3 repeats, but b has 2$"):
        judge(claim("ends-above", "a", "b"), lines)


@pytest.mark.parametrize(
    ("rounds", "ndcg", "message"),
    [
        ([], np.zeros((1, 0)), "rounds: expected ascending"),
        ([0, 0], np.zeros((1, 2)), "rounds: expected ascending"),
        ([0, 5], np.zeros((1, 3)), "ndcg: expected one or more repeats of 2"),
        ([0, 5], np.zeros((0, 2)), "ndcg: expected one or more repeats of 2"),
        ([0], np.array([[np.nan]]), "ndcg: expected finite numbers"),
    ],
)
def test_bad_measurements(rounds, ndcg, message):
    with pytest.raises(FultrError, match=f"^{message}"):
        Measured(np.array(rounds, np.int64), ndcg)
