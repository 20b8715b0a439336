"""One run: how it is done, and about how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fultr.core.arrays import Float64s, Int64s
from fultr.core.streams import Purpose, generator
from fultr.data.ranking import RankingData, Splits
from fultr.federated.settings import Estimator
from fultr.rankers.lambda_linear import train_lambda_linear
from fultr.rankers.linear import Linear
from fultr.rankers.metrics import mean_over_queries, ndcg, ndcg_of_rankers
from fultr.rankers.model import TREES
from fultr.rankers.plain import plain_size
from fultr.study.asked import Asked
from fultr.study.course import Simulation, course
from fultr.study.lightgbm_ceiling import lightgbm_ndcg
from fultr.study.origins import Origin, this_origin
from fultr.study.policy import train_policy
from fultr.study.scene import Scenes
from fultr.study.settings import FreshUsers, RunSettings
from fultr.study.together import together


@dataclass(frozen=True, eq=False)
class Result:
    """What a run measured: mean NDCG@k over the queries of a split ("valid", "test") after some rounds.

    What is no curve, such as λLinear, has one point, at round 0. `online` is "displayed" and "policy" of
    `Simulation.online`, a point for each round but the first; empty where nothing was displayed. `origin` is what
    computed it.
    """

    rounds: Int64s
    ndcg: dict[str, Float64s]
    online: dict[str, Float64s] = field(default_factory=dict)
    origin: Origin = Origin()

    def check(self, settings: Mapping[str, Any], *, last: bool = False) -> None:
        """Raise ValueError if no run with these settings, flat as in a file, measures this.

        Args:
            settings: of the run.
            last: only the last point of its curve is there.

        >>> settings = {"algorithm": "federated", "rounds": 20, "evaluate_every": 10}
        >>> shown = {"displayed": np.ones(2), "policy": np.ones(2)}
        >>> Result(np.array([0, 10, 20]), {"test": np.array([0.4, 0.5, 0.6])}, shown).check(settings)
        >>> Result(np.array([0, 10, 20]), {"test": np.array([0.4, 0.5, 6.0])}, shown).check(settings)
        Traceback (most recent call last):
        ValueError: its NDCG is not from 0 to 1
        """
        federated = settings["algorithm"] == "federated"
        rounds, every = (settings["rounds"], settings["evaluate_every"]) if federated else (0, 1)
        points = 1 if last else -(-rounds // every) + 1
        if self.rounds.shape != (points,):
            raise ValueError(f"its curve has {self.rounds.size} points, expected {points}")
        if not np.array_equal(self.rounds, [rounds] if last else np.minimum(np.arange(points) * every, rounds)):
            raise ValueError("its curve has other rounds than its settings say")
        if any(values.shape != self.rounds.shape for values in self.ndcg.values()):
            raise ValueError("its curve has more rounds than values, or fewer")
        if not all((values >= 0).all() and (values <= 1 + 1e-9).all() for values in self.ndcg.values()):
            raise ValueError("its NDCG is not from 0 to 1")
        shown = points - 1 if federated and not last else None
        found = {values.size for values in self.online.values()}
        if found != (set() if shown is None else {shown}):
            told = ", ".join(f"{size} points" for size in sorted(found)) or "no points"
            raise ValueError(f"what users were shown has {told}, expected {'none' if shown is None else shown}")
        if any(np.isinf(values).any() for values in self.online.values()):  # NaN: there were no impressions
            raise ValueError("what users were shown has a number that is infinite")


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
    Ranker(linear, 64 features)
    """
    one = _asked(settings, data, seed, splits, checkpoint, checkpoint_every, threads, on_round)
    [(_, run)] = together([course(one, {})])
    return run


def _asked(
    settings: RunSettings,
    data: Splits,
    seed: int,
    splits: tuple[str, ...],
    checkpoint: Path | None,
    checkpoint_every: int,
    threads: int | None,
    on_round: Callable[[int], object] | None = None,
) -> Asked:
    return Asked(
        data=data,
        algorithm=settings.fedips,
        clients=settings.clients,
        rounds=settings.rounds,
        seed=seed,
        policy=settings.policy,
        policies=settings.policies,
        showing=settings.showing,
        displayed=settings.displayed,
        click_model=settings.click_model,
        sessions=settings.sessions,
        population=settings.population or FreshUsers(),
        adversaries=settings.adversaries,
        secure_sums=settings.secure_sums,
        dropouts=settings.dropouts,
        evaluate_every=settings.evaluate_every,
        k=settings.k,
        splits=splits,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        threads=threads,
        on_round=on_round,
    )


def perform(
    settings: RunSettings, data: Splits, *, seed: int, splits: tuple[str, ...], threads: int | None = 1
) -> Result:
    """Do one run, see `perform_all`.

    >>> import fultr
    >>> data = fultr.load("synthetic", cache=False)
    >>> perform(RunSettings(clients=50, rounds=20), data, seed=0, splits=("valid",)).rounds.tolist()
    [0, 10, 20]
    """
    [(_, result)] = perform_all([settings], data, seed=seed, splits=splits, threads=threads)
    return result


