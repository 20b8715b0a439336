"""Neural rankers: a linear ranker plus one or two hidden layers, f_w(q, d) = w . x + v . relu(W x + b).

With v = 0 it is the linear ranker, which training starts as: hidden layers are random at first, v is zero. The linear
part (a skip connection) learns as fast as a linear ranker does, and the rest adds what that cannot express.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fultr.clicks.log import Records
from fultr.core.arrays import Float32s, Float64s
from fultr.core.compiled import compiled_for
from fultr.core.streams import Purpose, generator
from fultr.core.threads import run_ranges
from fultr.rankers.linear_kernels import Displayed
from fultr.rankers.mlp_kernels import Network, score_documents, train_clients
from fultr.rankers.mlp_plain import PlainMLP
from fultr.rankers.model import Descended
from fultr.rankers.plain import parts_of, size_of
from fultr.rankers.training import Training


@dataclass(frozen=True)
class MLP(Descended):
    """f_w(q, d) = w . x + v . relu(W x + b), or with two hidden layers w . x + v . relu(W' relu(W x + b) + b').

    Attributes:
        features: of a document.
        hidden: units of a hidden layer.
        hidden_layers: 1 or 2.

    >>> model = MLP(2, hidden=1, hidden_layers=1)
    >>> weights = np.float32([1, 0, 0, 1, -2, 10])  # x_1 + 10 relu(x_2 - 2)
    >>> model.scores(weights[np.newaxis], np.float32([[1, 2], [3, 4]])).tolist()
    [[1.0], [23.0]]
    """

    features: int
    hidden: int
    hidden_layers: int

    @cached_property
    def plain(self) -> PlainMLP:
        """What the vector of weights holds."""
        return PlainMLP(self.features, self.hidden, self.hidden_layers)

    @property
    def size(self) -> int:
        """How many weights it has."""
        return size_of(self.plain)

    def initial(self, seed: int = 0, linear: Float32s | None = None) -> Float32s:
        """Weights to start from: hidden ones Gaussian with variance 2 / inputs (He et al. 2015), v zero.

        A unit is 0 on one side of a plane; in the first layer it goes through a random point of [0, 1]^features, where
        normalised documents are.
        """
        weights = np.zeros(self.size, np.float32)
        parts, random = parts_of(self.plain, weights), generator(seed, Purpose.INITIAL_WEIGHTS, 1)
        if linear is not None:
            parts["weights"][:] = linear
        for name in ("hidden", "second"):
            if name in parts:
                rows = parts[name]
                rows[:] = random.standard_normal(rows.shape, np.float32) * np.float32((2 / rows.shape[1]) ** 0.5)
        points = random.random(parts["hidden"].shape, np.float32)
        parts["hidden_bias"][:] = -(parts["hidden"] * points).sum(axis=1)
        return weights

    def scores(self, weights: Float32s, features: Float32s, threads: int | None = None) -> Float32s:
        """Scores [documents, rankers] of every row of `features` under each row of `weights`.

        A ranker's scores do not depend on the other rankers, rows or threads.
        """
        scores = np.empty((weights.shape[0], features.shape[0]), np.float32)
        for ranker, row in zip(weights, scores, strict=True):
            network = self._network(np.ascontiguousarray(ranker))

            def work(a: int, b: int, network: Network = network, row: Float32s = row) -> None:
                score_documents(features, network, a, b, row[a:b])

            run_ranges(work, features.shape[0], threads)
        return np.ascontiguousarray(scores.T)

    def add_updates(
        self,
        records: Records,
        credit: Float64s,
        weights: Float32s,
        training: Training,
        totals: Float64s,
        trained: Float64s,
    ) -> None:
        """Train each client of the records from the same weights; add up their updates, see `Linear.add_updates`."""
        display, log = records.display, records.log
        displayed = Displayed(display.features, display.offsets, display.shown, display.longest)
        train = compiled_for(train_clients, training.loss)
        train(displayed, log.queries, log.offsets, credit, self._network(weights), training, totals, trained)

    def _network(self, weights: Float32s) -> Network:
        parts = parts_of(self.plain, weights)
        second = parts.get("second", np.empty((0, 0), np.float32))
        second_bias = parts.get("second_bias", np.empty(0, np.float32))
        return Network(parts["weights"], parts["hidden"], parts["hidden_bias"], second, second_bias, parts["output"])
