"""A device's answers under differential privacy: one vector, few of them, and zeros where there is nothing to say."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from help.device_logs import opened
from help.tasks import SMALL, a_task, at, use

from fultr.device.answer import REFUSAL, answer
from fultr.device.ledger import read_history
from fultr.device.sqlite import connect
from fultr.federated.messages import Reply, Task, objection
from fultr.federated.privacy import PRIVACY
from fultr.federated.wire import read_reply, read_task, reply_bytes, task_bytes

SETTINGS = {
    "privacy": "correlated",
    "noise_multiplier": 2.0,
    "population": 10_000,
    "cohort": 500,
    "aggregation": "mean",
    "honest": 400,
}


def private_task(t: int = 0, training: int = 7, **settings) -> Task:
    settings = {"secure_sums": settings.get("privacy") == "distributed", **SETTINGS, **settings}
    return replace(a_task(t, **settings), training=training)


def summed(connection) -> str:
    """The answer will leave in a secure sum."""
    return ""


def entries(path) -> list:
    with closing(connect(path, write=False)) as connection:
        return list(read_history(connection, at(0)).entries)


@pytest.fixture
def used(path):
    with opened(path) as log:
        use(log, impressions=40, clicks=20)
    return path


@pytest.mark.parametrize("mode", PRIVACY)
def test_one_vector_leaves_and_the_server_accepts_it(used, mode):
    task = read_task(task_bytes(private_task(privacy=mode, propensity="shrunk", judge=True)))
    reply = answer(used, task, replace(SMALL, held_out=0.3), admit=summed)
    assert isinstance(reply, Reply)
    assert reply.sums.keys() == {"vector", "trained"}
    assert reply.sums["trained"].tolist() == [1]
    arrived = read_reply(task, reply_bytes(reply))
    assert isinstance(arrived, Reply)
    assert objection(task, arrived) is None
    assert (arrived.sums["vector"] == reply.sums["vector"]).all()


def test_a_device_with_too_little_sends_zeros_and_it_counts(path):
    with opened(path) as log:
        use(log, impressions=3, clicks=1)
    reply = answer(path, private_task(), SMALL)
    assert isinstance(reply, Reply)
    assert not reply.sums["vector"].any()
    assert reply.sums["trained"].tolist() == [1]
    (entry,) = entries(path)
    assert entry.outcome == "answered"
    assert entry.reason.startswith("zeros: waiting for more")
    assert answer(path, private_task(1), SMALL) == REFUSAL


def test_zeros_have_their_noise_where_devices_add_it(path):
    with opened(path):
        pass
    first, second = (
        answer(path, private_task(privacy="distributed", training=training), SMALL, admit=summed).sums["vector"]
        for training in (1, 2)
    )
    assert np.abs(first).min() < np.abs(first).max() > 100
    assert (first != second).any()


def test_a_share_of_the_noise_does_not_leave_in_the_clear(used):
    assert answer(used, private_task(privacy="distributed"), SMALL) == REFUSAL
    assert entries(used)[-1].reason == "privacy: a vector with a share of the noise is not sent in the clear"


def test_a_device_takes_part_no_more_often_than_the_budget_counts(used):
    for t, answered in ((0, True), (4, False), (5, True), (6, False), (10, True), (15, False)):
        task = private_task(t, participations=3, rounds_apart=5)
        assert isinstance(answer(used, task, SMALL), Reply) == answered, t
    reasons = [entry.reason for entry in entries(used) if entry.outcome == "refused"]
    assert reasons == [
        "4 rounds from another answer to this run, and the limit is 5",
        "1 rounds from another answer to this run, and the limit is 5",
        "3 answers to this run, and the limit is 3",
    ]
    assert isinstance(answer(used, private_task(0, training=8), SMALL), Reply)


def test_a_training_that_is_resumed_as_another_run_is_the_same(used):
    assert isinstance(answer(used, private_task(0), SMALL, run=1), Reply)
    assert answer(used, private_task(3), SMALL, run=2) == REFUSAL


def test_the_same_round_is_not_answered_twice(used):
    task = private_task(0, participations=3)
    assert isinstance(answer(used, task, SMALL), Reply)
    assert answer(used, task, SMALL) == REFUSAL


def test_a_policy_may_be_stricter_than_the_task_and_never_laxer(used):
    strict = replace(SMALL, participations=1, rounds_apart=9)
    assert isinstance(answer(used, private_task(0, participations=5), strict), Reply)
    assert answer(used, private_task(20, participations=5), strict) == REFUSAL
    lax = replace(SMALL, participations=100, rounds_apart=0)
    assert answer(used, private_task(21), lax) == REFUSAL


def test_a_policy_without_privacy_limits_a_run_too(used):
    strict = replace(SMALL, participations=2, rounds_apart=2)
    found = [isinstance(answer(used, a_task(t), strict, run=3), Reply) for t in (0, 1, 2, 4)]
    assert found == [True, False, True, False]
    assert isinstance(answer(used, a_task(0), strict, run=4), Reply)


def test_a_policy_may_insist_on_noise(used):
    noisy = replace(SMALL, least_noise=3.0)
    assert answer(used, a_task(), noisy) == REFUSAL
    assert answer(used, private_task(), noisy) == REFUSAL
    assert entries(used)[-1].reason == "privacy: devices add noise of multiplier 0, and 3 is the least"
    assert answer(used, private_task(noise_multiplier=3.0), noisy) == REFUSAL  # the server may add it, or not
    for multiplier, answers in ((2.0, False), (3.0, True)):
        task = private_task(privacy="distributed", secure_sums=True, noise_multiplier=multiplier)
        assert isinstance(answer(used, task, noisy, admit=lambda connection: "in a sum"), Reply) == answers


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda task: replace(task, train=False, judge=True), "a judgement without an update is not accounted for"),
        (lambda task: replace(task, judge=True, rival=task.sent.weights), "is not accounted for"),
        (
            lambda task: replace(task, sent=replace(task.sent, stage={"bound": np.array([np.nan])})),
            "stage bound: not finite",
        ),
        (lambda task: replace(task, sent=replace(task.sent, stage={"bound": np.array([-1.0])})), "bound: expected"),
        (lambda task: replace(task, sent=replace(task.sent, stage={})), "instead of stage bound"),
    ],
)
def test_tasks_that_no_budget_covers_are_refused(used, change, reason):
    assert answer(used, change(private_task()), SMALL) == REFUSAL
    assert reason in entries(used)[-1].reason


def test_a_vector_that_is_too_long_or_not_whole_is_refused():
    task = private_task()
    size = task.arrays()["vector"][0][0]
    for value, words in ((2.0**24, "its norm is"), (0.5, "expected whole numbers"), (np.inf, "not finite")):
        sums = {"vector": np.full(size, value), "trained": np.ones(1)}
        assert words in str(objection(task, Reply(0, sums)))
