"""One run: everything that it depends on as one flat record, and how it is done.

The names of the settings are those of the command line and of experiment files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fultr.baselines import LambdaLinear, train_lambda_linear
from fultr.checks import check_choice, check_number
from fultr.clicks import ClickModel, Sessions
from fultr.client import LocalTraining
from fultr.data import RankingData, Splits
from fultr.estimation import KINDS as ESTIMATORS
from fultr.estimation import Estimator, Kind
from fultr.metrics import mean_over_queries, ndcg, ndcg_of_rankers
from fultr.policy import PolicySettings, train_policy
from fultr.population import FiniteUsers, FreshUsers
from fultr.propensity import Propensity, check_propensity
from fultr.rounds import FedIPS
from fultr.server import KINDS, ServerOptimiser
from fultr.simulation import Simulation, simulate
from fultr.streams import Purpose, generator
from fultr.types import Float64s, Int64s

ALGORITHMS = ("federated", "lambda-linear", "logging-policy", "random-ranking")


@dataclass(frozen=True)
class RunSettings:
    """What a run depends on, besides the data and the seed.

    Attributes:
        algorithm: "federated" (FedIPS; with propensity "none" FedAvg), "lambda-linear" (λLinear), or to compare with:
            the "logging-policy" itself, or a "random-ranking".
        propensity: see `FedIPS`; so are pairs, initial and average_over.
        gamma: bias severity, see `ClickModel`; so are gamma_sd and relevant_grade.
        relevant_click: probability of a click on a relevant document that is examined.
        other_click: probability of a click on any other document that is examined.
        clients: |U|.
        rounds: T.
        queries: of a client in a round.
        clicks: m, of a client in a round.
        displayed: K.
        client_rate: eta_l; loss, metric, clip and epochs are those of `LocalTraining`.
        server_rate: eta_g; server, beta1, beta2 and tau are those of `ServerOptimiser`.
        users: a fixed population of so many, see `FiniteUsers`; so are pool, clusters, concentration and sampling.
            None: new users every round.
        policy_fraction: share of the training queries that the logging policy sees, see `PolicySettings`; so are
            policy_epochs, policy_batch, policy_rate, policy_initial and policy_reduction.
        lambda_rate: λLinear's learning rate; lambda_epochs and lambda_batch are those of `LambdaLinear`.
        evaluate_every: rounds between two points of the curve.
        k: NDCG@k.

    >>> RunSettings(gamma=2.0, propensity="none").federation().propensity
    'none'
    """

    algorithm: Literal["federated", "lambda-linear", "logging-policy", "random-ranking"] = "federated"
    propensity: Propensity | Kind = "known"
    gamma: float = ClickModel.gamma
    gamma_sd: float = ClickModel.gamma_sd
    relevant_grade: int | None = ClickModel.relevant_grade
    relevant_click: float = ClickModel.relevant
    other_click: float = ClickModel.other
    clients: int = 2000
    rounds: int = 500
    queries: int = Sessions.queries
    clicks: int = Sessions.clicks
    displayed: int = 5
    client_rate: float = LocalTraining.learning_rate
    server_rate: float = ServerOptimiser.learning_rate
    server: Literal["sgd", "momentum", "adagrad", "adam", "yogi"] = ServerOptimiser.kind
    beta1: float = ServerOptimiser.beta1
    beta2: float = ServerOptimiser.beta2
    tau: float = ServerOptimiser.tau
    loss: Literal["hinge", "logistic"] = LocalTraining.loss
    metric: Literal["rank", "dcg"] = LocalTraining.metric
    clip: float | None = LocalTraining.clip
    estimate_rate: float = Estimator.relevance.learning_rate
    estimate_start: float = Estimator.start
    estimate_iterations: int = Estimator.iterations
    estimate_floor: float = Estimator.floor
    estimate_memory: float = Estimator.memory
    cross_fit: bool = Estimator.cross_fit
    remember: bool = Estimator.remember
    epochs: int = LocalTraining.epochs
    pairs: Literal["displayed", "retrieved"] = FedIPS.pairs
    initial: Literal["zero", "policy", "random"] = FedIPS.initial
    average_over: Literal["cohort", "repliers"] = FedIPS.average_over
    users: int | None = None
    pool: int = FiniteUsers.pool
    clusters: int = FiniteUsers.clusters
    concentration: float = FiniteUsers.concentration
    sampling: Literal["uniform", "poisson"] = FiniteUsers.sampling
    policies: int = 1
    policy_fraction: float = PolicySettings.fraction
    policy_epochs: int = PolicySettings.epochs
    policy_batch: int = PolicySettings.batch
    policy_rate: float = PolicySettings.learning_rate
    policy_initial: Literal["zero", "random"] = PolicySettings.initial
    policy_reduction: Literal["sum", "mean"] = PolicySettings.reduction
    lambda_rate: float = 0.1
    lambda_epochs: int = LambdaLinear.epochs
    lambda_batch: int = LambdaLinear.batch
    evaluate_every: int = 10
    k: int = 5

    def __post_init__(self) -> None:
        check_choice("algorithm", self.algorithm, ALGORITHMS)
        for name in ("clients", "rounds", "evaluate_every", "k"):
            check_number(name, getattr(self, name), least=1, most=10**8, whole=True)
        check_number("displayed", self.displayed, least=1, most=1000, whole=True)
        for name in ("client_rate", "server_rate", "lambda_rate", "policy_rate"):
            check_number(name, getattr(self, name), above=0)
        check_choice("server", self.server, KINDS)
        if not isinstance(self.propensity, str):
            object.__setattr__(self, "propensity", tuple(self.propensity))
        source = self.source()
        if not isinstance(source, Estimator):
            check_propensity(source, self.displayed)
        for made in (self.federation, self.model, self.sessions, self.population, self.policy, self.lambda_linear):
            made()  # each checks its own
        if self.users is not None:
            check_number("clients", self.clients, most=self.users)

    def federation(self) -> FedIPS:
        """The algorithm of a federated run."""
        return FedIPS(
            LocalTraining(self.client_rate, self.loss, self.metric, self.clip, self.epochs),
            ServerOptimiser(self.server, self.server_rate, self.beta1, self.beta2, self.tau),
            self.source(),
            self.pairs,
            self.initial,
            self.average_over,
        )

    def source(self) -> Propensity | Estimator:
        """Where propensities come from."""
        match self.propensity:
            case "personal" | "pooled" | "shrunk" | "power-law" | "harvested" as kind:
                return Estimator(
                    kind,
                    replace(Estimator.relevance, learning_rate=self.estimate_rate),
                    self.estimate_start,
                    self.estimate_iterations,
                    self.estimate_floor,
                    self.cross_fit,
                    self.estimate_memory,
                    self.remember,
                )
            case given:
                return given

    def model(self) -> ClickModel:
        """How users examine and click."""
        return ClickModel(self.gamma, self.gamma_sd, self.relevant_grade, self.relevant_click, self.other_click)

    def sessions(self) -> Sessions:
        """How many queries and clicks a client has."""
        return Sessions(self.queries, self.clicks)

    def population(self) -> FreshUsers | FiniteUsers:
        """Who takes part."""
        if self.users is None:
            return FreshUsers()
        return FiniteUsers(self.users, self.pool, self.clusters, self.concentration, self.sampling)

    def policy(self) -> PolicySettings:
        """How the logging policy is trained."""
        return PolicySettings(
            self.policy_fraction,
            self.policy_epochs,
            self.policy_batch,
            self.policy_rate,
            self.policy_initial,
            self.policy_reduction,
        )

    def lambda_linear(self) -> LambdaLinear:
        """How λLinear is trained."""
        return LambdaLinear((self.lambda_rate,), self.lambda_epochs, self.lambda_batch)

    def relevant(self) -> dict[str, Any]:
        """The settings that make a difference to a run of this algorithm; two runs that agree in them are the same."""
        names = {
            "federated": [f.name for f in fields(self) if not f.name.startswith("lambda_")],
            "lambda-linear": ["lambda_rate", "lambda_epochs", "lambda_batch", "k"],
            "logging-policy": [*(f.name for f in fields(self) if f.name.startswith("policy_")), "k"],
            "random-ranking": ["k"],
        }[self.algorithm]
        if not isinstance(self.source(), Estimator):
            names = [n for n in names if not n.startswith("estimate_") and n not in ("cross_fit", "remember")]
        if self.users is None:
            names = [name for name in names if name not in ("pool", "clusters", "concentration", "sampling")]
        return {"algorithm": self.algorithm, **{name: value for name, value in asdict(self).items() if name in names}}


@dataclass(frozen=True, eq=False)
class Result:
    """What a run measured: mean NDCG@k over the queries of a split ("valid", "test") after some rounds.

    What is no curve, such as λLinear, has one point, at round 0.
    """

    rounds: Int64s
    ndcg: dict[str, Float64s]


def train(
    settings: RunSettings,
    data: Splits,
    *,
    seed: int,
    splits: tuple[str, ...] = ("valid", "test"),
    checkpoint: Path | None = None,
    checkpoint_every: int = 50,
    threads: int | None = None,
    on_round: Callable[[int], object] | None = None,
) -> Simulation:
    """A federated run, see `simulate`.

    >>> import fultr
    >>> train(RunSettings(clients=50, rounds=2), fultr.load("synthetic", cache=False), seed=0).ranker
    LinearRanker(64 features)
    """
    return simulate(
        data,
        settings.federation(),
        clients=settings.clients,
        rounds=settings.rounds,
        seed=seed,
        policy=settings.policy(),
        policies=settings.policies,
        displayed=settings.displayed,
        model=settings.model(),
        sessions=settings.sessions(),
        population=settings.population(),
        evaluate_every=settings.evaluate_every,
        k=settings.k,
        splits=splits,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        threads=threads,
        on_round=on_round,
    )


def perform(
    settings: RunSettings,
    data: Splits,
    *,
    seed: int,
    splits: tuple[str, ...],
    checkpoint: Path | None = None,
    checkpoint_every: int = 50,
    threads: int | None = 1,
) -> Result:
    """Do one run.

    Args:
        settings: what is to be done.
        data: a data set; of test and validation queries, only the `splits` are measured, and λLinear chooses its epoch
            on validation.
        seed: of everything that is random.
        splits: where NDCG is measured.
        checkpoint: a file to continue from if it is there, and to write on the way; federated runs only.
        checkpoint_every: rounds between two writes.
        threads: how many threads to use.

    >>> import fultr
    >>> data = fultr.load("synthetic", cache=False)
    >>> perform(RunSettings(clients=50, rounds=20), data, seed=0, splits=("valid",)).rounds.tolist()
    [0, 10, 20]
    """
    if settings.algorithm == "federated":
        run = train(
            settings,
            data,
            seed=seed,
            splits=splits,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            threads=threads,
        )
        return Result(run.curve.rounds, run.curve.ndcg)
    if settings.algorithm == "random-ranking":
        level = {split: _random_ndcg(getattr(data, split), settings.k, seed) for split in splits}
    else:
        if settings.algorithm == "lambda-linear":
            trained = train_lambda_linear(data, settings.lambda_linear(), seed=seed, k=settings.k, threads=threads)
            weights = trained.ranker.weights
        else:
            weights = train_policy(data.train, settings.policy(), seed)
        level = {split: _ndcg(weights, getattr(data, split), settings.k, threads) for split in splits}
    return Result(np.zeros(1, np.int64), level)


def _ndcg(weights: np.ndarray[Any, Any], data: RankingData, k: int, threads: int | None) -> Float64s:
    return mean_over_queries(ndcg_of_rankers(weights[np.newaxis], data, k=k, threads=threads))


def _random_ndcg(data: RankingData, k: int, seed: int) -> Float64s:
    """Mean NDCG@k of documents in random order."""
    scores = generator(seed, Purpose.RANDOM_RANKING).random(data.documents, np.float32)
    return np.array([np.nanmean(ndcg(scores, data, k=k))])


def cost(settings: RunSettings, data: Splits, splits: tuple[str, ...] = ("test",)) -> float:
    """Roughly how many seconds a run takes on one core: to share work out, and to say beforehand how long it takes.

    Measured with all cores at work and 64 to 519 features: a client's training costs a share for each click, its part
    in estimation one for each query, a document of λLinear about 1 ns a feature.
    """
    width, train = data.train.width, data.train
    evaluated = sum(getattr(data, split).documents for split in splits) * width * 2e-10
    match settings.algorithm:
        case "federated":
            points = 1 + settings.rounds / settings.evaluate_every
            pairs = train.documents / train.queries / settings.displayed if settings.pairs == "retrieved" else 1.0
            client = 1.2e-6 + 3e-9 * width
            client += settings.clicks * (2.4e-7 + 6e-10 * width) * pairs * settings.epochs
            if settings.propensity in ESTIMATORS:
                client += 2.5e-6 + min(settings.queries, settings.clicks) * (6e-7 + 1.6e-9 * width)
            return settings.rounds * settings.clients * client + points * evaluated + 0.2
        case "lambda-linear":
            return settings.lambda_epochs * (train.documents * width * 1e-9 + evaluated) + 0.2
        case _:
            return evaluated + 0.1
