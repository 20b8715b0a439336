"""Stages: every one of the table, and a toy one, in simulation and in a federation of device logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import fultr
from fultr.device.local import LocalDevices
from fultr.federated.combining import StageSettings
from fultr.federated.federate import federate
from fultr.federated.federation import FederationSettings, Replay
from fultr.federated.privacy import PRIVACY, STAGES
from fultr.federated.privacy.accountant import LEAST_COHORT
from fultr.federated.privacy.randomness import Randomness, Words
from fultr.federated.privacy.settings import Privacy
from fultr.federated.privacy.stage import Shapes, Sums, stage_of
from fultr.rankers.model import TREES
from fultr.study.fill_devices import PERIOD, fill_devices
from fultr.study.seeded import SeededRandomness

DEVICES, ROUNDS, NORM, SHIFT = 5, 3, 0.05, 0.25


@dataclass(frozen=True)
class Bounded:
    """Updates have at most a norm; sums are halved, and all are shifted, which the server undoes; it counts rounds."""

    seen: ClassVar[list[set[str]]] = []

    def init(self, shapes: Shapes) -> Sums:
        return {"rounds": np.zeros(1), "norm": np.array([NORM])}

    def broadcast(self, state: Sums) -> Sums:
        return {"norm": state["norm"]}

    def travels(self, shapes: Shapes) -> Shapes:
        return shapes

    def client(self, sent: Sums, replies: Sums, draws: Sequence[Words]) -> Sums:
        lengths = np.linalg.norm(replies["update"], axis=1, keepdims=True)
        update = replies["update"] * np.minimum(1, sent["norm"] / np.maximum(lengths, 1e-30))
        self.seen.append(set(replies))
        return {name: SHIFT + (update if name == "update" else rows / 2) for name, rows in replies.items()}

    def server(self, state: Sums, total: Sums, clients: float, random: Randomness) -> tuple[Sums, Sums]:
        whole = {name: array - SHIFT * clients for name, array in total.items()}
        assert np.linalg.norm(whole["update"]) <= NORM * clients * (1 + 1e-6)
        whole = {name: array if name == "update" else 2 * array for name, array in whole.items()}
        return {**state, "rounds": state["rounds"] + 1}, whole


@dataclass(frozen=True)
class Scaled(Bounded):
    """A stage with a parameter."""

    scale: float


@dataclass(frozen=True)
class MoreSettings(StageSettings):
    scale: float = 3.0


@pytest.fixture(scope="module")
def data():
    return fultr.load("synthetic")


@pytest.fixture(scope="module")
def logs(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    paths = [folder / f"device-{u}.db" for u in range(DEVICES)]
    fill_devices(paths, data, periods=ROUNDS)
    return dict(enumerate(paths))


@pytest.fixture
def bounded(monkeypatch):
    """A further row of the table."""
    monkeypatch.setitem(STAGES._places, "bounded", f"{__name__}:Bounded")
    Bounded.seen.clear()
    return Bounded


def settings_of(data, **others) -> FederationSettings:
    chosen = {"client_rate": 0.05, "rounds": ROUNDS, "judge": False, "displayed": 5, "aggregation": "mean"}
    return FederationSettings.of({"features": data.train.width, **chosen, **others})


@pytest.mark.parametrize("stage", [*STAGES, "bounded"])
@pytest.mark.parametrize("propensity", ["none", "shrunk", "power-law"])
def test_devices_and_simulation_give_the_same_bits(data, logs, tmp_path, bounded, stage, propensity):
    settings = settings_of(data, propensity=propensity, stage=stage)
    trained = federate(LocalDevices(logs, replay=Replay(0.0, PERIOD)), settings, tmp_path)
    users = fultr.FiniteUsers(DEVICES)
    run = fultr.simulate(data, settings.algorithm(), clients=DEVICES, rounds=ROUNDS, population=users, splits=())
    assert np.linalg.norm(trained.weights) > 0.01
    assert trained.weights.tobytes() == run.ranker.weights.tobytes()


@pytest.mark.parametrize("model", TREES)
@pytest.mark.parametrize("stage", ["none", "bounded"])
def test_devices_and_simulation_grow_the_same_trees(data, logs, tmp_path, bounded, stage, model):
    grown = {"model": model, "linear_rounds": 1, "tree_rounds": ROUNDS - 1, "depth": 1, "trees": 5}
    settings = settings_of(data, propensity="shrunk", stage=stage, **grown)
    trained = federate(LocalDevices(logs, replay=Replay(0.0, PERIOD)), settings, tmp_path)
    users = fultr.FiniteUsers(DEVICES)
    run = fultr.simulate(data, settings.algorithm(), clients=DEVICES, rounds=ROUNDS, population=users, splits=())
    trees = 5 * (ROUNDS - 1) if model == "random-trees" else ROUNDS - 1
    assert np.any(trained.weights[-2 * trees :], axis=None)
    assert trained.weights.tobytes() == run.ranker.weights.tobytes()


@pytest.fixture(scope="module")
def many_logs(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    paths = [folder / f"device-{u}.db" for u in range(LEAST_COHORT)]
    fill_devices(paths, data, periods=ROUNDS)
    return dict(enumerate(paths))


@pytest.mark.parametrize("mode", PRIVACY)
@pytest.mark.parametrize(
    ("propensity", "quantile", "model"), [("none", 0, "linear"), ("shrunk", 0.5, "linear"), ("none", 0, "random-trees")]
)
def test_private_devices_and_simulation_give_the_same_bits(
    data, many_logs, tmp_path, mode, quantile, propensity, model
):
    noise = {"noise_multiplier": 1.0, "population": LEAST_COHORT, "participations": ROUNDS, "clip_quantile": quantile}
    chosen = {"privacy": mode, "cohort": LEAST_COHORT, "delta": 1e-5, "update_bound": 1.0, **noise}
    chosen |= {"model": model, "linear_rounds": 1, "tree_rounds": ROUNDS - 1, "depth": 2, "trees": 2}
    settings = settings_of(data, propensity=propensity, secure_sums=mode == "distributed", **chosen)
    devices = LocalDevices(many_logs, replay=Replay(0.0, PERIOD), random=SeededRandomness(0))
    trained = federate(devices, settings, tmp_path, random=SeededRandomness(0))
    users = fultr.FiniteUsers(LEAST_COHORT)
    run = fultr.simulate(data, settings.algorithm(), clients=LEAST_COHORT, rounds=ROUNDS, population=users, splits=())
    assert np.linalg.norm(trained.weights) > 0.01
    assert trained.weights.tobytes() == run.ranker.weights.tobytes()
    assert trained.privacy is not None
    found = trained.privacy.as_mapping()
    if settings.secure_sums:  # the same numbers, and other words about trust
        assert found.pop("trust").startswith("the server sees sums alone, of 90 or more devices")
    assert run.settings["privacy"].items() >= found.items()


def test_a_stage_sees_the_whole_reply(data, logs, tmp_path, bounded):
    """The update, the estimator's sums, counts and the judgement all leave a device."""
    federate(
        LocalDevices(logs, replay=Replay(0.0, PERIOD)),
        settings_of(data, stage="bounded", judge=True, rounds=1),
        tmp_path,
    )
    everything = {"update", "trained", "judged", "gradient", "examined", "impressions", "marginals"}
    assert bounded.seen[0] == everything


