"""Training on a log of users as a federation of their devices would: Algorithm 1 with every user in every round.

Client and server are the functions that simulation and devices go through (`fultr.federated.fedips`), so the weights
are those that the users' device logs give, to the last bit. Rates and rounds are chosen on impressions that are held
out; then all impressions are trained on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fultr.clicks.impressions import ImpressionLog
from fultr.clicks.log import Records
from fultr.core.arrays import Float32s, Float64s
from fultr.federated.fedips import Server, broadcast, client_round, nothing, server_round
from fultr.federated.judging import judge_order, of_sum
from fultr.federated.recommended import recommended
from fultr.federated.settings import FedIPS
from fultr.learn.propensities import federated_propensity
from fultr.rankers.model import Model, model_named

MODELS = {"linear": "linear", "mlp": "mlp", "trees": "random-trees"}
"""What a federation trains, by the names of `UnbiasedRanker`."""

ROUNDS = (50, 150)  # that are tried
RATES = (1.0, 4.0)  # of clients, as multiples of the recommended one, that are tried
HELD_OUT = 0.2  # share of the impressions


def federated_weights(
    log: ImpressionLog, algorithm: FedIPS, rounds: int, seed: int = 0, records: Records | None = None
) -> tuple[Float32s, Float64s]:
    """The weights after this many rounds with all users, and the examination that users' clicks were divided by, [K].

    Args:
        log: the click log, with features.
        algorithm: FedIPS; propensities are estimated, given, or "none".
        rounds: T.
        seed: of first weights that are random.
        records: what to train on; all of the log if None.
    """
    records = log.records() if records is None else records
    assert log.features is not None
    model: Model = model_named(algorithm.model, log.features.shape[1])
    server = Server.initial(algorithm, model, model.initial(seed), log.ranks)
    examined = np.ones((1, log.ranks))
    for _ in range(rounds):
        total = nothing(algorithm, model, log.ranks)
        examined = client_round(algorithm, model, broadcast(algorithm, server), records, total)
        server = server_round(algorithm, model, server, total, records.clients)
    return server.ranker, examined.mean(axis=0)


def chosen_algorithm(log: ImpressionLog, model: str, propensity: object, seed: int) -> tuple[FedIPS, int, float]:
    """The recommended settings with the rate and the rounds that put held-out clicks highest, and how high that is.

    Args:
        log: the click log, with features.
        model: a name of `MODELS`.
        propensity: see `federated_propensity`.
        seed: of what is held out, and of first weights.
    """
    given = federated_propensity(propensity, log.ranks)
    own, other = log.records().split(HELD_OUT, seed)
    tried = []
    for rounds in ROUNDS:
        usual = replace(recommended(rounds, model=MODELS[model]), initial="zero")
        if given is not None:
            usual = replace(usual, propensity=given)  # type: ignore[arg-type]  # a name becomes an estimator
        assert log.features is not None
        usual_rate = usual.training.rate_for(log.features.shape[1])
        for times in RATES:
            one = replace(usual, training=replace(usual.training, client_rate=times * usual_rate))
            weights, examination = federated_weights(log, one, rounds, seed, own)
            ranker = model_named(one.model, log.features.shape[1])
            judged = of_sum(judge_order(ranker, weights, other, examination), 1)
            tried.append((judged.ranked if judged else 0.0, one, rounds))
    best = max(tried, key=lambda found: found[0])
    return best[1], best[2], best[0]
