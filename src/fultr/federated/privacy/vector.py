"""All that a device sends in a round, as one vector of whole numbers whose norm is bounded whatever is in it.

The vector consists of blocks. Each is scaled down to its own bound, divided by it, and multiplied by the root of its
share; the shares of the blocks that are there add up to 1, so that the whole has a norm of at most 1. Then it is
multiplied by `scale` and cut to whole numbers, which makes it no longer. What is not finite makes it all zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fultr.core.arrays import Float64s, Int64s
from fultr.core.errors import FultrError
from fultr.federated.privacy.settings import Privacy
from fultr.federated.privacy.stage import Shapes, Sums

MOMENTS = 8
"""Of a judgement: weight and gains, and the products of two of them that its standard error takes."""

_SHARES = {  # of the squared norm, relative to each other: of those that are there
    ("update",): 0.7,
    ("gradient",): 0.1,
    ("examined", "impressions"): 0.1,
    ("pairs",): 0.2,
    ("affine",): 0.1,
    ("marginals",): 0.04,
    ("judged",): 0.04,
    ("weighed",): 0.02,
    ("unclipped",): 0.02,
}
_BOUNDS = {
    "gradient": "gradient_bound",
    "examined": "counts_bound",
    "pairs": "counts_bound",
    "affine": "counts_bound",
    "weighed": "counts_bound",
    "marginals": "marginals_bound",
}


@dataclass(frozen=True)
class Block:
    """Some arrays of a client that share a bound.

    Attributes:
        names: of the arrays.
        shapes: of one client's.
        root: of its share of the squared norm.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    root: float

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return sum(math.prod(shape) for shape in self.shapes)


def blocks_of(privacy: Privacy, shapes: Shapes) -> list[Block]:
    """The blocks of a client's vector, of which arrays of some shapes are to be part.

    >>> blocks = blocks_of(Privacy("gaussian", epsilon=1), {"update": (5,), "trained": (1,), "marginals": (8,)})
    >>> [(block.names, block.size) for block in blocks], round(sum(block.root**2 for block in blocks), 9)
    ([(('update',), 5), (('marginals',), 8)], 1.0)
    """
    given: dict[str, tuple[int, ...]] = {**shapes}
    if "judged" in given:
        given["judged"] = (MOMENTS,)
    if privacy.clip_quantile is not None:
        given["unclipped"] = (1,)
    there = {names: share for names, share in _SHARES.items() if names[0] in given}
    if unbounded := sorted(given.keys() - {"trained"} - {name for names in there for name in names}):
        raise FultrError(f"{unbounded[0]}: has no bound, so that it cannot be sent with privacy")
    all_shares = sum(there.values())
    return [
        Block(names, tuple(given[name] for name in names), math.sqrt(share / all_shares))
        for names, share in there.items()
    ]


def packed(privacy: Privacy, replies: Sums, bound: float, scale: int) -> Float64s:
    """The clients' vectors, whole numbers [clients, size] in float64, each with a norm of at most `scale`.

    Args:
        privacy: the bounds of blocks.
        replies: what the clients would send, one row each.
        bound: of the update.
        scale: how many parts of the largest norm are 1.
    """
    given = {name: rows for name, rows in replies.items() if name != "trained"}
    sound = np.ones(len(given["update"]), np.bool_)
    for rows in given.values():
        sound &= np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    flat = {name: np.where(sound[:, np.newaxis], rows.reshape(len(rows), -1), 0.0) for name, rows in given.items()}
    if "judged" in flat:
        flat["judged"] = _moments(flat["judged"], privacy.judged_bound)
    shapes = {name: rows.shape[1:] for name, rows in replies.items()}
    if privacy.clip_quantile is not None:
        lengths = _lengths(flat["update"])
        flat["unclipped"] = np.where(lengths > 0, np.where(lengths <= bound, 1.0, -1.0), 0.0)[:, np.newaxis]
    parts = [
        _bounded(np.concatenate([flat[name] for name in block.names], axis=1), _bound(privacy, block, bound))
        * block.root
        for block in blocks_of(privacy, shapes)
    ]
    return _whole(np.concatenate(parts, axis=1), scale)


def unpacked(privacy: Privacy, shapes: Shapes, total: Float64s, bound: float, scale: int) -> Sums:
    """What the sum of vectors says of the sums of arrays, by name."""
    found: Sums = {}
    place = 0
    for block in blocks_of(privacy, shapes):
        unit = _bound(privacy, block, bound) / (block.root * scale)
        for name, shape in zip(block.names, block.shapes, strict=True):
            size = math.prod(shape)
            found[name] = (total[place : place + size] * unit).reshape(shape)
            place += size
    return found


def deviations(privacy: Privacy, shapes: Shapes, deviation: float, bound: float) -> Mapping[str, float]:
    """The noise's standard deviation in each array, where that of the vector is `deviation` times its bound."""
    return {
        name: deviation * _bound(privacy, block, bound) / block.root
        for block in blocks_of(privacy, shapes)
        for name in block.names
    }


def _bound(privacy: Privacy, block: Block, update: float) -> float:
    """The largest norm of a block, in the units of its arrays."""
    name = block.names[0]
    if name == "update":
        return update
    if name == "judged":
        return math.sqrt(MOMENTS)  # of numbers that are at most 1 each
    return 1.0 if name == "unclipped" else float(getattr(privacy, _BOUNDS[name]))


def _moments(judged: Float64s, bound: float) -> Float64s:
    """Weights and gains as shares of the largest weight, and their products: numbers from 0 to 1, `MOMENTS` of them."""
    weight = np.clip(judged[:, 0], 0, None)
    gains = np.clip(judged[:, 1:3], 0, weight[:, np.newaxis])
    factor = 1 / np.maximum(weight, bound)
    weight, ranked, displayed = weight * factor, gains[:, 0] * factor, gains[:, 1] * factor
    products = (weight**2, weight * ranked, ranked**2, weight * displayed, displayed**2)
    return np.stack([weight, ranked, displayed, *products], axis=1)


def _lengths(rows: Float64s) -> Float64s:
    """Norms of rows; infinite where they overflow."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = rows / np.where(largest > 0, largest, 1.0)[:, np.newaxis]
    with np.errstate(over="ignore"):
        lengths: Float64s = largest * np.sqrt((unit * unit).sum(axis=1))
    return lengths


def _bounded(rows: Float64s, bound: float) -> Float64s:
    """Rows over the bound, and no longer than 1."""
    largest = np.abs(rows).max(axis=1, initial=0.0)[:, np.newaxis]
    unit = rows / np.where(largest > 0, largest, 1.0)
    length = np.sqrt((unit * unit).sum(axis=1, keepdims=True))
    with np.errstate(over="ignore"):  # what overflows is not short
        short = largest * length <= bound
        return np.where(short, rows / bound, unit / np.where(length > 0, length, 1.0))


def _whole(rows: Float64s, scale: int) -> Float64s:
    """Rows times the scale, cut to whole numbers; those that rounding errors left too long lose a little more."""
    whole = np.trunc(rows * scale)
    while (long := squared_norms(whole) > scale**2).any():
        whole[long] = np.trunc(whole[long] * (1 - 2.0**-24))
        whole[long] -= np.sign(whole[long])
    return whole


def squared_norms(whole: Float64s) -> Int64s:
    """Exact squared norms of rows of whole numbers, none above 2^31.

    >>> squared_norms(np.array([[3.0, -4.0]])).tolist()
    [25]
    """
    numbers: Int64s = whole.astype(np.int64)
    squared: Int64s = (numbers * numbers).sum(axis=1)
    return squared
