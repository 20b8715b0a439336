"""The paper's comparison: FedIPS, FedAvg and λLinear across bias severities, tuned on validation, repeated.

Repeats differ in the logging policy's sample, users, queries and clicks. Learning rates are chosen for each algorithm
and gamma by NDCG@k on the validation queries after the last round of one extra repeat; test queries take no part in
any choice.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fultr.baselines import LambdaLinear, train_lambda_linear
from fultr.checks import check_number
from fultr.clicks import ClickModel, Sessions
from fultr.client import LocalTraining
from fultr.data import RankingData, Splits
from fultr.errors import FultrError
from fultr.metrics import mean_over_queries, ndcg, ndcg_of_rankers
from fultr.policy import PolicySettings, train_policy
from fultr.server import ServerOptimiser
from fultr.simulation import FedAvg, FedIPS, Simulation, simulate
from fultr.streams import Purpose, generator
from fultr.threads import default_threads, run_chunks
from fultr.types import Float32s, Float64s, Int64s

CLIENT_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
SERVER_RATES = (0.1, 1.0, 10.0)
"""The grids of eta_l and eta_g. The paper's, {1e-5, 1e-4, ..., 1e-1} and {0.05, 0.5, 1, 2}, is coarser in eta_l and
ends lower in eta_g: at strong bias the best pair lies between and beyond."""

ALGORITHMS = {"FedIPS": FedIPS(), "FedAvg": FedAvg()}
_TUNING_REPEAT = 1_000_000  # apart from the repeats that are reported


@dataclass(frozen=True)
class Comparison:
    """What is compared, and how often.

    Attributes:
        gammas: bias severities.
        repeats: of every run.
        clients: |U|.
        rounds: T.
        client_rates: grid of eta_l.
        server_rates: grid of eta_g.
        gamma_sd: spread of users' bias severity, see `ClickModel`.
        sessions: queries and clicks a client.
        displayed: K.
        policy: how the logging policy is trained.
        lambda_linear: how λLinear is trained.
        evaluate_every: rounds between two points of a curve.
        k: NDCG@k.
        seed: of everything.
    """

    gammas: tuple[float, ...] = (0.5, 1.0, 2.0)
    repeats: int = 5
    clients: int = 2000
    rounds: int = 200
    client_rates: tuple[float, ...] = CLIENT_RATES
    server_rates: tuple[float, ...] = SERVER_RATES
    gamma_sd: float = ClickModel.gamma_sd
    sessions: Sessions = Sessions()
    displayed: int = 5
    policy: PolicySettings = PolicySettings()
    lambda_linear: LambdaLinear = LambdaLinear()
    evaluate_every: int = 5
    k: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("repeats", "clients", "rounds", "evaluate_every", "k", "displayed"):
            check_number(name, getattr(self, name), least=1, whole=True)
        check_number("repeats", self.repeats, most=_TUNING_REPEAT)
        check_number("seed", self.seed, least=0, most=10**6, whole=True)
        for name in ("gammas", "client_rates", "server_rates"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise FultrError(f"{name}: expected one or more different numbers, found {values}")
        for gamma in self.gammas:
            ClickModel(gamma, self.gamma_sd)
        for rate in (*self.client_rates, *self.server_rates):
            check_number("learning rates", rate, above=0)

    def repeat_seed(self, repeat: int) -> int:
        """The seed of a repeat; repeats of different seeds share nothing."""
        return self.seed * (_TUNING_REPEAT + 1) + repeat


@dataclass(frozen=True)
class Choice:
    """The learning rates chosen for one algorithm at one gamma, and the whole grid that they were chosen from.

    Attributes:
        algorithm: its name.
        gamma: bias severity.
        client_rate: eta_l.
        server_rate: eta_g.
        at_edge: which of the two, "client" or "server", is the smallest or largest of its grid, so that a better one
            may lie outside.
        grid: (eta_l, eta_g, NDCG@k on validation) of every pair tried.
    """

    algorithm: str
    gamma: float
    client_rate: float
    server_rate: float
    at_edge: tuple[str, ...]
    grid: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came out, on the test queries.

    Attributes:
        settings: the comparison's.
        data: name of the data set.
        fingerprints: of its three parts.
        rounds: where the curves were measured.
        curves: (algorithm, gamma) -> NDCG@k [repeats, rounds measured].
        random: NDCG@k of a random ranking, [repeats].
        policy: of the logging policy, [repeats].
        lambda_linear: of λLinear, [repeats].
        choices: the learning rates.
        lambda_rate: λLinear's.
    """

    settings: Comparison
    data: str
    fingerprints: tuple[str, ...]
    rounds: Int64s
    curves: dict[tuple[str, float], Float64s]
    random: Float64s
    policy: Float64s
    lambda_linear: Float64s
    choices: tuple[Choice, ...]
    lambda_rate: float

    def final(self, algorithm: str, gamma: float) -> Float64s:
        """NDCG@k after the last round, [repeats]."""
        return self.curves[algorithm, gamma][:, -1]

    def as_dict(self) -> dict[str, Any]:
        """Everything but the curves, ready for JSON."""
        return {
            "data": self.data,
            "fingerprints": list(self.fingerprints),
            "settings": asdict(self.settings),
            "final": {
                **{f"{name} gamma={g:g}": self.final(name, g).tolist() for name, g in self.curves},
                "random": self.random.tolist(),
                "logging policy": self.policy.tolist(),
                "lambda linear": self.lambda_linear.tolist(),
            },
            "choices": [asdict(choice) for choice in self.choices],
            "lambda_linear_learning_rate": self.lambda_rate,
        }


