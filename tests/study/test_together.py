"""Simulations side by side: the same bits as one by one, with the clicks made once."""

from __future__ import annotations

import numpy as np
import plain
import pytest

import fultr.study.rounds
import fultr.study.together
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.errors import FultrError
from fultr.data.ranking import Splits
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.settings import Estimator, FedIPS, LocalTraining
from fultr.study.asked import Asked
from fultr.study.course import course
from fultr.study.run import perform, perform_all
from fultr.study.scene import Scenes
from fultr.study.settings import FiniteUsers, FreshUsers, RunSettings, Showing
from fultr.study.sharing import bundles, clicks_of
from fultr.study.store import Source, Store, Task, do
from fultr.study.together import together

RUN = RunSettings(clients=150, rounds=6, evaluate_every=2, policies=2)


@pytest.fixture(scope="module")
def data() -> Splits:
    rng = np.random.default_rng(0)
    return Splits(*(plain.random_data(rng, queries=60, features=6) for _ in range(3)), name="random")


@pytest.fixture
def clicked(monkeypatch) -> list[int]:
    """The rounds of each call that makes clicks."""
    seen: list[int] = []
    real = fultr.study.rounds.clicked

    def note(run, t, clients):
        seen.append(t)
        return real(run, t, clients)

    monkeypatch.setattr(fultr.study.rounds, "clicked", note)
    return seen


def equal(one, other) -> None:
    assert one.rounds.tolist() == other.rounds.tolist()
    for name in ("ndcg", "online"):
        found, wanted = getattr(one, name), getattr(other, name)
        assert found.keys() == wanted.keys()
        for part in wanted:
            assert found[part].tobytes() == wanted[part].tobytes()


def all_of(runs, data, splits=("test",), **checkpoints) -> list:
    """Results in the order of the runs."""
    found = dict(perform_all(runs, data, seed=3, splits=splits, **checkpoints))
    return [found[i] for i in range(len(runs))]


def side_by_side(runs, data) -> list:
    """Results that were checked to be those of the runs alone."""
    found = all_of(runs, data, splits=("valid", "test"))
    for settings, result in zip(runs, found, strict=True):
        equal(result, perform(settings, data, seed=3, splits=("valid", "test")))
    return found


OTHERS = [
    {"client_rate": 0.02, "server": "adam", "server_rate": 0.1},
    {"propensity": "none"},
    {"propensity": (1, 0.5, 0.4, 0.3, 0.2)},
    {"clip_rule": "last-rank", "loss": "softmax"},
    {"initial": "policy", "average_over": "repliers"},
    {"model": "mlp", "hidden": 4},
    *({"propensity": kind, "client_rate": rate} for kind in ESTIMATORS for rate in (0.02, 0.1)),
]


def test_runs_side_by_side_are_those_alone(data, clicked):
    runs = [RUN, *(RUN.but(given) for given in OTHERS)]
    found = side_by_side(runs, data)
    assert len({result.ndcg["test"].tobytes() for result in found}) > len(runs) - 2
    clicked.clear()
    perform(RUN, data, seed=3, splits=("test",))
    alone = clicked.copy()
    all_of(runs, data)
    assert sorted(clicked) == sorted(2 * alone)  # as often for all as for one


def test_cohorts_of_several_blocks(data):
    """All that a run has to tell, with more clients in a part of the cohort than have their clicks held at a time."""
    base = RunSettings.of({"clients": 2100, "rounds": 2, "exploration": "plackett-luce", "propensity": "shrunk"})
    runs = [base, base.but({"client_rate": 0.05}), base.but({"propensity": "known"})]
    side_by_side(runs, data)
    scenes: Scenes = {}
    asked = [
        Asked(data, run.fedips, 2100, 2, 3, run.policy, 1, run.showing, 5, run.click_model, run.sessions,
              FreshUsers(), None, False, 0.0, 1, 5, ("test",), None, 50, 1, None)
        for run in runs
    ]  # fmt: skip
    found = dict(together([course(one, scenes) for one in asked]))
    for i, one in enumerate(asked):
        [(_, alone)] = together([course(one, {})])
        assert found[i].ranker.weights.tobytes() == alone.ranker.weights.tobytes()
        for name in ("used", "true", "mass"):
            assert getattr(found[i].weighing, name).tobytes() == getattr(alone.weighing, name).tobytes()


def test_a_run_that_is_refused_alone_is_refused_beside_others(data):
    harvested = RUN.but({"policies": 1, "propensity": "harvested"})
    with pytest.raises(FultrError, match="a single logging policy shows each at one"):
        all_of([harvested], data)
    with pytest.raises(FultrError, match="a single logging policy shows each at one"):
        all_of([RUN.but({"policies": 1}), harvested], data)


