"""`UnbiasedRanker(federated=True)` ends with the weights that the users' device logs give through a federation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fultr
from fultr.device.conversion import fill_from_click_log
from fultr.device.local import LocalDevices, replayed
from fultr.federated.federate import federate
from fultr.federated.federation import FederationSettings, Replay
from fultr.federated.recommended import recommended
from fultr.learn.as_federation import federated_weights
from fultr.rankers.plain import scaled_within

ROUNDS, USERS, PAGES, RANKS = 4, 5, 200, 4
PERIOD = 1e12


class Everything(LocalDevices):
    """Devices that answer from all of their logs in every round, and hold nothing out."""

    def ask(self, task, clients, timeout):
        always = Replay(-task.round * PERIOD, PERIOD)
        return {u: replayed(self.logs[u], task, always, 0.0, self.random.client(task.round, u)) for u in clients}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.random((PAGES * RANKS, 3)).astype(np.float32) * [1, 100, 0.01]
    rank = np.tile(np.arange(1, RANKS + 1), PAGES)
    clicks = (rng.random(x.shape[0]) < x[:, 0] / rank).astype(int)
    page = np.repeat(np.arange(PAGES), RANKS)
    return x, clicks, {"query": page % 40, "rank": rank, "session": page, "user": page % USERS}


@pytest.mark.parametrize("model", ["linear", "mlp", "random-trees"])
def test_the_weights_are_those_of_device_logs(table, tmp_path, model):
    x, clicks, given = table
    log = fultr.pages_of(scaled_within(x, given["session"]), clicks, **given).log
    algorithm = replace(recommended(ROUNDS, model=model), initial="zero")
    own, _ = federated_weights(log, algorithm, ROUNDS)
    paths = fill_from_click_log(log, tmp_path / "devices")
    settings = FederationSettings(
        features=3,
        displayed=RANKS,
        rounds=ROUNDS,
        propensity=algorithm.propensity,
        training=algorithm.training,
        server=algorithm.server,
        aggregation=algorithm.aggregation,
        model=algorithm.model,
        judge=False,
    )
    devices = federate(Everything(dict(enumerate(paths))), settings, tmp_path / "server")
    assert np.abs(own).max() > 1e-3
    assert_array_equal(own, devices.weights)


def test_it_is_judged_by_what_devices_would_show(table):
    """Features are scaled page by page, as in training, though pages of one query have others."""
    x, clicks, given = table
    ranker = fultr.UnbiasedRanker("linear", federated=True, propensity=[1, 0.5, 0.33, 0.25]).fit(x, clicks, **given)
    by_page = ranker.predict(x, query=given["session"]).reshape(PAGES, RANKS)
    assert np.any(np.argsort(-by_page) != np.argsort(-ranker.predict(x, query=given["query"]).reshape(PAGES, RANKS)))
    place = np.argsort(np.argsort(-by_page, axis=1), axis=1)
    worth = clicks.reshape(PAGES, RANKS) * np.arange(1, RANKS + 1)
    expected = (worth / np.log2(2 + place)).sum() / worth.sum()
    assert ranker.score(x, clicks, **given, propensity=1 / np.arange(1.0, RANKS + 1)) == pytest.approx(expected)


def test_the_estimator_trains_as_a_federation(table):
    x, clicks, given = table
    ranker = fultr.UnbiasedRanker("linear", federated=True).fit(x, clicks, **given)
    assert ranker.ranker_.normalised
    assert "5 clients of a federation" in str(ranker.report_)
    weights = ranker.ranker_.weights
    assert weights[0] > abs(weights[1:]).max()
    alone = {name: values for name, values in given.items() if name != "user"}
    assert "1 clients" in str(fultr.UnbiasedRanker("linear", federated=True).fit(x, clicks, **alone).report_)
