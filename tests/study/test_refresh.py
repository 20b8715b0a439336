"""Rankers that become the logging policy, exploration, and how good what users are shown is."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import plain
import pytest

from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.errors import FultrError
from fultr.data.ranking import RankingData, Splits
from fultr.federated.settings import Estimator, FedIPS, LocalTraining, ServerOptimiser
from fultr.rankers.linear import Linear
from fultr.rankers.metrics import ndcg
from fultr.study.exploration import explored, online_sums
from fultr.study.policy import display
from fultr.study.settings import FiniteUsers, Showing
from fultr.study.shown import Judged, Shown
from fultr.study.simulate import simulate

ALGORITHM = FedIPS(LocalTraining(0.05, "softmax"), ServerOptimiser("adam", 0.1, averaged=0.5))
SHOWING = [
    Showing(1),
    Showing(3),
    Showing(3, "plackett-luce"),
    Showing(None, "pairs"),
]


@pytest.fixture(scope="module")
def data() -> Splits:
    rng = np.random.default_rng(0)
    return Splits(*(plain.random_data(rng, queries=60, features=6) for _ in range(3)), name="random")


def same(one, other) -> None:
    np.testing.assert_array_equal(one.ranker.weights, other.ranker.weights)
    for split, values in one.curve.ndcg.items():
        np.testing.assert_array_equal(values, other.curve.ndcg[split])
    for name in ("rounds", "displayed", "policy"):
        np.testing.assert_array_equal(getattr(one.online, name), getattr(other.online, name))


class StopHereError(Exception):
    pass


@pytest.mark.parametrize("showing", SHOWING)
@pytest.mark.parametrize("population", [{}, {"population": FiniteUsers(50, pool=10, clusters=3)}])
def test_threads_and_interruptions_change_no_bit(data, tmp_path, showing, population):
    options = dict(clients=40, rounds=11, evaluate_every=2, showing=showing, sessions=Sessions(3), **population)
    whole = simulate(data, ALGORITHM, threads=1, **options)
    same(whole, simulate(data, ALGORITHM, threads=3, **options))
    path = tmp_path / "run.npz"
    for last in (2, 7):  # a checkpoint between two refreshes, and one right before

        def stop(done, last=last):
            if done == last:
                raise StopHereError

        with pytest.raises(StopHereError):
            simulate(data, ALGORITHM, checkpoint=path, checkpoint_every=2, on_round=stop, **options)
    same(whole, simulate(data, ALGORITHM, checkpoint=path, checkpoint_every=2, **options))


def test_several_versions_in_use_are_the_latest(data, tmp_path):
    """With two versions each refresh replaces the older one, also after an interruption; harvesting goes on."""
    algorithm = replace(ALGORITHM, propensity=Estimator("harvested"))
    options = dict(clients=40, rounds=9, evaluate_every=3, showing=Showing(2), policies=2)
    whole = simulate(data, algorithm, **options)
    path = tmp_path / "run.npz"
    simulate(data, algorithm, checkpoint=path, **{**options, "rounds": 6})
    same(whole, simulate(data, algorithm, checkpoint=path, **options))
    with np.load(path) as kept:
        assert kept["policies"].shape == (2, 6)
        assert not np.array_equal(*kept["policies"])


def test_without_refresh_it_is_the_papers_run(data):
    fixed = simulate(data, ALGORITHM, clients=40, rounds=6)
    late = simulate(data, ALGORITHM, clients=40, rounds=6, showing=Showing(6))  # the first refresh is after the end
    same(fixed, late)
    np.testing.assert_array_equal(fixed.online.displayed, fixed.online.policy)
    assert not np.array_equal(
        fixed.ranker.weights, simulate(data, ALGORITHM, clients=40, rounds=6, showing=Showing(5)).ranker.weights
    )


@pytest.mark.parametrize("pairs", ["displayed", "retrieved"])
def test_a_refreshed_display_is_that_of_the_new_ranker(data, pairs):
    rng = np.random.default_rng(1)
    train, model = data.train, Linear(6)
    before, after = rng.standard_normal((2, 6)).astype(np.float32)
    shown = Shown.first(train, display(train, before, pairs=pairs, seed=3), ClickModel(), 5, 3, None)
    again = shown.refreshed(0, model, after, "round 7")
    expected = Shown.first(train, display(train, after, pairs=pairs, seed=3), ClickModel(), 5, 3, None)
    for name in ("features", "offsets", "shown", "documents"):
        np.testing.assert_array_equal(getattr(again.display, name), getattr(expected.display, name))
    np.testing.assert_array_equal(again.attraction, expected.attraction)
    np.testing.assert_array_equal(again.quality, expected.quality)
    assert (shown.names, again.names) == (("policy 0",), ("round 7",))


def test_quality_is_the_ndcg_of_what_is_displayed(data):
    weights = np.random.default_rng(2).standard_normal(6).astype(np.float32)
    shown = display(data.train, weights)
    found = Judged(data.train, 5).ndcg(shown.documents, np.arange(data.train.queries))
    expected = ndcg(Linear(6).scores(weights[np.newaxis], data.train.features)[:, 0], data.train)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert np.nanmax(np.abs(found - expected)) < 0.2  # ties are broken by other keys
    assert np.nanmean(found == expected) > 0.9


def test_online_quality_is_a_mean_over_impressions():
    quality, before = np.array([1.0, 0.5, np.nan]), np.array([0.25, 0.75, np.nan])
    impressions = np.int32([0, 0, 1, 2])
    found = online_sums(quality, before, impressions, None)
    assert found.tolist() == [1 + 1 + 0.5, 0.25 + 0.25 + 0.75, 3]
    drawn = np.array([1, 0, 2])  # the display's queries are others of the data
    assert online_sums(quality, before, impressions, drawn).tolist() == [2.5, 0.75 + 0.75 + 0.25, 3]


def test_online_quality_of_one_query():
    """One query whose better document the policy shows second: 1 / log2(3) until the ranker turns it round."""
    one = RankingData.from_arrays([[0.0, 1.0], [1.0, 0.0]], labels=[0, 4], query_ids=[1, 1])
    run = simulate(
        Splits(one, one, one, name="one"),
        FedIPS(),
        clients=100,
        rounds=4,
        evaluate_every=1,
        policy=np.float32([0, 1]),
        sessions=Sessions(queries=1),
        showing=Showing(2),
    )
    assert run.online.rounds.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(run.online.displayed, [1 / math.log2(3)] * 2 + [1, 1])
    np.testing.assert_allclose(run.online.policy, 1 / math.log2(3))


def test_plackett_luce_has_its_distribution():
    """Every order of three documents as often as softmaxes without replacement say, judged by standard errors."""
    scores, temperature, clients = np.float32([0.2, -0.5, 0.9, 7.0]), 0.8, 20_000
    offsets = np.array([0, 3, 4])
    found = explored(
        Showing(None, "plackett-luce", temperature),
        scores,
        offsets,
        np.array([[2, 0], [3, -1]]),
        np.tile([0, 1], (clients, 1)),
        np.arange(clients),
        seed=5,
        round_=2,
    ).reshape(clients, 2, 2)
    assert (found[:, 1] == [3, -1]).all()
    strength = np.exp(scores[:3] / (temperature * scores[:3].std()))
    for first, second in itertools.permutations(range(3), 2):
        expected = strength[first] / strength.sum() * strength[second] / (strength.sum() - strength[first])
        share = (found[:, 0] == [first, second]).all(axis=1).mean()
        assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / clients)


def test_pairs_swap_neighbours():
    """From rank 1 or 2 on, each with one half; a document's neighbours trade places with probability 1/4."""
    best, clients = np.array([[10, 11, 12, 13], [20, 21, -1, -1], [30, -1, -1, -1]]), 20_000
    found = explored(
        Showing(None, "pairs"),
        np.zeros(1, np.float32),
        np.array([0, 1]),
        best,
        np.tile([0, 1, 2], (clients, 1)),
        np.arange(clients),
        seed=5,
        round_=2,
    ).reshape(clients, 3, 4)
    orders, counts = np.unique(found[:, 0], axis=0, return_counts=True)
    shares = {tuple(order): count / clients for order, count in zip(orders.tolist(), counts, strict=True)}
    expected = {
        (10, 11, 12, 13): 1 / 8 + 1 / 4,
        (11, 10, 12, 13): 1 / 8,
        (10, 11, 13, 12): 1 / 8,
        (11, 10, 13, 12): 1 / 8,
        (10, 12, 11, 13): 1 / 4,
    }
    assert shares.keys() == expected.keys()
    for order, share in expected.items():
        assert abs(shares[order] - share) < 4 * math.sqrt(share * (1 - share) / clients)
    swapped = (found[:, 1] == [21, 20, -1, -1]).all(axis=1).mean()
    assert abs(swapped - 1 / 4) < 4 * math.sqrt(3 / 16 / clients)
    assert (found[:, 2] == best[2]).all()


