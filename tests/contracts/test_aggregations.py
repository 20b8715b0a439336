"""Aggregations: every one of the table against a plain version, in simulation and in a federation of device logs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plain
import pytest

import fultr
from fultr.core.errors import FultrError
from fultr.device.local import LocalDevices
from fultr.federated.aggregate import aggregated, parts_of, summed
from fultr.federated.aggregation import AGGREGATIONS, OF_SUMS
from fultr.federated.combining import Aggregation, StageSettings
from fultr.federated.federate import federate
from fultr.federated.federation import FederationSettings, Replay
from fultr.federated.privacy import STAGES
from fultr.study.fill_devices import PERIOD, fill_devices

DEVICES, ROUNDS = 5, 3
ROBUST = [kind for kind in AGGREGATIONS if kind != "mean"]


def chosen(kind: str) -> Aggregation:
    return Aggregation(kind, clip_multiple=1.5, trim=0.25, groups=3)


def rows_of(rng: np.random.Generator, clients: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    """An update, and two of an estimator's sums."""
    return {
        "update": rng.standard_normal((clients, 4)) * scale,
        "examined": rng.random((clients, 3)),
        "pairs": rng.random((clients, 2, 2, 2)),
        "trained": np.ones((clients, 1)),
    }


def plainly(rounds, settings) -> dict[str, np.ndarray]:
    lists = [{n: a.reshape(len(a), -1).tolist() for n, a in each.items() if n != "trained"} for each in rounds]
    return plain.AGGREGATIONS[settings.aggregation](lists, settings)


def run(settings, rounds):
    state = {}
    for each in rounds:
        total, state = aggregated(settings, state, each)
    return total, state


def test_every_aggregation_is_in_the_table():
    assert list(plain.AGGREGATIONS) == list(AGGREGATIONS)


@pytest.mark.parametrize("kind", AGGREGATIONS)
@pytest.mark.parametrize("clients", [1, 2, 3, 4, 5, 8, 40])
def test_totals_are_those_of_the_plain_version(kind, clients):
    """Seven rounds, of growing norms: more than are remembered."""
    rng, settings = np.random.default_rng(clients), chosen(kind)
    rounds = [rows_of(rng, clients, 1.5**t) for t in range(7)]
    for each in rounds:
        each["update"][rng.random(clients) < 0.2] = 0  # they had no click
    total, _ = run(settings, rounds)
    for name, wanted in plainly(rounds, settings).items():
        assert total[name].shape == rounds[0][name].shape[1:]
        np.testing.assert_allclose(total[name].ravel(), wanted, rtol=1e-12, atol=1e-12)
    assert total["trained"] == clients


@pytest.mark.parametrize("kind", OF_SUMS)
def test_a_secure_sum_is_taken_for_what_its_mean_over_clients_says(kind):
    """By the plain rule for single rows, with the multiple that is for sums; cohorts of different sizes."""
    rng, settings, state = np.random.default_rng(0), Aggregation(kind, step_multiple=1.2), {}
    rounds = [rows_of(rng, 1, 1.5**t) for t in range(7)]
    for t, each in enumerate(rounds):
        clients = 3 + 10 * t
        sums = {name: array * clients for name, array in each.items()}
        total, state = aggregated(settings, state, sums, clients)
    for name, wanted in plainly(rounds, replace(settings, clip_multiple=1.2)).items():
        np.testing.assert_allclose(total[name].ravel() / clients, wanted, rtol=1e-12)
    assert total["trained"] == clients
    if kind == "clipped":
        assert np.linalg.norm(total["update"]) < 0.9 * np.linalg.norm(sums["update"])


def test_rules_for_sums_are_those_that_have_a_function_for_them():
    assert set(OF_SUMS) == {kind for kind in AGGREGATIONS if hasattr(AGGREGATIONS[kind], "of_sum")}


CASES = {
    "nobody": np.zeros((0, 4)),
    "one": np.array([[1.0, -2.0, 0.0, 3.0]]),
    "nothing": np.zeros((6, 4)),
    "ties": np.tile([1.0, -2.0, 0.0, 3.0], (6, 1)),
    "most have no click": np.r_[np.zeros((20, 4)), np.tile([1.0, -2.0, 0.0, 3.0], (3, 1))],
}


