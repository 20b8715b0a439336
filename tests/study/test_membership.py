"""The membership attack: it finds users whom nothing hides, stays below ε's bound, and tells noise that is too weak."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from fultr import load
from fultr.federated.privacy import PRIVACY
from fultr.federated.privacy.accountant import spent
from fultr.federated.privacy.settings import Privacy
from fultr.study import membership
from fultr.study.membership import SETTINGS, Noise, Row, Scores, Trials, allowed, allowed_advantage, draw, replies

TRIALS = 4000
USER = [0.6, -0.8]  # as long as the bound allows
NOISE = 2.0


def private(mode: str, noise: float = NOISE, **others) -> Privacy:
    return Privacy(mode, noise_multiplier=noise, population=100_000, honest=10, **others)


def attack(privacy: Privacy, rounds: int = 1) -> Scores:
    """By who knows everybody else's clicks, so that there is nothing but noise."""
    users = np.tile(USER, (TRIALS, 1))
    tried = Trials(users, users[:1], users[:1])
    scores = [tried.noise_alone(Noise.of(privacy, TRIALS, len(USER), seed)) for seed in range(rounds)]
    return sum(scores[1:], scores[0])


def excess(scores: Scores, privacy: Privacy) -> float:
    """Over what privacy claims: it has an epsilon for every delta."""
    claims = {
        delta: spent(replace(privacy, delta=delta), cohort=100, rounds=20).epsilon for delta in (1e-6, 0.01, 0.05)
    }
    return max(scores.excess(epsilon, delta) for delta, epsilon in claims.items())


@pytest.fixture(scope="module")
def groups():
    return replies(SETTINGS.but({"rounds": 3, "clients": 100}), load("synthetic", cache=False), [400, 4000, 4000])


def test_curve_threshold_and_area():
    scores = Scores(away=np.array([0.0, 1.0, 2.0, 3.0]), there=np.array([0.5, 2.5, 3.5, 4.5]))
    assert set(zip(*(part.tolist() for part in scores.curve), strict=True)) >= {(0, 2 / 4), (1 / 4, 3 / 4), (3 / 4, 1)}
    assert [scores.found(0), scores.found(0.25), scores.found(0.75)] == [2 / 4, 3 / 4, 1]
    assert scores.advantage == 3 / 4 - 1 / 4
    assert scores.area == pytest.approx((1 + 3 + 4 + 4) / 16)  # how many of `away` each of `there` is above


def test_guessing_is_found_to_be_guessing():
    random = np.random.default_rng(1)
    scores = Scores(random.random(TRIALS), random.random(TRIALS))
    assert abs(scores.area - 0.5) < 4 * np.sqrt(1 / 6 / TRIALS)
    assert scores.excess(0.0, 0.0) < 3


def test_what_is_allowed():
    false = np.linspace(0, 1, 1001)
    most = allowed(1.0, 1e-3, false)
    assert most[0] == 1e-3
    assert most[-1] == 1
    assert (most >= false).all()
    assert (most - false).max() == pytest.approx(allowed_advantage(1.0, 1e-3), abs=0.002)


def test_single_updates_give_everyone_away(groups):
    assert Trials.of(groups).single(1000).advantage == 1


def test_sums_hide_the_better_the_more_devices(groups):
    tried = Trials.of(groups)
    areas = [tried.sums(devices).area for devices in (3, 30, 300)]
    assert areas[0] > 0.95
    assert areas[0] > areas[1] > areas[2] > 0.5
    assert (tried.sums(30) + tried.sums(30, seed=1)).area > areas[1]


def test_bounded_vectors_are_what_privacy_sends(groups):
    tried = Trials.of(groups, private("gaussian", update_bound=0.01))
    np.testing.assert_allclose(np.linalg.norm(tried.users, axis=1), 1, atol=1e-6)  # all are longer than the bound
    alike = (tried.users * groups[0]["update"]).sum(axis=1) / np.linalg.norm(groups[0]["update"], axis=1)
    np.testing.assert_allclose(alike, 1, atol=1e-6)


