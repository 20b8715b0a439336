"""What one device sends as one vector of whole numbers, so that a sum is exact and does not depend on its order.

Floating-point sums depend on the order of what is added, and a mask that is added to a float cannot be taken away
again without a trace. Whole numbers modulo 2^64 have neither problem. A block of named arrays has a bound on its norm;
the numbers count in units of a power of two that is at least the bound's 2^-40. Every step is exact: scaling by powers
of two, cutting off toward zero, and the norm, which is compared as a whole number. What differential privacy has made
whole numbers of before (`Whole`) is sent as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.core.arrays import Int64s, UInt64s
from fultr.core.checks import check_number
from fultr.core.errors import FultrError
from fultr.federated.privacy.stage import Sums

BITS = 40
"""A block's norm is below 2^40 units. A float32 has 24 significant bits: 16 more than its own keep small entries."""

MOST_DEVICES = 2**22
"""Vectors that can be added up: 2^22 x 2^40 = 2^62 fits 64 bits with a sign, so no sum wraps around."""

MOST_NUMBERS = 2**22
"""Of a block: the squares of this many numbers can be added up exactly."""

_HALF = 20  # bits of each half of a number below 2^40, whose squares add up in 64 bits
_FACTOR = 22  # bits of the factor by which a block that is too long is shortened


@dataclass(frozen=True)
class Block:
    """Named arrays that have one bound together.

    Attributes:
        bound: largest norm of all their numbers.
        shapes: of the arrays, by name, in the order in which they stand in the vector.

    >>> block = Block(3.0, (("update", (4,)), ("trained", (1,))))
    >>> block.unit == 2.0**-38, block.most == 3 * 2**38
    (True, True)
    """

    bound: float
    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    def __post_init__(self) -> None:
        check_number("bound", self.bound, above=0, most=1e300)
        if self.size > MOST_NUMBERS:
            raise FultrError(f"{self.size:,} numbers, and {MOST_NUMBERS:,} are the most that one block can have")

    @cached_property
    def size(self) -> int:
        """Numbers in it."""
        return sum(math.prod(shape) for _, shape in self.shapes)

    @property
    def _exponent(self) -> int:
        return math.frexp(self.bound)[1] - BITS

    @property
    def unit(self) -> float:
        """What 1 stands for: a power of two."""
        return math.ldexp(1.0, self._exponent)

    @property
    def most(self) -> int:
        """The bound in units, cut off: no vector of whole numbers has a larger norm."""
        return int(math.ldexp(math.frexp(self.bound)[0], BITS))

    def encoded(self, values: NDArray[np.float64]) -> Int64s:
        """Finite numbers in units, cut off toward zero; if their norm is above the bound, all are scaled down."""
        largest = float(np.abs(values).max(initial=0.0))
        if not largest:
            return np.zeros(values.size, np.int64)
        shift = min(-self._exponent, BITS - math.frexp(largest)[1])  # a larger one is scaled in any case
        whole = np.ldexp(values, shift).astype(np.int64)  # a power of two: exact; then cut off
        sizes = np.abs(whole)
        square = _square(sizes)
        if square > self.most**2:
            length = math.isqrt(square - 1) + 1  # rounded up
            places = _FACTOR + length.bit_length() - self.most.bit_length()
            factor = (self.most << places) // length  # rounded down, below 2^23
            sizes = (sizes * factor) >> places
        found: Int64s = np.sign(whole) * sizes
        return found

    def decoded(self, total: Int64s) -> NDArray[np.float64]:
        """What this many units are."""
        values: NDArray[np.float64] = np.ldexp(total.astype(np.float64), self._exponent)
        return values


