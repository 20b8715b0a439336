"""Two rankers compared on the same held-out clicks: how often an interval over few devices is wrong, and finds out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri, stdtrit
from scipy.stats import nct

from fultr.federated.judging import compared, verdict

REPEATS = 2000
BOUND = 0.05


def rows_of(weights, gained) -> list[np.ndarray]:
    """What devices send whose candidate gains so much more than the stable version, which gains nothing."""
    return [np.array([w, g, 0.3, 0.0]) for w, g in zip(weights, gained, strict=True)]


def clicked(rng: np.random.Generator, devices: int, spread: float, worse: float = 0.0) -> list[np.ndarray]:
    """Devices with clicks, each of weight 1 / propensity, which two rankers put at random ranks.

    Numbers of clicks are log-normal, and each device prefers one of the rankers for most of its clicks.

    Args:
        rng: random numbers.
        devices: how many.
        spread: standard deviation of the logarithm of the number of clicks.
        worse: how much further down the candidate puts clicks, as a share of them that it puts at the last rank.
    """
    counts = 1 + rng.poisson(8 * np.exp(rng.normal(0, spread, devices)))
    device = np.repeat(np.arange(devices), counts)
    shown = rng.choice(10, device.size, p=(1 / np.arange(1, 11)) / (1 / np.arange(1, 11)).sum()) + 1
    first, second = 1 + rng.integers(0, 10, (2, device.size))
    leans = rng.random(devices)[device] > rng.random(device.size)
    candidate = np.where(leans, np.minimum(first, second), np.maximum(first, second))
    stable = first + second - candidate
    candidate = np.where(rng.random(device.size) < worse, 10, candidate)
    weight = shown.astype(float)  # 1 / propensity, with gamma = 1
    sums = [np.bincount(device, weight / np.log2(1 + ranks), devices) for ranks in (candidate, shown, stable)]
    return list(np.stack([np.bincount(device, weight, devices), *sums], axis=1))


def verdicts(draw, seed: int, repeats: int = REPEATS) -> dict[str, float]:
    """How often each verdict is reached."""
    rng = np.random.default_rng(seed)
    found = [verdict(compared(draw(rng))) for _ in range(repeats)]
    return {name: found.count(name) / repeats for name in ("better", "worse", "inconclusive")}


def test_the_difference_is_one_of_ratios():
    rows = [np.array([4.0, 2.0, 9.0, 1.0]), np.array([1.0, 0.5, 9.0, 1.0]), np.array([3.0, 1.0, 9.0, 1.0])]
    found = compared([*rows, np.zeros(4)])  # a device without held-out clicks says nothing
    assert found is not None
    assert found.difference == pytest.approx((2.0 + 0.5 + 1.0) / 8 - 3.0 / 8)
    assert found.devices == 3


def test_equal_weights_give_students_interval():
    gained = np.array([0.3, -0.1, 0.2, 0.5])
    found = compared(rows_of(np.full(4, 2.0), 2 * gained))
    assert found is not None
    assert found.error == pytest.approx(gained.std(ddof=1) / math.sqrt(4))
    assert found.high - found.difference == pytest.approx(stdtrit(3, 0.975) * found.error)
    assert found.difference - found.low == pytest.approx(stdtrit(3, 0.975) * found.error)


def test_the_error_is_unbiased_where_the_variance_is_inverse_to_the_weight():
    """Mean gains with variance 1 / w: the ratio's variance is sum of w^2 / w over (sum of w)^2 = 1 / sum of w."""
    rng, w = np.random.default_rng(0), np.array([1.0, 2.0, 5.0, 12.0])
    squares = [compared(rows_of(w, w * rng.standard_normal(4) / np.sqrt(w))).error ** 2 for _ in range(REPEATS)]  # type: ignore[union-attr]
    assert abs(np.mean(squares) - 1 / w.sum()) < 4 * np.std(squares) / math.sqrt(REPEATS)


def test_few_devices_tell_nothing():
    rows = rows_of([1.0, 1.0], [-0.5, -0.5])
    assert compared([]) is None
    assert compared([*rows, np.zeros(4)]) is None
    assert verdict(compared(rows)) == "inconclusive"


def test_the_same_ranker_is_neither_better_nor_worse():
    found = compared([np.array([w, 0.7 * w, w, 0.7 * w]) for w in (1.0, 3.0, 8.0)])
    assert found is not None
    assert (found.difference, found.error, verdict(found)) == (0, 0, "inconclusive")


