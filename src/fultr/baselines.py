"""λLinear: linear LambdaRank trained with full information, the ceiling that FedIPS is compared with (Section 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from fultr.checks import check_number, check_seed
from fultr.data import Splits
from fultr.errors import FultrError
from fultr.metrics import mean_over_queries, ndcg_of_rankers
from fultr.rankers import LinearRanker
from fultr.streams import Purpose, generator
from fultr.supervised import Objective, train_epoch
from fultr.threads import run_chunks
from fultr.types import Float32s, Float64s

PAPER_LEARNING_RATES = (0.001, 0.005, 0.01, 0.03, 0.05, 0.07, 0.09, 0.1, 0.3, 0.5, 0.7, 0.9)
"""Section 4, Baselines: {0.001, 0.005, 0.01, 0.03, ..., 0.09, 0.1, 0.3, ..., 0.9}."""


@dataclass(frozen=True)
class LambdaLinear:
    """How λLinear is trained: each learning rate in turn; the best epoch of the best one on validation is kept.

    Attributes:
        learning_rates: the grid.
        epochs: passes over the training queries, for each.
        batch: queries a step.
    """

    learning_rates: tuple[float, ...] = PAPER_LEARNING_RATES
    epochs: int = 20
    batch: int = 16

    def __post_init__(self) -> None:
        if not self.learning_rates:
            raise FultrError("learning_rates: expected at least one")
        for rate in self.learning_rates:
            check_number("learning_rates", rate, above=0)
        check_number("epochs", self.epochs, least=1, whole=True)
        check_number("batch", self.batch, least=1, whole=True)


@dataclass(frozen=True, eq=False)
class LambdaLinearResult:
    """The chosen ranker, and what it was chosen from.

    Attributes:
        ranker: the best on validation.
        learning_rate: its learning rate.
        epoch: its epoch, from 1.
        validation: mean NDCG@k on validation, [learning rates, epochs].
    """

    ranker: LinearRanker
    learning_rate: float
    epoch: int
    validation: Float64s


def train_lambda_linear(
    data: Splits,
    settings: LambdaLinear = LambdaLinear(),
    *,
    seed: int = 0,
    k: int = 5,
    threads: int | None = None,
    on_epoch: Callable[[], object] | None = None,
) -> LambdaLinearResult:
    """Train linear LambdaRank on the grades of all training queries; choose by NDCG@k on validation, never on test.

    Learning rates share the threads; each is trained by one. `on_epoch` is called after each epoch of each.

    >>> import fultr
    >>> data = fultr.load("synthetic", cache=False)
    >>> result = train_lambda_linear(data, LambdaLinear(learning_rates=(0.1,), epochs=1))
    >>> result.learning_rate, result.epoch
    (0.1, 1)
    """
    check_seed(seed)
    rates = settings.learning_rates
    weights = np.zeros((len(rates), settings.epochs, data.train.width), np.float32)

    def train(i: int) -> None:
        current = np.zeros(data.train.width, np.float32)
        shuffle = generator(seed, Purpose.LAMBDA_BATCHES)
        for epoch in range(settings.epochs):
            train_epoch(
                data.train,
                current,
                shuffle.permutation(data.train.queries),
                batch=settings.batch,
                learning_rate=rates[i],
                objective=Objective.LAMBDARANK,
            )
            weights[i, epoch] = current
            if on_epoch:
                on_epoch()

    run_chunks(train, len(rates), threads)
    validation = np.stack([_validation(weights[i], data, k, threads) for i in range(len(rates))])
    best, epoch = np.unravel_index(np.argmax(validation), validation.shape)
    training = {"data": data.name, "algorithm": "LambdaLinear", **asdict(settings), "seed": seed, "k": k}
    return LambdaLinearResult(
        LinearRanker(weights[best, epoch], data.train.feature_ids, data.normalised, training),
        learning_rate=rates[best],
        epoch=int(epoch) + 1,
        validation=validation,
    )


def _validation(weights: Float32s, data: Splits, k: int, threads: int | None) -> Float64s:
    return mean_over_queries(ndcg_of_rankers(weights, data.valid, k=k, threads=threads))
