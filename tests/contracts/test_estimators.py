"""Every estimator of examination through the same cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from help.estimation import RANKS, clicks_of, estimates, made_up, next_state, no_sums, state_with

from fultr.clicks.log import ClickLog
from fultr.federated.budget import model_of
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.federate import task_of
from fultr.federated.federation import FederationSettings
from fultr.federated.fedips import Server, nothing, server_round
from fultr.federated.messages import check_task
from fultr.federated.settings import Estimator

# By the package's own names: what leaves a device, and whether cross-fitting makes a difference.
ROWS = {
    "personal": ({"gradient"}, True),
    "pooled": ({"gradient", "examined", "impressions"}, False),
    "shrunk": ({"gradient", "examined", "impressions", "marginals"}, True),
    "power-law": ({"gradient", "marginals"}, True),
    "harvested": ({"pairs"}, False),
    "trust": ({"gradient", "affine"}, False),
}
BAD_LOGS = {
    "no clicks": ClickLog(np.array([0, 1, 1], np.int32), np.zeros((3, RANKS), np.uint8), np.array([0, 3])),
    "no impressions": ClickLog(np.zeros(0, np.int32), np.zeros((0, RANKS), np.uint8), np.array([0, 0, 0])),
    "one impression": ClickLog(np.array([2], np.int32), np.array([[0, 1, 0, 0]], np.uint8), np.array([0, 1])),
    "all at rank 1": ClickLog(np.array([0, 1], np.int32), np.array([[1, 0, 0, 0]] * 2, np.uint8), np.array([0, 2])),
    "everything clicked": ClickLog(np.array([0, 1], np.int32), np.ones((2, RANKS), np.uint8), np.array([0, 2])),
    "short list": ClickLog(np.array([29] * 3, np.int32), np.array([[1, 1, 0, 0]] * 3, np.uint8), np.array([0, 3])),
    "many impressions": ClickLog(np.zeros(5000, np.int32), np.zeros((5000, RANKS), np.uint8), np.array([0, 5000])),
}


def test_every_estimator_is_in_the_table():
    assert list(ROWS) == list(ESTIMATORS)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("cross_fit", [False, True])
@pytest.mark.parametrize("case", BAD_LOGS)
def test_every_estimator_answers_every_log(kind, cross_fit, case):
    """Never NaN: propensities between the floor and 1, finite sums, and the next round the same."""
    display, weights = made_up()
    log = BAD_LOGS[case]
    estimator = Estimator(kind, cross_fit=cross_fit, estimate_floor=0.02)
    state = state_with(estimator, weights * 20)  # relevance near 0 and 1
    for _ in range(3):
        sums = no_sums(estimator, weights.size - 1)
        found = estimates(estimator, state, log, display, sums)
        assert found.shape == (log.clients, 2 if cross_fit and ROWS[kind][1] else 1, RANKS)
        assert ((found >= 0.02) & (found <= 1)).all()
        for name, value in sums.items():
            assert np.isfinite(value).all(), name
        state = next_state(estimator, state, sums, log.clients)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("start", [1e-9, 0.5, 1.0])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e7])
def test_devices_take_whatever_a_server_makes_of_what_it_got(kind, start, size):
    """In every round, also after noise, or sums of devices that lie."""
    rng = np.random.default_rng(0)
    chosen = {"propensity": kind, "estimate_start": start, "clip_rule": "last-rank"}
    settings = FederationSettings.of({"features": 3, "displayed": RANKS, "judge": False, **chosen})
    algorithm, model = settings.algorithm(), model_of(settings)
    server = Server.initial(algorithm, model, model.initial(), RANKS)
    for t in range(30):
        check_task(task_of(settings, t, server))
        sums = nothing(algorithm, model, RANKS)
        noise = {name: size * rng.normal(size=array.shape) for name, array in sums.items()}
        server = server_round(algorithm, model, server, noise if t % 2 else {n: abs(a) for n, a in noise.items()}, 5)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_what_leaves_a_device(kind):
    display, weights = made_up()
    swapped = display.documents[:, [1, 0, 2, 3]]  # of a second version of the logging policy
    display = replace(display, documents=np.r_[display.documents[:15], swapped[:15]], versions=2)
    log = clicks_of(display, weights, np.full(5, 1.0))
    estimator = Estimator(kind)
    sums = no_sums(estimator, weights.size - 1)
    estimates(estimator, state_with(estimator, weights), log, display, sums)
    assert set(sums) == ROWS[kind][0]
    assert all(value.any() for value in sums.values())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_single_rows_add_up_to_the_sum(kind):
    """Clients whose sums have a row each send the same, and are divided by the same, to the last bit."""
    display, weights = made_up()
    swapped = display.documents[:, [1, 0, 2, 3]]
    display = replace(display, documents=np.r_[display.documents[:15], swapped[:15]], versions=2)
    log = clicks_of(display, weights, np.linspace(0.2, 2, 9))
    estimator = Estimator(kind)
    total, single = no_sums(estimator, weights.size - 1), no_sums(estimator, weights.size - 1, 9)
    state = state_with(estimator, weights)
    np.testing.assert_array_equal(
        estimates(estimator, state, log, display, total), estimates(estimator, state, log, display, single)
    )
    for name, rows in single.items():
        added = np.zeros_like(rows[0])
        for row in rows:
            added += row
        np.testing.assert_array_equal(added, total[name][0], err_msg=name)