def perform_all(
    runs: Sequence[RunSettings],
    data: Splits,
    *,
    seed: int,
    splits: tuple[str, ...],
    checkpoints: Sequence[Path | None] = (),
    checkpoint_every: int = 50,
    threads: int | None = 1,
) -> Iterator[tuple[int, Result]]:
    """Do runs side by side: faster than one by one if their users click the same, and the same to the last bit.

    Yields each as it ends, with its number.

    Args:
        runs: what is to be done.
        data: a data set; of test and validation queries, only the `splits` are measured, and λLinear chooses its epoch
            on validation.
        seed: of everything that is random.
        splits: where NDCG is measured.
        checkpoints: a file for each to continue from if it is there, and to write on the way; federated runs only.
        checkpoint_every: rounds between two writes.
        threads: how many threads to use.
    """
    scenes: Scenes = {}
    courses = {
        i: course(_asked(settings, data, seed, splits, place, checkpoint_every, threads), scenes)
        for i, (settings, place) in enumerate(zip(runs, checkpoints or [None] * len(runs), strict=True))
        if settings.algorithm == "federated"
    }
    numbers = list(courses)
    for i, run in together(list(courses.values())):
        yield numbers[i], _curve_of(run)
    for i, settings in enumerate(runs):
        if i not in courses:
            yield i, _level(settings, data, seed, splits, threads)


def _curve_of(run: Simulation) -> Result:
    online = {"displayed": run.online.displayed, "policy": run.online.policy}
    return Result(run.curve.rounds, run.curve.ndcg, online, this_origin())


def _level(settings: RunSettings, data: Splits, seed: int, splits: tuple[str, ...], threads: int | None) -> Result:
    """What is no curve."""
    if settings.algorithm == "random-ranking":
        level = {split: _random_ndcg(getattr(data, split), settings.k, seed) for split in splits}
    elif settings.algorithm == "lightgbm":
        level = lightgbm_ndcg(data, splits, k=settings.k, seed=seed, threads=threads)
    else:
        if settings.algorithm == "lambda-linear":
            trained = train_lambda_linear(data, settings.lambda_linear, seed=seed, k=settings.k, threads=threads)
            weights = trained.ranker.weights
        else:
            weights = train_policy(data.train, settings.policy, seed)
        level = {split: _ndcg(weights, getattr(data, split), settings.k, threads) for split in splits}
    return Result(np.zeros(1, np.int64), level, origin=this_origin())


def _ndcg(weights: np.ndarray[Any, Any], data: RankingData, k: int, threads: int | None) -> Float64s:
    return mean_over_queries(ndcg_of_rankers(Linear(data.width), weights[np.newaxis], data, k=k, threads=threads))


def _random_ndcg(data: RankingData, k: int, seed: int) -> Float64s:
    """Mean NDCG@k of documents in random order."""
    scores = generator(seed, Purpose.RANDOM_RANKING).random(data.documents, np.float32)
    return np.array([np.nanmean(ndcg(scores, data, k=k))])


def cost(settings: RunSettings, data: Splits, splits: tuple[str, ...] = ("test",), *, beside: bool = False) -> float:
    """Roughly how many seconds a run takes on one core: to share work out, and to say beforehand how long it takes.

    Measured with all cores at work and 64 to 519 features: a client's training costs a share for each click, its part
    in estimation one for each query, a document of λLinear about 1 ns a feature. Rules that look at each
    coordinate sort its values. The rankers of a run with trees have most of them in common. `beside` another run whose
    users click the same, policy, clicks and estimates are made already, and the features at hand.
    """
    width, train = data.train.width, data.train
    evaluated = sum(getattr(data, split).documents for split in splits) * width * 2e-10
    model = settings.fedips.model
    size = width if model.kind in TREES else plain_size(model, width)
    match settings.algorithm:
        case "federated":
            fedips, sessions = settings.fedips, settings.sessions
            clicks = min(sessions.clicks, 1.5 * sessions.most_sessions)
            points = 1 + settings.rounds / settings.evaluate_every
            pairs = train.documents / train.queries / settings.displayed if fedips.pairs == "retrieved" else 1.0
            client = 1.2e-6 + 3e-9 * size
            client += clicks * (2.4e-7 + 6e-10 * size) * pairs * fedips.training.epochs
            if beside:
                client -= 0.55 * (1.2e-6 + 3e-9 * width + clicks * (2.4e-7 + 6e-10 * width) * min(pairs, 1.0))
            if isinstance(fedips.propensity, Estimator):
                estimation = 2.5e-6 + min(settings.sessions.queries, clicks) * (6e-7 + 1.6e-9 * width)
                client += 0.13 * estimation if beside else estimation
            client += size * {"mean": 0.0, "clipped": 5e-9}.get(fedips.aggregation.aggregation, 3e-8)
            if settings.secure_sums:
                client += 2e-5 + size * 2e-8
            if fedips.privacy is not None:
                client += size * (8e-7 if fedips.privacy.mode == "distributed" else 2e-8)
            if model.kind in TREES:  # a document's leaves, or bins; and a tree of each document that is scored
                places = model.trees if model.kind == "random-trees" else 2 * model.columns * width
                client += clicks * settings.displayed * places * 6e-9
                size += plain_size(model, width) // 10
            if settings.showing.exploration != "none":
                client += settings.sessions.queries * (2e-7 + settings.displayed * width * 1.5e-9)
            every = settings.showing.refresh
            scored = settings.rounds / every * train.documents * size * 5e-10 if every is not None else 0.0
            begun = 0.02 if beside else 0.2
            return settings.rounds * settings.clients * client + scored + points * evaluated * size / width + begun
        case "lambda-linear":
            return settings.lambda_linear.lambda_epochs * (train.documents * width * 1e-9 + evaluated) + 0.2
        case "lightgbm":
            return train.documents * (2e-5 + 2e-6 * width) + 0.5
        case _:
            return evaluated + 0.1