def test_exploration_shows_clients_their_own_queries(data):
    """The queries of a client do not depend on exploration, so that runs can be compared impression by impression."""
    options = dict(clients=200, rounds=1, evaluate_every=1, sessions=Sessions(2, clicks=1, most_sessions=1))
    plain_run = simulate(data, ALGORITHM, **options)
    run = simulate(data, ALGORITHM, showing=Showing(None, "plackett-luce", 1.0), **options)
    np.testing.assert_allclose(run.online.policy, plain_run.online.policy, atol=0.05)
    assert run.online.displayed[0] != run.online.policy[0]


def test_a_cold_sample_is_the_policys_order(data):
    cold = simulate(data, ALGORITHM, clients=40, rounds=2, showing=Showing(None, "plackett-luce", 1e-6))
    np.testing.assert_allclose(cold.online.displayed, cold.online.policy, atol=0.02)  # but for ties


@pytest.mark.parametrize("beside", [{"policies": 2}, {"algorithm": FedIPS(pairs="retrieved")}])
def test_what_does_not_go_with_exploration_is_refused(data, beside):
    with pytest.raises(FultrError, match=r"exploration: expected none with (policies = 2|pairs = retrieved), found"):
        simulate(data, **{"clients": 20, "rounds": 1, "showing": Showing(None, "pairs"), **beside})


def test_a_start_like_the_policy_has_norm_1(data):
    policy = np.float32([3, 0, -4, 0, 0, 12])
    run = simulate(data, FedIPS(initial="unit-policy"), policy=policy, clients=5, rounds=0)
    np.testing.assert_allclose(run.ranker.weights, policy / 13, rtol=1e-6)
    nothing = simulate(data, FedIPS(initial="unit-policy"), policy=np.zeros(6, np.float32), clients=5, rounds=0)
    assert not nothing.ranker.weights.any()


def test_rates_by_the_number_of_features(data):
    """With rate 0.64 / features, the same as with that number."""
    options = dict(clients=20, rounds=2, seed=3)
    given = simulate(data, FedIPS(LocalTraining(0.64 / 6)), **options)
    by_rule = simulate(data, FedIPS(LocalTraining(None)), **options)
    np.testing.assert_array_equal(given.ranker.weights, by_rule.ranker.weights)
