"""Secure sums in a simulation: the same bits as devices under masks, also where devices drop out."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

import fultr
from fultr.core.errors import FultrError
from fultr.device.local import LocalDevices
from fultr.federated.combining import StageSettings
from fultr.federated.federate import federate
from fultr.federated.federation import FederationSettings, Replay
from fultr.federated.privacy import accountant
from fultr.federated.privacy.secure_sum import threshold
from fultr.federated.privacy.settings import Privacy
from fultr.study.fill_devices import PERIOD, fill_devices
from fultr.study.seeded import SeededRandomness
from fultr.study.settings import RunSettings
from fultr.study.sums import arrives, secure_total, survivors

DEVICES, ROUNDS, LOST = 9, 4, 0.1


@pytest.fixture(scope="module")
def data():
    return fultr.load("synthetic")


@pytest.fixture(scope="module")
def logs(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    paths = [folder / f"device-{u}.db" for u in range(DEVICES)]
    fill_devices(paths, data, periods=ROUNDS)
    return dict(enumerate(paths))


def settings_of(data, **others) -> FederationSettings:
    chosen = {"client_rate": 0.05, "rounds": ROUNDS, "judge": False, "displayed": 5, "secure_sums": True}
    return FederationSettings.of({"features": data.train.width, **chosen, **others})


class Dropping(LocalDevices):
    """Devices that drop out as simulated ones do; and one at the second message of each round that lost none before."""

    def post(self, contents, t, timeout):
        replies, asked = super().post(contents, t, timeout), self.__dict__.setdefault("asked", Counter())
        if next(iter(contents.values())).startswith(b"sum1"):
            asked[t] += 1
            there = arrives(LOST, 0, t, asked[t], np.arange(DEVICES))
            return {client: reply for client, reply in replies.items() if there[client]}
        if len(contents) == DEVICES:
            replies.pop(2)
            asked["second"] += 1
        return replies


@pytest.mark.parametrize(
    "others",
    [
        {"propensity": "none", "aggregation": "mean"},
        {"propensity": "shrunk"},  # and the default aggregation
        {
            "propensity": "shrunk",
            "aggregation": "mean",
            "privacy": "distributed",
            "noise_multiplier": 0.1,
            "population": DEVICES,
            "participations": ROUNDS,
            "cohort": DEVICES,
            "honest": 7,
        },
    ],
)
def test_simulation_and_masked_devices_give_the_same_bits_with_dropouts(data, logs, tmp_path, monkeypatch, others):
    monkeypatch.setattr(accountant, "LEAST_COHORT", 3)
    settings, random = settings_of(data, **others), SeededRandomness(0)
    devices = Dropping(logs, replay=Replay(0.0, PERIOD), random=random)
    trained = federate(devices, settings, tmp_path, random=random)
    users = fultr.FiniteUsers(DEVICES)
    options = dict(clients=DEVICES, rounds=ROUNDS, population=users, splits=(), secure_sums=True)
    run = fultr.simulate(data, settings.algorithm(), dropouts=LOST, **options)
    assert np.linalg.norm(trained.weights) > 0.01
    assert trained.weights.tobytes() == run.ranker.weights.tobytes()
    assert trained.weights.tobytes() != fultr.simulate(data, settings.algorithm(), **options).ranker.weights.tobytes()
    reports = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert min(len(report["accepted"]) for report in reports) < DEVICES
    if trained.privacy is not None:
        assert run.settings["privacy"] == trained.privacy.as_mapping()


def test_the_draws_of_these_tests_lose_devices_at_either_message():
    there = [int(arrives(LOST, 0, t, 1, np.arange(DEVICES)).sum()) for t in range(ROUNDS)]
    assert there == [7, 8, 9, 7]  # of the third round, one is lost at the second message
    assert threshold(DEVICES) == 7


def test_a_round_with_too_few_survivors_is_repeated_and_with_privacy_given_up():
    clients = np.arange(DEVICES)
    assert [int(arrives(0.25, 0, 3, attempt, clients).sum()) for attempt in (1, 2)] == [6, 7]
    assert (survivors(0.25, 0, 3, clients) == arrives(0.25, 0, 3, 2, clients)).all()
    with pytest.raises(FultrError, match=r"round 1: no secure sum \(4 of 9 clients are left, and 7 are needed\) in 3"):
        survivors(0.25, 0, 0, clients)
    noised = Privacy("distributed", epsilon=1, honest=8)
    with pytest.raises(FultrError, match=r"round 1: no secure sum \(7 of 9 clients are left, and 8 are needed\) in 1"):
        survivors(LOST, 0, 0, clients, noised)


def test_dropouts_are_as_frequent_as_they_should_be():
    lost = sum(int((~arrives(0.1, 5, t, 1, np.arange(1000))).sum()) for t in range(100))
    assert abs(lost - 10_000) < 4 * np.sqrt(100_000 * 0.1 * 0.9)


def test_a_sum_without_masks_is_that_of_the_survivors_whole_numbers():
    """Counted in units of 2^-33 for updates below 128: the sum is exact, in whatever order."""
    random = np.random.default_rng(0)
    replies = {"update": random.standard_normal((40, 6)), "trained": np.ones((40, 1))}
    there = random.random(40) < 0.8
    found = secure_total(StageSettings(), replies, there, threads=2)
    units = [int(np.trunc(np.ldexp(value, 33))) for value in replies["update"][there][:, 0]]
    assert found["update"].shape == (1, 6)
    assert found["update"][0, 0] == sum(units) / 2**33
    assert found["trained"].tolist() == [[int(there.sum())]]


def test_whole_numbers_cost_next_to_nothing(data):
    options = dict(clients=60, rounds=5, splits=())
    exact, whole = (fultr.simulate(data, secure_sums=sums, **options).ranker.weights for sums in (False, True))
    assert np.abs(exact - whole).max() < 1e-6 * np.abs(exact).max()


def test_settings_of_runs_and_what_does_not_go_together():
    chosen = RunSettings.of({"secure_sums": True, "dropouts": 0.05, "aggregation": "clipped"})
    assert (chosen.secure_sums, chosen.dropouts) == (True, 0.05)
    with pytest.raises(FultrError, match="dropouts: expected 0 without secure_sums"):
        RunSettings.of({"dropouts": 0.05})
    with pytest.raises(FultrError, match="expected mean or clipped with secure_sums"):
        RunSettings.of({"secure_sums": True, "aggregation": "trimmed"})
