"""The round loop: against a plain one, for any number of threads, interrupted and not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import plain
import pytest

from fultr.clicks.models.position_based import PositionBased, bias_severities, examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, uniforms
from fultr.data.ranking import Splits
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.optimisers import OPTIMISERS as KINDS
from fultr.federated.settings import Estimator, FedAvg, FedIPS, LocalTraining, ServerOptimiser
from fultr.rankers.metrics import mean_over_queries, ndcg
from fultr.study.policy import display, train_policy
from fultr.study.settings import FiniteUsers, FreshUsers, PolicySettings
from fultr.study.simulate import simulate
from fultr.study.users import attraction


@pytest.fixture(scope="module")
def data() -> Splits:
    rng = np.random.default_rng(0)
    return Splits(*(plain.random_data(rng, queries=60, features=6) for _ in range(3)), name="random")


def same(one, other) -> None:
    np.testing.assert_array_equal(one.ranker.weights, other.ranker.weights)
    np.testing.assert_array_equal(one.curve.rounds, other.curve.rounds)
    assert one.curve.ndcg.keys() == other.curve.ndcg.keys()
    for split, values in one.curve.ndcg.items():
        np.testing.assert_array_equal(values, other.curve.ndcg[split])


@pytest.mark.parametrize("algorithm", [FedIPS(), FedAvg(), FedIPS(propensity=(1, 0.5, 0.4, 0.3, 0.2))])
def test_rounds_equal_plain_rounds(data, algorithm):
    """Clients one by one through the plain client, averaged, applied: the same weights and NDCG."""
    clients, rounds, seed = 30, 4, 5
    run = simulate(data, algorithm, clients=clients, rounds=rounds, seed=seed, evaluate_every=1)
    policy = train_policy(data.train, PolicySettings(), seed)
    shown = display(data.train, policy, seed=seed)
    weights = np.zeros(6, np.float32)
    for t in range(rounds):
        numbers = np.arange(clients)
        severities = bias_severities(ClickModel(), uniforms(seed, int(Purpose.BIAS_SEVERITY), t, numbers))
        examined = examination(severities, 5)
        rho = attraction(data.train, shown, ClickModel())
        log = simulate_clicks(PositionBased(), rho, examined, numbers, sessions=Sessions(), seed=seed, round_=t)
        updates = []
        for u in numbers:
            p = {"known": examined[u], "none": np.ones(5)}.get(
                algorithm.propensity if isinstance(algorithm.propensity, str) else "", algorithm.propensity
            )
            updates.append(plain.client_update(plain.impressions_of(log, u), shown, p, weights, algorithm.training))
        weights = (weights + algorithm.server.rate * np.mean(updates, axis=0)).astype(np.float32)
        scores = (data.test.features @ weights).astype(np.float32)
        expected = mean_over_queries(ndcg(scores, data.test)[:, np.newaxis])[0]
        assert run.curve.ndcg["test"][t + 1] == pytest.approx(expected, abs=0.02)  # a near tie may fall either way
    np.testing.assert_allclose(run.ranker.weights, weights, rtol=1e-3, atol=1e-6)
    assert np.abs(weights).max() > 0.01


@pytest.mark.parametrize("algorithm", [FedIPS(), FedIPS(server=ServerOptimiser("adam", 0.1), pairs="retrieved")])
@pytest.mark.parametrize("population", [None, FiniteUsers(users=200, pool=10, clusters=4)])
def test_any_number_of_threads_gives_the_same_bits(data, algorithm, population):
    options = dict(clients=150, rounds=6, evaluate_every=2) | ({"population": population} if population else {})
    one = simulate(data, algorithm, threads=1, **options)
    for threads in (2, 3):
        same(one, simulate(data, algorithm, threads=threads, **options))


class StopHereError(Exception):
    pass


def stop_at(last):
    def on_round(done):
        if done == last:
            raise StopHereError

    return on_round


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_ends_like_an_uninterrupted_one(data, tmp_path, kind):
    algorithm = FedIPS(server=ServerOptimiser(kind, 0.3))
    options = dict(clients=40, rounds=23, evaluate_every=5, seed=3)
    whole = simulate(data, algorithm, **options)
    path = tmp_path / "run.npz"
    for last in (2, 9, 14):
        with pytest.raises(StopHereError):
            simulate(data, algorithm, checkpoint=path, checkpoint_every=4, on_round=stop_at(last), **options)
    seen: list[int] = []
    same(whole, simulate(data, algorithm, checkpoint=path, checkpoint_every=4, on_round=seen.append, **options))
    assert seen[0] == 13  # it went on from the checkpoint at round 12
    same(whole, simulate(data, algorithm, checkpoint=path, on_round=seen.append, **options))  # nothing left to do
    assert seen[-1] == 23
    assert seen.count(23) == 1


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("population", [FreshUsers(), FiniteUsers(60, pool=10, clusters=3)])
def test_estimation_is_the_same_for_any_threads_and_after_interruptions(data, tmp_path, kind, population):
    algorithm = FedIPS(propensity=Estimator(kind, remember=True))
    options = dict(clients=40, rounds=9, evaluate_every=3, population=population, policies=2)
    whole = simulate(data, algorithm, threads=1, **options)
    same(whole, simulate(data, algorithm, threads=3, **options))
    path = tmp_path / "run.npz"
    for last in (2, 7):
        with pytest.raises(StopHereError):
            simulate(data, algorithm, checkpoint=path, checkpoint_every=2, on_round=stop_at(last), **options)
    resumed = simulate(data, algorithm, checkpoint=path, checkpoint_every=2, **options)
    same(whole, resumed)
    np.testing.assert_array_equal(whole.weighing.used, resumed.weighing.used)
    np.testing.assert_array_equal(whole.weighing.mass, resumed.weighing.mass)


def test_users_who_remember_are_estimated_from_more(data):
    """What returning users remember moves their estimates away from those of a single round."""
    options = dict(clients=60, rounds=8, evaluate_every=8, population=FiniteUsers(60, pool=10, clusters=3))
    for kind in ("personal", "shrunk", "power-law"):
        used = [
            simulate(data, FedIPS(propensity=Estimator(kind, remember=remember)), **options).weighing.used[-1]
            for remember in (False, True)
        ]
        assert not np.allclose(*used)


def test_weighing_tells_what_was_used_and_what_is_true(data):
    known = simulate(data, FedIPS(), clients=50, rounds=4, evaluate_every=2)
    assert known.weighing.rounds.tolist() == [2, 4]
    np.testing.assert_allclose(known.weighing.used, known.weighing.true)
    np.testing.assert_allclose(known.weighing.mass, 1)
    none = simulate(data, FedAvg(), clients=50, rounds=4, evaluate_every=2)
    np.testing.assert_array_equal(none.weighing.used, 1)
    np.testing.assert_allclose(none.weighing.true, known.weighing.true)


def test_one_policy_makes_no_interventions(data):
    with pytest.raises(FultrError, match="use two or more policies"):
        simulate(data, FedIPS(propensity=Estimator("harvested")), rounds=1)


def test_a_longer_run_goes_on_from_a_shorter_one(data, tmp_path):
    path = tmp_path / "run.npz"
    simulate(data, clients=30, rounds=7, evaluate_every=5, checkpoint=path)
    longer = simulate(data, clients=30, rounds=12, evaluate_every=5, checkpoint=path)
    same(longer, simulate(data, clients=30, rounds=12, evaluate_every=5))
    assert longer.curve.rounds.tolist() == [0, 5, 10, 12]
    with pytest.raises(FultrError, match="is at round 12, past the 7 asked for"):
        simulate(data, clients=30, rounds=7, evaluate_every=5, checkpoint=path)


def test_the_last_round_is_measured_wherever_a_run_was_stopped(data, tmp_path):
    path = tmp_path / "run.npz"
    with pytest.raises(StopHereError):
        simulate(
            data, clients=20, rounds=10, evaluate_every=3, checkpoint=path, checkpoint_every=5, on_round=stop_at(6)
        )
    same(
        simulate(data, clients=20, rounds=5, evaluate_every=3, checkpoint=path),
        simulate(data, clients=20, rounds=5, evaluate_every=3),
    )


def test_a_checkpoint_of_other_settings_is_refused(data, tmp_path):
    path = tmp_path / "run.npz"
    simulate(data, clients=30, rounds=2, checkpoint=path)
    with pytest.raises(FultrError, match=r"other settings \(they differ in clients, seed\)"):
        simulate(data, clients=31, rounds=2, seed=1, checkpoint=path)
    other = Splits(data.valid, data.valid, data.test, "random")
    with pytest.raises(FultrError, match="they differ in fingerprints"):
        simulate(other, clients=30, rounds=2, checkpoint=path)
    for damage in (b"", b"not a checkpoint", path.read_bytes()[:-40]):
        path.write_bytes(damage)
        with pytest.raises(FultrError, match=r"run.npz: expected a checkpoint written by fultr"):
            simulate(data, clients=30, rounds=2, checkpoint=path)


CHILD = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
import plain
from fultr.data.ranking import Splits
from fultr.study.simulate import simulate
rng = np.random.default_rng(0)
data = Splits(*(plain.random_data(rng, queries=60, features=6) for _ in range(3)), name="random")
run = simulate(data, clients=40, rounds=400, evaluate_every=50, checkpoint=sys.argv[2], checkpoint_every=1)
print(run.ranker.weights.tobytes().hex())
"""