@dataclass(frozen=True)
class _Job:
    """One run: an algorithm with its learning rates, at one gamma, on one repeat's logging policy."""

    algorithm: str
    gamma: float
    client_rate: float
    server_rate: float
    repeat: int


def work_units(settings: Comparison) -> int:
    """How many rounds and epochs a comparison consists of, for a progress bar."""
    runs = len(ALGORITHMS) * len(settings.gammas)
    tuning = runs * len(settings.client_rates) * len(settings.server_rates) * settings.rounds
    epochs = settings.lambda_linear.epochs * (len(settings.lambda_linear.learning_rates) + settings.repeats)
    return tuning + runs * settings.repeats * settings.rounds + epochs


def compare(
    data: Splits,
    settings: Comparison = Comparison(),
    *,
    threads: int | None = None,
    on_unit: Callable[[str], object] | None = None,
) -> Outcome:
    """Tune, repeat and measure; `on_unit` is called with the name of the stage after each round or epoch."""
    threads = default_threads() if threads is None else threads
    tick = on_unit or (lambda stage: None)
    repeats = range(settings.repeats)
    policies = {
        r: train_policy(data.train, settings.policy, settings.repeat_seed(r)) for r in (*repeats, _TUNING_REPEAT)
    }

    lambda_rate, lambda_linear = _lambda_linear(data, settings, threads, tick)
    choices = _tune(data, settings, policies, threads, tick)
    jobs = [
        _Job(choice.algorithm, choice.gamma, choice.client_rate, choice.server_rate, repeat)
        for choice in choices
        for repeat in range(settings.repeats)
    ]
    runs = _run(data, settings, policies, jobs, settings.rounds, ("test",), threads, lambda: tick("Training"))
    curves = {
        (c.algorithm, c.gamma): np.stack(
            [
                run.curve.ndcg["test"]
                for job, run in zip(jobs, runs, strict=True)
                if (job.algorithm, job.gamma) == (c.algorithm, c.gamma)
            ]
        )
        for c in choices
    }
    return Outcome(
        settings,
        data.name,
        tuple(part.fingerprint() for part in data),
        runs[0].curve.rounds,
        curves,
        np.array([_random_ndcg(data.test, settings.k, settings.repeat_seed(r)) for r in repeats]),
        mean_over_queries(
            ndcg_of_rankers(np.stack([policies[r] for r in repeats]), data.test, k=settings.k, threads=threads)
        ),
        lambda_linear,
        choices,
        lambda_rate,
    )


