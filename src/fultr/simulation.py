"""Federated training on simulated users: the round loop of Algorithm 1."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fultr.checkpoint import load_checkpoint, save_checkpoint
from fultr.checks import check_choice, check_number, check_seed
from fultr.clicks import ClickModel, Sessions, attraction, examination, simulate_clicks
from fultr.client import LocalTraining, add_updates
from fultr.data import Splits
from fultr.errors import FultrError
from fultr.metrics import default_relevant_grade, mean_over_queries, ndcg_of_rankers
from fultr.policy import Display, PolicySettings, display, train_policy
from fultr.population import Cohorts, FiniteUsers, FreshUsers, cohorts
from fultr.propensity import Propensity, check_propensity, propensities
from fultr.rankers import LinearRanker
from fultr.server import ServerOptimiser, ServerState, average, initial_state, step
from fultr.streams import Purpose, generator
from fultr.threads import chunk_bounds, run_chunks
from fultr.types import Float32s, Float64s, Int64s

_SUMS = 16  # partial sums of a cohort's updates: fixed, so that they add up alike for any number of threads
_BLOCK = 256  # clients whose clicks are held at a time, by each thread
_SCORED_TOGETHER = 32  # rankers evaluated in one pass over the features


@dataclass(frozen=True)
class FedIPS:
    """The algorithm: local training, server optimiser, and what the paper leaves open.

    Attributes:
        training: what each client does, eta_l included.
        server: what the server does, eta_g included.
        propensity: what clicks are divided by: "known", "none" (which makes it `FedAvg`), or one number a rank.
        pairs: the documents D_q that a clicked one is compared with: "displayed" or "retrieved".
        initial: w_0: "zero", the logging "policy", or "random" (Gaussian with variance 1 / features).
        average_over: the sum of updates is divided by the size of the "cohort", clients without clicks included, as in
            the paper; or by the number of "repliers", the clients that had a click.
    """

    training: LocalTraining = LocalTraining()
    server: ServerOptimiser = ServerOptimiser()
    propensity: Propensity = "known"
    pairs: Literal["displayed", "retrieved"] = "displayed"
    initial: Literal["zero", "policy", "random"] = "zero"
    average_over: Literal["cohort", "repliers"] = "cohort"

    def __post_init__(self) -> None:
        if not isinstance(self.propensity, str):
            object.__setattr__(self, "propensity", tuple(float(p) for p in self.propensity))
        check_choice("pairs", self.pairs, ("displayed", "retrieved"))
        check_choice("initial", self.initial, ("zero", "policy", "random"))
        check_choice("average_over", self.average_over, ("cohort", "repliers"))


FedAvg = partial(FedIPS, propensity="none")
"""FedIPS without the correction: every click counts 1 (McMahan et al. 2017)."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Mean NDCG@k over the queries of a split ("valid", "test") after some rounds."""

    rounds: Int64s
    ndcg: dict[str, Float64s]


@dataclass(frozen=True, eq=False)
class Simulation:
    """The outcome of a run: the ranker after the last round, the curve up to it, and the settings that made them."""

    ranker: LinearRanker
    curve: Curve
    settings: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Federation:
    """What stays the same from round to round."""

    algorithm: FedIPS
    display: Display
    attraction: Float64s
    users: Cohorts
    sessions: Sessions
    seed: int
    threads: int | None


@dataclass(eq=False)
class _Progress:
    """Where a run stands; all that a checkpoint holds."""

    done: int
    weights: Float32s
    state: ServerState
    measured: list[int]
    kept: list[Float32s]

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "done": np.array(self.done),
            "weights": self.weights,
            "momentum": self.state.momentum,
            "squares": self.state.squares,
            "measured": np.array(self.measured),
            "kept": np.stack(self.kept),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> _Progress:
        state = ServerState(arrays["momentum"], arrays["squares"])
        return cls(int(arrays["done"]), arrays["weights"], state, arrays["measured"].tolist(), list(arrays["kept"]))


