"""Noise that can be repeated, for simulations and tests alone: it protects nobody.

Packages that run on devices and servers (`device`, `deploy`) may not import this one; they have no other randomness
than the operating system's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fultr.core.streams import Purpose, advance, mix, start
from fultr.federated.privacy.randomness import Words


@dataclass(frozen=True)
class SeededRandomness:
    """Random words that follow from a seed, and from what they are for.

    >>> words = SeededRandomness(1).client(round_=0, client=7)
    >>> bool((words(2) == SeededRandomness(1).client(0, 7)(2)).all()), bool((words(2) == words(2)).all())
    (True, False)
    """

    seed: int

    def server(self, round_: int) -> Words:
        """For the server in a round."""
        return _words(start(self.seed, int(Purpose.NOISE), round_, 0))

    def client(self, round_: int, client: int) -> Words:
        """For a client in a round."""
        return _words(start(self.seed, int(Purpose.CLIENT_NOISE), round_, client))


def _words(state: np.uint64) -> Words:
    at = np.uint64(state)

    def next_words(count: int) -> NDArray[np.uint64]:
        nonlocal at
        out = np.empty(count, np.uint64)
        at = np.uint64(_fill(at, out))
        return out

    return next_words


@njit(cache=True, nogil=True)
def _fill(state: np.uint64, out: NDArray[np.uint64]) -> np.uint64:
    for i in range(out.size):
        out[i] = mix(state)
        state = advance(state)
    return state