def test_runs_are_stored_as_they_end_whatever_becomes_of_the_others(tmp_path, monkeypatch):
    source = Source("synthetic")
    given = [{"rounds": rounds, "clients": 40} for rounds in (2, 4)]
    tasks = [Task(RunSettings.of(one), 0, ("test",), source, source.fingerprints()) for one in given]
    real = fultr.study.together.run_round

    def fails(runs, t, *others, **named):
        if t == 3:
            raise MemoryError
        return real(runs, t, *others, **named)

    monkeypatch.setattr(fultr.study.together, "run_round", fails)
    with pytest.raises(MemoryError):
        do(tasks, tmp_path)
    assert [Store(tmp_path).load(task) is not None for task in tasks] == [True, False]


@pytest.mark.parametrize(
    "given",
    [
        {"population": FiniteUsers(users=200, pool=10, clusters=4)},
        {"population": FiniteUsers(users=200, pool=10, clusters=4, sampling="poisson")},
        {"click_model": ClickModel(click_model="cascade", continues=0.5)},
        {"sessions": Sessions(most_sessions=2)},
        {"showing": Showing(exploration="plackett-luce"), "policies": 1},
        {"fedips": FedIPS(pairs="retrieved"), "policies": 1},
    ],
    ids=lambda given: ",".join(given),
)
def test_whoever_the_users_are(data, given, clicked):
    base = RunSettings(**{"clients": 150, "rounds": 4, "evaluate_every": 2, "policies": 2, **given})
    runs = [base, base.but({"client_rate": 0.05}), base.but({"propensity": "shrunk"})]
    assert len({clicks_of(settings) for settings in runs}) == 1
    side_by_side(runs, data)
    clicked.clear()
    perform(base, data, seed=3, splits=("test",))
    alone = clicked.copy()
    all_of(runs, data)
    assert sorted(clicked) == sorted(2 * alone)


def test_runs_that_cannot_share_are_done_side_by_side_all_the_same(data):
    """Policies that are refreshed, users who remember, robust rules, and other users altogether."""
    remembering = FedIPS(propensity=Estimator("personal", remember=True))
    users = FiniteUsers(users=200, pool=10, clusters=4)
    runs = [
        RUN,
        RUN.but({"refresh": 2}),
        RUN.but({"refresh": 2, "client_rate": 0.05}),
        RunSettings(fedips=remembering, population=users, clients=150, rounds=6, evaluate_every=2),
        RunSettings(fedips=remembering, population=users, clients=150, rounds=6, evaluate_every=2),
        RUN.but({"aggregation": "clipped"}),
        RUN.but({"model": "random-trees", "linear_rounds": 2, "tree_rounds": 2}),
        RUN.but({"gamma": 2.0}),
        RUN.but({"rounds": 3}),
        RUN.but({"evaluate_every": 3}),
        RunSettings(algorithm="random-ranking"),
    ]
    side_by_side(runs, data)
    alone = (
        {"refresh": 2},
        {"aggregation": "clipped"},
        {"model": "random-trees"},
        {"secure_sums": True},
        {"adversaries": 0.1},
    )
    assert [clicks_of(RUN.but(given)) for given in alone] == [None] * 5
    assert clicks_of(runs[3]) is None
    assert clicks_of(runs[-1]) is None


def test_runs_that_were_interrupted_at_different_rounds_meet_again(data, tmp_path):
    runs = [RUN, RUN.but({"client_rate": 0.05}), RUN.but({"propensity": "pooled"})]
    places = [tmp_path / f"{i}.npz" for i in range(len(runs))]
    for settings, place, rounds in zip(runs[:2], places, (2, 5), strict=False):
        all_of([settings.but({"rounds": rounds})], data, checkpoints=[place])
    resumed = all_of(runs, data, checkpoints=places, checkpoint_every=1)
    for settings, result in zip(runs, resumed, strict=True):
        equal(result, perform(settings, data, seed=3, splits=("test",)))


def test_bundles_have_the_same_clicks_and_are_enough_for_all_workers():
    def task(seed: int, **given) -> Task:
        return Task(RunSettings.of(given), seed, ("test",), Source("synthetic"), ())

    rates = [0.001 * (1 + i) for i in range(40)]
    tasks = [task(seed, client_rate=rate, gamma=gamma) for rate in rates for gamma in (1.0, 2.0) for seed in (0, 1)]
    found = bundles(tasks, workers=2)
    assert sorted(one.key for bundle in found for one in bundle) == sorted(one.key for one in tasks)
    assert {len(bundle) for bundle in found} == {10}
    for bundle in found:
        assert len({(one.seed, one.settings.click_model.gamma) for one in bundle}) == 1
    assert len(bundles(tasks, workers=10)) >= 40
    assert bundles(tasks[:7], workers=2) == [[one] for one in tasks[:7]]
    rankings = [task(seed, algorithm="random-ranking") for seed in range(80)]
    assert len(bundles([*tasks[:4], *rankings], workers=1)) == 84  # which are quick, and do not keep workers busy
    lone = [task(0, refresh=5, client_rate=rate) for rate in rates]
    assert bundles(lone, workers=1) == [[one] for one in lone]
    assert clicks_of(RunSettings(fedips=FedIPS(LocalTraining(0.5)))) == clicks_of(RunSettings())