@pytest.mark.process
def test_killing_it_at_any_moment_loses_nothing(data, tmp_path):
    """A real process, writing a checkpoint every round, killed again and again, ends with the same weights."""
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parents[1]), str(tmp_path / "run.npz")]
    expected = simulate(data, clients=40, rounds=400, evaluate_every=50).ranker.weights.tobytes().hex()
    for delay in (0.05, 0.13, 0.02, 0.21):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        before = (tmp_path / "run.npz").stat().st_mtime_ns if (tmp_path / "run.npz").exists() else 0
        while time.monotonic() < end and child.poll() is None:  # it is writing checkpoints now: kill in the midst
            if (tmp_path / "run.npz").exists() and (tmp_path / "run.npz").stat().st_mtime_ns != before:
                break
            time.sleep(0.002)
        time.sleep(delay)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == expected


def test_averages_divide_by_the_cohort_or_by_those_who_had_a_click(data):
    """With one session each, most clients have no click; dividing by repliers gives a longer first step."""
    options = dict(clients=200, rounds=1, sessions=Sessions(most_sessions=1), click_model=ClickModel(gamma=2.0))
    cohort = simulate(data, FedIPS(), **options).ranker.weights.astype(np.float64)
    repliers = simulate(data, FedIPS(average_over="repliers"), **options).ranker.weights.astype(np.float64)
    shares = repliers / cohort
    assert shares.std() < 1e-5 * shares.mean()
    assert shares.mean() > 1.2


