"""Linear rankers, f_w(q, d) = w . x (Section 4, Baselines): the only module, with its kernels, that knows they are.

A model is one flat float32 vector of weights and four things: its size, what it starts from, scores, and updates from
a client's records. Optimisers, aggregation, files and messages do not know what is in the vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fultr.clicks.log import Records
from fultr.core.arrays import Float32s, Float64s
from fultr.core.compiled import compiled_for
from fultr.core.streams import Purpose, generator
from fultr.core.threads import run_ranges
from fultr.rankers.linear_kernels import Displayed, score_rows, train_clients
from fultr.rankers.model import Descended
from fultr.rankers.training import Training


def random_weights(features: int, seed: int) -> Float32s:
    """Weights of a linear ranker, Gaussian with variance 1 / features."""
    gaussian = generator(seed, Purpose.INITIAL_WEIGHTS).standard_normal(features, np.float32)
    return gaussian / np.float32(features**0.5)


@dataclass(frozen=True)
class Linear(Descended):
    """f_w(q, d) = w . x.

    Attributes:
        features: of a document.

    >>> Linear(2).scores(np.float32([[1, 0], [0, 10]]), np.float32([[1, 2], [3, 4]])).tolist()
    [[1.0, 20.0], [3.0, 40.0]]
    """

    features: int

    @property
    def size(self) -> int:
        """How many weights it has."""
        return self.features

    def initial(self, seed: int = 0, linear: Float32s | None = None) -> Float32s:
        """Weights to start from: those given, or zero; nothing is random."""
        return np.zeros(self.features, np.float32) if linear is None else linear.copy()

    def scores(self, weights: Float32s, features: Float32s, threads: int | None = None) -> Float32s:
        """Scores [documents, rankers] of every row of `features` under each row of `weights`.

        A ranker's scores do not depend on the other rankers, rows or threads.
        """
        scores = np.empty((features.shape[0], weights.shape[0]), np.float32)
        run_ranges(lambda a, b: score_rows(features, weights, a, b, scores[a:b]), features.shape[0], threads)
        return scores

    def add_updates(
        self,
        records: Records,
        credit: Float64s,
        weights: Float32s,
        training: Training,
        totals: Float64s,
        trained: Float64s,
    ) -> None:
        """Train each client of the records from the same weights (Algorithm 1, lines 5 to 9); add up their updates.

        Args:
            records: what the clients displayed and clicked.
            credit: [impressions, K], what the clicks are worth to each displayed document.
            weights: w_t, float32 [size].
            training: how a client trains.
            totals: float64 [clients, size], each client's update is added to its row; or [1, size], to the only one.
            trained: float64 [clients, 1] or [1, 1], likewise: 1 for each client that had any credit.
        """
        display = records.display
        displayed = Displayed(display.features, display.offsets, display.shown, display.longest)
        log, train = records.log, compiled_for(train_clients, training.loss)
        train(displayed, log.queries, log.offsets, credit, weights, training, totals, trained)
