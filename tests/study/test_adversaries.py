"""Adversaries of a simulation: who they are, what they send, what it does, and how it is set."""

from __future__ import annotations

import numpy as np
import pytest

import fultr
from fultr.core.errors import FultrError
from fultr.study.adversaries import adversarial, poison
from fultr.study.experiment_files import parse_experiment
from fultr.study.settings import Adversaries, FiniteUsers, RunSettings


@pytest.fixture(scope="module")
def data():
    return fultr.load("synthetic")


def test_who_attacks_follows_from_seed_and_number():
    everyone = np.arange(2000)
    who = adversarial(Adversaries(0.2), 3, everyone)
    error = np.sqrt(0.2 * 0.8 / 2000)
    assert abs(who.mean() - 0.2) < 4 * error
    assert np.array_equal(adversarial(Adversaries(0.2), 3, everyone[7:9]), who[7:9])
    assert not np.array_equal(adversarial(Adversaries(0.2), 4, everyone), who)
    assert adversarial(Adversaries(1.0), 3, everyone).all()
    more = adversarial(Adversaries(0.4), 3, everyone)
    assert (more >= who).all()  # a larger share adds to them


UPDATES = np.array([[3.0, 4.0], [6.0, 8.0], [0.0, 5.0], [0.0, 0.0]])
WHO = np.array([True, False, True, True])
TOGETHER = -np.array([3.0, 9.0]) / np.sqrt(3**2 + 9**2)  # minus the sum of the adversaries' updates, of norm 1


@pytest.mark.parametrize(
    ("attack", "strength", "wanted", "trained"),
    [
        ("flip", None, [[-3, -4], [6, 8], [0, -5], [0, 0]], [1, 1, 1, 0]),
        ("flip", 10.0, [[-6, -8], [6, 8], [0, -10], [0, 0]], [1, 1, 1, 0]),
        ("collude", None, [5 * TOGETHER, [6, 8], 5 * TOGETHER, [0, 0]], [1, 1, 1, 0]),
        ("collude", 10.0, [10 * TOGETHER, [6, 8], 10 * TOGETHER, 10 * TOGETHER], [1, 1, 1, 1]),
    ],
)
def test_what_adversaries_send(attack, strength, wanted, trained):
    replies = {"update": UPDATES.copy(), "trained": np.array([[1.0], [1.0], [1.0], [0.0]]), "gradient": np.ones((4, 3))}
    poison(Adversaries(0.5, attack, strength), replies, WHO)
    np.testing.assert_allclose(replies["update"], wanted, rtol=1e-6)
    assert replies["trained"].ravel().tolist() == trained
    assert (replies["gradient"] == 1).all()


def test_nobody_attacks_where_the_draw_has_none():
    replies = {"update": UPDATES.copy(), "trained": np.ones((4, 1))}
    poison(Adversaries(0.5, "collude", 10.0), replies, np.zeros(4, np.bool_))
    assert np.array_equal(replies["update"], UPDATES)


def test_threads_and_interruptions_do_not_matter(data, tmp_path):
    options = dict(clients=150, splits=(), adversaries=Adversaries(0.3, "collude"), population=FiniteUsers(300))
    one, three = (fultr.simulate(data, rounds=3, threads=n, **options).ranker.weights for n in (1, 3))
    assert one.tobytes() == three.tobytes()
    path = tmp_path / "run.npz"
    fultr.simulate(data, rounds=2, checkpoint=path, **options)
    assert fultr.simulate(data, rounds=3, checkpoint=path, **options).ranker.weights.tobytes() == one.tobytes()
    with pytest.raises(FultrError, match="adversaries"):
        fultr.simulate(data, rounds=3, checkpoint=path, **{**options, "adversaries": None})


@pytest.mark.parametrize("kind", ["mean", "clipped"])
def test_flipped_updates_of_norm_100_ruin_the_mean_and_not_the_clipped(data, kind):
    """500 clients, a fifth of them adversaries, whose honest updates have a norm of about 0.1."""
    options = dict(clients=500, rounds=20, splits=("test",))
    algorithm = fultr.FedIPS(aggregation=fultr.Aggregation(kind))
    honest = fultr.simulate(data, algorithm, **options).curve.ndcg["test"]
    attacked = fultr.simulate(data, algorithm, adversaries=Adversaries(0.2, strength=100.0), **options)
    lost = honest[-1] - attacked.curve.ndcg["test"][-1]
    assert honest[-1] > honest[0] + 0.1
    assert lost > 0.1 if kind == "mean" else lost < 0.02


def test_adversaries_are_settings_of_a_run():
    settings = RunSettings.of({"adversaries": 0.2, "attack": "collude", "strength": 0})
    assert settings.adversaries == Adversaries(0.2, "collude", None)
    assert "attack" in settings.relevant()
    assert RunSettings.of({"adversaries": 0}).adversaries is None
    assert "attack" not in RunSettings().relevant()
    text = '[[line]]\nname = "{aggregation}"\nadversaries = 0.1\nvary.aggregation = ["mean", "trimmed"]'
    mean, trimmed = parse_experiment(text, "mine").lines
    assert (mean.name, trimmed.name) == ("mean", "trimmed")
    assert trimmed.settings.adversaries.share == 0.1
    assert trimmed.settings.fedips.aggregation.aggregation == "trimmed"
    with pytest.raises(FultrError, match="attack: expected one of flip, collude; found"):
        RunSettings.of({"adversaries": 0.2, "attack": "guess"})
    with pytest.raises(FultrError, match=r"adversaries: expected a value of type Adversaries or None"):
        fultr.simulate(fultr.load("synthetic"), adversaries=0.2)