def test_initial_weights(data):
    start = {
        name: simulate(data, FedIPS(initial=name), rounds=0).ranker.weights for name in ("zero", "policy", "random")
    }
    assert not start["zero"].any()
    np.testing.assert_array_equal(start["policy"], train_policy(data.train))
    assert 0.1 < start["random"].std() * 6**0.5 < 3


def test_a_given_policy_is_used(data):
    policy = np.float32([1, 0, 0, 0, 0, 0])
    given = simulate(data, FedIPS(initial="policy"), policy=policy, rounds=0)
    np.testing.assert_array_equal(given.ranker.weights, policy)
    trained = train_policy(data.train, PolicySettings(), 7)
    same(simulate(data, clients=20, rounds=3, seed=7, policy=trained), simulate(data, clients=20, rounds=3, seed=7))


def test_numbers_may_be_numpy_and_propensities_an_array(data):
    same(
        simulate(
            data, FedIPS(propensity=np.array([1.0, 0.5, 0.3, 0.2, 0.1])), clients=np.int64(20), rounds=np.int32(2)
        ),
        simulate(data, FedIPS(propensity=(1.0, 0.5, 0.3, 0.2, 0.1)), clients=20, rounds=2),
    )


def test_rankers_remember_whether_features_were_normalised(data):
    raw = Splits(data.train, data.valid, data.test, "raw", normalised=False)
    assert not simulate(raw, clients=5, rounds=1).ranker.normalised
    assert simulate(data, clients=5, rounds=1).ranker.normalised


