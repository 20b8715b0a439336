"""Every kind of credit through the same cases."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import fultr
from fultr.clicks.log import ClickLog, Display, Records
from fultr.federated.budget import model_of
from fultr.federated.credit import CREDITS
from fultr.federated.credit.clipping import clipped
from fultr.federated.federate import task_of
from fultr.federated.federation import FederationSettings
from fultr.federated.fedips import Server
from fultr.federated.messages import reply_to

SHOWN = np.array([[0, 1, 2], [3, 4, -1]])
DISPLAY = Display(np.zeros((5, 4), np.float32), np.array([0, 3, 5]), SHOWN, SHOWN)
LOGS = {
    "no impressions": ([], np.zeros((0, 3))),
    "no clicks": ([0, 1], np.zeros((2, 3))),
    "all clicked": ([0, 0], np.ones((2, 3))),
    "short list": ([1, 1], np.array([[1, 1, 0], [0, 1, 0]])),
}


def records_of(case: str) -> Records:
    queries, clicks = LOGS[case]
    log = ClickLog(np.array(queries, np.int32), clicks.astype(np.uint8), np.array([0, len(queries)]))
    return Records(log, DISPLAY)


@pytest.mark.parametrize("case", LOGS)
@pytest.mark.parametrize("name", CREDITS)
def test_credit_has_the_shape_of_clicks_and_is_finite(name, case):
    records = records_of(case)
    examination = np.tile([1.0, 0.5, 1e-3], (records.log.queries.size, 1))
    found = CREDITS[name].credit(records, examination, None)
    assert found.dtype == np.float64
    assert found.shape == records.log.clicks.shape
    assert np.isfinite(found).all()
    assert not found[records.display.shown[records.log.queries] < 0].any()  # nothing displayed, nothing earned


@pytest.mark.parametrize("name", CREDITS)
def test_certain_examination_makes_a_click_worth_one(name):
    records = records_of("all clicked")
    found = CREDITS[name].credit(records, np.ones((2, 3)), None)
    np.testing.assert_array_equal(found, records.log.clicks)


def test_ips_is_unbiased_and_none_is_not():
    """The mean credit of a document is its attraction, whatever its rank; within 4 standard errors."""
    rng, examination, attraction, n = np.random.default_rng(0), np.array([1.0, 0.5, 0.2]), 0.4, 200_000
    clicks = (rng.random((n, 3)) < examination * attraction).astype(np.uint8)
    records = Records(ClickLog(np.zeros(n, np.int32), clicks, np.array([0, n])), DISPLAY)
    given = np.tile(examination, (n, 1))
    for name, wanted in (("ips", np.full(3, attraction)), ("none", attraction * examination)):
        found = CREDITS[name].credit(records, given, None)
        error = found.std(axis=0, ddof=1) / n**0.5
        assert (np.abs(found.mean(axis=0) - wanted) < 4 * error).all()


def test_clipping():
    credit = np.array([[0.0, 3.0, -2.0], [1.0, 9.0, 5.0]])
    assert clipped(credit, None) is credit
    assert clipped(credit, 4.0).tolist() == [[0.0, 3.0, -2.0], [1.0, 4.0, 4.0]]


@pytest.fixture(scope="module")
def trained():
    """Weights of a short run with a credit and a source of propensities."""
    data = fultr.load("synthetic")

    def run(credit: str, propensity: str) -> bytes:
        algorithm = fultr.FedIPS(fultr.LocalTraining(credit=credit), propensity=propensity)
        weights = fultr.simulate(data, algorithm, clients=40, rounds=3, splits=()).ranker.weights
        assert np.isfinite(weights).all()
        assert weights.any()
        return weights.tobytes()

    return run


@pytest.mark.parametrize("propensity", ["known", "shrunk"])
@pytest.mark.parametrize("name", CREDITS)
def test_settings_choose_the_credit(trained, name, propensity):
    assert (trained(name, propensity) == trained("none", propensity)) == (name == "none")


def test_clicks_that_are_worth_one_make_fedips_fedavg(trained):
    assert trained("none", "known") == trained("none", "shrunk") == trained("ips", "none")


@pytest.mark.parametrize("given", [False, True])
def test_a_device_trains_if_anything_has_credit(monkeypatch, given):
    """Also without a click: a kind of credit may give some to what was not clicked."""
    kind = SimpleNamespace(credit=lambda records, examination, relevance: np.full(examination.shape, float(given)))
    monkeypatch.setitem(CREDITS._loaded, "ips", kind)
    settings = FederationSettings.of({"features": 4, "displayed": 3, "propensity": "none"})
    first = Server.initial(settings.algorithm(), model_of(settings), model_of(settings).initial(), 3)
    records = records_of("no clicks")
    records = Records(ClickLog(records.log.queries[:1], records.log.clicks[:1], np.array([0, 1])), DISPLAY)
    reply = reply_to(task_of(settings, 0, first), records, None)
    assert reply.sums["trained"].tolist() == [float(given)]