def simulate(
    data: Splits,
    algorithm: FedIPS = FedIPS(),
    *,
    clients: int = 2000,
    rounds: int = 500,
    seed: int = 0,
    policy: PolicySettings | Float32s = PolicySettings(),
    displayed: int = 5,
    model: ClickModel = ClickModel(),
    sessions: Sessions = Sessions(),
    population: FreshUsers | FiniteUsers = FreshUsers(),
    evaluate_every: int = 10,
    k: int = 5,
    splits: Collection[str] = ("valid", "test"),
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 50,
    threads: int | None = None,
    on_round: Callable[[int], object] | None = None,
) -> Simulation:
    """Train a ranker from the clicks of simulated users (Algorithm 1), and measure it on the way.

    The result depends on the arguments down to `splits` alone: not on threads, checkpoints or interruptions.

    Memory: the data, a copy of the displayed documents' features (none with pairs="retrieved"), and some MB, for any
    number of clients.

    Args:
        data: a data set; training queries are displayed to users, the others measured.
        algorithm: `FedIPS(...)` or `FedAvg(...)`.
        clients: |U|, clients a round.
        rounds: T.
        seed: of users, queries and clicks, and of the logging policy.
        policy: how the logging policy is trained; or its weights.
        displayed: K, documents displayed a query.
        model: how users examine and click.
        sessions: how many queries and clicks a client has.
        population: who takes part.
        evaluate_every: NDCG is measured after every so many rounds, and after round 0 and the last.
        k: NDCG@k.
        splits: where it is measured.
        checkpoint: a file to continue from if it is there, and to write on the way and at the end.
        checkpoint_every: rounds between two writes.
        threads: how many threads to use; all cores if None.
        on_round: called after each round with the number of rounds done.

    >>> import fultr
    >>> data = fultr.load("synthetic", cache=False)
    >>> run = simulate(data, FedIPS(), clients=50, rounds=4, evaluate_every=2)
    >>> run.curve.rounds.tolist()
    [0, 2, 4]
    """
    check_seed(seed)
    for name, value, least in (
        ("clients", clients, 1),
        ("rounds", rounds, 0),
        ("evaluate_every", evaluate_every, 1),
        ("k", k, 1),
        ("checkpoint_every", checkpoint_every, 1),
    ):
        check_number(name, value, least=least, most=10**8, whole=True)
    splits = tuple(splits)
    for split in splits:
        check_choice("splits", split, ("valid", "test"))
    check_propensity(algorithm.propensity, displayed)
    grade = default_relevant_grade(data.train) if model.relevant_grade is None else model.relevant_grade
    model = replace(model, relevant_grade=grade)
    settings = {
        "data": data.name,
        "algorithm": asdict(algorithm),
        "clients": int(clients),
        "rounds": int(rounds),
        "seed": int(seed),
        "policy": asdict(policy) if isinstance(policy, PolicySettings) else _checked_policy(policy, data.train.width),
        "displayed": int(displayed),
        "click_model": asdict(model),
        "sessions": asdict(sessions),
        "population": {"kind": type(population).__name__, **asdict(population)},
        "evaluate_every": int(evaluate_every),
        "k": int(k),
        "splits": list(splits),
    }
    logging_policy = train_policy(data.train, policy, seed) if isinstance(policy, PolicySettings) else policy
    shown = display(data.train, logging_policy, displayed=displayed, pairs=algorithm.pairs, seed=seed, threads=threads)
    federation = Federation(
        algorithm,
        shown,
        attraction(data.train, shown, model),
        cohorts(population, data.train, model, clients, seed),
        sessions,
        seed,
        threads,
    )
    progress = _start(algorithm, logging_policy, seed)
    save = None
    if checkpoint is not None:
        # A run of fewer rounds is the beginning of a longer one: the number of rounds may differ.
        identity = {**settings, "rounds": "any", "fingerprints": [part.fingerprint() for part in data]}
        save = partial(save_checkpoint, Path(checkpoint), identity)
        progress = _resumed(Path(checkpoint), identity, rounds) or progress
    while progress.done < rounds:
        progress.weights, progress.state = _round(federation, progress.done, progress.weights, progress.state)
        progress.done += 1
        if progress.done % evaluate_every == 0 or progress.done == rounds:
            progress.measured.append(progress.done)
            progress.kept.append(progress.weights)
        if save and (progress.done % checkpoint_every == 0 or progress.done == rounds):
            save(progress.as_arrays())
        if on_round:
            on_round(progress.done)
    if progress.measured[-1] != rounds:  # the checkpoint of a longer run ends here
        progress.measured.append(rounds)
        progress.kept.append(progress.weights)
    ranker = LinearRanker(progress.weights, data.train.feature_ids, data.normalised, settings)
    return Simulation(ranker, _measure(progress, data, rounds, evaluate_every, k, splits, threads), settings)


