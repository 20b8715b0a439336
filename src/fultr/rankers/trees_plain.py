"""What the weights of a ranker with trees mean, in NumPy alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from fultr.core.arrays import Float64s, Int64s
from fultr.rankers.forest import checked_features, forest_shapes
from fultr.rankers.plain import Node, Parts, rows_times

_BLOCK = 256  # trees whose leaves are found at a time
_INT64 = 7  # a type of ONNX


@dataclass(frozen=True)
class _PlainTrees(ABC):
    """A linear ranker plus trees; see `fultr.rankers.forest`."""

    features: int
    tree_rounds: int
    depth: int

    @property
    @abstractmethod
    def trees_in_all(self) -> int:
        """Trees after the last round."""

    @property
    def parts(self) -> dict[str, tuple[int, ...]]:
        """Linear weights; steps, grown trees and seed; what each level of a tree asks, and values of its leaves."""
        return forest_shapes(self.features, self.trees_in_all, self.depth)

    def sums(self, parts: Parts, features: Float64s) -> Float64s:
        """W . x, plus the values of a document's leaves, each row by itself in the same order."""
        return rows_times(features, parts["weights"]) + self._leaf_sums(parts, features, parts["tree_values"])

    def magnitudes(self, parts: Parts, features: Float64s) -> Float64s:
        """The same with the sizes of all numbers that are added."""
        values = self._leaf_sums(parts, features, np.abs(parts["tree_values"]))
        return rows_times(np.abs(features), np.abs(parts["weights"])) + values

    def _leaf_sums(self, parts: Parts, features: Float64s, values: Float64s) -> Float64s:
        asked = checked_features(parts["tree_features"], self.features)
        sums = np.zeros(len(features))
        for begin in range(0, len(asked), _BLOCK):
            trees = slice(begin, begin + _BLOCK)
            leaves: Int64s = np.zeros((len(features), len(asked[trees])), np.int64)
            for level in range(self.depth):
                above = features[:, asked[trees, level]] > parts["tree_thresholds"][trees, level]
                leaves = 2 * leaves + above
            sums += np.take_along_axis(values[trees].T, leaves, axis=0).sum(axis=1)
        return sums

    def graph(self) -> list[Node]:
        """The answers of all levels as bits, the leaf's place among those of all trees, and the sum of the values."""
        worth = [2**level for level in reversed(range(self.depth))]
        first = [tree * 2**self.depth for tree in range(self.trees_in_all)]
        return [
            Node("MatMul", ("x", "weights"), "linear"),
            Node("Cast", ("tree_features",), "asked", {"to": _INT64}),
            Node("Gather", ("x", "asked"), "found", {"axis": 1}),  # [documents, trees, depth]
            Node("Greater", ("found", "tree_thresholds"), "answers"),
            Node("Cast", ("answers",), "bits", {"to": _INT64}),
            Node("Constant", (), "worth", {"value_ints": worth}),
            Node("MatMul", ("bits", "worth"), "leaves"),
            Node("Constant", (), "first", {"value_ints": first}),
            Node("Add", ("leaves", "first"), "places"),
            Node("Constant", (), "flat", {"value_ints": [-1]}),
            Node("Reshape", ("tree_values", "flat"), "values"),
            Node("Gather", ("values", "places"), "added"),
            Node("Constant", (), "over_trees", {"value_ints": [1]}),
            Node("ReduceSum", ("added", "over_trees"), "grown", {"keepdims": 0}),
            Node("Add", ("linear", "grown"), "sums"),
        ]

    def words(self) -> list[str]:
        """How to find a document's leaf in a tree, and its score."""
        return [
            f"Tree t asks {self.depth} questions: for each number f in row t of tree_features, is the document's value "
            "number f, counted from 0, above the number in the same place of tree_thresholds?",
            "Read the answers as a binary number, the first being the highest bit, 1 for yes: it is the place, counted "
            "from 0, of the tree's number for the document in row t of tree_values.",
            "A document's score is the sum over the features of weight times value, plus the sum over the trees of "
            "these numbers.",
        ]


@dataclass(frozen=True)
class PlainRandomTrees(_PlainTrees):
    """Trees of which `trees` grow in a round.

    >>> PlainRandomTrees(2, tree_rounds=10, depth=4, trees=30).parts["tree_values"]
    (300, 16)
    """

    trees: int

    @property
    def trees_in_all(self) -> int:
        """Trees after the last round."""
        return self.trees * self.tree_rounds


@dataclass(frozen=True)
class PlainHistogramTrees(_PlainTrees):
    """Trees that take `depth` rounds each.

    >>> PlainHistogramTrees(2, tree_rounds=10, depth=4).parts["tree_values"]
    (2, 16)
    """

    @property
    def trees_in_all(self) -> int:
        """Trees after the last round."""
        return self.tree_rounds // self.depth
