"""The private stage: bounds, noise, what it depends on; and checks that are shown to fail on wrong code."""

from __future__ import annotations

import math

import numpy as np
import pytest
from help.privacy_checks import (
    CLIENTS,
    SHAPES,
    check_adjacency,
    check_everything_is_in_the_vector,
    check_noise_has_its_size,
    check_norm_is_bounded,
    check_only_the_noised_sum_counts,
    replies_of,
    sent_by,
    stage_of_mode,
)
from scipy.stats import beta, norm

from fultr.core.errors import FultrError
from fultr.federated.privacy import PRIVACY, correlated, discrete_gaussian, distributed, gaussian, vector
from fultr.federated.privacy.factorisation import released_deviation, summed_deviation
from fultr.federated.privacy.private import PrivateSum
from fultr.federated.privacy.settings import Privacy
from fultr.federated.privacy.vector import blocks_of
from fultr.study.seeded import SeededRandomness


def test_norms_are_bounded():
    check_norm_is_bounded()


@pytest.mark.parametrize("mode", PRIVACY)
def test_noise_has_its_size(mode):
    check_noise_has_its_size(mode)


def test_nothing_but_the_noised_sum_counts():
    check_only_the_noised_sum_counts(PrivateSum.server)


def test_one_device_moves_the_sum_by_its_own_vector():
    check_adjacency()


def test_everything_is_in_the_vector():
    check_everything_is_in_the_vector()


def _noise_too_small(patch):
    true = gaussian.noise_of
    for module in (gaussian, correlated, distributed):
        patch.setattr(module, "noise_of", lambda privacy: 0.95 * true(privacy))


def _a_share_too_small(patch):
    true = distributed.share_variance
    patch.setattr(distributed, "share_variance", lambda privacy: round(0.95**2 * true(privacy)))


def _gradient_not_clipped(patch):
    true = vector._bounded
    patch.setattr(vector, "_bounded", lambda rows, bound: rows / bound if bound == 100 else true(rows, bound))


def _divided_by_replies(stage, state, total, clients, random):
    return stage.server(state, total, float(total["trained"][0]), random)


class _Leaking(PrivateSum):
    """A sum that travels beside the vector, and is in no budget."""

    def client(self, sent, replies, draws):
        return {**super().client(sent, replies, draws), "clicks": replies["impressions"]}


@pytest.mark.parametrize("mode", ["gaussian", "correlated"])
def test_noise_of_95_percent_is_found(monkeypatch, mode):
    _noise_too_small(monkeypatch)
    with pytest.raises(AssertionError, match=r"noise of 0\.9[3-6]"):
        check_noise_has_its_size(mode)


def test_shares_of_95_percent_are_found(monkeypatch):
    _a_share_too_small(monkeypatch)
    with pytest.raises(AssertionError, match=r"noise of 0\.9[3-6]"):
        check_noise_has_its_size("distributed")


def test_a_block_that_is_not_clipped_is_found(monkeypatch):
    _gradient_not_clipped(monkeypatch)
    monkeypatch.setattr(vector, "_whole", lambda rows, scale: np.trunc(rows * scale))  # it would hide the mistake
    with pytest.raises(AssertionError, match="longer than the bound"):
        check_norm_is_bounded()


def test_a_denominator_that_depends_on_replies_is_found():
    with pytest.raises(AssertionError, match="depends on more than the noised sum"):
        check_only_the_noised_sum_counts(_divided_by_replies)


def test_a_sum_that_is_not_accounted_for_is_found(monkeypatch):
    monkeypatch.setattr("help.privacy_checks.PrivateSum", _Leaking)
    with pytest.raises(AssertionError, match="travels beside the vector"):
        check_everything_is_in_the_vector()


def test_a_name_without_a_bound_cannot_be_sent():
    with pytest.raises(FultrError, match="clicks: has no bound"):
        blocks_of(Privacy("gaussian", epsilon=1.0), {**SHAPES, "clicks": (1,)})