def test_one_device_with_nearly_all_clicks_decides_nothing():
    for large in (1e3, 1e9, 1e15, 1e18):
        found = compared(rows_of([large, 1.0, 1.0, 1.0], [-0.3 * large, 0.1, 0.2, -0.1]))
        assert found is not None
        assert math.isfinite(found.low)
        assert math.isfinite(found.high)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [3, 5, 10, 30])
@pytest.mark.parametrize("spread", [0.0, 0.7, 1.2])
def test_a_candidate_that_is_as_good_is_seldom_called_worse(devices, spread):
    """With 20,000 repeats 2.4% to 3.4%; here enough of them to tell that from 5%."""
    repeats = 8000
    found = verdicts(lambda rng: clicked(rng, devices, spread), devices, repeats)
    margin = 3 * math.sqrt(BOUND * (1 - BOUND) / repeats)
    assert found["worse"] < BOUND - margin
    assert found["better"] < BOUND - margin


@pytest.mark.parametrize(("devices", "spread"), [(5, 0.7), (10, 1.2), (30, 1.2)])
def test_nor_where_large_devices_differ_more(devices, spread):
    """The mean gain's variance grows with the device's weight: the opposite of what the interval takes it for."""

    def draw(rng: np.random.Generator) -> list[np.ndarray]:
        w = np.exp(rng.normal(0, spread, devices))
        return rows_of(w, w * np.sqrt(w) * rng.standard_normal(devices))

    found = verdicts(draw, seed=1)
    margin = 3 * math.sqrt(BOUND * (1 - BOUND) / REPEATS)
    assert max(found["worse"], found["better"]) < BOUND + margin


def test_the_plain_interval_would_be_wrong_too_often():
    """The delta method with n - 1 degrees of freedom, on the same five devices: the reason for the other one."""
    rng, wrong = np.random.default_rng(5), 0
    for _ in range(REPEATS):
        w = np.exp(rng.normal(0, 1.2, 5))
        gained = w * rng.standard_normal(5)
        ratio = gained.sum() / w.sum()
        error = math.sqrt(((gained - ratio * w) ** 2).sum() * 5 / 4) / w.sum()
        wrong += ratio + stdtrit(4, 0.975) * error < 0
    assert wrong / REPEATS > BOUND + 2 * math.sqrt(BOUND * (1 - BOUND) / REPEATS)


@pytest.mark.parametrize(("devices", "effect"), [(5, 1.5), (10, 1.0), (30, 0.5)])
def test_a_worse_candidate_is_found_as_often_as_can_be(devices, effect):
    """Equal weights and normal differences: the power of Student's test."""
    found = verdicts(lambda rng: rows_of(np.ones(devices), rng.normal(-effect, 1, devices)), seed=2)
    shift = -effect * math.sqrt(devices)
    power = nct.cdf(stdtrit(devices - 1, 0.025), devices - 1, shift)
    assert 0.5 < power < 0.9
    assert abs(found["worse"] - power) < 4 * math.sqrt(power * (1 - power) / REPEATS)


@pytest.mark.parametrize("spread", [0.0, 0.7, 1.2])
def test_little_is_lost_by_not_knowing_the_standard_error(spread):
    """Half of the clicks put last, thirty unequal devices that differ much: next to one who knows the error."""
    rng = np.random.default_rng(3)
    found = [compared(clicked(rng, 30, spread, worse=0.5)) for _ in range(REPEATS)]
    differences = np.array([comparison.difference for comparison in found if comparison is not None])
    knowing = np.mean(differences + ndtri(0.975) * differences.std() < 0)
    assert sum(verdict(comparison) == "worse" for comparison in found) / REPEATS > 0.75 * knowing > 0.5


def test_one_device_does_not_make_a_verdict_steady():
    """With all the weight there is: fifty honest devices find no difference, and one says that the candidate is bad."""
    rng = np.random.default_rng(0)
    weights, noise = rng.uniform(20, 40, 50), rng.normal(size=50)
    honest = [np.array([w, w * 0.6 + e, w * 0.5, w * 0.6]) for w, e in zip(weights, noise, strict=True)]
    lie = np.array([1e7, 0.0, 0.0, 1e7])
    found = compared([*honest, lie])
    assert found is None or verdict(found) == "inconclusive" or not found.steady
    worse = [row - np.array([0, 4.0, 0, 0]) for row in honest]
    assert verdict(compared(worse)) == "worse"
    assert compared(worse).steady
