"""Server optimisers against the formulas of Reddi et al. (2021), Algorithm 2."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fultr.core.errors import FultrError
from fultr.federated.optimisers import OPTIMISERS as KINDS
from fultr.federated.optimisers import USUAL_RATES
from fultr.federated.optimisers.step import average, initial_state, ranker_of, step
from fultr.federated.settings import ServerOptimiser

UPDATES = np.array([[0.5, -1.0, 0.0], [0.25, 2.0, 0.0], [-0.125, 0.5, 0.0], [1.0, 1.0, 0.0]])
ETA, BETA1, BETA2, TAU = 0.5, 0.75, 0.875, 0.0625


def sgd(delta, m, v):
    return delta, m, v


def momentum(delta, m, v):
    m = BETA1 * m + delta
    return m, m, v


def adagrad(delta, m, v):
    v = v + delta**2
    return delta / (v**0.5 + TAU), m, v


def adam(delta, m, v):
    m = BETA1 * m + (1 - BETA1) * delta
    v = BETA2 * v + (1 - BETA2) * delta**2
    return m / (v**0.5 + TAU), m, v


def yogi(delta, m, v):
    m = BETA1 * m + (1 - BETA1) * delta
    v = v - (1 - BETA2) * delta**2 * (1 if v > delta**2 else -1)
    return m / (v**0.5 + TAU), m, v


# By the package's own names: the direction of one coordinate, as in the paper, and what is remembered: m and v.
PLAIN = {"sgd": sgd, "momentum": momentum, "adagrad": adagrad, "adam": adam, "yogi": yogi}


def plain_run(kind):
    """One coordinate at a time."""
    final = []
    for updates in UPDATES.T:
        w, m, v = 0.0, 0.0, TAU**2
        for delta in updates:
            direction, m, v = PLAIN[kind](delta, m, v)
            w += ETA * direction
        final.append(w)
    return final


def test_every_optimiser_is_in_the_table():
    assert list(PLAIN) == list(KINDS) == list(USUAL_RATES)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_rate_an_optimiser_has_its_own(kind):
    update = UPDATES[0]
    for optimiser in (ServerOptimiser(kind), ServerOptimiser(kind, 0), ServerOptimiser(kind, USUAL_RATES[kind])):
        moved, _ = step(optimiser, initial_state(optimiser, 3), np.zeros(3, np.float32), update)
        direction, _ = KINDS[kind].direction(optimiser, KINDS[kind].init(optimiser, 3), update)
        np.testing.assert_array_equal(moved, (USUAL_RATES[kind] * direction).astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_steps_follow_the_paper(kind):
    optimiser = ServerOptimiser(kind, ETA, BETA1, BETA2, TAU)
    weights, state = np.zeros(3, np.float32), initial_state(optimiser, 3)
    for update in UPDATES:
        weights, state = step(optimiser, state, weights, update)
    np.testing.assert_allclose(weights, plain_run(kind), rtol=1e-6)
    assert weights.dtype == np.float32


@pytest.mark.parametrize("kind", KINDS)
def test_state_is_a_value(kind):
    """Steps change neither their arguments nor each other, and a zero update from the start moves nothing."""
    optimiser = ServerOptimiser(kind)
    state, weights = initial_state(optimiser, 3), np.ones(3, np.float32)
    kept = {name: array.copy() for name, array in state.items()}
    first = step(optimiser, state, weights, UPDATES[0])
    second = step(optimiser, state, weights, UPDATES[0])
    np.testing.assert_array_equal(first[0], second[0])
    assert state.keys() == kept.keys() == first[1].keys()
    for name, array in state.items():
        np.testing.assert_array_equal(array, kept[name])
    np.testing.assert_array_equal(weights, np.ones(3))
    still, _ = step(optimiser, state, weights, np.zeros(3))
    np.testing.assert_array_equal(still, weights)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_the_rate_falls_to_nothing(kind, decay):
    """Each round's step is that of a constant rate times what is left of it."""
    falling = ServerOptimiser(kind, ETA, BETA1, BETA2, TAU, decay_rounds=3, decay=decay)
    constant = ServerOptimiser(kind, ETA, BETA1, BETA2, TAU)
    left = {"linear": [1, 2 / 3, 1 / 3, 0], "cosine": [1, (1 + 1 / 2) / 2, (1 - 1 / 2) / 2, 0]}[decay]
    state, steady, origin = initial_state(falling, 3), initial_state(constant, 3), np.zeros(3, np.float32)
    for update, share in zip(UPDATES, left, strict=True):
        moved, state = step(falling, state, origin, update)
        full, steady = step(constant, steady, origin, update)
        np.testing.assert_allclose(moved, share * full, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("averaged", [1.0, 0.5, 0.1])
def test_the_ranker_is_a_mean_over_late_rounds(kind, averaged):
    optimiser, last = ServerOptimiser(kind, ETA, averaged=averaged), ServerOptimiser(kind, ETA)
    state, other = initial_state(optimiser, 3), initial_state(last, 3)
    weights = unaveraged = np.ones(3, np.float32)
    assert ranker_of(state, weights) is weights  # before the first round
    seen = []
    for update in np.tile(UPDATES, (10, 1)):
        weights, state = step(optimiser, state, weights, update)
        unaveraged, other = step(last, other, unaveraged, update)
        np.testing.assert_array_equal(weights, unaveraged)  # training itself is the same
        seen.append(weights.astype(np.float64))
        # a factor (s + power)! / s! a round, which grows like s ** power
        power = 2 / averaged - 2
        ages = np.arange(1, len(seen) + 1)
        shares = np.exp([math.lgamma(age + power) - math.lgamma(age) for age in ages])
        np.testing.assert_allclose(ranker_of(state, weights), np.average(seen, axis=0, weights=shares), rtol=1e-5)
    mean_age = np.average(len(seen) - ages, weights=shares) / len(seen)
    assert abs(mean_age - averaged / 2) < 0.03  # as a mean over the last share of the rounds
    assert ranker_of(other, unaveraged) is unaveraged


@pytest.mark.parametrize("kind", KINDS)
def test_weight_decay_takes_a_share_of_the_weights_and_leaves_the_step(kind):
    """A share of eta_g times the decay, less as the rate falls; the optimiser sees nothing of it."""
    plain = ServerOptimiser(kind, ETA, decay_rounds=2)
    decaying = ServerOptimiser(kind, ETA, decay_rounds=2, weight_decay=0.5)
    state, other, weights = initial_state(plain, 3), initial_state(decaying, 3), np.float32([1, -2, 4])
    for update, left in zip(UPDATES[:2], (1, 1 / 2), strict=True):
        moved, state = step(plain, state, weights, update)
        decayed, other = step(decaying, other, weights, update)
        np.testing.assert_allclose(moved - decayed, ETA * left * 0.5 * weights, rtol=1e-5)
        for name, array in state.items():
            np.testing.assert_array_equal(array, other[name])


def test_average_of_nobody_is_nothing():
    assert average(np.array([2.0, 4.0]), 0).tolist() == [0.0, 0.0]


def test_bad_settings_are_named():
    with pytest.raises(FultrError, match=r'server: expected one of sgd, .*; found "rmsprop"'):
        ServerOptimiser("rmsprop")
    with pytest.raises(FultrError, match=r"server_rate: expected a number, above 0, or 0: 1 \(sgd\), .*; found -1"):
        ServerOptimiser("sgd", -1)