@pytest.mark.parametrize("mode", ["gaussian", "correlated"])
def test_what_comes_out_is_the_bounded_sum_and_noise(mode):
    """Replies within their bounds come back as their sum, up to noise of the size that is claimed."""
    stage = stage_of_mode(mode, noise=0.5, update_bound=1.0, counts_memory=0.0)
    replies = {name: 0.001 * rows for name, rows in replies_of(CLIENTS).items()}
    for rows in replies.values():
        rows /= np.maximum(1, np.abs(rows).max(axis=1, keepdims=True))
    replies["update"] /= 10
    total = {name: rows.sum(axis=0) for name, rows in sent_by(stage, replies).items()}
    _, sums = stage.server(stage.init(SHAPES), total, CLIENTS, SeededRandomness(2))
    deviations = vector.deviations(stage.privacy, SHAPES, 0.5, 1.0)
    names = ("update", "gradient", "examined", "impressions", "marginals")
    left = np.concatenate([(sums[name] - replies[name].sum(axis=0)) / deviations[name] for name in names])
    assert np.abs(left).max() < 4.5
    assert left.std() == pytest.approx(1, abs=4 / math.sqrt(2 * left.size))


def test_correlated_noise_is_taken_back():
    """The noise in the sum of all rounds is what the factorisation says, far below that of independent noise."""
    rounds, runs, size = 16, 40, 30
    privacy = Privacy("correlated", noise_multiplier=1.0, population=10**6)
    totals, lasts = [], []
    for run in range(runs):
        state = correlated.init(privacy, size)
        released = []
        for t in range(rounds):
            state, found = correlated.server(privacy, state, np.zeros(size), SeededRandomness(run).server(t))
            released.append(found / 2**24)
        totals.append(np.sum(released, axis=0))
        lasts.append(released[-1])
    count = runs * size
    for values, claimed in ((totals, summed_deviation(1, 1, rounds)), (lasts, released_deviation(1, 1, rounds))):
        assert np.std(values) == pytest.approx(claimed, rel=4 / math.sqrt(2 * count))
    assert summed_deviation(1, 1, rounds) < 0.4 * math.sqrt(rounds)


def test_a_band_forgets_what_it_no_longer_reaches():
    privacy = Privacy("correlated", noise_multiplier=1.0, population=10**6, participations=3, rounds_apart=4)
    state = correlated.init(privacy, 2)
    for t in range(9):
        state, _ = correlated.server(privacy, state, np.ones(2), SeededRandomness(0).server(t))
    assert state["sums"].shape == state["released"].shape == (3, 2)


def test_the_bound_follows_a_quantile():
    stage = stage_of_mode("gaussian", noise=0.5, clip_quantile=0.3, update_bound=100.0)
    random = np.random.default_rng(1)
    replies = {name: np.zeros((CLIENTS, *shape)) for name, shape in SHAPES.items()}
    lengths = random.uniform(0, 1, CLIENTS)
    replies["update"][:, 0] = lengths
    state = stage.init(SHAPES)
    for t in range(150):
        sent = stage.client(stage.broadcast(state), replies, [])
        total = {name: rows.sum(axis=0) for name, rows in sent.items()}
        state, _ = stage.server(state, total, CLIENTS, SeededRandomness(t))
    assert float(state["bound"][0]) == pytest.approx(np.quantile(lengths, 0.3), abs=0.1)


@pytest.mark.slow
def test_a_canary_is_found_as_often_as_the_budget_allows_and_no_more():
    """10,000 releases with and without one device can be told apart as well as mu = 1 / z allows, and no better."""
    trials = 10_000
    privacy = Privacy("gaussian", noise_multiplier=1.0, population=10**6)

    def guessed(noise: float) -> float:
        """A lower bound, at 95%, of mu: from false and missed alarms of a threshold halfway."""
        alarms = []
        for with_it in (0, 1):
            words = SeededRandomness(with_it).server(0)
            drawn = discrete_gaussian.discrete_gaussian(round((noise * 2**24) ** 2), trials, words)
            alarms.append(int((drawn + with_it * 2**24 > 2**23).sum()))
        false, missed = alarms[0], trials - alarms[1]
        most = [beta.ppf(0.975, wrong + 1, trials - wrong) for wrong in (false, missed)]
        return float(norm.ppf(1 - most[0]) - norm.ppf(most[1]))

    assert 0.85 < guessed(gaussian.noise_of(privacy)) <= 1.0
    assert guessed(0.5) > 1.0
