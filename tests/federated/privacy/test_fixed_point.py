"""Vectors of whole numbers: bounded exactly, whatever comes in, and added up in any order."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fultr import FultrError
from fultr.federated.privacy import fixed_point
from fultr.federated.privacy.fixed_point import BITS, MOST_DEVICES, Block, Layout, added

ANY = st.floats(width=64, allow_nan=False, allow_infinity=False)


def exact_square(values) -> int:
    return sum(int(value) ** 2 for value in values)


@settings(max_examples=500, deadline=None)
@given(arrays(np.float64, st.integers(1, 40), elements=ANY), st.floats(1e-200, 1e200))
def test_no_vector_is_longer_than_its_bound_and_none_is_rounded_away_from_zero(values, bound):
    block = Block(bound, (("x", values.shape),))
    found = block.encoded(values)
    assert exact_square(found) <= block.most**2
    assert block.most * Fraction(block.unit) <= Fraction(bound)
    for before, after in zip(values, found, strict=True):
        assert abs(int(after)) * Fraction(block.unit) <= abs(Fraction(before))
        assert after == 0 or (after > 0) == (before > 0)


def test_what_is_within_the_bound_loses_less_than_a_unit():
    rng = np.random.default_rng(0)
    values = rng.normal(size=1000)
    values *= 4.99 / np.linalg.norm(values)
    block = Block(5.0, (("x", (1000,)),))
    assert block.unit == 2.0 ** (3 - BITS)  # 5 is below 2^3
    assert np.abs(block.encoded(values) * block.unit - values).max() < block.unit


def test_what_is_beyond_it_keeps_its_direction_and_all_of_the_bound():
    values = np.array([3e9, -4e9])
    found = Block(1.0, (("x", (2,)),)).encoded(values)
    assert abs(found[0] / found[1] + 3 / 4) < 2**-20
    assert 1 - 2**-20 < math.sqrt(exact_square(found)) / Block(1.0, (("x", (2,)),)).most <= 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_makes_everything_zero(bad):
    layout = Layout((Block(1.0, (("a", (2,)),)), Block(1.0, (("b", (1,)),))))
    given_ = {"a": np.array([0.5, bad]), "b": np.array([0.5])}
    assert layout.encoded(given_).tolist() == [0, 0, 0]


def test_one_bound_can_be_for_several_arrays():
    layout = Layout((Block(5.0, (("a", (2,)), ("b", (1, 2)))),))
    whole = layout.encoded({"a": np.array([3.0, 0.0], np.float32), "b": np.array([[0.0, 4.0]])})
    found = layout.decoded(added([whole]), 1)
    assert found["a"].tolist() == [3.0, 0.0]
    assert found["b"].tolist() == [[0.0, 4.0]]
    longer = layout.encoded({"a": np.array([30.0, 0.0]), "b": np.array([[0.0, 40.0]])})
    assert exact_square(longer) <= (5 * 2**37) ** 2  # together, not each


def test_the_order_does_not_matter_and_counts_are_exact():
    rng = np.random.default_rng(0)
    layout = Layout((Block(1e7, (("counts", (4,)),)), Block(100.0, (("update", (30,)),))))
    devices = [{"counts": rng.integers(0, 1000, 4) * 1.0, "update": rng.normal(size=30)} for _ in range(500)]
    vectors = [layout.encoded(device) for device in devices]
    one = layout.decoded(added(vectors), 500)
    other = layout.decoded(added([vectors[i] for i in rng.permutation(500)]), 500)
    assert one["counts"].tolist() == sum(device["counts"] for device in devices).tolist()
    assert one["update"].tobytes() == other["update"].tobytes()
    assert np.abs(one["update"] - sum(device["update"] for device in devices)).max() < 500 * layout.blocks[1].unit


def test_the_largest_sum_of_the_most_devices_does_not_wrap_around():
    block = Block(np.nextafter(1.0, 0.0), (("x", (1,)),))  # the largest that a bound below a power of two can be
    assert MOST_DEVICES * block.most < 2**63
    total = np.array([MOST_DEVICES * block.most], np.int64).view(np.uint64)
    assert Layout((block,)).decoded(total, MOST_DEVICES)["x"] == pytest.approx(MOST_DEVICES)
    assert Layout((block,)).decoded(-total, MOST_DEVICES)["x"] == pytest.approx(-MOST_DEVICES)
    with pytest.raises(FultrError, match="devices: expected"):
        Layout((block,)).decoded(total, MOST_DEVICES + 1)


def test_what_cannot_be_a_sum_is_refused():
    layout = Layout((Block(1.0, (("x", (1,)),)),))
    layout.decoded(np.array([3 * 2**39], np.uint64), 3)
    with pytest.raises(FultrError, match="x: is no sum of 3 vectors within the bound 1"):
        layout.decoded(np.array([3 * 2**39 + 1], np.uint64), 3)
    with pytest.raises(FultrError, match=r"expected arrays of x \(1,\)"):
        layout.encoded({"y": np.zeros(1)})


@given(arrays(np.int64, st.integers(1, 50), elements=st.integers(0, 2**40)))
def test_squares_are_added_up_exactly(sizes):
    assert fixed_point._square(sizes) == exact_square(sizes)