def test_a_stage_changes_what_is_learnt_and_its_state_is_kept(data, bounded, tmp_path):
    options = dict(clients=40, rounds=4, splits=(), seed=1)
    plain = fultr.simulate(data, fultr.FedIPS(), **options).ranker.weights
    bounding = fultr.FedIPS(stage=StageSettings("bounded"))
    whole = fultr.simulate(data, bounding, **options).ranker.weights
    assert not np.array_equal(plain, whole)
    path = tmp_path / "run.npz"
    fultr.simulate(data, bounding, checkpoint=path, **{**options, "rounds": 2})
    with np.load(path) as stored:
        assert stored["stage_rounds"].tolist() == [2.0]
    resumed = fultr.simulate(data, bounding, checkpoint=path, **options).ranker.weights
    assert resumed.tobytes() == whole.tobytes()


@pytest.mark.parametrize("stage", [*STAGES, "bounded"])
def test_threads_do_not_matter(data, bounded, stage):
    options = dict(clients=150, rounds=2, splits=())
    algorithm = fultr.FedIPS(stage=StageSettings(stage), propensity=fultr.Estimator("shrunk"))
    one, three = (fultr.simulate(data, algorithm, threads=n, **options).ranker.weights for n in (1, 3))
    assert one.tobytes() == three.tobytes()


