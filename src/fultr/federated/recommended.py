"""The recommended settings: the recipe that did best over data sets, bias severities and estimated propensities."""

from __future__ import annotations

from fultr.core.checks import check_choice, check_number
from fultr.federated.settings import Estimator, FedIPS, LocalTraining, ServerOptimiser
from fultr.rankers.model import MODELS, ModelSettings

REFRESH = 10
"""Rounds after which the ranker takes the logging policy's place."""

_TREES_FROM = 3  # a third of the rounds trains the linear ranker that trees grow on top of


def recommended(rounds: int = 200, *, model: str = "linear") -> FedIPS:
    """FedIPS as it is recommended, where `FedIPS()` is the paper's.

    Softmax loss, estimated propensities ("shrunk"), weights of clicks clipped at 1 / (mean propensity of the last
    rank), momentum and a rate that falls along a cosine, clients' rates by the number of features, and a start that
    ranks like the logging policy. In a simulation give `simulate` a `Showing(refresh=REFRESH)`; on devices, releases
    do that. How it was chosen, on what, and where it falls short: docs/learning-more.md.

    Args:
        rounds: of the whole training. With trees, a third of them trains the linear ranker below them.
        model: of the ranker: "linear"; "mlp"; "random-trees", the best where users are many; "histogram-trees".

    >>> recommended().propensity.kind, recommended().training.loss
    ('shrunk', 'softmax')
    >>> recommended(300, model="random-trees").model.linear_rounds
    100
    """
    check_number("rounds", rounds, least=2, most=10**8, whole=True)
    check_choice("model", model, MODELS)
    training = LocalTraining(None, "softmax", clip_rule="last-rank")
    server = ServerOptimiser("momentum", 3.0, decay_rounds=rounds, decay="cosine")
    kind = ModelSettings(model)
    if model == "mlp":
        training = LocalTraining(0.001, "softmax", clip_rule="last-rank")
        server = ServerOptimiser("adam", 0.1, tau=1e-4, decay_rounds=rounds, decay="cosine", weight_decay=0.6)
    elif model != "linear":
        first = max(1, rounds // _TREES_FROM)
        kind = ModelSettings(model, linear_rounds=first, tree_rounds=rounds - first)
        server = ServerOptimiser("momentum", 3.0, decay_rounds=first, decay="cosine")
    return FedIPS(training, server, Estimator("shrunk"), initial="unit-policy", model=kind)
