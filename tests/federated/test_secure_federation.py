"""Federations with secure sums: the same bits as without masks, also if devices drop out."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from help.device_logs import opened
from help.tasks import DISPLAYED, FEATURES, SMALL, use

from fultr import FultrError
from fultr.device.answer import answer
from fultr.device.local import LocalDevices
from fultr.federated import federate as rounds
from fultr.federated.federate import compare, federate
from fultr.federated.federation import FederationSettings
from fultr.federated.messages import Reply
from fultr.federated.privacy.enrolment import read_enrolment
from fultr.federated.privacy.fixed_point import added
from fultr.federated.privacy.masks import SEALED_BYTES
from fultr.federated.privacy.shares import SHARE_BYTES
from fultr.federated.sum_wire import INVITATION, masked_bytes, read_invitation, read_masked
from fultr.federated.summing import Summed, layout_of
from fultr.federated.wire import read_task

DEVICES = 7
HELD_OUT = replace(SMALL, held_out=0.3, least_clicks=2, least_impressions=3)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    for i in range(DEVICES):
        with opened(folder / f"{i}.db") as log:
            use(log, impressions=90, clicks=70 + i, seed=i)  # some 20 are held out, at random
    return folder


@pytest.fixture
def logs(filled, tmp_path):
    shutil.copytree(filled, tmp_path / "logs")
    return {i: tmp_path / "logs" / f"{i}.db" for i in range(DEVICES)}


def settings_of(**others) -> FederationSettings:
    usual = {"features": FEATURES, "displayed": DISPLAYED, "rounds": 3, "client_rate": 0.1, "aggregation": "mean"}
    return FederationSettings.of({"propensity": "shrunk", "secure_sums": True, **usual, **others})


class Dropping(LocalDevices):
    """Devices whose replies get lost: by question, from 0, whose."""

    def __init__(self, logs, lost=(), **options):
        super().__init__(logs, policy=HELD_OUT, **options)
        object.__setattr__(self, "lost", dict(lost))
        object.__setattr__(self, "asked", [])

    def post(self, contents, t, timeout):
        replies = super().post(contents, t, timeout)
        gone = self.lost.get(len(self.asked), ())
        self.asked.append(t)
        return {client: reply for client, reply in replies.items() if client not in gone}


def unmasked(lost):
    """The same sum without masks: what devices answer in the clear, as whole numbers."""

    def ask_sum(devices, task, cohort, timeout, run, attempt):
        there = [client for client in cohort if client not in lost.get(2 * task.round, ())]
        replies = [answer(devices.logs[client], task, devices.policy) for client in there]
        assert all(isinstance(reply, Reply) for reply in replies)
        layout = layout_of(task)
        total = layout.decoded(added(layout.encoded(reply.sums) for reply in reversed(replies)), len(there))
        return Summed(total, there, {}, sorted(set(cohort) - set(there)), {})

    return ask_sum


@pytest.mark.parametrize("lost", [{}, {0: (3,), 2: (0, 6), 5: (1, 2)}, {6: (5,)}])
def test_secure_sums_give_the_bits_of_plain_ones(logs, filled, tmp_path, monkeypatch, lost):
    """Devices 3, 0 and 6 are lost at the first message of a round, 1 and 2 at the second, 5 when all is judged."""
    secure = federate(Dropping(logs, lost), settings_of(), tmp_path / "secure")
    shutil.copytree(filled, tmp_path / "again")
    monkeypatch.setattr(rounds, "ask_sum", unmasked(lost))
    paths = {i: tmp_path / "again" / f"{i}.db" for i in logs}
    plain = federate(LocalDevices(paths, policy=HELD_OUT), settings_of(), tmp_path / "plain")
    assert np.linalg.norm(secure.weights) > 0.1
    assert secure.weights.tobytes() == plain.weights.tobytes()
    assert secure.judged == plain.judged
    with (
        np.load(tmp_path / "secure" / "checkpoint.npz") as one,
        np.load(tmp_path / "plain" / "checkpoint.npz") as other,
    ):
        assert set(one) == set(other)
        same = set(one) - {"training"}  # the number that devices know a training by is drawn anew
        assert all(one[name].tobytes() == other[name].tobytes() for name in same)


def test_fixed_point_costs_next_to_nothing(logs, filled, tmp_path):
    secure = federate(Dropping(logs), settings_of(), tmp_path / "secure")
    shutil.copytree(filled, tmp_path / "again")
    paths = {i: tmp_path / "again" / f"{i}.db" for i in logs}
    plain = federate(LocalDevices(paths, policy=HELD_OUT), settings_of(secure_sums=False), tmp_path / "plain")
    assert np.abs(secure.weights - plain.weights).max() < 1e-4 * np.abs(plain.weights).max()


def test_trees_grow_from_secure_sums(logs, filled, tmp_path):
    grown = {"judge": False, "model": "random-trees", "linear_rounds": 1, "tree_rounds": 2, "depth": 2, "trees": 4}
    secure = federate(Dropping(logs), settings_of(**grown), tmp_path / "secure")
    shutil.copytree(filled, tmp_path / "again")
    paths = {i: tmp_path / "again" / f"{i}.db" for i in logs}
    plain = federate(LocalDevices(paths, policy=HELD_OUT), settings_of(secure_sums=False, **grown), tmp_path / "plain")
    values = slice(-8 * 4, None)
    assert np.abs(plain.weights[values]).max() > 0.01
    np.testing.assert_allclose(secure.weights[values], plain.weights[values], rtol=1e-3, atol=1e-3)


def test_a_survivor_that_is_lost_makes_a_new_attempt(logs, tmp_path):
    devices = Dropping(logs, {0: (3,), 1: (1,)})
    told = []
    federate(devices, settings_of(rounds=1, judge=False), tmp_path, tell=told.append)
    (failed,) = [json.loads(line) for line in (tmp_path / "attempts.jsonl").read_text().splitlines()]
    assert failed["why"].startswith("a device was lost that has a mask in common with one that dropped out (1 devices")
    assert (failed["attempt"], failed["silent"]) == (1, [3])
    assert str(told[0]).startswith("round 1: no secure sum: a device was lost")
    (report,) = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert (report["attempt"], report["accepted"]) == (2, list(range(DEVICES)))


class Lying(Dropping):
    """Device 4 lies in the first message of a sum, about all shares of its seed, or in the second."""

    message = 2

    def post(self, contents, t, timeout):
        replies, first = super().post(contents, t, timeout), next(iter(contents.values())).startswith(INVITATION)
        if 4 in replies and first == (self.message == 1):
            wide = SEALED_BYTES * (len(contents) - 1) if first else SHARE_BYTES * len(contents)
            replies[4] = replies[4][:-wide] + os.urandom(wide)
        return replies


def test_a_device_that_lies_in_its_second_message_is_named_and_not_needed(logs, filled, tmp_path):
    settings = settings_of(judge=False)
    lied = federate(Lying(logs), settings, tmp_path / "lied")
    shutil.copytree(filled, tmp_path / "again")
    honest = federate(Dropping({i: tmp_path / "again" / f"{i}.db" for i in logs}), settings, tmp_path / "honest")
    assert lied.weights.tobytes() == honest.weights.tobytes()
    assert not (tmp_path / "lied" / "attempts.jsonl").exists()
    for line in (tmp_path / "lied" / "progress.jsonl").read_text().splitlines():
        assert json.loads(line)["refused"] == {"4": "its shares in the secure sum do not fit with those of others"}


def test_a_device_that_deals_wrong_shares_is_named_and_left_out_of_the_next_attempt(logs, tmp_path):
    devices = Lying(logs)
    object.__setattr__(devices, "message", 1)
    federate(devices, settings_of(rounds=1, judge=False), tmp_path)
    (failed,) = [json.loads(line) for line in (tmp_path / "attempts.jsonl").read_text().splitlines()]
    assert failed["refused"] == {"4": "its shares in the secure sum do not fit with those of others"}
    (report,) = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert (report["attempt"], report["accepted"]) == (2, [0, 1, 2, 3, 5, 6])


def test_another_attempt_has_another_cohort(logs, tmp_path):
    """What is wrong with a masked vector shows only in the sum: whose it was, nobody can say."""
    asked = []

    class Watched(Dropping):
        def post(self, contents, t, timeout):
            asked.append(sorted(contents))
            return {}

    with pytest.raises(FultrError, match="no secure sum"):
        federate(Watched(logs), settings_of(cohort=4, judge=False), tmp_path)
    assert len(asked) == 3
    assert len({tuple(cohort) for cohort in asked}) > 1


def test_a_federation_without_enough_devices_is_given_up(logs, tmp_path):
    few = {i: logs[i] for i in (0, 1)}
    with pytest.raises(
        FultrError, match=r"round 1: no secure sum \(a secure sum of 2 devices, expected 3 to 10,000\) in 3"
    ):
        federate(Dropping(few), settings_of(), tmp_path)


def test_too_few_devices_are_asked_no_second_time(logs, tmp_path):
    devices = Dropping(logs, {0: (1, 2, 3)})
    federate(devices, settings_of(rounds=1, judge=False), tmp_path)
    assert len(devices.asked) == 3  # one question, then two
    failed = json.loads((tmp_path / "attempts.jsonl").read_text())
    assert failed["why"] == "4 of 7 devices are left, and 5 are needed"


def test_a_federation_that_was_stopped_resumes(logs, filled, tmp_path):
    """It is another run for the devices, which answer no invitation twice."""
    federate(Dropping(logs), settings_of(rounds=1, judge=False), tmp_path / "stopped")

    class Stops(Dropping):
        def post(self, contents, t, timeout):
            found = super().post(contents, t, timeout)
            if len(self.asked) == 2:  # the second question of round 2 has been answered
                raise KeyboardInterrupt
            return found

    with pytest.raises(KeyboardInterrupt):
        federate(Stops(logs), settings_of(judge=False), tmp_path / "stopped")
    again = federate(Dropping(logs), settings_of(judge=False), tmp_path / "stopped")
    shutil.copytree(filled, tmp_path / "again")
    paths = {i: tmp_path / "again" / f"{i}.db" for i in logs}
    whole = federate(Dropping(paths), settings_of(judge=False), tmp_path / "whole")
    assert again.weights.tobytes() == whole.weights.tobytes()


def test_the_server_keeps_nothing_of_single_devices(logs, tmp_path):
    """Neither their arrays nor their judgements are in its folder."""
    devices = Dropping(logs)
    trained = federate(devices, settings_of(rounds=2), tmp_path)
    assert trained.judged.devices == DEVICES
    assert trained.judged.ranked_error is None
    reports = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert all(report["judged"]["ranked_error"] is None for report in reports)
    assert all(0 < report["judged"]["ranked"] <= 1 for report in reports)


def test_two_rankers_are_not_compared(logs, tmp_path):
    told = []
    weights = np.ones(FEATURES, np.float32)
    devices = Dropping(logs)
    assert compare(devices, settings_of(), tmp_path, weights, -weights, tell=told.append) is None
    assert "not possible with secure_sums" in str(told[0])
    assert devices.asked == []


def test_what_does_not_go_with_secure_sums():
    for aggregation in ("trimmed", "grouped"):
        with pytest.raises(FultrError, match="expected mean or clipped with secure_sums, which show only a sum; found"):
            settings_of(aggregation=aggregation)


def test_the_default_aggregation_clips_the_mean_of_a_sum(logs, filled, tmp_path):
    """A liar sends an update of norm 55 in round 3: what the sum is then is not what training follows."""

    class Lying(Dropping):
        def post(self, contents, t, timeout):
            replies = super().post(contents, t, timeout)
            if len(self.asked) == 5:  # the first question of round 3
                session = self.session(contents)
                masked = read_masked(session, 0, layout_of(self.task).size, replies[0])
                vector = masked.vector.copy()
                vector[:FEATURES] += np.uint64(1 << 38)  # a number of 32, under the mask: nobody can tell
                replies[0] = masked_bytes(session, replace(masked, vector=vector))
            return replies

        def session(self, contents):
            invitation = read_invitation(contents[0])
            object.__setattr__(self, "task", read_task(invitation.task))
            return invitation.session(self.task, read_enrolment(invitation.enrolment))

    lengths = {}
    for name, aggregation in (("mean", {}), ("default", {"aggregation": "clipped"})):
        shutil.copytree(filled, tmp_path / f"logs-{name}")
        paths = {i: tmp_path / f"logs-{name}" / f"{i}.db" for i in logs}
        settings = settings_of(judge=False, propensity="none", **aggregation)
        federate(Lying(paths), settings, tmp_path / name)
        reports = [json.loads(line) for line in (tmp_path / name / "progress.jsonl").read_text().splitlines()]
        lengths[name] = [report["moved"] for report in reports]
    assert lengths["mean"][:2] == lengths["default"][:2]
    assert lengths["mean"][2] > 3 * max(lengths["mean"][:2])
    assert lengths["default"][2] < 3 * max(lengths["default"][:2])


def test_devices_that_are_not_enrolled_are_left_out(logs, tmp_path):
    class Strange(Dropping):
        def connected(self):
            return [*super().connected(), 99]

        def enrolment(self):
            return LocalDevices.enrolment(replace_connected(self))

    def replace_connected(devices):
        plain = LocalDevices(devices.logs, policy=HELD_OUT)
        plain.__dict__.update({name: getattr(devices, name) for name in ("_signing", "_identities")})
        return plain

    federate(Strange(logs), settings_of(rounds=1, judge=False), tmp_path)
    report = json.loads((tmp_path / "progress.jsonl").read_text())
    assert report["refused"] == {"99": "it is not enrolled for secure sums"}
    assert report["accepted"] == list(range(DEVICES))
