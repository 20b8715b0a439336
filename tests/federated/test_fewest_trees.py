"""Trees that held-out clicks do not speak for are left out."""

from __future__ import annotations

import numpy as np
import pytest

import fultr
from fultr.device.local import LocalDevices
from fultr.device.policy import DevicePolicy
from fultr.federated.federate import compare, federate
from fultr.federated.federation import FederationSettings
from fultr.federated.judging import Comparison
from fultr.federated.stopping import fewest_trees
from fultr.rankers.forest import first_trees, forest_parts, forest_size, read_forest
from fultr.study.fill_devices import fill_devices

FEATURES, TREES, DEPTH = 3, 8, 2
SMALL = DevicePolicy(  # for logs of some tens of impressions
    answers_a_day=10**6, answers_in_all=10**6, seconds_apart=0.0, window="all", held_out=0.3, least_clicks=2,
    least_impressions=3,
)  # fmt: skip


def forest() -> np.ndarray:
    weights = np.zeros(forest_size(FEATURES, TREES, DEPTH), np.float32)
    parts = forest_parts(weights, FEATURES, DEPTH)
    parts["head"][:2] = 9, TREES
    parts["tree_values"][:] = np.arange(1, TREES + 1)[:, np.newaxis]
    return weights


def found(difference: float) -> Comparison:
    return Comparison(difference, 0.01, difference - 0.02, difference + 0.02, 5)


@pytest.mark.parametrize(
    ("gains", "left", "asked"),
    [
        ([0.1], 8, 1),  # the last quarter helps
        ([0.0, 0.1], 6, 2),  # it does nothing: it goes; the one before helps
        ([-0.1, -0.1, 0.1], 4, 3),
        ([-0.1, -0.1, -0.1, -0.1], 0, 4),
        ([None], 8, 1),  # too few devices judge
        ([-0.1, None], 6, 2),
    ],
)
def test_the_last_quarters_go_as_long_as_they_help_nobody(gains, left, asked):
    weights, answers, calls = forest(), list(gains), []

    def judged(candidate, stable):
        calls.append([read_forest(each, FEATURES, DEPTH).grown for each in (candidate, stable)])
        gain = answers.pop(0)
        return None if gain is None else found(gain)

    kept, words = fewest_trees(weights, FEATURES, DEPTH, judged)
    assert calls == [[8, 6], [6, 4], [4, 2], [2, 0]][:asked]
    np.testing.assert_array_equal(kept, first_trees(weights, FEATURES, DEPTH, left))
    assert forest_parts(kept, FEATURES, DEPTH)["tree_values"].any(axis=1).sum() == left
    assert (words == "") == (left == 8)
    if left < 8:
        assert words == f"trees: held-out clicks stand no higher with the last {8 - left} of 8: left out"


def test_a_federation_keeps_what_devices_speak_for(tmp_path):
    data = fultr.load("synthetic")
    logs = {u: tmp_path / f"{u}.db" for u in range(6)}
    fill_devices(list(logs.values()), data, periods=3)
    settings = FederationSettings.of(
        {"features": data.train.width, "rounds": 5, "displayed": 5, "judge": True, "model": "random-trees",
         "propensity": "1,0.5,0.33,0.25,0.2", "linear_rounds": 1, "tree_rounds": 4, "depth": 2, "trees": 2}
    )  # fmt: skip
    devices, said = LocalDevices(logs, policy=SMALL), []
    trained = federate(devices, settings, tmp_path / "server", tell=said.append)
    with np.load(tmp_path / "server" / "checkpoint.npz") as kept:
        whole = kept["weights"]
    assert read_forest(whole, data.train.width, 2).grown == 8

    def judged(candidate, stable):
        return compare(devices, settings, tmp_path / "server", candidate, stable)

    expected, words = fewest_trees(whole, data.train.width, 2, judged)
    assert trained.weights.tobytes() == expected.tobytes()
    assert [event.words for event in said if event.what == "trees"] == ([words] if words else [])
