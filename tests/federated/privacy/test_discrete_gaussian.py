"""The discrete Gaussian: its probabilities, for both samplers, and that neither uses a floating-point number."""

from __future__ import annotations

import ast
import inspect

import numpy as np
import pytest
from scipy.stats import chisquare

import fultr
from fultr.federated.privacy import discrete_gaussian as module
from fultr.federated.privacy.discrete_gaussian import LARGEST_COMPILED, discrete_gaussian, discrete_gaussian_rows
from fultr.federated.privacy.randomness import system_words
from fultr.study.seeded import SeededRandomness


def sampled(compiled: bool, variance: int, size: int) -> np.ndarray:
    words = SeededRandomness(variance).server(0)
    if compiled:
        return discrete_gaussian_rows(variance, size, [words])[0]
    return discrete_gaussian(variance, size, words)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("variance", [1, 2, 30])
def test_every_value_is_as_frequent_as_it_should_be(compiled, variance):
    size, reach = 40_000, int(6 * variance**0.5)
    found = sampled(compiled, variance, size)
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / (2 * variance))
    expected = size * weights / weights.sum()
    counts = np.array([(found == value).sum() for value in values])
    often = expected >= 10
    told = np.append(counts[often], size - counts[often].sum())
    assert chisquare(told, np.append(expected[often], size - expected[often].sum())).pvalue > 1e-4


@pytest.mark.parametrize(("compiled", "variance"), [(True, 2**24), (True, LARGEST_COMPILED), (False, 2**50)])
def test_large_ones_have_their_variance(compiled, variance):
    found = sampled(compiled, variance, 20_000).astype(float) / variance**0.5
    assert abs((found**2).mean() - 1) < 4 * (2 / 20_000) ** 0.5
    assert abs(found.mean()) < 4 / 20_000**0.5


def test_words_that_come_in_other_portions_give_the_same_values():
    """A value whose words run out is drawn again from the same words: its size has no influence on whether it stays."""

    def portioned(most: int):
        whole, at = SeededRandomness(3).server(0)(100_000), 0

        def words(count: int) -> np.ndarray:
            nonlocal at
            begin, at = at, at + (min(count, most) or count)
            return whole[begin:at]

        return words

    few, many = (discrete_gaussian_rows(2**20, 500, [portioned(most)])[0] for most in (7, 10**6))
    assert few.tolist() == many.tolist()


def test_the_operating_system_never_repeats_itself():
    assert discrete_gaussian(10**9, 20, system_words).tolist() != discrete_gaussian(10**9, 20, system_words).tolist()


def test_no_floating_point_number_is_involved():
    """Neither a literal, nor a division: only // and %."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
        assert not isinstance(node, ast.Div)


def test_a_variance_that_does_not_fit_is_refused():
    with pytest.raises(fultr.FultrError, match="variance: expected a whole number, at least 1"):
        discrete_gaussian(0, 1, system_words)
    with pytest.raises(fultr.FultrError, match="variance: expected"):
        discrete_gaussian_rows(LARGEST_COMPILED + 1, 1, [system_words])