def _lambda_linear(
    data: Splits, settings: Comparison, threads: int, tick: Callable[[str], object]
) -> tuple[float, Float64s]:
    """λLinear's learning rate, chosen once, and its NDCG on test in each repeat."""

    def on_epoch() -> None:
        tick("λLinear")

    tuned = train_lambda_linear(
        data,
        settings.lambda_linear,
        seed=settings.repeat_seed(_TUNING_REPEAT),
        k=settings.k,
        threads=threads,
        on_epoch=on_epoch,
    )
    chosen = replace(settings.lambda_linear, learning_rates=(tuned.learning_rate,))
    weights = np.zeros((settings.repeats, data.train.width), np.float32)

    def train(repeat: int) -> None:
        result = train_lambda_linear(
            data, chosen, seed=settings.repeat_seed(repeat), k=settings.k, threads=1, on_epoch=on_epoch
        )
        weights[repeat] = result.ranker.weights

    run_chunks(train, settings.repeats, threads)
    return tuned.learning_rate, mean_over_queries(ndcg_of_rankers(weights, data.test, k=settings.k, threads=threads))


def _tune(
    data: Splits,
    settings: Comparison,
    policies: dict[int, Float32s],
    threads: int,
    tick: Callable[[str], object],
) -> tuple[Choice, ...]:
    """Try every pair of learning rates on one extra repeat; keep the best on validation."""
    pairs = list(itertools.product(settings.client_rates, settings.server_rates))
    groups = list(itertools.product(ALGORITHMS, settings.gammas))
    jobs = [_Job(name, gamma, *pair, _TUNING_REPEAT) for name, gamma in groups for pair in pairs]
    runs = _run(data, settings, policies, jobs, settings.rounds, ("valid",), threads, lambda: tick("Tuning"))
    choices = []
    for i, (name, gamma) in enumerate(groups):
        scores = [float(run.curve.ndcg["valid"][-1]) for run in runs[i * len(pairs) : (i + 1) * len(pairs)]]
        client_rate, server_rate = pairs[int(np.argmax(scores))]
        rates = {"client": (client_rate, settings.client_rates), "server": (server_rate, settings.server_rates)}
        edge = tuple(who for who, (rate, tried) in rates.items() if rate in (min(tried), max(tried)))
        grid = tuple((*pair, score) for pair, score in zip(pairs, scores, strict=True))
        choices.append(Choice(name, gamma, client_rate, server_rate, edge, grid))
    return tuple(choices)


def _run(
    data: Splits,
    settings: Comparison,
    policies: dict[int, Float32s],
    jobs: Sequence[_Job],
    rounds: int,
    splits: tuple[str, ...],
    threads: int,
    tick: Callable[[], object],
) -> list[Simulation]:
    """Do independent runs, as many at a time as there are threads, each on one thread."""
    runs: list[Simulation | None] = [None] * len(jobs)
    stopped = threading.Event()

    def on_round(_: int) -> None:
        if stopped.is_set():  # an interrupt reaches one thread; the others end here
            raise KeyboardInterrupt
        tick()

    def work(i: int) -> None:
        try:
            runs[i] = one_run(jobs[i])
        except BaseException:
            stopped.set()
            raise

    def one_run(job: _Job) -> Simulation:
        return simulate(
            data,
            replace(
                ALGORITHMS[job.algorithm],
                training=LocalTraining(learning_rate=job.client_rate),
                server=ServerOptimiser(learning_rate=job.server_rate),
            ),
            clients=settings.clients,
            rounds=rounds,
            seed=settings.repeat_seed(job.repeat),
            policy=policies[job.repeat],
            displayed=settings.displayed,
            model=ClickModel(gamma=job.gamma, gamma_sd=settings.gamma_sd),
            sessions=settings.sessions,
            evaluate_every=settings.evaluate_every,
            k=settings.k,
            splits=splits,
            threads=1,
            on_round=on_round,
        )

    run_chunks(work, len(jobs), threads)
    return [run for run in runs if run is not None]


def _random_ndcg(data: RankingData, k: int, seed: int) -> float:
    """Mean NDCG@k of documents in random order."""
    scores = generator(seed, Purpose.RANDOM_RANKING).random(data.documents, np.float32)
    return float(np.nanmean(ndcg(scores, data, k=k)))
