"""Federations of devices in one process: the same weights as the simulation, faults, interruptions, messages."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fultr
from fultr.device_simulation import PERIOD, fill_devices
from fultr.errors import FultrError
from fultr.federation import LocalDevices, federate, task_of
from fultr.federation_settings import FederationSettings
from fultr.population import FiniteUsers
from fultr.replies import Limits, Reply, add_up, combine_judgements, objection
from fultr.rounds import ServerSide

DEVICES, ROUNDS = 5, 3
SOURCES = ["none", "1,0.5,0.33,0.25,0.2", "personal", "pooled", "shrunk", "power-law"]


@pytest.fixture(scope="module")
def data():
    return fultr.load("synthetic")


@pytest.fixture(scope="module")
def logs(data, tmp_path_factory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("devices")
    paths = [folder / f"device-{u}.db" for u in range(DEVICES)]
    fill_devices(paths, data, periods=ROUNDS)
    return dict(enumerate(paths))


def settings_of(data, **others) -> FederationSettings:
    chosen = {"client_rate": 0.05, "rounds": ROUNDS, "period": PERIOD, "held_out": 0.0, "displayed": 5, **others}
    return FederationSettings(features=data.train.width, **chosen)


@pytest.mark.parametrize("propensity", SOURCES)
def test_devices_end_with_the_weights_of_the_simulation(data, logs, tmp_path, propensity):
    settings = settings_of(data, propensity=propensity)
    trained = federate(LocalDevices(logs), settings, tmp_path)
    simulated = fultr.simulate(
        data,
        settings.algorithm(),
        clients=DEVICES,
        rounds=ROUNDS,
        population=FiniteUsers(DEVICES),
        splits=(),
    )
    assert np.linalg.norm(trained.weights) > 0.1
    assert trained.weights.tobytes() == simulated.ranker.weights.tobytes()


def test_the_order_of_answers_does_not_matter(data, logs):
    settings = settings_of(data, held_out=0.2)
    server = ServerSide.initial(settings.algorithm(), np.zeros(settings.features, np.float32), 5)
    task = task_of(settings, 0, server)
    replies = LocalDevices(logs).ask(task, list(logs), 60)
    turned = dict(reversed(replies.items()))
    one, other = add_up(task, replies), add_up(task, turned)
    assert one.total.tobytes() == other.total.tobytes()
    assert one.sums.gradient.tobytes() == other.sums.gradient.tobytes()
    assert combine_judgements(replies) == combine_judgements(turned)


class Stops(LocalDevices):
    """Devices that vanish, like the server's power, after so many questions."""

    left = 0

    def ask(self, task, clients, timeout):
        if type(self).left == 0:
            raise KeyboardInterrupt
        type(self).left -= 1
        return super().ask(task, clients, timeout)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interrupted_federation_goes_on(data, logs, tmp_path, after):
    settings = settings_of(data, propensity="shrunk")
    whole = federate(LocalDevices(logs), settings, tmp_path / "whole")
    Stops.left = after
    with pytest.raises(KeyboardInterrupt):
        federate(Stops(logs), settings, tmp_path / "stopped")
    with (tmp_path / "stopped" / "progress.jsonl").open("a") as file:
        file.write('{"round": 7, "of')  # the last line was being written
    told = []
    again = federate(LocalDevices(logs), settings, tmp_path / "stopped", tell=told.append)
    assert again.weights.tobytes() == whole.weights.tobytes()
    lines = (tmp_path / "stopped" / "progress.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3]
    assert (told[0] == f"going on after round {after} of 3") == (after > 0)


def test_a_longer_federation_goes_on_and_another_is_refused(data, logs, tmp_path):
    federate(LocalDevices(logs), settings_of(data, rounds=1), tmp_path / "short")
    longer = federate(LocalDevices(logs), settings_of(data), tmp_path / "short")
    whole = federate(LocalDevices(logs), settings_of(data), tmp_path / "whole")
    assert longer.weights.tobytes() == whole.weights.tobytes()
    with pytest.raises(FultrError, match=r"other settings \(they differ in client_rate\)"):
        federate(LocalDevices(logs), settings_of(data, client_rate=0.1), tmp_path / "short")


class Faulty(LocalDevices):
    """Device 1 replies as told."""

    def __init__(self, logs, change):
        super().__init__(logs)
        object.__setattr__(self, "change", change)

    def ask(self, task, clients, timeout):
        replies = super().ask(task, clients, timeout)
        if 1 in replies:
            changed = self.change(replies.pop(1))
            if changed is not None:
                replies[1] = changed
        return replies


def changed_sums(reply: Reply, **values) -> Reply:
    return replace(reply, sums=replace(reply.sums, **values))


FAULTS = {
    "silent": (lambda reply: None, "no answer from 1"),
    "words": (lambda reply: "its reply cannot be read", "device 1 refused: its reply cannot be read"),
    "NaN": (lambda reply: replace(reply, update=reply.update * np.float32(np.nan)), "update: not finite"),
    "infinite": (lambda reply: replace(reply, update=reply.update / np.float32(0)), "update: not finite"),
    "shape": (lambda reply: replace(reply, update=reply.update[1:]), r"update: expected float32 \(64,\), found"),
    "type": (lambda reply: replace(reply, update=reply.update.astype(np.float64)), "update: expected float32"),
    "norm": (lambda reply: replace(reply, update=reply.update * np.float32(1e6)), "update: its norm is .*, and 100"),
    "round": (lambda reply: replace(reply, round=reply.round + 1), "it is about round 1, not 0"),
    "clicks": (lambda reply: replace(reply, clicks=10**9), "1000000000 clicks, where 0 to 100 are told"),
    "gradient": (lambda reply: changed_sums(reply, gradient=reply.sums.gradient + np.inf), "gradient: not finite"),
    "examined": (lambda reply: changed_sums(reply, examined=reply.sums.impressions + 1), "examined: expected between"),
    "impressions": (lambda reply: changed_sums(reply, impressions=reply.sums.impressions + 1e9), "impressions: exp"),
    "pairs": (lambda reply: changed_sums(reply, pairs=reply.sums.pairs + 1 - 2), "pairs: expected clicks between"),
    "unasked": (lambda reply: replace(reply, judged=np.zeros(3)), "a judgement that was not asked for"),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the faults themselves
@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_reply_is_refused_and_named_and_harms_nobody(data, logs, tmp_path, fault):
    change, words = FAULTS[fault]
    settings, told = settings_of(data, rounds=1), []
    found = federate(Faulty(logs, change), settings, tmp_path / "faulty", tell=told.append)
    others = {client: path for client, path in logs.items() if client != 1}
    without = federate(LocalDevices(others), settings, tmp_path / "without")
    assert found.weights.tobytes() == without.weights.tobytes()
    assert any(re.search(words, line) for line in told), told
    report = json.loads((tmp_path / "faulty" / "progress.jsonl").read_text())
    assert report["accepted"] == [0, 2, 3, 4]
    assert (report["silent"] == [1]) == (fault == "silent")


def test_too_few_replies_are_asked_again_and_then_given_up(data, logs, tmp_path):
    class Flaky(LocalDevices):
        calls = 0

        def ask(self, task, clients, timeout):
            type(self).calls += 1
            return {} if type(self).calls <= 2 else super().ask(task, clients, timeout)

    settings = settings_of(data, rounds=1)
    told = []
    found = federate(Flaky(logs), settings, tmp_path / "flaky", tell=told.append)
    assert found.weights.tobytes() == federate(LocalDevices(logs), settings, tmp_path / "well").weights.tobytes()
    assert "0 of 5 devices replied well and 2 are needed; attempt 2 of 3" in told[1]
    Flaky.calls = -(10**9)
    with pytest.raises(FultrError, match="fewer than 2 devices replied well in 3 attempts; the rounds before are kept"):
        federate(Flaky(logs), settings, tmp_path / "never")


def test_cohorts_are_drawn_by_seed(data, logs, tmp_path):
    settings = settings_of(data, cohort=3, least_devices=3)
    federate(LocalDevices(logs), settings, tmp_path)
    accepted = [json.loads(line)["accepted"] for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert all(len(cohort) == 3 for cohort in accepted)
    assert len({tuple(cohort) for cohort in accepted}) > 1


def test_waiting_for_devices_ends(data, logs, tmp_path):
    with pytest.raises(FultrError, match="5 of 6 devices are connected after 1 s; start more, or lower least_devices"):
        federate(LocalDevices(logs), settings_of(data, least_devices=6, patience=1), tmp_path)


def test_devices_with_few_clicks_send_nothing(data, logs, tmp_path):
    settings = settings_of(data, least_clicks=10**6)
    task = task_of(settings, 0, ServerSide.initial(settings.algorithm(), np.zeros(64, np.float32), 5))
    for reply in LocalDevices(logs).ask(task, list(logs), 60).values():
        assert reply.update is None
        assert reply.sums is None
    told = task_of(replace(settings, most_counted=0), 0, ServerSide.initial(settings.algorithm(), task.weights, 5))
    assert LocalDevices(logs).ask(told, [0], 60)[0].clicks is None


def test_held_out_clicks_judge_the_ranker(data, logs, tmp_path):
    """An untrained ranker keeps the displayed order; the gain lies between 0 and 1, with an error over devices."""
    settings = settings_of(data, held_out=0.3, period=0.0, rounds=20, propensity="none")
    trained = federate(LocalDevices(logs), settings, tmp_path)
    first = json.loads((tmp_path / "progress.jsonl").read_text().splitlines()[0])["judged"]
    assert first["ranked"] == first["displayed"]
    assert first["devices"] == 5
    assert 0 < first["ranked_error"] < 0.2
    assert 0 < trained.judged.ranked <= 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "features: expected the number of a document's features, found nothing"),
        ({"features": 5, "rouns": 3}, "rouns: there is no such setting; did you mean rounds?"),
        ({"features": 5, "rounds": "3"}, "rounds: expected a whole number, found '3'"),
        ({"features": 5, "propensity": "guess"}, "propensity: expected one of none, personal"),
        ({"features": 5, "displayed": 2, "propensity": "1,0"}, "found 0.0 at rank 2"),
        ({"features": 5, "cohort": 1}, "cohort: expected at least least_replies = 2, found 1"),
        ({"features": 5, "held-out": 1.0}, "held_out: expected a number"),
    ],
)
def test_bad_settings_are_named(given, message):
    with pytest.raises(FultrError) as caught:
        FederationSettings.of(given)
    assert message in str(caught.value)


def test_limits_are_at_their_word(data, logs):
    settings = settings_of(data, propensity="none")
    task = task_of(settings, 0, ServerSide.initial(settings.algorithm(), np.zeros(64, np.float32), 5))
    reply = LocalDevices(logs).ask(task, [0], 60)[0]
    norm = float(np.linalg.norm(reply.update.astype(np.float64)))
    assert objection(task, reply, Limits(norm=norm * 1.01)) is None
    assert "norm" in objection(task, reply, Limits(norm=norm * 0.99))
