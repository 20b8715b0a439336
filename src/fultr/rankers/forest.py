"""What the vector of a ranker with trees holds; NumPy alone, for devices too.

A tree of depth D asks the same question of all documents at each level: is feature f above a threshold? The D answers,
the first being the highest bit, are the number of the leaf. So a tree is D features, D thresholds and 2^D leaf values,
and the vector holds, one after the other,

    w [features] | steps, grown, seed | features [trees, D] | thresholds [trees, D] | values [trees, 2^D]

A score is w . x plus a document's leaf values in all trees. Those of trees that are not grown yet are zero. What is
drawn at random follows from the seed and the number of the tree.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.core.arrays import Float32s, Int32s
from fultr.core.errors import FultrError

HEAD = 3
"""Numbers between the linear weights and the trees: steps of the server, grown trees, seed."""


class Forest(NamedTuple):
    """The parts of a vector.

    Attributes:
        linear: float32 [features].
        steps: of the server, so far.
        grown: trees that count.
        seed: of all that is drawn.
        features: int32 [trees, depth], what each level asks for.
        thresholds: float32 [trees, depth].
        values: float32 [trees, 2^depth], of the leaves.
    """

    linear: Float32s
    steps: int
    grown: int
    seed: int
    features: Int32s
    thresholds: Float32s
    values: Float32s


def forest_shapes(features: int, trees: int, depth: int) -> dict[str, tuple[int, ...]]:
    """The arrays in a vector, one after the other, by name.

    >>> forest_shapes(64, 30, 4)["tree_values"]
    (30, 16)
    """
    return {
        "weights": (features,),
        "head": (HEAD,),
        "tree_features": (trees, depth),
        "tree_thresholds": (trees, depth),
        "tree_values": (trees, 2**depth),
    }


def forest_size(features: int, trees: int, depth: int) -> int:
    """How many numbers a vector has.

    >>> forest_size(64, 30, 4) == 64 + 3 + 30 * (4 + 4 + 16)
    True
    """
    return features + HEAD + trees * (2 * depth + 2**depth)


def forest_parts(weights: Float32s, features: int, depth: int) -> dict[str, Float32s]:
    """The arrays in a vector, by name; they share its memory."""
    trees = (weights.size - features - HEAD) // (2 * depth + 2**depth)
    found, begin = {}, 0
    for name, shape in forest_shapes(features, trees, depth).items():
        end = begin + math.prod(shape)
        found[name] = weights[begin:end].reshape(shape)
        begin = end
    return found


def checked_features(asked: NDArray[np.floating], features: int) -> Int32s:
    """What levels ask for, as whole numbers; features that there are not are refused.

    >>> checked_features(np.float32([[0, 2]]), features=2)
    Traceback (most recent call last):
    fultr.core.errors.FultrError: trees: expected features from 0 to 1
    """
    if asked.size and not (asked.min() >= 0 and asked.max() <= features - 1 and (asked == np.trunc(asked)).all()):
        raise FultrError(f"trees: expected features from 0 to {features - 1}")
    return asked.astype(np.int32)


def read_forest(weights: Float32s, features: int, depth: int) -> Forest:
    """What a vector says; one that names features or trees that there are not is refused.

    >>> weights = np.float32([0.5, 0, 7, 1, 0, 1, 0.25, -1, 2])  # two features; one tree: is feature 1 above 0.25?
    >>> forest = read_forest(weights, features=2, depth=1)
    >>> forest.grown, forest.features.tolist(), forest.thresholds.tolist(), forest.values.tolist()
    (1, [[1]], [[0.25]], [[-1.0, 2.0]])
    """
    parts = forest_parts(weights, features, depth)
    head, asked, trees = parts["head"].tolist(), parts["tree_features"], len(parts["tree_values"])
    most = (2**24, trees, 2**24)
    if not all(0 <= number <= limit and number == int(number) for number, limit in zip(head, most, strict=True)):
        raise FultrError(f"trees: expected whole numbers of steps and of at most {trees} trees, and a seed")
    steps, grown, seed = (int(number) for number in head)
    thresholds, values = parts["tree_thresholds"], parts["tree_values"]
    return Forest(parts["weights"], steps, grown, seed, checked_features(asked, features), thresholds, values)


def first_trees(weights: Float32s, features: int, depth: int, count: int) -> Float32s:
    """The same ranker with only its first trees; the others are gone from the vector, whose length stays.

    >>> first_trees(np.float32([0.5, 0, 7, 1, 0, 1, 0.25, -1, 2]), features=2, depth=1, count=0).tolist()
    [0.5, 0.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    kept = weights.copy()
    parts = forest_parts(kept, features, depth)
    parts["head"][1] = min(count, parts["head"][1])
    for name in ("tree_features", "tree_thresholds", "tree_values"):
        parts[name][count:] = 0
    return kept
