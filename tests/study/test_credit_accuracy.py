"""Bias and noise of credit, measured where the truth is known."""

from __future__ import annotations

import numpy as np
import plain
import pytest

from fultr.data.ranking import Splits
from fultr.study.credit_accuracy import CASES, credit_errors, errors_of
from fultr.study.settings import RunSettings


def test_a_common_level_and_scale_are_no_bias():
    """Means 1 and 3 at both ranks, b = 2; half of the documents are 1 above and half 1 below."""
    count = np.full((2, 2), 10_000.0)
    means = np.array([[1.0, 1.0], [3.0, 3.0]])
    found = errors_of(np.stack([count, count * means, count * (means**2 + 1)]))
    assert found.bias == 0
    assert found.noise == pytest.approx(1 / 2)
    assert found.chance == pytest.approx((1 / 10_000) ** 0.5 / 2)


def test_chance_is_taken_off_the_bias():
    """Relevant documents get .1 more at rank 1 than at rank 2, which is .05 from their mean, at half of the cells."""
    count = np.full((2, 2), 400.0)
    means = np.array([[0.0, 0.0], [1.05, 0.95]])
    found = errors_of(np.stack([count, count * means, count * (means**2 + 1)]))
    assert found.bias == pytest.approx(max(0.05**2 / 2 - 1 / 400, 0) ** 0.5)
    exact = errors_of(np.stack([count * 1e6, count * 1e6 * means, count * 1e6 * (means**2 + 1)]))
    assert exact.bias == pytest.approx(0.05 / 2**0.5, rel=1e-3)


@pytest.fixture(scope="module")
def data() -> Splits:
    rng = np.random.default_rng(0)
    return Splits(*(plain.random_data(rng, queries=60) for _ in range(3)), name="made up", normalised=False)


@pytest.mark.parametrize("case", ["none", "ips", "affine, constants by rank"])
def test_users_who_trust_are_told_apart_from_position_based_ones(data, case):
    """Each credit is without bias where it claims to be: within 3 times what chance adds; and nowhere else."""
    without = {"none": set(), "ips": {"position-based"}, "affine, constants by rank": {"trust"}}[case]
    for users in ("position-based", "trust"):
        settings = RunSettings.of({**CASES[case], "click_model": users, "clients": 400, "policy_fraction": 0.5})
        found = credit_errors(settings, data, seed=1, first=0, measured=5)
        assert (found.bias < 3 * found.chance) == (users in without), (users, found)
