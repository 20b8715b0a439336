"""Federations of devices in one process: the same weights as the simulation, faults, interruptions, messages."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fultr
from fultr.core.errors import FultrError
from fultr.device.local import LocalDevices
from fultr.device.policy import DevicePolicy
from fultr.federated.budget import model_of
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.federate import federate, task_of
from fultr.federated.federation import FederationSettings, Replay
from fultr.federated.fedips import Server
from fultr.federated.judging import combined
from fultr.federated.messages import Limits, Reply, Task, objection, rows_of
from fultr.study.fill_devices import PERIOD, fill_devices
from fultr.study.settings import FiniteUsers

DEVICES, ROUNDS = 5, 3
REPLAY = Replay(0.0, PERIOD)
# "harvested" needs a second version of the logging policy, which these logs do not have
SOURCES = ["none", "1,0.5,0.33,0.25,0.2", *(kind for kind in ESTIMATORS if kind != "harvested")]


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
    chosen = {"client_rate": 0.05, "rounds": ROUNDS, "judge": False, "displayed": 5, **others}
    return FederationSettings.of({"features": data.train.width, **chosen})


def first_task(settings: FederationSettings) -> Task:
    model = model_of(settings)
    return task_of(settings, 0, Server.initial(settings.algorithm(), model, model.initial(), settings.displayed))


@pytest.mark.parametrize("propensity", SOURCES)
def test_devices_end_with_the_weights_of_the_simulation(data, logs, tmp_path, propensity):
    settings = settings_of(data, propensity=propensity)
    trained = federate(LocalDevices(logs, replay=REPLAY), settings, tmp_path)
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
    settings = settings_of(data, judge=True)
    task = first_task(settings)
    replies = LocalDevices(logs, replay=REPLAY).ask(task, list(logs), 60)
    turned = dict(reversed(replies.items()))
    one, other = rows_of(task, replies), rows_of(task, turned)
    assert one.keys() == other.keys() > {"update", "gradient"}
    for name, rows in one.items():
        assert rows.tobytes() == other[name].tobytes()


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
    whole = federate(LocalDevices(logs, replay=REPLAY), settings, tmp_path / "whole")
    Stops.left = after
    with pytest.raises(KeyboardInterrupt):
        federate(Stops(logs, replay=REPLAY), settings, tmp_path / "stopped")
    with (tmp_path / "stopped" / "progress.jsonl").open("a") as file:
        file.write('{"round": 7, "of')  # the last line was being written
    told = []
    again = federate(LocalDevices(logs, replay=REPLAY), settings, tmp_path / "stopped", tell=told.append)
    assert again.weights.tobytes() == whole.weights.tobytes()
    lines = (tmp_path / "stopped" / "progress.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3]
    assert (str(told[0]) == f"resuming after round {after} of 3") == (after > 0)


def test_a_longer_federation_goes_on_and_another_is_refused(data, logs, tmp_path):
    federate(LocalDevices(logs, replay=REPLAY), settings_of(data, rounds=1), tmp_path / "short")
    longer = federate(LocalDevices(logs, replay=REPLAY), settings_of(data), tmp_path / "short")
    whole = federate(LocalDevices(logs, replay=REPLAY), settings_of(data), tmp_path / "whole")
    assert longer.weights.tobytes() == whole.weights.tobytes()
    with pytest.raises(FultrError, match=r"other settings \(they differ in client_rate\)"):
        federate(LocalDevices(logs, replay=REPLAY), settings_of(data, client_rate=0.1), tmp_path / "short")


class Faulty(LocalDevices):
    """Device 1 replies as told."""

    def __init__(self, logs, change, replay=REPLAY):
        super().__init__(logs, replay=replay)
        object.__setattr__(self, "change", change)

    def ask(self, task, clients, timeout):
        replies = super().ask(task, clients, timeout)
        if 1 in replies:
            changed = self.change(replies.pop(1))
            if changed is not None:
                replies[1] = changed
        return replies


def changed(**values):
    """The same reply with other arrays, each made from the old one (or from the impressions, for `examined`)."""
    return lambda reply: replace(reply, sums={**reply.sums, **{n: make(reply.sums) for n, make in values.items()}})


FAULTS = {
    "silent": (lambda reply: None, "no answer from device 1"),
    "words": (lambda reply: "its reply cannot be read", "device 1 refused: its reply cannot be read"),
    "NaN": (changed(update=lambda s: s["update"] * np.float32(np.nan)), "update: not finite"),
    "infinite": (changed(update=lambda s: s["update"] / np.float32(0)), "update: not finite"),
    "shape": (changed(update=lambda s: s["update"][1:]), r"update: expected float32 \(64,\), found"),
    "type": (changed(update=lambda s: s["update"].astype(np.float64)), "update: expected float32"),
    "norm": (changed(update=lambda s: s["update"] * np.float32(1e6)), "update: its norm is .*, and 100"),
    "round": (lambda reply: replace(reply, round=reply.round + 1), "it is about round 1, not 0"),
    "trained": (changed(trained=lambda s: np.array([2.0])), "trained: expected 0 to 1, found 2"),
    "gradient": (changed(gradient=lambda s: s["gradient"] + np.inf), "gradient: not finite"),
    "examined": (changed(examined=lambda s: s["impressions"] + 1), "examined: expected between"),
    "impressions": (changed(impressions=lambda s: s["impressions"] + 1e9), "impressions: exp"),
    "missing": (
        lambda reply: replace(reply, sums={n: a for n, a in reply.sums.items() if n != "examined"}),
        "examined: missing",
    ),
    "another estimator's": (changed(pairs=lambda s: np.zeros((2, 5, 5))), "pairs: not asked for"),
    "marginals": (changed(marginals=lambda s: s["marginals"] + 1e300), "marginals: expected numbers from -700 to 700"),
    "overflow": (changed(gradient=lambda s: np.full(65, 1.7e308)), "gradient: its norm is inf, and 1e"),
    "no array": (changed(update=lambda s: s["update"].tolist()), "update: expected an array"),
    "fields": (changed(update=lambda s: np.zeros(64, [("a" * 999, "f4")])), r"update: expected .{,99} \(64,\)$"),
    "no names": (lambda reply: replace(reply, sums={1: reply.sums["update"]}), "it holds no named arrays"),
    "no sums": (lambda reply: replace(reply, sums=None), "it holds no named arrays"),
    "half a round": (lambda reply: replace(reply, round=0.0), "it is not about round 0"),
    "escape": (
        lambda reply: replace(reply, sums={**reply.sums, "\x1b[2J\nround 9\ud800[/x]": np.zeros(1)}),
        r"device 1 refused: \?\[2J round 9\?\[/x\]: not asked for",
    ),
    "unasked": (changed(judged=lambda s: np.zeros(3)), "judged: not asked for"),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the faults themselves
@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_reply_is_refused_and_named_and_harms_nobody(data, logs, tmp_path, fault):
    change, words = FAULTS[fault]
    settings, told = settings_of(data, rounds=1), []
    found = federate(Faulty(logs, change), settings, tmp_path / "faulty", tell=told.append)
    others = {client: path for client, path in logs.items() if client != 1}
    without = federate(LocalDevices(others, replay=REPLAY), settings, tmp_path / "without")
    assert found.weights.tobytes() == without.weights.tobytes()
    assert any(re.search(words, event.words) and event.device == 1 for event in told), told
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
    found = federate(Flaky(logs, replay=REPLAY), settings, tmp_path / "flaky", tell=told.append)
    assert (
        found.weights.tobytes()
        == federate(LocalDevices(logs, replay=REPLAY), settings, tmp_path / "well").weights.tobytes()
    )
    attempts = [event for event in told if event.what == "attempt"]
    assert "0 of 5 devices sent a usable reply, and 2 are needed; attempt 2 of 3" in attempts[1].words
    failed = [json.loads(line) for line in (tmp_path / "flaky" / "attempts.jsonl").read_text().splitlines()]
    assert [(one["round"], one["attempt"]) for one in failed] == [(1, 1), (1, 2)]
    assert [one["silent"] for one in failed] == 2 * [[0, 1, 2, 3, 4]]
    assert [event.device for event in told if event.what == "silent"] == 2 * [0, 1, 2, 3, 4]
    Flaky.calls = -(10**9)
    with pytest.raises(FultrError, match="fewer than 2 devices sent a usable reply in 3 attempts; earlier rounds"):
        federate(Flaky(logs, replay=REPLAY), settings, tmp_path / "never")


def test_cohorts_are_drawn_by_seed(data, logs, tmp_path):
    settings = settings_of(data, cohort=3, least_devices=3)
    federate(LocalDevices(logs, replay=REPLAY), settings, tmp_path)
    accepted = [json.loads(line)["accepted"] for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert all(len(cohort) == 3 for cohort in accepted)
    assert len({tuple(cohort) for cohort in accepted}) > 1


def test_waiting_for_devices_ends(data, logs, tmp_path):
    with pytest.raises(FultrError, match="5 of 6 devices are connected after 1 s; start more, or lower least_devices"):
        federate(LocalDevices(logs, replay=REPLAY), settings_of(data, least_devices=6, patience=1), tmp_path)


def test_held_out_clicks_judge_the_ranker(data, logs, tmp_path):
    """An untrained ranker keeps the displayed order; the gain lies between 0 and 1, with an error over devices."""
    settings = settings_of(data, judge=True, rounds=20, propensity="none")
    policy = DevicePolicy(least_clicks=1, least_impressions=1, held_out=0.3, seconds_apart=0)
    trained = federate(LocalDevices(logs, policy), settings, tmp_path)
    first = json.loads((tmp_path / "progress.jsonl").read_text().splitlines()[0])["judged"]
    assert first["ranked"] == first["displayed"]
    assert first["devices"] == 5
    assert 0 < first["ranked_error"] < 0.2
    assert 0 < trained.judged.ranked <= 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "features: expected a whole number, at least 1, found nothing"),
        ({"features": 5, "rouns": 3}, "unknown setting 'rouns'; did you mean rounds?"),
        (
            {"features": 5, "rounds": "3"},
            'rounds: expected a whole number, at least 1, found the text "3"',
        ),
        (
            {"features": 5, "propensity": "guess"},
            f"propensity: expected one of none, {', '.join(ESTIMATORS)}, or one number per rank",
        ),
        ({"features": 5, "displayed": 2, "propensity": "1,0"}, "found 0.0 at rank 2"),
        ({"features": 5, "cohort": 1}, "cohort: expected at least least_replies = 2, found 1"),
        ({"features": 5, "norm-limit": 0}, "norm_limit: expected a number"),
        ({"features": 2, "feature_names": "a"}, "feature_names: expected 2 different names, found 1 texts"),
        (
            {"features": 2, "feature_names": ["a", "b,c"]},
            'feature_names: expected texts without a comma, found the text "b,c"',
        ),
        ({"features": 5, "propensity": "known"}, 'or one number per rank; found "known"'),
        ({"features": 5, "remember": True}, "unknown setting 'remember'"),
        ({"features": 5, "norm-limit": 1, "norm_limit": 1}, "norm_limit: expected once"),
        ({"features": True}, "features: expected a whole number, at least 1, found true"),
    ],
)
def test_bad_settings_are_named(given, message):
    with pytest.raises(FultrError) as caught:
        FederationSettings.of(given)
    assert message in str(caught.value)


def test_limits_are_at_their_word(data, logs):
    settings = settings_of(data, propensity="none")
    task = first_task(settings)
    reply = LocalDevices(logs, replay=REPLAY).ask(task, [0], 60)[0]
    norm = float(np.linalg.norm(reply.sums["update"].astype(np.float64)))
    assert objection(task, reply, Limits(norm=norm * 1.01)) is None
    assert "norm" in objection(task, reply, Limits(norm=norm * 0.99))


HONEST = [np.array([10.0, 5.0, 4.0]), np.array([12.0, 6.0, 5.0]), np.array([8.0, 5.0, 3.0]), np.array([6.0, 4.0, 2.0])]
LIES = [[1e9, 1e9, 0.0], [1e9, 0.0, 1e9], [10.0, 1e9, -5.0], [1e-9, 1e-9, 0.0], [0.0, 9.0, 9.0]]


@pytest.mark.parametrize("lie", LIES)
def test_one_liar_of_five_moves_the_judgement_by_what_a_device_weighs(lie):
    """A device weighs at most twice the median of five, which is at most 10 here: 20 of 36 + 20, wherever it pulls."""
    honest, found = combined(HONEST), combined([*HONEST[:2], np.array(lie), *HONEST[2:]])
    assert (honest.ranked, honest.displayed) == (20 / 36, 14 / 36)
    for before, after in ((honest.ranked, found.ranked), (honest.displayed, found.displayed)):
        assert 0 <= after <= 1
        assert abs(after - before) <= 20 / (36 + 20) * max(before, 1 - before) + 1e-12


def test_a_judgement_is_the_ratio_of_the_sums_where_no_device_is_heavy():
    found = combined(HONEST)
    left = np.array([row[1] - 20 / 36 * row[0] for row in HONEST])
    assert found.devices == 4
    np.testing.assert_allclose(found.ranked_error, np.sqrt((left**2).sum() * 4 / 3) / 36)


@pytest.mark.parametrize("attack", ["update", "examination"])
def test_the_default_aggregation_holds_against_one_of_five(data, logs, tmp_path, attack):
    """Beside what the federation learns with an honest device 1: closer to it than with the mean."""

    def lie(reply):
        update = reply.sums["update"].astype(np.float64)
        flipped = (-99 * update / np.linalg.norm(update)).astype(np.float32)
        shown = np.full(5, 1e5)
        lies = {"update": flipped} if attack == "update" else {"impressions": shown, "examined": 0 * shown}
        return replace(reply, sums={**reply.sums, **lies})

    moved = {}
    for aggregation in ("mean", "clipped"):
        settings = settings_of(data, aggregation=aggregation)
        folder = tmp_path / aggregation
        honest = federate(LocalDevices(logs, replay=REPLAY), settings, folder / "honest").weights
        attacked = federate(Faulty(logs, lie), settings, folder / "attacked").weights
        moved[aggregation] = np.linalg.norm(attacked - honest) / np.linalg.norm(honest)
    assert moved["clipped"] < moved["mean"] / (10 if attack == "update" else 1.5)


@pytest.mark.slow
def test_a_pilot_loses_little_to_one_liar_of_five(data, tmp_path):
    """Learning rates and clip as federation.toml has them, logs as `fultr device simulate` fills them."""
    paths = [tmp_path / f"device-{u}.db" for u in range(DEVICES)]
    fill_devices(paths, data, periods=60)
    logs = dict(enumerate(paths))
    pilot = {"clip": 2.0, "client_rate": 0.001, "server_rate": 3.0, "rounds": 10, "displayed": 5, "judge": False}
    settings = FederationSettings.of({"features": data.train.width, **pilot})

    def quality(devices, folder):
        weights = federate(devices, settings, tmp_path / folder).weights
        return np.nanmean(fultr.ndcg(data.test.features @ weights, data.test, k=5))

    def lie(reply):
        update = reply.sums["update"].astype(np.float64)
        flipped = (-99.9 * update / np.linalg.norm(update)).astype(np.float32)
        return replace(reply, sums={**reply.sums, "update": flipped})

    honest, attacked = quality(LocalDevices(logs), "honest"), quality(Faulty(logs, lie, None), "attacked")
    assert honest > 0.45
    assert attacked > honest - 0.02


def test_one_device_cannot_outweigh_the_judgement_of_all(data):
    """Held-out clicks weigh at most 1 / floor each: 100,000 impressions of 5 documents, 100 each."""
    task = replace(first_task(settings_of(data, judge=True)), train=False)
    assert objection(task, Reply(0, {"judged": np.array([5e7, 1.0, 1.0])})) is None
    for weight in (5.1e7, 1.7e308):
        found = objection(task, Reply(0, {"judged": np.array([weight, 1.0, 1.0])}))
        assert found == f"judged: clicks of weight {weight:.3g} in all, and 5e+07 is the limit"
    given = replace(first_task(settings_of(data, judge=True, propensity=[1, 0.5, 0.5, 0.25, 0.5])), train=False)
    assert objection(given, Reply(0, {"judged": np.array([2e6, 1.0, 1.0])})) is None
    assert "2e+06 is the limit" in objection(given, Reply(0, {"judged": np.array([2.1e6, 1.0, 1.0])}))


def test_harvested_pairs_are_checked(data):
    """Clicks of a pair of ranks between 0 and its impressions."""
    task = first_task(settings_of(data, propensity="harvested"))
    pairs = np.stack([np.full((5, 5), 2.0), np.full((5, 5), 3.0)])
    rest = {"update": np.zeros(64, np.float32), "trained": np.ones(1)}
    assert objection(task, Reply(0, {**rest, "pairs": pairs})) is None
    for bad in (pairs[::-1], -pairs, pairs * 1e9, pairs * 0 + 1.7e308):
        assert "pairs: expected clicks between" in objection(task, Reply(0, {**rest, "pairs": bad.copy()}))
