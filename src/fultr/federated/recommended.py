"""The recommended settings: the recipe that did best over data sets, bias severities and estimated propensities."""

from __future__ import annotations

from fultr.core.checks import check_choice, check_number
from fultr.federated.settings import Estimator, FedIPS, LocalTraining, ServerOptimiser
from fultr.rankers.model import MODELS, ModelSettings

_TREES_FROM = 3  # a third of the rounds trains the linear ranker that trees grow on top of
_FEW = 100  # rounds; a linear ranker with fewer is trained by Adam, which gets further in them


def recommended(rounds: int = 200, *, model: str = "linear") -> FedIPS:
    """FedIPS as it is recommended, where `FedIPS()` is the paper's.

    Softmax loss, estimated propensities ("shrunk"), weights of clicks clipped at 1 / (mean propensity of the last
    rank), momentum (with fewer than 100 rounds: Adam) and a rate that falls along a cosine, clients' rates by the
    number of features, and a start that ranks like the logging policy. In a simulation give `simulate` a
    `Showing(refresh=10)`, or 5 with fewer than 100 rounds; on devices, releases do that. How it was chosen, and
    where it falls short: docs/learning-more.md.

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
    server = _server(rounds)
    kind = ModelSettings(model)
    if model == "mlp":
        training = LocalTraining(0.001, "softmax", clip_rule="last-rank")
        server = ServerOptimiser("adam", 0.1, tau=1e-4, decay_rounds=rounds, decay="cosine", weight_decay=0.6)
    elif model != "linear":
        first = max(1, rounds // _TREES_FROM)
        kind = ModelSettings(model, linear_rounds=first, tree_rounds=rounds - first)
        server = _server(first)
    return FedIPS(training, server, Estimator("shrunk"), initial="unit-policy", model=kind)


def recommended_refresh(rounds: int = 200) -> int:
    """After how many rounds the ranker takes the logging policy's place, again and again.

    >>> recommended_refresh(), recommended_refresh(30)
    (10, 5)
    """
    return 5 if rounds < _FEW else 10


def _server(rounds: int) -> ServerOptimiser:
    """The server optimiser of a linear ranker that is trained for this many rounds."""
    if rounds < _FEW:
        return ServerOptimiser("adam", 0.3, decay_rounds=rounds, decay="cosine")
    return ServerOptimiser("momentum", 1.0, decay_rounds=rounds, decay="cosine")
