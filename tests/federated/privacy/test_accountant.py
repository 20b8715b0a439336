"""What privacy costs, against direct computations."""

from __future__ import annotations

import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from scipy.stats import norm

import fultr
from fultr.federated.privacy.accountant import delta_of, moved_by, sampled_epsilon, settled, spent
from fultr.federated.privacy.factorisation import coefficients, sensitivity
from fultr.federated.privacy.settings import Privacy

N = 100_000


def delta_of_gaussian(moved: float, epsilon: float) -> float:
    """Balle and Wang (2018), Theorem 8: what a Gaussian release that one device moves so far costs."""
    a, b = moved / 2, epsilon / moved
    return norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b)


def test_secret_cohorts():
    assert abs(sampled_epsilon(2.374, 0.02, 200, 3.16e-6) - 0.5) <= 0.002


def test_what_secret_cohorts_are_worth():
    """z = 1.009 at N = 100,000 is epsilon 2 with Poisson sampling; with everyone in every round it is 161."""
    sampled = Privacy("gaussian", noise_multiplier=1.009, population=N, secret_cohorts=True)
    everyone = replace(sampled, secret_cohorts=False, participations=200)
    assert spent(sampled, cohort=2000, rounds=200).epsilon == pytest.approx(2, abs=0.02)
    assert spent(everyone, cohort=2000, rounds=200).epsilon == pytest.approx(161, abs=1)


@pytest.mark.parametrize("participations", [1, 4, 25])
@pytest.mark.parametrize("noise", [2.0, 9.0])
def test_participations_compose_as_one_release_with_less_noise(participations, noise):
    privacy = Privacy("gaussian", noise_multiplier=noise, population=N, participations=participations, delta=1e-6)
    epsilon = spent(privacy, cohort=2000, rounds=200).epsilon
    assert delta_of_gaussian(math.sqrt(participations) / noise, epsilon) == pytest.approx(1e-6, rel=0.01)


@pytest.mark.parametrize("noise", [0.3, 1.0, 4.5, 40.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_one_release_costs_what_its_privacy_loss_distribution_says(noise, delta):
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    expected = accountant.compose(dp_accounting.GaussianDpEvent(noise)).get_epsilon(delta)
    privacy = Privacy("gaussian", noise_multiplier=noise, population=100, delta=delta)
    assert spent(privacy, cohort=100, rounds=1).epsilon == pytest.approx(expected, rel=1e-5)


def test_noise_that_devices_add_is_accounted_for_by_a_bound_that_discrete_gaussians_have():
    """Renyi divergences cost a little more than the exact curve of the continuous Gaussian, never less."""
    settings = dict(noise_multiplier=5.0, population=10**6, honest=1000)
    server, devices = (
        spent(Privacy(mode, **settings), cohort=2000, rounds=10).epsilon for mode in ("gaussian", "distributed")
    )
    assert server < devices < 1.1 * server


@pytest.mark.parametrize(("k", "b", "rounds"), [(1, 1, 12), (3, 4, 12), (2, 5, 9), (12, 1, 12), (4, 4, 10)])
def test_sensitivity_is_that_of_the_worst_participation(k, b, rounds):
    """By trying all rounds that a device may take part in, each with a vector of norm 1 and in the worst direction."""
    band = coefficients(rounds if k == 1 else b)
    matrix = np.array([[band[t - j] if 0 <= t - j < len(band) else 0.0 for j in range(rounds)] for t in range(rounds)])
    gram, worst = matrix.T @ matrix, 0.0

    def extend(chosen: list[int]) -> None:
        nonlocal worst
        # All entries are at least 0, so that vectors in the same direction are the worst.
        worst = max(worst, float(gram[np.ix_(chosen, chosen)].sum())) if chosen else worst
        for t in range(chosen[-1] + b if chosen else 0, rounds):
            if len(chosen) < k:
                extend([*chosen, t])

    extend([])
    assert sensitivity(k, b, rounds) == pytest.approx(math.sqrt(worst), rel=1e-12)


def test_the_square_root_is_one():
    band = np.array(coefficients(6))
    assert np.convolve(band, band)[:6] == pytest.approx(np.ones(6))


@pytest.mark.parametrize("mode", ["gaussian", "correlated", "distributed"])
def test_the_noise_that_is_found_keeps_to_the_budget_and_no_less_would(mode):
    privacy = Privacy(mode, epsilon=1.0, population=10**6, participations=2, rounds_apart=10)
    found = settled(privacy, cohort=2000, rounds=100, size=100)
    assert spent(found, cohort=2000, rounds=100).epsilon <= 1.0
    less = replace(found, noise_multiplier=0.999 * found.noise_multiplier, epsilon=None)
    assert spent(less, cohort=2000, rounds=100).epsilon > 1.0


def test_rounds_cost_more_and_more_and_no_round_nothing():
    privacy = Privacy("correlated", noise_multiplier=8.0, population=N, participations=4, rounds_apart=5)
    costs = [spent(privacy, cohort=1000, rounds=rounds).epsilon for rounds in (0, 1, 5, 6, 16, 20, 100)]
    assert costs[0] == 0
    assert costs == sorted(costs)
    assert costs[-1] == costs[-2]  # four participations are all


def test_a_guarantee_says_what_it_is_about():
    told = str(spent(Privacy("gaussian", noise_multiplier=2.0, population=N), cohort=2000, rounds=3))
    for words in ("per device", "add or remove one", "the server is trusted", "delta 3.2e-06", "z = 2"):
        assert words in told


def test_participations_that_fit_into_the_rounds():
    privacy = Privacy("gaussian", noise_multiplier=1.0, participations=10, rounds_apart=7)
    assert moved_by(privacy, 15) == math.sqrt(3)  # rounds 1, 8 and 15
    assert delta_of(replace(privacy, population=N)) == N**-1.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cohort": 30}, "devices in a round, better thousands, found 30"),
        ({"population": 1000}, "population: expected at least the 2000 devices"),
        ({"delta": 1e-4}, "delta: expected below 1 / population"),
        ({"noise_multiplier": 0.5}, r"the run would cost epsilon \d+\.\d+, and its budget is 1"),
        ({"rounds": 100}, r"take 200,000 devices, and the population is 100,000"),
        ({"participations": 2, "rounds_apart": 60, "rounds": 80}, "take 120,000 devices"),
        ({"epsilon": 0.001}, "noise in the mean of 2000 devices would be longer"),
        ({"mode": "distributed", "honest": 3000}, "honest: expected at most the 2000 devices"),
        ({"population": None}, "population: expected how many devices could take part"),
        ({"rounds": 20_000}, "rounds: expected at most 10000 with privacy"),
    ],
)
def test_what_cannot_be_useful_or_sound_is_refused_in_a_sentence(change, message):
    settings = {"mode": "correlated", "epsilon": 1.0, "population": N, "cohort": 2000, "rounds": 20, **change}
    cohort, rounds = settings.pop("cohort"), settings.pop("rounds")
    with pytest.raises(fultr.FultrError, match=message) as raised:
        settled(Privacy(**settings), cohort=cohort, rounds=rounds, size=519)
    assert "\n" not in str(raised.value)


def test_only_gaussian_noise_counts_on_secret_cohorts():
    with pytest.raises(fultr.FultrError, match="secret_cohorts: expected false with correlated noise"):
        Privacy("correlated", epsilon=1.0, secret_cohorts=True)