def _resumed(checkpoint: Path, identity: dict[str, Any], rounds: int) -> _Progress | None:
    """Where a checkpoint stands; None if there is none yet."""
    if not checkpoint.parent.is_dir():
        raise FultrError(f"{checkpoint}: there is no folder {checkpoint.parent}")
    if not checkpoint.exists():
        return None
    progress = _Progress.from_arrays(load_checkpoint(checkpoint, identity))
    if progress.done > rounds:
        raise FultrError(f"{checkpoint}: this checkpoint is at round {progress.done}, past the {rounds} asked for")
    return progress


def _checked_policy(policy: Float32s, width: int) -> str:
    """Refuse weights that do not fit the data; return a text that stands for them."""
    if not isinstance(policy, np.ndarray) or policy.dtype != np.float32 or policy.shape != (width,):
        found = f"{policy.dtype} {policy.shape}" if isinstance(policy, np.ndarray) else type(policy).__name__
        raise FultrError(f"policy: expected PolicySettings or float32 weights of {width} features, found {found}")
    return hashlib.sha256(policy.tobytes()).hexdigest()


def _round(federation: Federation, t: int, weights: Float32s, state: ServerState) -> tuple[Float32s, ServerState]:
    """Round t: Algorithm 1, lines 2 to 11."""
    algorithm, users = federation.algorithm, federation.users
    cohort = users.cohort(t)  # line 2
    total, repliers = sum_of_updates(federation, t, weights, cohort)  # lines 3 to 10
    clients = users.expected if algorithm.average_over == "cohort" else repliers
    return step(algorithm.server, state, weights, average(total, clients))  # line 11


def sum_of_updates(federation: Federation, t: int, weights: Float32s, cohort: Int64s) -> tuple[Float64s, int]:
    """Each client's clicks and local training (lines 3 to 10): the sum of updates, and how many clients had a click."""
    bounds = chunk_bounds(cohort.size, _SUMS)
    sums = np.zeros((len(bounds), weights.size))
    repliers = [0] * len(bounds)

    def work(i: int) -> None:
        begin, end = bounds[i]
        for block in range(begin, end, _BLOCK):
            clients = cohort[block : min(block + _BLOCK, end)]
            examined = examination(federation.users.severities(t, clients), federation.display.ranks)
            log = simulate_clicks(
                federation.attraction,
                examined,
                clients,
                sessions=federation.sessions,
                seed=federation.seed,
                round_=t,
                pools=federation.users.pools,
            )
            divisors = propensities(federation.algorithm.propensity, examined)
            repliers[i] += add_updates(
                log, federation.display, divisors, weights, federation.algorithm.training, sums[i]
            )

    run_chunks(work, len(bounds), federation.threads)
    return sums.sum(axis=0), sum(repliers)


def _start(algorithm: FedIPS, policy: Float32s, seed: int) -> _Progress:
    """Round 0, with w_0 as the algorithm asks."""
    match algorithm.initial:
        case "zero":
            weights = np.zeros(policy.size, np.float32)
        case "policy":
            weights = policy.copy()
        case "random":
            gaussian = generator(seed, Purpose.INITIAL_WEIGHTS).standard_normal(policy.size, np.float32)
            weights = gaussian / np.float32(policy.size**0.5)
    return _Progress(0, weights, initial_state(algorithm.server, policy.size), [0], [weights])


def _measure(
    progress: _Progress,
    data: Splits,
    rounds: int,
    evaluate_every: int,
    k: int,
    splits: Collection[str],
    threads: int | None,
) -> Curve:
    """NDCG@k of the kept weights; those that only a shorter run kept, at its end, are left out."""
    measured = np.array(progress.measured)
    wanted = (measured % evaluate_every == 0) | (measured == rounds)
    kept = np.stack(progress.kept)[wanted]
    ndcg = {}
    for split in splits:
        blocks = [kept[i : i + _SCORED_TOGETHER] for i in range(0, len(kept), _SCORED_TOGETHER)]
        means = [mean_over_queries(ndcg_of_rankers(b, getattr(data, split), k=k, threads=threads)) for b in blocks]
        ndcg[split] = np.concatenate(means)
    return Curve(measured[wanted], ndcg)
