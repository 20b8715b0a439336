"""λLinear: linear LambdaRank trained with full information, the ceiling that FedIPS is compared with (Section 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from fultr.core.arrays import Float32s, Float64s
from fultr.core.checks import check_number, check_seed
from fultr.core.streams import Purpose, generator
from fultr.core.threads import run_chunks
from fultr.data.ranking import Splits
from fultr.rankers.linear import Linear
from fultr.rankers.metrics import mean_over_queries, ndcg_of_rankers
from fultr.rankers.ranker import Ranker
from fultr.rankers.settings import LambdaLinear
from fultr.rankers.supervised import Objective, train_epoch


@dataclass(frozen=True, eq=False)
class LambdaLinearResult:
    """The chosen ranker, and what it was chosen from.

    Attributes:
        ranker: the best on validation.
        learning_rate: its learning rate.
        epoch: its epoch, from 1.
        validation: mean NDCG@k on validation, [learning rates, epochs].
    """

    ranker: Ranker
    learning_rate: float
    epoch: int
    validation: Float64s


def train_lambda_linear(
    data: Splits,
    settings: LambdaLinear = LambdaLinear(),
    *,
    rates: Sequence[float] = (),
    seed: int = 0,
    k: int = 5,
    threads: int | None = None,
    on_epoch: Callable[[], object] | None = None,
) -> LambdaLinearResult:
    """Train linear LambdaRank on the grades of all training queries; choose by NDCG@k on validation, never on test.

    Args:
        data: a data set.
        settings: how it is trained.
        rates: learning rates to try one by one instead of the settings', such as `PAPER_LEARNING_RATES`: the best
            epoch of the best of them is kept. They share the threads; each is trained by one.
        seed: of the order of queries.
        k: NDCG@k.
        threads: how many threads to use; all cores if None.
        on_epoch: called after each epoch of each learning rate.

    >>> import fultr
    >>> data = fultr.load("synthetic", cache=False)
    >>> result = train_lambda_linear(data, LambdaLinear(lambda_rate=0.1, lambda_epochs=1))
    >>> result.learning_rate, result.epoch
    (0.1, 1)
    """
    check_seed(seed)
    rates = tuple(rates) or (settings.lambda_rate,)
    for rate in rates:
        check_number("rates", rate, above=0)
    weights = np.zeros((len(rates), settings.lambda_epochs, data.train.width), np.float32)

    def train(i: int) -> None:
        current = np.zeros(data.train.width, np.float32)
        shuffle = generator(seed, Purpose.LAMBDA_BATCHES)
        for epoch in range(settings.lambda_epochs):
            train_epoch(
                data.train,
                current,
                shuffle.permutation(data.train.queries),
                batch=settings.lambda_batch,
                learning_rate=rates[i],
                objective=Objective.LAMBDARANK,
            )
            weights[i, epoch] = current
            if on_epoch:
                on_epoch()

    run_chunks(train, len(rates), threads)
    validation = np.stack([_validation(weights[i], data, k, threads) for i in range(len(rates))])
    best, epoch = np.unravel_index(np.argmax(validation), validation.shape)
    training = {
        "data": data.name,
        "algorithm": "LambdaLinear",
        **asdict(settings),
        "lambda_rate": rates,
        "seed": seed,
        "k": k,
    }
    return LambdaLinearResult(
        Ranker(weights[best, epoch], data.train.feature_ids, data.normalised, training),
        learning_rate=rates[best],
        epoch=int(epoch) + 1,
        validation=validation,
    )


def _validation(weights: Float32s, data: Splits, k: int, threads: int | None) -> Float64s:
    return mean_over_queries(ndcg_of_rankers(Linear(data.valid.width), weights, data.valid, k=k, threads=threads))