def test_seeds_and_splits(data):
    one = simulate(data, clients=20, rounds=2, seed=1, splits=("valid",))
    assert list(one.curve.ndcg) == ["valid"]
    assert not np.array_equal(one.ranker.weights, simulate(data, clients=20, rounds=2, seed=2).ranker.weights)


def test_divergence_is_measured_not_fatal(data, tmp_path):
    run = simulate(data, FedIPS(LocalTraining(1e30), ServerOptimiser(server_rate=1e30)), clients=20, rounds=3)
    assert np.isfinite(run.curve.ndcg["test"]).all()
    with pytest.raises(FultrError, match="training diverged; lower the learning rates"):
        run.ranker.save(tmp_path / "ranker.json")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(clients=0), "clients: expected a whole number, at least 1, at most 100,000,000, found 0"),
        (dict(clients=50.0), "clients: expected a whole number"),
        (dict(k=0), "k: expected a whole number, at least 1, at most 100,000,000, found 0"),
        (dict(checkpoint="nowhere/run.npz"), "there is no folder nowhere"),
        (dict(policy=np.ones(1000, np.float32)), r"policy: expected .* weights of 6 features, found float32 \(1000,\)"),
        (dict(policy=[1.0]), "policy: expected .* found list"),
        (dict(rounds=-1), "rounds: expected a whole number, at least 0, at most 100,000,000, found -1"),
        (dict(seed=-1), "seed: expected a whole number, at least 0, at most .*, found -1"),
        (dict(splits=("train",)), 'splits: expected one of valid, test; found "train"'),
        (dict(displayed=3, algorithm=FedIPS(propensity=(1.0,))), "expected 3 numbers, one per displayed rank; found 1"),
    ],
)
def test_bad_arguments_are_named(data, options, message):
    with pytest.raises(FultrError, match=message):
        simulate(data, **options)


CLIENTS = """
import resource, sys, numpy as np
sys.path.insert(0, sys.argv[1])
import plain
from fultr.data.ranking import Splits
from fultr.study.simulate import simulate
rng = np.random.default_rng(0)
data = Splits(*(plain.random_data(rng, queries=60, features=6) for _ in range(3)), name="random")
simulate(data, clients=2_000, rounds=1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
simulate(data, clients=62_500, rounds=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.process
def test_memory_does_not_grow_with_the_number_of_clients():
    command = [sys.executable, "-c", CLIENTS, str(Path(__file__).parents[1])]
    grown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert int(grown) < 10_000  # kB; the log of 62,500 clients would be some 25 MB, their updates more


@pytest.mark.parametrize("name", ["algorithm", "click_model", "sessions", "population"])
@pytest.mark.parametrize("value", [None, "x", 5, FedIPS])
def test_settings_of_another_type_are_named(name, value):
    arguments = {"algorithm": FedIPS(), "clients": 5, "rounds": 1, name: value}
    with pytest.raises(FultrError, match=f"^{name}: expected a value of type [A-Z]"):
        simulate("synthetic", **arguments)


def test_data_by_name_and_mistakes_in_words():
    by_name = simulate("synthetic", FedIPS(), clients=20, rounds=1)
    assert by_name.settings["data"] == "synthetic"
    with pytest.raises(FultrError, match="found the class itself: write FedIPS"):
        simulate("synthetic", FedIPS)
    for data, message in (
        (None, "data: expected a value of type Splits, found nothing"),
        ("synthetik", "unknown data set|no such file or folder"),
    ):
        with pytest.raises(FultrError, match=message):
            simulate(data)
