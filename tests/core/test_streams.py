"""Random numbers keyed by what they are for."""

from __future__ import annotations

import numpy as np

from fultr.core.streams import Purpose, advance, below, generator, mix, start, uniforms, unit


def test_splitmix64_gives_the_published_sequence():
    """The first outputs of SplitMix64 from state 0 (Steele, Lea and Flood 2014; Vigna's reference program)."""
    state = np.uint64(0)
    found = []
    for _ in range(3):
        state = np.uint64(advance(state))
        found.append(int(mix(state)))
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_numbers_are_uniform_over_clients_rounds_and_purposes():
    n = 100_000
    for purpose, first in ((8, 0), (8, 1), (9, 0)):
        numbers = uniforms(0, purpose, first, np.arange(n))
        assert abs(numbers.mean() - 0.5) < 4 * np.sqrt(1 / 12 / n)
        counts = np.bincount((numbers * 100).astype(int), minlength=100)
        assert abs(((counts - n / 100) ** 2 / (n / 100)).sum() - 99) < 4 * np.sqrt(2 * 99)


def test_streams_of_neighbouring_keys_are_uncorrelated():
    n = 100_000
    base = uniforms(0, 8, 5, np.arange(n))
    for other in (
        uniforms(1, 8, 5, np.arange(n)),
        uniforms(0, 9, 5, np.arange(n)),
        uniforms(0, 8, 6, np.arange(n)),
        uniforms(0, 8, 5, np.arange(1, n + 1)),
    ):
        assert abs(np.corrcoef(base, other)[0, 1]) < 4 / np.sqrt(n)


def test_within_a_stream_numbers_are_uncorrelated_and_below_is_uniform():
    state = np.uint64(start(3, 10, 7, 11))
    numbers = []
    for _ in range(20_000):
        state = np.uint64(advance(state))
        numbers.append(unit(state))
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 4 / np.sqrt(20_000)
    drawn = np.bincount([below(np.uint64(start(0, 9, 0, i)), 7) for i in range(7000)], minlength=7)
    assert abs(((drawn - 1000) ** 2 / 1000).sum() - 6) < 4 * np.sqrt(12)


def test_purposes_are_distinct_and_generators_keyed():
    assert len({int(purpose) for purpose in Purpose}) == len(Purpose)
    one = generator(0, Purpose.SPLIT, 1).random(3)
    assert (one == generator(0, Purpose.SPLIT, 1).random(3)).all()
    assert (one != generator(0, Purpose.SPLIT, 2).random(3)).all()
    assert (one != generator(0, Purpose.COHORT, 1).random(3)).all()