def test_the_attack_on_a_sum_is_the_best_there_is():
    """Where vectors and noise are normal, the area under the best test's curve is known."""
    random, devices = np.random.default_rng(0), 20
    spread = np.array([[2.0, 1.0], [0.0, 0.5]])
    users = np.tile(USER, (TRIALS, 1))
    tried = Trials(users, *(random.standard_normal((2, 50_000, 2)) @ spread + 5))
    noise = Noise(random.standard_normal(users.shape) * 3, 3.0**2)
    for with_noise, covariance in (
        (None, spread.T @ spread * devices),
        (noise, spread.T @ spread * devices + 9 * np.eye(2)),
    ):
        shift = np.sqrt(USER @ np.linalg.inv(covariance) @ USER)
        found = tried.sums(devices, with_noise).area
        assert abs(found - norm.cdf(shift / np.sqrt(2))) < 4 * np.sqrt(1 / 6 / TRIALS)


@pytest.mark.parametrize("mode", ["gaussian", "distributed"])
def test_noise_keeps_the_best_attack_below_its_bound(mode):
    privacy = private(mode)
    scores = attack(privacy)
    assert excess(scores, privacy) < 3
    best = norm.cdf(1 / NOISE / np.sqrt(2))  # of a test of N(0, z^2) against N(1, z^2)
    assert abs(scores.area - best) < 4 * np.sqrt(1 / 6 / TRIALS)


@pytest.mark.parametrize("mode", ["gaussian", "distributed"])
def test_half_the_noise_is_found_out(mode, monkeypatch):
    privacy, module = private(mode), PRIVACY[mode]
    scale = module.scale(privacy)
    monkeypatch.setattr(module, "noise_of", lambda settings: NOISE / 2)
    monkeypatch.setattr(module, "scale", lambda settings: scale)
    assert excess(attack(privacy), privacy) > 6


def test_rounds_that_are_not_accounted_for_are_found_out():
    """The budget is for all rounds that a device takes part in: what is claimed for one of four is not true of all."""
    often = private("gaussian", noise=4.0, participations=4)
    scores = attack(often, rounds=4)
    assert excess(scores, often) < 3
    assert excess(scores, replace(often, participations=1)) > 5


def test_tables(monkeypatch):
    monkeypatch.setattr(membership, "EPSILONS", (4.0,))
    monkeypatch.setattr(membership, "SETTINGS", SETTINGS.but({"rounds": 1, "clients": 100}))
    data = load("synthetic", cache=False)
    plain = membership.without_noise(data, 40, 200)
    assert str(plain[0]).startswith("| single updates of 1,000 devices | nothing | 1.000 | 1.000 | 100.0% |")
    everyone, alike = membership.with_noise(data, "distributed", 40, 200)
    assert (everyone.knows, alike.knows) == ("all others", "such users")
    assert str(everyone).endswith(
        f"| {np.tanh(2):.3f} | {np.exp(4) / 100:.1%} |"
    )  # (e^4 - 1) / (e^4 + 1), and e^4 x 1%


def test_figure():
    random = np.random.default_rng(0)
    scores = Scores(random.standard_normal(100), random.standard_normal(100) + 1)
    plain = [Row(f"sum of {devices} updates", "such users", scores) for devices in (1, 10, 100, 1000)]
    noised = [
        Row("", knows, scores, epsilon, 1e-6)
        for epsilon in membership.EPSILONS
        for knows in ("all others", "such users")
    ]
    figure = draw(plain, noised, noised)
    assert [axes.get_xlabel() for axes in figure.axes] == ["false positives"] * 2 + ["ε per device, for all rounds"]
    drawn = [line.get_label() for line in figure.axes[1].lines]
    assert drawn == [f"{kind}ε = {epsilon}" for epsilon in (1, 2, 4) for kind in ("", "bound, ")] + ["guessing"]