@pytest.mark.parametrize("kind", AGGREGATIONS)
@pytest.mark.parametrize("case", CASES)
def test_where_all_that_speak_agree_every_rule_is_the_sum(kind, case):
    rows = {"update": CASES[case], "trained": np.ones((len(CASES[case]), 1))}
    total, state = run(chosen(kind), [rows, rows])
    np.testing.assert_allclose(total["update"], CASES[case].sum(axis=0), rtol=1e-15)
    assert all(np.isfinite(array).all() for array in state.values())


@pytest.mark.parametrize("kind", AGGREGATIONS)
def test_state_is_a_value(kind):
    settings, rows = chosen(kind), rows_of(np.random.default_rng(0), 6)
    kept = {name: array.copy() for name, array in rows.items()}
    _, state = run(settings, [rows])
    before = {name: array.copy() for name, array in state.items()}
    one, other = aggregated(settings, state, rows), aggregated(settings, state, rows)
    for name in rows:
        assert one[0][name].tobytes() == other[0][name].tobytes()
        assert rows[name].tobytes() == kept[name].tobytes()
    assert before.keys() == state.keys()
    assert all(before[name].tobytes() == state[name].tobytes() for name in state)


@pytest.mark.parametrize("kind", ROBUST)
@pytest.mark.parametrize("lie", [1e9, -1e9, 1.0, 1e-9, -1e-9])
def test_one_liar_of_five_moves_nothing_far(kind, lie):
    """Four honest clients send numbers from 1 to 2: their norms are at most 2 roots of the size, and so is the median.

    A clipped liar adds at most 1.5 of that. Trimmed, or as a median of five, each coordinate is between honest ones.
    """
    rng, settings = np.random.default_rng(1), Aggregation(kind, clip_multiple=1.5, trim=0.2, groups=5)
    honest = {"update": 1 + rng.random((4, 4)), "impressions": 1 + rng.random((4, 3))}
    rows = {name: np.insert(array, 2, lie, axis=0) for name, array in honest.items()}
    total, _ = run(settings, [{**rows, "trained": np.ones((5, 1))}])
    for name, array in honest.items():
        if kind == "clipped":
            most = 1.5 * 2 * np.sqrt(array.shape[1])
            assert np.linalg.norm(total[name] - array.sum(axis=0)) <= most
        else:
            assert (total[name] / 5 >= array.min(axis=0)).all()
            assert (total[name] / 5 <= array.max(axis=0)).all()


def test_a_clipped_update_counts_the_less_the_further_beyond_it_is():
    """Norms 1, 1, 1, and 3 or 300 times the limit of 2: what is left of the last is a third or a 300th of the limit."""
    settings = Aggregation("clipped", clip_multiple=2.0)
    for times in (3, 300):
        update = np.diag([1.0, 1.0, 1.0, 2.0 * times])
        total, _ = run(settings, [{"update": update, "trained": np.ones((4, 1))}])
        np.testing.assert_allclose(total["update"], [1, 1, 1, 2 / times])


def test_a_round_of_liars_does_not_move_the_running_median():
    """Norms of 1 in four rounds; then all five send 100, which is 50 times the limit."""
    settings = Aggregation("clipped", clip_multiple=2.0)
    usual = {"update": np.eye(5), "trained": np.ones((5, 1))}
    lies = {**usual, "update": np.eye(5) * 100}
    total, state = run(settings, [usual] * 4 + [lies])
    np.testing.assert_allclose(total["update"], np.full(5, 2 / 50))
    assert state["update"].tolist() == [1, 1, 1, 1, 100]
    total, state = run(settings, [usual] * 4 + [lies] * 3)  # in the third such round of five it is what is usual
    np.testing.assert_allclose(total["update"], np.full(5, 100))


def test_clipping_keeps_a_clients_ratios():
    """Ten times the impressions of the others, 0.4 of them examined: both are scaled by the same."""
    shown, examined = np.array([[10.0], [10.0], [100.0]]), np.array([[5.0], [5.0], [40.0]])
    rows = {"update": np.ones((3, 1)), "examined": examined, "impressions": shown, "trained": np.ones((3, 1))}
    total, _ = run(Aggregation("clipped", clip_multiple=2.0), [rows])
    np.testing.assert_allclose(total["impressions"], [10 + 10 + 2 * 10])
    np.testing.assert_allclose(total["examined"], [5 + 5 + 0.4 * 2 * 10])
    np.testing.assert_allclose(total["update"], [3])


