"""Rankers with boosted trees on top of a linear ranker: f(q, d) = w . x + the sum of d's leaf values in all trees.

The first rounds train the linear weights, as `fultr.rankers.linear` does. Then trees grow. There are two kinds:

- random trees: the server draws all splits, and a client adds gradient and curvature of its documents per leaf: few
  numbers, whatever the number of features. A round grows `trees` of them at once.
- histogram trees: a client adds them per node, feature and bin; a round takes the best split of one level, so that a
  tree takes `depth` rounds.

What a client sends is a plain sum over its displayed documents. The sum over clients is that of their pooled records,
so that with exact sums the trees are those of pooled training.
"""

from __future__ import annotations

import math
import threading
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fultr.clicks.log import Display, Records
from fultr.core.arrays import Float32s, Float64s, Int64s
from fultr.core.compiled import compiled_for
from fultr.core.streams import Purpose, uniforms
from fultr.core.threads import run_ranges
from fultr.rankers.forest import Forest, forest_parts, forest_size, read_forest
from fultr.rankers.linear import Linear
from fultr.rankers.linear_kernels import Displayed, score_rows
from fultr.rankers.training import Training
from fultr.rankers.tree_growth import best_split, bin_bounds, drawn_columns, drawn_splits, leaf_values
from fultr.rankers.tree_kernels import add_histograms, add_leaf_sums, add_tree_scores

_SEEDS = 2**24  # whole numbers up to it are exact in float32


@dataclass(frozen=True)
class _Boosted(ABC):
    """What both kinds of trees share: linear weights first, trees afterwards, and the scores of both.

    Attributes:
        features: of a document.
        linear_rounds: that train the linear weights.
        tree_rounds: that grow trees.
        depth: of a tree.
        shrinkage: share of a Newton step that a leaf's value is.
        leaf_penalty: share of the cohort's curvature that is added to a leaf's.
        leaf_least: share of the cohort's curvature that a leaf needs for its value not to be zero.
        document_limit: of the curvature of a document in an impression, and with it of its gradient.
    """

    features: int
    linear_rounds: int
    tree_rounds: int
    depth: int
    shrinkage: float
    leaf_penalty: float
    leaf_least: float
    document_limit: float

    @property
    @abstractmethod
    def trees_in_all(self) -> int:
        """Trees after the last round."""

    @property
    @abstractmethod
    def sums(self) -> tuple[int, ...]:
        """The shape of what a client adds to, to grow trees."""

    @abstractmethod
    def _add(
        self, forest: Forest, of_clients: tuple[Any, ...], training: Training, totals: Float64s, trained: Float64s
    ) -> None:
        """Add clients' gradients and curvatures to `totals`, [clients or 1, *sums]."""

    @abstractmethod
    def _grow(self, parts: dict[str, Float32s], forest: Forest, sums: Float64s) -> int:
        """Write what a round's sums over clients make of the trees; returns how many are grown."""

    @abstractmethod
    def _draw(self, parts: dict[str, Float32s], forest: Forest) -> None:
        """Write what the server draws before a round that grows trees."""

    @property
    def size(self) -> int:
        """How many weights it has."""
        return forest_size(self.features, self.trees_in_all, self.depth)

    @property
    def update_size(self) -> int:
        """How many numbers a client sends: for linear weights at first, for trees then, in the same places."""
        return max(self.features, math.prod(self.sums))

    def initial(self, seed: int = 0, linear: Float32s | None = None) -> Float32s:
        """Linear weights, zero if none are given, and no trees yet; what will be drawn follows from the seed."""
        weights = np.zeros(self.size, np.float32)
        parts = forest_parts(weights, self.features, self.depth)
        if linear is not None:
            parts["weights"][:] = linear
        parts["head"][2] = int(uniforms(seed, int(Purpose.SPLITS), 0, np.zeros(1, np.int64))[0] * _SEEDS)
        self._prepare(weights)
        return weights

    def scores(self, weights: Float32s, features: Float32s, threads: int | None = None) -> Float32s:
        """Scores [documents, rankers] of every row of `features` under each row of `weights`.

        A ranker that has all trees of the one before it, as later rounds have, takes over their sums. A ranker's
        scores do not depend on the other rankers, rows or threads.
        """
        scores = np.empty((features.shape[0], weights.shape[0]), np.float32)
        linear = np.ascontiguousarray(weights[:, : self.features])
        forests = [read_forest(row, self.features, self.depth) for row in weights]
        begins = [0, *(one.grown if _has_trees_of(other, one) else 0 for one, other in pairwise(forests))]

        def work(begin: int, end: int) -> None:
            score_rows(features, linear, begin, end, scores[begin:end])
            sums = np.zeros(end - begin)
            for i, (forest, first) in enumerate(zip(forests, begins, strict=True)):
                if first == 0:
                    sums[:] = 0
                _add_trees(forest, first, features, begin, end, sums)
                scores[begin:end, i] += sums

        run_ranges(work, features.shape[0], threads)
        return scores

    def stepped(self, weights: Float32s) -> int:
        """How many of the first weights the server optimiser moves in this round: the linear ones, or none."""
        return self.features if weights[self.features] < self.linear_rounds else 0

    def grown(self, weights: Float32s, update: Float64s) -> Float32s:
        """The weights after a round whose clients sent this on average, apart from what the server optimiser does."""
        after = weights.copy()
        parts, forest = forest_parts(after, self.features, self.depth), read_forest(weights, self.features, self.depth)
        if self._growing(forest):
            sums = update[: math.prod(self.sums)].reshape(self.sums)
            parts["head"][1] = self._grow(parts, forest, sums)
        parts["head"][0] += 1
        self._prepare(after)
        return after

    def _growing(self, forest: Forest) -> bool:
        return forest.steps >= self.linear_rounds and forest.grown < self.trees_in_all

    def _prepare(self, weights: Float32s) -> None:
        forest = read_forest(weights, self.features, self.depth)
        if self._growing(forest):
            self._draw(forest_parts(weights, self.features, self.depth), forest)

    def add_updates(
        self,
        records: Records,
        credit: Float64s,
        weights: Float32s,
        training: Training,
        totals: Float64s,
        trained: Float64s,
    ) -> None:
        """Add what each client sends to its row of `totals`, or to the only one; see `Linear.add_updates`.

        Nothing once all trees are grown.
        """
        forest = read_forest(weights, self.features, self.depth)
        if forest.steps < self.linear_rounds:
            linear = np.ascontiguousarray(totals[:, : self.features])
            Linear(self.features).add_updates(records, credit, forest.linear, training, linear, trained)
            totals[:, : self.features] = linear
        elif self._growing(forest):
            display, log = records.display, records.log
            displayed = Displayed(display.features, display.offsets, display.shown, display.longest)
            scores = _remembered_scores(forest, display)
            sums = totals[:, : math.prod(self.sums)].reshape(len(totals), *self.sums)
            own = np.ascontiguousarray(sums)
            self._add(forest, (displayed, log.queries, log.offsets, credit, scores), training, own, trained)
            if not np.shares_memory(own, totals):
                totals[:, : math.prod(self.sums)] = own.reshape(len(totals), -1)