@dataclass(frozen=True)
class Whole:
    """Named arrays of whole numbers, which are sent as they are.

    Their norm was bounded before noise was added. Nothing may be scaled down or cut off after that: the noise would no
    longer be what it is accounted for as.

    Attributes:
        most: what no number of one device is above; at most 2^40.
        shapes: of the arrays, by name, in the order in which they stand in the vector.

    >>> Whole(100, (("vector", (3,)),)).encoded(np.array([99.0, 0.0, -99.0])).tolist()
    [99, 0, -99]
    """

    most: int
    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    def __post_init__(self) -> None:
        check_number("most", self.most, least=1, most=2**BITS, whole=True)

    @cached_property
    def size(self) -> int:
        """Numbers in it."""
        return sum(math.prod(shape) for _, shape in self.shapes)

    @property
    def bound(self) -> float:
        """As a number like other bounds."""
        return float(self.most)

    def encoded(self, values: NDArray[np.float64]) -> Int64s:
        """The same numbers; an error if one is not whole."""
        whole = values.astype(np.int64)
        if (whole != values).any():
            raise FultrError(f"{self.shapes[0][0]}: expected whole numbers")
        return whole

    def decoded(self, total: Int64s) -> NDArray[np.float64]:
        """The same numbers."""
        return total.astype(np.float64)


@dataclass(frozen=True)
class Layout:
    """What stands where in a device's vector.

    >>> layout = Layout((Block(1.0, (("update", (2,)),)), Block(8.0, (("clicks", (1,)),))))
    >>> one = layout.encoded({"update": np.array([0.25, -0.5]), "clicks": np.array([3.0])})
    >>> other = layout.encoded({"update": np.array([0.25, 0.0]), "clicks": np.array([4.0])})
    >>> total = layout.decoded(added([one, other]), devices=2)
    >>> total["update"].tolist(), total["clicks"].tolist()
    ([0.5, -0.5], [7.0])
    """

    blocks: tuple[Block | Whole, ...]

    @cached_property
    def size(self) -> int:
        """Numbers of the vector."""
        return sum(block.size for block in self.blocks)

    def encoded(self, arrays: Mapping[str, NDArray[Any]]) -> Int64s:
        """A device's arrays as its vector; if any number is not finite, all are zero.

        Args:
            arrays: by the names of the blocks, and no others, in their shapes.
        """
        named = [(name, shape) for block in self.blocks for name, shape in block.shapes]
        if {name for name, _ in named} != set(arrays) or any(arrays[name].shape != shape for name, shape in named):
            raise FultrError(f"expected arrays of {', '.join(f'{name} {shape}' for name, shape in named)}")
        if not all(np.isfinite(array).all() for array in arrays.values()):
            return np.zeros(self.size, np.int64)
        parts = [
            block.encoded(np.concatenate([arrays[name].astype(np.float64).ravel() for name, _ in block.shapes]))
            for block in self.blocks
        ]
        return np.concatenate(parts)

    def decoded(self, total: UInt64s, devices: int) -> Sums:
        """The sum of this many devices' vectors, modulo 2^64, as arrays.

        Every number below 2^53 units is exact, others are rounded once. An error if no such sum can be that large.
        """
        check_number("devices", devices, least=0, most=MOST_DEVICES, whole=True)
        whole, place = total.view(np.int64), 0
        found: Sums = {}
        for block in self.blocks:
            part = whole[place : place + block.size]
            if part.size and (int(part.max()) > devices * block.most or int(part.min()) < -devices * block.most):
                raise FultrError(
                    f"{block.shapes[0][0]}: is no sum of {devices} vectors within the bound {block.bound:g}"
                )
            values = block.decoded(part)
            inside = 0
            for name, shape in block.shapes:
                size = math.prod(shape)
                found[name] = values[inside : inside + size].reshape(shape)
                inside += size
            place += block.size
        return found


def added(vectors: Iterable[NDArray[np.int64] | UInt64s]) -> UInt64s:
    """The sum of vectors modulo 2^64, in whatever order.

    >>> added([np.array([1, -2]), np.array([3, -4])]).view(np.int64).tolist()
    [4, -6]
    """
    total: UInt64s | None = None
    for vector in vectors:
        total = vector.view(np.uint64).copy() if total is None else total + vector.view(np.uint64)
    if total is None:
        raise FultrError("there are no vectors to add up")
    return total


def _square(sizes: Int64s) -> int:
    """The sum of squares of numbers from 0 to 2^40, exactly."""
    low, high = sizes & ((1 << _HALF) - 1), sizes >> _HALF
    parts = [int((one * other).sum()) for one, other in ((high, high), (high, low), (low, low))]
    return (parts[0] << 2 * _HALF) + (parts[1] << _HALF + 1) + parts[2]
