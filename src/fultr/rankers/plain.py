"""Ranking in NumPy alone, for an application on a device: it loads no compiler, and one query is soon done.

Training and evaluation score whole data sets with compiled code (`fultr.rankers.model`); tests hold that the two agree.
What is here also says what a model's vector holds and how to score with it, which is all that files and exports need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s
from fultr.core.checks import SettingError
from fultr.core.kinds import Kinds
from fultr.rankers.model import ModelSettings, built

PLAIN = Kinds(
    "model",
    {
        "linear": "fultr.rankers.plain:PlainLinear",
        "mlp": "fultr.rankers.mlp_plain:PlainMLP",
        "random-trees": "fultr.rankers.trees_plain:PlainRandomTrees",
        "histogram-trees": "fultr.rankers.trees_plain:PlainHistogramTrees",
    },
)
"""Every model of `fultr.rankers.model.MODELS`, by name."""

MOST_WEIGHTS = 1_000_000
"""Of a model that devices are given: what travels in a round must fit into a message."""

Parts = Mapping[str, Float64s]
"""The arrays that a vector of weights holds, by name."""


@dataclass(frozen=True)
class Node:
    """An operation of ONNX: from the arrays of some names to one of another name."""

    operator: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Plain(Protocol):
    """What the weights of a model mean, for documents of some number of features."""

    @property
    def parts(self) -> dict[str, tuple[int, ...]]:
        """The arrays that the vector of weights holds one after the other, by name: their shapes."""

    def sums(self, parts: Parts, features: Float64s) -> Float64s:
        """Scores, in float64. A row's score does not depend on the other rows, so equal documents have equal scores."""

    def magnitudes(self, parts: Parts, features: Float64s) -> Float64s:
        """For each row, the sum of the sizes of all that its score is a sum of: what rounding errors are a share of."""

    def graph(self) -> list[Node]:
        """What `sums` does, from "x", float64 [documents, features], and the parts to "sums"."""

    def words(self) -> list[str]:
        """What `sums` does, in sentences for whoever writes a program; "values" are a document's features."""


@dataclass(frozen=True)
class PlainLinear:
    """W . x, see `fultr.rankers.linear`."""

    features: int

    @property
    def parts(self) -> dict[str, tuple[int, ...]]:
        """The weights themselves."""
        return {"weights": (self.features,)}

    def sums(self, parts: Parts, features: Float64s) -> Float64s:
        """The sums of weight times value; a matrix product from a library does not promise equal rows equal sums."""
        return rows_times(features, parts["weights"])

    def magnitudes(self, parts: Parts, features: Float64s) -> Float64s:
        """The sums of what each product is in size."""
        return rows_times(np.abs(features), np.abs(parts["weights"]))

    def graph(self) -> list[Node]:
        """One product."""
        return [Node("MatMul", ("x", "weights"), "sums")]

    def words(self) -> list[str]:
        """One sentence."""
        return ["A document's score is the sum over the features of weight times value."]


def rows_times(rows: Float64s, vector: Float64s) -> Float64s:
    """The product of each row with a vector, each by itself in the same order."""
    return np.asarray((rows * vector).sum(axis=1))


class PlainRanker(NamedTuple):
    """A plain model with its weights.

    >>> PlainRanker.of("linear", 2, np.float32([1, 0.25])).scores(np.float32([[1, 2], [3, 4]])).tolist()
    [1.5, 4.0]
    """

    model: Plain
    parts: Parts

    @classmethod
    def of(cls, model: ModelSettings | str, features: int, weights: Float32s) -> PlainRanker:
        """From the settings of a model and a vector of its weights."""
        plain: Plain = built(PLAIN, model, features)
        return cls(plain, parts_of(plain, weights.astype(np.float64)))

    def scores(self, features: Float32s) -> Float32s:
        """Scores of the rows, float32: summed in float64 and rounded once, as an exported ranker does."""
        with np.errstate(over="ignore"):  # a score beyond float32 is infinite, and ranks accordingly
            return self.model.sums(self.parts, features.astype(np.float64, order="C")).astype(np.float32)

    def contributions(self, document: Float32s) -> Float64s:
        """What each feature of a document adds to its score: what the score loses if the feature is 0, [features].

        Those of a linear ranker add up to the score.

        >>> PlainRanker.of("linear", 2, np.float32([1, 0.25])).contributions(np.float32([3, 4])).tolist()
        [3.0, 1.0]
        """
        without = np.repeat(document.astype(np.float64)[np.newaxis], document.size + 1, axis=0)
        np.fill_diagonal(without, 0)  # the last row is the whole document
        scores = self.model.sums(self.parts, without)
        return scores[-1] - scores[:-1]


def plain_size(model: ModelSettings | str, features: int) -> int:
    """How many weights a model has; too many are refused.

    >>> plain_size("linear", 64)
    64
    """
    plain: Plain = built(PLAIN, model, features)
    size = size_of(plain)
    if size > MOST_WEIGHTS:
        raise SettingError("model", f"expected at most {MOST_WEIGHTS:,} weights, found {size:,}: {plain}")
    return size


def size_of(plain: Plain) -> int:
    """How many weights there are in all parts."""
    return sum(map(math.prod, plain.parts.values()))


def parts_of(plain: Plain, weights: Any) -> dict[str, Any]:
    """The arrays in a vector of weights, by name; they share its memory."""
    found, begin = {}, 0
    for name, shape in plain.parts.items():
        end = begin + math.prod(shape)
        found[name] = weights[begin:end].reshape(shape)
        begin = end
    return found


def scaled(features: Float32s) -> Float32s:
    """The features of one query's documents, each scaled to [0, 1]; a constant one becomes 0.

    The same numbers as `RankingData.normalise`, to the last bit.

    >>> scaled(np.float32([[1, 5], [3, 5], [2, 5]])).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]]
    """
    low, high = features.min(axis=0), features.max(axis=0)
    span = high.astype(np.float64) - low  # in float64, since the range of float32 values may overflow
    return ((features.astype(np.float64) - low) / np.where(span > 0, span, 1.0)).astype(np.float32)


def scaled_within(values: Float32s, queries: Int32s | Int64s) -> Float32s:
    """Features of the documents of several queries, each scaled to [0, 1] within its query, see `Ranker.normalised`.

    >>> scaled_within(np.float32([[1], [5], [3], [7]]), np.array([0, 1, 0, 1])).ravel().tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    found = np.empty_like(values)
    order = np.argsort(queries, kind="stable")
    begins = np.flatnonzero(np.r_[True, np.diff(queries[order]) != 0])
    for rows in np.split(order, begins[1:]) if order.size else []:
        found[rows] = scaled(values[rows])
    return found
