"""A federation with privacy: its denominators, reports, budget and versions."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

import fultr
from fultr.federated.budget import willing
from fultr.federated.federate import compare, federate
from fultr.federated.federation import FederationSettings
from fultr.federated.messages import Reply, reply_to
from fultr.federated.privacy.settings import Privacy
from fultr.study.seeded import SeededRandomness

COHORT, FEATURES = 120, 6
SETTINGS = {
    "features": FEATURES,
    "displayed": 3,
    "rounds": 2,
    "cohort": COHORT,
    "aggregation": "mean",
    "privacy": "gaussian",
    "noise_multiplier": 1.0,
    "population": 10_000,
    "propensity": "pooled",
    "update_bound": 0.5,
    "judged_bound": 5.0,
}


class Made:
    """Devices in memory, some of which never answer."""

    def __init__(self, silent: int = 0, seed: int = 0) -> None:
        self.silent, self.answered, self.asked, self.tasks = silent, {}, [], []
        self.random = np.random.default_rng(seed)

    def connected(self) -> list[int]:
        return list(range(3 * COHORT))

    def ask(self, task, clients, timeout):
        self.asked.append(list(clients))
        self.tasks.append(task)
        return {client: self._reply(task) for client in clients[self.silent :]}

    def _reply(self, task) -> Reply:
        features = self.random.random((30, FEATURES)).astype(np.float32)
        display = fultr.clicks.log.Display.of_rows(features, np.arange(30).reshape(10, 3))
        clicks = (self.random.random((10, 3)) < 0.4).astype(np.uint8)
        log = fultr.ClickLog(np.arange(10, dtype=np.int32), clicks, np.array([0, 10]))
        records = fultr.clicks.log.Records(log, display)
        training, held_out = records.split(0.3)
        return reply_to(task, training, held_out)


def reports_of(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]


def test_sums_are_divided_by_the_expected_number_whoever_replies(tmp_path, monkeypatch):
    seen = []
    true = fultr.federated.federate.server_round
    monkeypatch.setattr(
        "fultr.federated.federate.server_round",
        lambda algorithm, model, server, rows, clients, random, **how: (
            seen.append(clients) or true(algorithm, model, server, rows, clients, random, **how)
        ),
    )
    federate(Made(silent=50), FederationSettings.of({**SETTINGS, "rounds": 1}), tmp_path)
    assert seen == [COHORT]


def test_reports_hold_what_was_spent_and_no_judgement_of_single_devices(tmp_path):
    settings = FederationSettings.of(SETTINGS)
    trained = federate(Made(), settings, tmp_path, random=SeededRandomness(0))
    first, second = reports_of(tmp_path)
    assert 0 < first["privacy"]["epsilon"] <= second["privacy"]["epsilon"] == trained.privacy.epsilon
    for words in ("unit", "adjacency", "trust", "delta"):
        assert second["privacy"][words]
    assert second["judged"]["devices"] == COHORT
    assert trained.judged is not None
    assert trained.judged.ranked == second["judged"]["ranked"]
    assert 0 <= trained.judged.ranked <= 1
    assert trained.judged.ranked_error > 0


def test_the_judgement_follows_from_the_noised_sum_alone(tmp_path):
    """The same devices and other noise: another judgement."""
    settings = FederationSettings.of({**SETTINGS, "rounds": 1})
    found = [
        federate(Made(), settings, tmp_path / f"{seed}", random=SeededRandomness(seed)).judged.ranked
        for seed in (0, 0, 1)
    ]
    assert found[0] == found[1] != found[2]


def test_nobody_is_asked_too_often(tmp_path):
    settings = FederationSettings.of({**SETTINGS, "rounds": 3, "participations": 1})
    devices = Made()
    federate(devices, settings, tmp_path)
    assert sorted(itertools.chain(*devices.asked)) == devices.connected()
    assert len({task.training for task in devices.tasks}) == 1
    assert devices.tasks[0].training > 0


def test_the_number_of_the_training_stays_when_it_is_resumed(tmp_path):
    settings, devices = FederationSettings.of({**SETTINGS, "rounds": 2}), Made()

    class StoppedError(Exception):
        pass

    def stop(event) -> None:
        if event.what == "round":
            raise StoppedError

    with pytest.raises(StoppedError):
        federate(devices, settings, tmp_path, tell=stop)
    federate(devices, settings, tmp_path)
    assert [task.round for task in devices.tasks] == [0, 1]
    assert len({task.training for task in devices.tasks}) == 1


def test_a_longer_run_is_another_run(tmp_path):
    """The noise was made for so many rounds."""
    federate(Made(), FederationSettings.of(SETTINGS), tmp_path)
    with pytest.raises(fultr.FultrError, match="rounds"):
        federate(Made(), FederationSettings.of({**SETTINGS, "rounds": 3}), tmp_path)


def test_a_run_that_would_exceed_its_budget_does_not_start(tmp_path):
    devices = Made()
    with pytest.raises(fultr.FultrError, match=r"would cost epsilon \d+\.\d+, and its budget is 0.1"):
        federate(devices, FederationSettings.of({**SETTINGS, "epsilon": 0.1}), tmp_path)
    assert not devices.asked


def test_rankers_are_not_compared_outside_the_budget(tmp_path):
    settings, devices, told = FederationSettings.of(SETTINGS), Made(), []
    weights = np.zeros(FEATURES, np.float32)
    assert compare(devices, settings, tmp_path, weights, weights, tell=told.append) is None
    assert not devices.asked
    assert "none with privacy" in str(told[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cohort": 0}, "cohort: expected a number with privacy"),
        ({"secret_cohorts": True}, "secret_cohorts: expected false"),
        ({"aggregation": "clipped"}, "aggregation: expected mean with privacy"),
        ({"privacy": "laplace"}, "privacy: expected one of none, gaussian, correlated, distributed"),
        ({"noise_multiplier": 0}, "epsilon: expected a budget, or a noise_multiplier"),
    ],
)
def test_settings_that_are_not_sound_are_refused(change, message):
    with pytest.raises(fultr.FultrError, match=message):
        FederationSettings.of({**SETTINGS, **change})


def test_the_average_may_not_be_over_repliers():
    with pytest.raises(fultr.FultrError, match="average_over: expected cohort with privacy"):
        fultr.FedIPS(stage=fultr.StageSettings(privacy=Privacy("gaussian", epsilon=1.0)), average_over="repliers")


def test_who_may_still_take_part():
    limited = Privacy("gaussian", epsilon=1.0, participations=2, rounds_apart=1)
    assert willing(limited, range(3), [[0], [0], [1]]) == [1, 2]
    assert willing(replace(limited, rounds_apart=2), range(3), [[0], [0], [1]]) == [2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adversaries": fultr.Adversaries()}, "adversaries: expected none with privacy"),
        ({"population": fultr.FiniteUsers(500, sampling="poisson")}, "sampling: expected poisson with secret_cohorts"),
        ({"population": fultr.FiniteUsers(700)}, "population: expected 700, as users; found 500"),
        ({"population": fultr.FiniteUsers(500), "rounds": 9}, "take 900 devices, and the population is 500"),
    ],
)
def test_simulations_that_the_budget_does_not_describe_are_refused(change, message):
    privacy = Privacy("correlated", noise_multiplier=5.0, population=500)
    algorithm = fultr.FedIPS(stage=fultr.StageSettings(privacy=privacy))
    with pytest.raises(fultr.FultrError, match=message):
        fultr.simulate(fultr.load("synthetic"), algorithm, **{"clients": 100, "rounds": 2, "splits": (), **change})


def test_simulated_users_take_part_in_turn():
    from fultr.study.users import cohorts

    users, data = fultr.FiniteUsers(250, pool=5, clusters=2), fultr.load("synthetic").train
    drawn = cohorts(users, data, fultr.ClickModel(relevant_grade=3), 100, 0, in_turn=True)
    rounds = [set(drawn.cohort(t).tolist()) for t in range(10)]
    assert all(len(who) == 100 for who in rounds)
    times = [[t for t, who in enumerate(rounds) if user in who] for user in range(250)]
    assert {len(each) for each in times} == {4}  # 10 x 100 / 250
    assert min(b - a for each in times for a, b in itertools.pairwise(each)) == 2  # 250 // 100
