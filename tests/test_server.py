"""Server optimisers against the formulas of Reddi et al. (2021), Algorithm 2."""

from __future__ import annotations

import numpy as np
import pytest

from fultr.errors import FultrError
from fultr.server import KINDS, ServerOptimiser, average, initial_state, step

UPDATES = np.array([[0.5, -1.0, 0.0], [0.25, 2.0, 0.0], [-0.125, 0.5, 0.0], [1.0, 1.0, 0.0]])
ETA, BETA1, BETA2, TAU = 0.5, 0.75, 0.875, 0.0625


def plain_run(kind):
    """One coordinate at a time, as in the paper."""
    final = []
    for updates in UPDATES.T:
        w, m, v = 0.0, 0.0, TAU**2
        for delta in updates:
            if kind == "sgd":
                w += ETA * delta
            elif kind == "momentum":
                m = BETA1 * m + delta
                w += ETA * m
            elif kind == "adagrad":
                v = v + delta**2
                w += ETA * delta / (v**0.5 + TAU)
            else:
                m = BETA1 * m + (1 - BETA1) * delta
                if kind == "adam":
                    v = BETA2 * v + (1 - BETA2) * delta**2
                else:
                    sign = 1 if v > delta**2 else -1
                    v = v - (1 - BETA2) * delta**2 * sign
                w += ETA * m / (v**0.5 + TAU)
        final.append(w)
    return final


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
    kept = state.momentum.copy(), state.squares.copy()
    first = step(optimiser, state, weights, UPDATES[0])
    second = step(optimiser, state, weights, UPDATES[0])
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(state.momentum, kept[0])
    np.testing.assert_array_equal(state.squares, kept[1])
    np.testing.assert_array_equal(weights, np.ones(3))
    still, _ = step(optimiser, state, weights, np.zeros(3))
    np.testing.assert_array_equal(still, weights)


def test_average_of_nobody_is_nothing():
    assert average(np.array([2.0, 4.0]), 0).tolist() == [0.0, 0.0]


def test_bad_settings_are_named():
    with pytest.raises(FultrError, match=r"server optimiser: expected one of sgd, .*; found 'rmsprop'"):
        ServerOptimiser("rmsprop")
    with pytest.raises(FultrError, match="server learning rate"):
        ServerOptimiser("sgd", 0)