@pytest.mark.parametrize("kind", AGGREGATIONS)
def test_what_was_examined_stays_below_what_was_shown(kind):
    rng = np.random.default_rng(3)
    shown = rng.integers(1, 50, (30, 5)) * 1.0
    rows = {"update": shown, "examined": shown * rng.random((30, 5)), "impressions": shown}
    total, _ = run(chosen(kind), [{**rows, "trained": np.ones((30, 1))}])
    assert (total["examined"] <= total["impressions"]).all()


@pytest.mark.parametrize("clients", [0, 1, 7, 16, 17, 300])
def test_sums_of_parts_give_the_bits_of_single_rows(clients):
    rows = np.random.default_rng(clients).standard_normal((clients, 6))
    parts = np.zeros((len(parts_of(clients)), 6))
    for part, (begin, end) in zip(parts, parts_of(clients), strict=True):
        for row in rows[begin:end]:
            part += row
    assert summed(rows).tobytes() == summed(parts).tobytes()
    assert summed(rows).tolist() == (plain.ordered_sum(rows.tolist()) or [0.0] * 6)


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
    chosen = {"client_rate": 0.05, "rounds": ROUNDS, "judge": False, "displayed": 5, **others}
    return FederationSettings.of({"features": data.train.width, **chosen})


@pytest.mark.parametrize("kind", AGGREGATIONS)
@pytest.mark.parametrize("propensity", ["none", "shrunk", "power-law"])
def test_devices_and_simulation_give_the_same_bits(data, logs, tmp_path, kind, propensity):
    settings = settings_of(data, propensity=propensity, aggregation=kind, groups=3)
    trained = federate(LocalDevices(logs, replay=Replay(0.0, PERIOD)), settings, tmp_path)
    users = fultr.FiniteUsers(DEVICES)
    run = fultr.simulate(data, settings.algorithm(), clients=DEVICES, rounds=ROUNDS, population=users, splits=())
    assert np.linalg.norm(trained.weights) > 0.01
    assert trained.weights.tobytes() == run.ranker.weights.tobytes()


@pytest.mark.parametrize("kind", ROBUST)
def test_a_rule_is_applied(data, logs, tmp_path, kind):
    found = [
        federate(
            LocalDevices(logs, replay=Replay(0.0, PERIOD)),
            settings_of(data, aggregation=each, rounds=1),
            tmp_path / each,
        ).weights
        for each in ("mean", kind)
    ]
    assert not np.array_equal(*found)


@pytest.mark.parametrize("kind", AGGREGATIONS)
def test_threads_and_interruptions_do_not_matter(data, tmp_path, kind):
    options = dict(clients=150, splits=())
    algorithm = fultr.FedIPS(aggregation=Aggregation(kind), propensity=fultr.Estimator("shrunk"))
    one, three = (fultr.simulate(data, algorithm, rounds=3, threads=n, **options).ranker.weights for n in (1, 3))
    assert one.tobytes() == three.tobytes()
    path = tmp_path / "run.npz"
    fultr.simulate(data, algorithm, rounds=2, checkpoint=path, **options)
    with np.load(path) as stored:
        assert ("aggregation_update" in stored) == (kind == "clipped")
    resumed = fultr.simulate(data, algorithm, rounds=3, checkpoint=path, **options).ranker.weights
    assert resumed.tobytes() == one.tobytes()


def test_the_paper_has_the_mean_and_a_federation_a_rule_that_holds(data):
    assert fultr.FedIPS().aggregation.aggregation == "mean"
    assert settings_of(data).algorithm().aggregation.aggregation == "clipped"


def test_a_stage_needs_the_plain_sum(monkeypatch):
    monkeypatch.setitem(STAGES._places, "hidden", "")
    words = "aggregation: expected mean with the stage hidden, which is about sums; found trimmed"
    with pytest.raises(FultrError, match=words):
        fultr.FedIPS(stage=StageSettings("hidden"), aggregation=Aggregation("trimmed"))
    with pytest.raises(FultrError, match="expected mean with the stage hidden"):
        FederationSettings.of({"features": 5, "stage": "hidden"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"aggregation": "median"}, "aggregation: expected one of mean, clipped, trimmed, grouped; found"),
        ({"trim": 0.5}, "trim: expected a number, at least 0, below 0.5, found 0.5"),
        ({"clip_multiple": 0}, "clip_multiple: expected a number, above 0, found 0"),
        ({"groups": 0}, "groups: expected a whole number, at least 1, found 0"),
    ],
)
def test_bad_settings_are_named(given, message):
    with pytest.raises(FultrError) as caught:
        fultr.RunSettings.of(given)
    assert message in str(caught.value)
