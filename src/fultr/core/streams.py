"""Random numbers that depend only on what they are for.

Every random decision has its own stream, keyed by (seed, purpose, and up to two indices such as round and
client). Results therefore do not depend on the number of threads or processes, on batching, or on resuming.

The generator is SplitMix64 (Steele, Lea and Flood 2014): a Weyl sequence put through a 64-bit finaliser. A stream's
start is the finaliser applied to each key in turn.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import njit

from fultr.core.arrays import Float64s, Int64s

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_TO_UNIT = 2.0**-53


class Purpose(IntEnum):
    """What a stream of random numbers is for; two purposes never share numbers."""

    TIES = 1
    SPLIT = 2
    SYNTHETIC = 3
    POLICY_SAMPLE = 4
    POLICY_TIES = 5
    POLICY_WEIGHTS = 6
    POLICY_BATCHES = 7
    BIAS_SEVERITY = 8
    CLIENT_QUERIES = 9
    CLICKS = 10
    COHORT = 11
    POPULATION = 12
    INITIAL_WEIGHTS = 13
    LAMBDA_BATCHES = 14
    RANDOM_RANKING = 15
    ADVERSARIES = 16
    NOISE = 17
    CLIENT_NOISE = 18
    DROPOUTS = 19
    EXPLORATION = 20
    SPLITS = 21
    COLUMNS = 22
    BINS = 23
    BOOTSTRAP = 40
    HALVES = 41
    QUERY_KIND = 42
    HELD_OUT = 60


@njit(cache=True)
def mix(z: np.uint64) -> np.uint64:
    """SplitMix64's finaliser: a bijection of 64-bit words in which every input bit reaches every output bit."""
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@njit(cache=True)
def start(seed: int, purpose: int, first: int, second: int) -> np.uint64:
    """The state at which the stream of (seed, purpose, first, second) starts."""
    state = mix(np.uint64(seed) + _GOLDEN)
    state = mix(state + np.uint64(purpose) * _GOLDEN)
    state = mix(state + np.uint64(first) * _GOLDEN)
    return mix(state + np.uint64(second) * _GOLDEN)


@njit(cache=True)
def advance(state: np.uint64) -> np.uint64:
    """The next state of a stream; `mix` of a state is its random word."""
    return state + _GOLDEN


@njit(cache=True)
def unit(state: np.uint64) -> float:
    """The state's random number in [0, 1), with 53 random bits."""
    return np.float64(mix(state) >> _S11) * _TO_UNIT


@njit(cache=True)
def below(state: np.uint64, n: int) -> int:
    """The state's random integer in 0..n-1 (bias below n / 2**53)."""
    return int(unit(state) * n)


@njit(cache=True)
def uniforms(seed: int, purpose: int, first: int, seconds: Int64s) -> Float64s:
    """One number in [0, 1) for each index in `seconds`: the first of each one's stream."""
    out = np.empty(seconds.size, np.float64)
    for i in range(seconds.size):
        out[i] = unit(start(seed, purpose, first, seconds[i]))
    return out


def generator(seed: int, purpose: Purpose, index: int = 0) -> np.random.Generator:
    """A NumPy generator for decisions that are made once, outside the hot loops.

    >>> generator(0, Purpose.SPLIT).permutation(4).tolist() == generator(0, Purpose.SPLIT).permutation(4).tolist()
    True
    """
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, int(purpose), index])))
