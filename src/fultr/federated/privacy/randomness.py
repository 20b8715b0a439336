"""Where noise comes from: the operating system, everywhere but in a simulation.

Noise protects only whom nobody can predict it for. Seeded noise, which a simulation needs to be repeatable, is made by
`fultr.study.seeded`; no package that runs on a device or a server may import that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = Callable[[int], NDArray[np.uint64]]
"""So many random words of 64 bits, never the same ones twice."""


class Randomness(Protocol):
    """A source of random words for the server, and for each client."""

    def server(self, round_: int) -> Words:
        """For the server in a round."""

    def client(self, round_: int, client: int) -> Words:
        """For a client in a round."""


def system_words(count: int) -> NDArray[np.uint64]:
    """Random words of the operating system.

    >>> system_words(3).shape
    (3,)
    """
    return np.frombuffer(os.urandom(8 * count), np.uint64)


class SystemRandomness:
    """The operating system's random numbers, which nobody can repeat."""

    def server(self, round_: int) -> Words:
        """For the server."""
        return system_words

    def client(self, round_: int, client: int) -> Words:
        """For a client."""
        return system_words


SYSTEM = SystemRandomness()