@dataclass(frozen=True)
class RandomTrees(_Boosted):
    """The server draws features and thresholds; clients add up gradient and curvature per leaf.

    Attributes:
        trees: grown at once, in one round.

    >>> from fultr.rankers.model import model_named
    >>> model = model_named("random-trees", 519)
    >>> model.sums, 4 * model.update_size  # bytes of a client
    ((30, 16, 2), 3840)
    """

    trees: int

    @property
    def trees_in_all(self) -> int:
        """Trees after the last round."""
        return self.trees * self.tree_rounds

    @property
    def sums(self) -> tuple[int, ...]:
        """Trees, leaves, and gradient and curvature."""
        return (self.trees, 2**self.depth, 2)

    def _draw(self, parts: dict[str, Float32s], forest: Forest) -> None:
        now = slice(forest.grown, forest.grown + self.trees)
        parts["tree_features"][now], parts["tree_thresholds"][now] = drawn_splits(
            forest.seed, forest.grown, self.trees, self.depth, self.features
        )

    def _add(
        self, forest: Forest, of_clients: tuple[Any, ...], training: Training, totals: Float64s, trained: Float64s
    ) -> None:
        now = slice(forest.grown, forest.grown + self.trees)
        rate = training.learning_rate / math.sqrt(self.trees)  # so that updates are as long as linear ones
        add: Any = compiled_for(add_leaf_sums, training.loss)
        how = training._replace(learning_rate=rate)
        add(*of_clients, how, self.document_limit, forest.features[now], forest.thresholds[now], totals, trained)

    def _grow(self, parts: dict[str, Float32s], forest: Forest, sums: Float64s) -> int:
        until = forest.grown + self.trees
        values = leaf_values(sums, self.leaf_penalty, self.leaf_least)
        parts["tree_values"][forest.grown : until] = self.shrinkage / math.sqrt(self.trees) * values
        return until


