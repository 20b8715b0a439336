"""What is particular to the cascade; the rest is in the contract of all click models."""

from __future__ import annotations

import numpy as np
import plain
import pytest

from fultr.clicks.log import ClickLog
from fultr.clicks.models.cascade import Cascade
from fultr.clicks.models.model import click_model_of
from fultr.clicks.models.position_based import PositionBased, examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.data.ranking import Splits
from fultr.study.settings import RunSettings
from fultr.study.simulate import simulate

ATTRACTION = np.array([0.4, 0.2, 0.7, 0.3])


def simulated(continues: float, base: np.ndarray) -> ClickLog:
    sessions = Sessions(queries=1, clicks=10**6, most_sessions=20)
    clients = np.arange(len(base))
    return simulate_clicks(
        Cascade(continues), ATTRACTION[np.newaxis], base, clients, sessions=sessions, seed=1, round_=0
    )


def test_examination_by_hand():
    log = ClickLog(np.int32([0, 0, 0]), np.uint8([[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0]]), np.array([0, 2, 3]))
    base = np.array([[1.0, 0.5, 0.25, 0.125], [1.0, 1.0, 1.0, 1.0]])
    expected = [[1, 0.5, 0.25, 0.125], [1, 0.5 / 4, 0.25 / 4, 0.125 / 16], [1, 1, 1 / 4, 1 / 4]]
    assert Cascade(0.25).examination_given_clicks(base, log).tolist() == expected
    assert Cascade(0.0).examination_given_clicks(base, log).tolist()[1] == [1, 0, 0, 0]


def test_users_who_never_continue_click_at_most_once():
    """The cascade model; what it loses below documents that users would click, no division brings back."""
    base = examination(np.linspace(0, 1, 4000), 4)
    log = simulated(0.0, base)
    assert log.clicks.sum(axis=1).max() == 1
    weights = log.clicks / np.repeat(base, 20, axis=0)
    wanted = ATTRACTION * np.cumprod(np.r_[1, 1 - ATTRACTION[:-1]])
    error = weights.std(axis=0) / np.sqrt(len(weights))
    assert (np.abs(weights.mean(axis=0) - wanted) < 4 * error).all()
    assert (wanted[1:] < ATTRACTION[1:] - 10 * error[1:]).all()


def test_clicks_that_do_not_matter_leave_the_click_rates_of_the_position_based_model():
    base = examination(np.full(2000, 0.7), 4)
    log = simulated(1.0, base)
    rates = base[0] * ATTRACTION
    error = np.sqrt(rates * (1 - rates) / len(log.clicks))
    assert (np.abs(log.clicks.mean(axis=0) - rates) < 4 * error).all()
    np.testing.assert_array_equal(
        Cascade(1.0).examination_given_clicks(base, log), PositionBased().examination_given_clicks(base, log)
    )


def test_dividing_by_position_alone_is_biased():
    base = examination(np.linspace(0, 1, 4000), 4)
    log = simulated(0.5, base)
    weights = log.clicks / np.repeat(base, 20, axis=0)
    error = weights.std(axis=0) / np.sqrt(len(weights))
    assert (weights.mean(axis=0)[1:] < ATTRACTION[1:] - 10 * error[1:]).all()


def test_settings_of_a_run_choose_it():
    assert click_model_of(RunSettings().click_model) == PositionBased()
    chosen = click_model_of(RunSettings.of({"click_model": "cascade", "continues": 0.5}).click_model)
    assert chosen == Cascade(0.5)
    assert isinstance(chosen, Cascade)


@pytest.mark.parametrize("continues", [0.0, 0.5])
def test_a_simulation_with_known_propensities(continues):
    """Clicks are divided by their examination given the clicks above: the weight that they are due, at every rank."""
    rng = np.random.default_rng(0)
    train, valid, test = (plain.random_data(rng, queries=40) for _ in range(3))
    data = Splits(train, valid, test, "random")
    users = ClickModel(click_model="cascade", continues=continues)
    run = simulate(data, clients=150, rounds=2, evaluate_every=2, click_model=users)
    assert np.isfinite(run.ranker.weights).all()
    assert run.ranker.weights.any()
    np.testing.assert_array_equal(run.weighing.used, run.weighing.true)
    assert (run.weighing.mass == 1).all()
    assert run.settings["click_model"]["continues"] == continues
    other = simulate(data, clients=150, rounds=2, evaluate_every=2)
    assert (run.ranker.weights != other.ranker.weights).any()
