"""Models: what a ranker's flat vector of weights means; one per file, one row each here.

Optimisers, aggregation, privacy, files and messages do not know what is in the vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fultr.core.kinds import Kinds

if TYPE_CHECKING:
    from fultr.clicks.log import Records
    from fultr.core.arrays import Float32s, Float64s
    from fultr.rankers.training import Training

MODELS = Kinds("model", {"linear": "fultr.rankers.linear:Linear"})


class Model(Protocol):
    """What a ranker is made of: a flat vector of weights, and what it means; see `fultr.rankers.linear`."""

    @property
    def features(self) -> int:
        """Of a document."""

    @property
    def size(self) -> int:
        """How many weights it has."""

    def initial(self, seed: int | None = None) -> Float32s:
        """Weights to start from; random ones if a seed is given."""

    def scores(self, weights: Float32s, features: Float32s, threads: int | None = None) -> Float32s:
        """Scores [documents, rankers] of every row of `features` under each row of `weights`."""

    def add_updates(
        self,
        records: Records,
        credit: Float64s,
        weights: Float32s,
        training: Training,
        totals: Float64s,
        trained: Float64s,
    ) -> None:
        """Train each client of the records from the same weights; add its update to its row of `totals`."""


def model_named(name: str, features: int) -> Model:
    """A model for documents with so many features.

    >>> model_named("linear", 64).size
    64
    """
    model: Model = MODELS[name](features)
    return model