@pytest.mark.parametrize("mode", PRIVACY)
def test_threads_do_not_matter_with_privacy(data, mode):
    privacy = Privacy(mode, noise_multiplier=1.0, population=1000)
    options = dict(clients=150, rounds=2, splits=())
    algorithm = fultr.FedIPS(stage=StageSettings(privacy=privacy), propensity=fultr.Estimator("shrunk"))
    one, three = (fultr.simulate(data, algorithm, threads=n, **options).ranker.weights for n in (1, 3))
    assert one.tobytes() == three.tobytes()


@pytest.mark.parametrize("mode", PRIVACY)
def test_a_private_run_resumes_with_the_same_bits(data, tmp_path, mode):
    privacy = Privacy(mode, noise_multiplier=1.0, population=1000, participations=2, rounds_apart=2, clip_quantile=0.5)
    algorithm, path = fultr.FedIPS(stage=StageSettings(privacy=privacy)), tmp_path / "run.npz"
    options = dict(clients=150, rounds=4, splits=(), checkpoint=path, checkpoint_every=2)

    def stop(done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fultr.simulate(data, algorithm, on_round=stop, **options)
    resumed = fultr.simulate(data, algorithm, **options).ranker.weights
    whole = fultr.simulate(data, algorithm, **{**options, "checkpoint": None}).ranker.weights
    assert resumed.tobytes() == whole.tobytes()


def test_a_stage_has_the_parameters_that_it_has_a_field_for(monkeypatch):
    monkeypatch.setitem(STAGES._places, "scaled", f"{__name__}:Scaled")
    assert stage_of(MoreSettings("scaled")) == Scaled(3.0)
    assert stage_of(MoreSettings("scaled", scale=5.0)) == Scaled(5.0)


def _without_clicks_counted(sums: Sums) -> Sums:
    return {name: rows for name, rows in sums.items() if name != "trained"}


def _one_column(sums: Sums) -> Sums:
    return {**sums, "update": sums["update"][..., :1]}  # it would be added to every weight


def _with_more(sums: Sums) -> Sums:
    return {**sums, "more": sums["update"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without_clicks_counted, r"stage odd: expected trained of shape \(.*1,?\) from it, found nothing"),
        (_one_column, r"stage odd: expected update of shape \(.*64,?\) from it, found \(.*1,?\)"),
        (_with_more, r"stage odd: expected more of shape nothing from it, found \(.*64,?\)"),
    ],
)
@pytest.mark.parametrize("half", ["client", "server"])
def test_a_stage_that_returns_something_else_is_refused(data, monkeypatch, half, change, message):
    @dataclass(frozen=True)
    class Odd:
        def init(self, shapes: Shapes) -> Sums:
            return {}

        def broadcast(self, state: Sums) -> Sums:
            return {}

        def travels(self, shapes: Shapes) -> Shapes:
            return shapes

        def client(self, sent: Sums, replies: Sums, draws: Sequence[Words]) -> Sums:
            return change(replies) if half == "client" else replies

        def server(self, state: Sums, total: Sums, clients: float, random: Randomness) -> tuple[Sums, Sums]:
            return state, change(total) if half == "server" else total

    monkeypatch.setitem(STAGES._places, "odd", "")
    monkeypatch.setitem(STAGES._loaded, "odd", Odd)
    with pytest.raises(fultr.FultrError, match=message):
        fultr.simulate(data, fultr.FedIPS(stage=StageSettings("odd")), clients=5, rounds=1, splits=())
