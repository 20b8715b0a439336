"""The discrete Gaussian: whole numbers y with probability in proportion to exp(-y^2 / (2 variance)), exactly.

Canonne, Kamath and Steinke (2020), Algorithms 1 to 3, in integer arithmetic: no floating-point number is involved, so
that there are no rounding errors to tell data sets apart by (Mironov 2012). `discrete_gaussian` takes any variance;
`discrete_gaussian_rows` is compiled, for variances up to 2^26. What is random comes in as words of 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Any

import numpy as np
from numba import njit

from fultr.core.arrays import Int64s
from fultr.core.checks import check_number
from fultr.federated.privacy.randomness import Words

LARGEST_COMPILED = 2**26
"""The largest variance of `discrete_gaussian_rows`: up to it all products fit 64 bits."""

_BUFFERED = 64  # words that are fetched at a time


class _Bits:
    """Uniform whole numbers from random words."""

    def __init__(self, words: Words) -> None:
        self._words, self._kept, self._bits = words, 0, 0

    def below(self, n: int) -> int:
        """Uniform in 0..n-1."""
        wanted = (n - 1).bit_length()
        mask = (1 << wanted) - 1
        while True:
            while self._bits < wanted:
                fetched = self._words(_BUFFERED)
                self._kept |= int.from_bytes(fetched.astype("<u8").tobytes(), "little") << self._bits
                self._bits += 64 * _BUFFERED
            found = self._kept & mask
            self._kept >>= wanted
            self._bits -= wanted
            if found < n:
                return found


def _bernoulli_exp(bits: _Bits, over: int, under: int) -> bool:
    """True with probability exp(-over / under) (Algorithm 1)."""
    while over > under:
        if not _bernoulli_exp(bits, 1, 1):
            return False
        over -= under
    k = 1
    while bits.below(k * under) < over:
        k += 1
    return k % 2 == 1


def _discrete_laplace(bits: _Bits, scale: int) -> int:
    """Y with probability in proportion to exp(-|y| / scale) (Algorithm 2)."""
    while True:
        low = bits.below(scale)
        if not _bernoulli_exp(bits, low, scale):
            continue
        high = 0
        while _bernoulli_exp(bits, 1, 1):
            high += 1
        found, negative = low + scale * high, bits.below(2)
        if found or not negative:
            return -found if negative else found


def discrete_gaussian(variance: int, size: int, words: Words) -> Int64s:
    """Independent values of the discrete Gaussian with mean 0 (Algorithm 3).

    Args:
        variance: its parameter sigma^2, a whole number; very nearly its variance.
        size: how many.
        words: where random words come from.

    >>> from fultr.federated.privacy.randomness import system_words
    >>> discrete_gaussian(10**12, 3, system_words).shape
    (3,)
    """
    check_number("variance", variance, least=1, whole=True)
    bits, scale = _Bits(words), isqrt(variance) + 1
    found = np.empty(size, np.int64)
    for i in range(size):
        while True:
            y = _discrete_laplace(bits, scale)
            # |y| - variance / scale, squared, over twice the variance
            if _bernoulli_exp(bits, (abs(y) * scale - variance) ** 2, 2 * variance * scale**2):
                found[i] = y
                break
    return found


def discrete_gaussian_rows(variance: int, size: int, rows: Sequence[Words]) -> Int64s:
    """[rows, size] values, each row from its own words; the same distribution as `discrete_gaussian`, compiled.

    >>> from fultr.federated.privacy.randomness import system_words
    >>> discrete_gaussian_rows(2**24, 3, [system_words, system_words]).shape
    (2, 3)
    """
    check_number("variance", variance, least=1, most=LARGEST_COMPILED, whole=True)
    found = np.empty((len(rows), size), np.int64)
    for out, words in zip(found, rows, strict=True):
        done, left = 0, words(8 * size + 64)
        while True:
            # A value whose words ran out is drawn again from the same words and more: its value cannot matter.
            done, used = _fill(variance, isqrt(variance) + 1, left, out, done)
            if done == size:
                break
            left = np.concatenate([left[used:], words(2 * (size - done) + 64)])
    return found


_SHORT = -1  # the words ran out
_WORDS = 2**63 - 1  # a word's upper 63 bits, the largest left out


@njit(cache=True, nogil=True)
def _uniform(n: int, words: Any, place: Any) -> int:
    """Uniform in 0..n-1, by rejection; `place[0]` is the next word."""
    last = _WORDS - _WORDS % n  # of these, every rest is equally frequent
    while True:
        if place[0] >= words.size:
            return _SHORT
        found: int = np.int64(words[place[0]] >> np.uint64(1))  # type: ignore[assignment]
        place[0] += 1
        if found < last:
            return found % n


@njit(cache=True, nogil=True)
def _short_exp(over: int, under: int, words: Any, place: Any) -> int:
    """1 with probability exp(-over / under), over <= under, else 0."""
    k = 1
    while True:
        if k > 512:
            raise OverflowError("discrete Gaussian")  # probability below 1 / 512!
        u = _uniform(k * under, words, place)
        if u == _SHORT:
            return _SHORT
        if u >= over:
            return k % 2
        k += 1


@njit(cache=True, nogil=True)
def _long_exp(whole: int, over: int, under: int, words: Any, place: Any) -> int:
    """1 with probability exp(-(whole + over / under)), else 0."""
    for _ in range(whole):
        one = _short_exp(1, 1, words, place)
        if one != 1:
            return one
    return _short_exp(over, under, words, place)


@njit(cache=True, nogil=True)
def _laplace(scale: int, words: Any, place: Any) -> tuple[int, int]:
    """A value of the discrete Laplace distribution, and 1; or 0 and `_SHORT`."""
    while True:
        low = _uniform(scale, words, place)
        if low == _SHORT:
            return 0, _SHORT
        one = _short_exp(low, scale, words, place)
        if one == _SHORT:
            return 0, _SHORT
        if one == 0:
            continue
        high = 0
        while True:
            one = _short_exp(1, 1, words, place)
            if one == _SHORT:
                return 0, _SHORT
            if one == 0:
                break
            high += 1
        negative = _uniform(2, words, place)
        if negative == _SHORT:
            return 0, _SHORT
        found = low + scale * high
        if found or not negative:
            return (-found if negative else found), 1


@njit(cache=True, nogil=True)
def _fill(variance: int, scale: int, words: Any, out: Any, done: int) -> tuple[int, int]:
    """Fill values until they are done or words run out; how many are, and the words that these took."""
    place = np.zeros(1, np.int64)
    while done < out.size:
        begun = place[0]
        while True:
            y, told = _laplace(scale, words, place)
            if told == _SHORT:
                return done, begun
            away = abs(y) * scale - variance
            if away > 2**31 - 1 or away < -(2**31 - 1):
                # Accepted with probability below exp(-400); 400 factors exp(-1) of it are tried.
                told = _long_exp(400, 0, 1, words, place)
                if told == 1:
                    raise OverflowError("discrete Gaussian")
            else:
                over, under = away * away, 2 * variance * scale * scale
                told = _long_exp(over // under, over % under, under, words, place)
            if told == _SHORT:
                return done, begun
            if told == 1:
                out[done] = y
                done += 1
                break
    return done, place[0]