@dataclass(frozen=True)
class HistogramTrees(_Boosted):
    """Clients add up gradient and curvature per node, column and bin; the server takes a level's best split.

    Attributes:
        bins: of a feature.
        columns: share of the features whose bins are counted, drawn anew for each tree.

    >>> from fultr.rankers.model import ModelSettings, model_named
    >>> model_named(ModelSettings("histogram-trees", columns=0.25), 64).sums  # nodes, columns, bins, G and H
    (8, 16, 16, 2)
    """

    bins: int
    columns: float

    @property
    def trees_in_all(self) -> int:
        """Trees after the last round."""
        return self.tree_rounds // self.depth

    @property
    def sums(self) -> tuple[int, ...]:
        """The nodes of the last level, columns, bins, and gradient and curvature."""
        return (2 ** (self.depth - 1), math.ceil(self.columns * self.features), self.bins, 2)

    def _level(self, forest: Forest) -> int:
        return (forest.steps - self.linear_rounds) % self.depth

    def _columns(self, forest: Forest) -> Int64s:
        return drawn_columns(forest.seed, forest.grown, self.sums[1], self.features)

    def _draw(self, parts: dict[str, Float32s], forest: Forest) -> None:
        """Nothing: splits are found, and columns follow from the seed."""

    def _add(
        self, forest: Forest, of_clients: tuple[Any, ...], training: Training, totals: Float64s, trained: Float64s
    ) -> None:
        tree, level = forest.grown, self._level(forest)
        rate = training.learning_rate / math.sqrt(self.sums[1])  # so that updates are as long as linear ones
        add: Any = compiled_for(add_histograms, training.loss)
        add(
            *of_clients,
            training._replace(learning_rate=rate),
            self.document_limit,
            forest.features[tree, :level],
            forest.thresholds[tree, :level],
            self._columns(forest),
            bin_bounds(self.bins),
            totals,
            trained,
        )

    def _grow(self, parts: dict[str, Float32s], forest: Forest, sums: Float64s) -> int:
        tree, level = forest.grown, self._level(forest)
        column, bound, leaves = best_split(sums[: 2**level], self.leaf_penalty, self.leaf_least)
        parts["tree_features"][tree, level] = self._columns(forest)[column]
        parts["tree_thresholds"][tree, level] = bin_bounds(self.bins)[bound]
        if level < self.depth - 1:
            return tree
        parts["tree_values"][tree] = self.shrinkage * leaf_values(leaves, self.leaf_penalty, self.leaf_least)
        return tree + 1


def _has_trees_of(forest: Forest, other: Forest) -> bool:
    """Does a forest begin with all trees of the other one?"""
    trees = slice(0, other.grown)
    return forest.grown >= other.grown and all(
        np.array_equal(one[trees], another[trees]) for one, another in zip(forest[4:], other[4:], strict=True)
    )


def _add_trees(forest: Forest, first: int, features: Float32s, begin: int, end: int, sums: Float64s) -> None:
    """Add the leaf values of the grown trees from `first` on to the sums of rows `begin` to `end`."""
    trees = slice(first, forest.grown)
    asked, thresholds, values = forest.features[trees], forest.thresholds[trees], forest.values[trees]
    add_tree_scores(features, asked, thresholds, values, np.unique(asked), begin, end, sums)


class _Scored(NamedTuple):
    """Scores of what a display shows, by the ranker of the last round."""

    display: weakref.ref[Display]
    forest: Forest
    sums: Float64s
    scores: Float32s


_last: list[_Scored] = []
_lock = threading.Lock()


def _remembered_scores(forest: Forest, display: Display) -> Float32s:
    """Scores of all rows of a display. The clients of a round share them, and the next round adds its trees' values.

    They are the same numbers as without memory: trees are added one after the other.
    """
    features = display.features
    with _lock:
        first, sums = 0, np.zeros(len(features))
        if _last and _last[0].display() is display and _has_trees_of(forest, _last[0].forest):
            if forest.grown == _last[0].forest.grown and np.array_equal(forest.linear, _last[0].forest.linear):
                return _last[0].scores
            first, sums = _last[0].forest.grown, _last[0].sums
        _last.clear()
        scores = np.empty((len(features), 1), np.float32)
        score_rows(features, forest.linear[np.newaxis], 0, len(features), scores)
        _add_trees(forest, first, features, 0, len(features), sums)
        scores[:, 0] += sums
        kept = forest._replace(linear=forest.linear.copy(), values=forest.values.copy())
        _last.append(_Scored(weakref.ref(display), kept, sums, scores[:, 0].copy()))
        return _last[0].scores
