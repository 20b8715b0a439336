"""Federated training on simulated users: the round loop of Algorithm 1."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fultr.clicks.models.model import click_model_of
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.arrays import Float32s
from fultr.core.checkpoint import load_checkpoint, save_checkpoint
from fultr.core.checks import SettingError, check_choice, check_number, check_seed, written
from fultr.core.errors import FultrError
from fultr.data.load import load
from fultr.data.ranking import Splits
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.fedips import Server
from fultr.federated.privacy.accountant import Guarantee, settled, spent
from fultr.federated.settings import Estimator, FedIPS, check_model, check_ranks
from fultr.rankers.linear import Linear, random_weights
from fultr.rankers.metrics import default_relevant_grade
from fultr.rankers.model import Model, model_named
from fultr.rankers.ranker import Ranker
from fultr.study.policy import best_documents, display, train_policy
from fultr.study.rounds import Simulated, run_round
from fultr.study.settings import Adversaries, FiniteUsers, FreshUsers, PolicySettings, Showing, check_sums
from fultr.study.shown import Shown
from fultr.study.standing import (
    Curve,
    Online,
    Refreshes,
    Standing,
    Weighing,
    curve_of,
    online_of,
    unwatched,
    weighing_of,
)
from fultr.study.users import cohorts, limits_participation


@dataclass(frozen=True, eq=False)
class Simulation:
    """The outcome of a run: the ranker after the last round, the curve up to it, and the settings that made them.

    `weighing` says what clicks were divided by on the way, `online` how good was what users were shown.
    """

    ranker: Ranker
    curve: Curve
    settings: dict[str, Any]
    weighing: Weighing
    online: Online


def simulate(
    data: Splits | str | Path,
    algorithm: FedIPS = FedIPS(),
    *,
    clients: int = 2000,
    rounds: int = 500,
    seed: int = 0,
    policy: PolicySettings | Float32s = PolicySettings(),
    policies: int = 1,
    showing: Showing = Showing(),
    displayed: int = 5,
    click_model: ClickModel = ClickModel(),
    sessions: Sessions = Sessions(),
    population: FreshUsers | FiniteUsers = FreshUsers(),
    adversaries: Adversaries | None = None,
    secure_sums: bool = False,
    dropouts: float = 0.0,
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
    number of clients; with adversaries, secure sums, or an aggregation other than the mean, what each client sends too.

    Args:
        data: a data set, or its name or path; training queries are displayed to users, the others measured.
        algorithm: `FedIPS(...)` or `FedAvg(...)`.
        clients: |U|, clients per round.
        rounds: T.
        seed: of users, queries and clicks, and of the logging policy.
        policy: how the logging policy is trained; or its weights.
        policies: versions of the logging policy, trained on samples of their own, one of which, at random, makes each
            impression.
        showing: when the ranker takes the logging policy's place, and exploration.
        displayed: K, documents displayed per query.
        click_model: how users examine and click.
        sessions: how many queries and clicks a client has.
        population: who takes part.
        adversaries: clients that attack the ranker.
        secure_sums: add clients up as devices are in secure sums, in whole numbers: the same bits as a federation.
        dropouts: share of the clients that drop out of such a sum, by chance; too few left is an error.
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
    data = load(data) if isinstance(data, (str, Path)) else data
    for name, found, kind in (
        ("data", data, Splits),
        ("algorithm", algorithm, FedIPS),
        ("click_model", click_model, ClickModel),
        ("sessions", sessions, Sessions),
        ("showing", showing, Showing),
        ("population", population, FreshUsers | FiniteUsers),
        ("adversaries", adversaries, Adversaries | None),
    ):
        if not isinstance(found, kind):
            types = " or ".join(each.__name__ for each in get_args(kind) or (kind,))
            hint = f"the class itself: write {found.__name__}()" if isinstance(found, type) else written(found)
            raise SettingError(name, f"expected a value of type {types}, found {hint}")
    for name, value, least in (
        ("clients", clients, 1),
        ("policies", policies, 1),
        ("rounds", rounds, 0),
        ("evaluate_every", evaluate_every, 1),
        ("k", k, 1),
        ("checkpoint_every", checkpoint_every, 1),
    ):
        check_number(name, value, least=least, most=10**8, whole=True)
    splits = tuple(splits)
    for split in splits:
        check_choice("splits", split, ("valid", "test"))
    check_ranks(algorithm.training, algorithm.propensity, displayed)
    check_model(algorithm.model, algorithm.server, data.normalised)
    check_sums(algorithm, secure_sums, dropouts)
    algorithm, cost = _private(algorithm, clients, rounds, population, adversaries, data.train.width, secure_sums)
    grade = click_model.relevant_grade
    if grade is None:
        click_model = replace(click_model, relevant_grade=default_relevant_grade(data.train))
    settings = {
        "data": data.name,
        "algorithm": asdict(algorithm),
        "clients": int(clients),
        "rounds": int(rounds),
        "seed": int(seed),
        "policy": asdict(policy) if isinstance(policy, PolicySettings) else _checked_policy(policy, data.train.width),
        "policies": int(policies),
        "showing": asdict(showing),
        "displayed": int(displayed),
        "click_model": asdict(click_model),
        "sessions": asdict(sessions),
        "population": {"kind": type(population).__name__, **asdict(population)},
        "adversaries": None if adversaries is None else asdict(adversaries),
        "secure_sums": bool(secure_sums),
        "dropouts": float(dropouts),
        "evaluate_every": int(evaluate_every),
        "k": int(k),
        "splits": list(splits),
        "privacy": None if cost is None else cost.as_mapping(),
    }
    if isinstance(policy, PolicySettings):
        versions = np.stack([train_policy(data.train, policy, seed, version) for version in range(policies)])
    else:
        versions = policy[np.newaxis]
    logging_policy = versions[0]
    if isinstance(algorithm.propensity, Estimator) and algorithm.propensity.kind == "harvested" and len(versions) < 2:
        raise FultrError(
            "propensity: a single deterministic logging policy shows every document at one rank, so there are no "
            "interventions to harvest; use two or more policies, or another estimator"
        )
    if showing.exploration != "none" and (len(versions) > 1 or algorithm.pairs == "retrieved"):
        beside = "pairs = retrieved" if len(versions) == 1 else f"policies = {len(versions)}"
        raise SettingError("exploration", f"expected none with {beside}, found {showing.exploration}")
    shown = display(data.train, versions, displayed=displayed, pairs=algorithm.pairs, seed=seed, threads=threads)
    model = model_named(algorithm.model, data.train.width)
    progress = _start(algorithm, model, logging_policy, displayed, population, seed)
    save = None
    if checkpoint is not None:
        # A run of fewer rounds is the beginning of a longer one: the number of rounds may differ.
        # With privacy it may not: the noise is for all rounds.
        length = "any" if cost is None else int(rounds)
        identity = {**settings, "rounds": length, "fingerprints": [part.fingerprint() for part in data]}
        save = partial(save_checkpoint, Path(checkpoint), identity)
        progress = _resumed(Path(checkpoint), identity, rounds) or progress
    scores = None if showing.exploration == "none" else np.empty(data.train.documents, np.float32)
    if scores is not None:
        best_documents(data.train, Linear(data.train.width), logging_policy, threads=threads, scores=scores)
    first = Shown.first(data.train, shown, click_model, k, seed, scores)
    run = Simulated(
        algorithm,
        model,
        shown,
        click_model_of(click_model, data.train.query_ids),
        first.attraction,
        cohorts(population, data.train, click_model, clients, seed, in_turn=limits_participation(algorithm)),
        sessions,
        seed,
        threads,
        progress.evidence,
        adversaries,
        showing,
        first,
        first.quality,
        secure_sums,
        dropouts,
    )
    refreshes = Refreshes(showing.refresh, len(versions))
    run = refreshes.again(run, progress)
    while progress.done < rounds:
        run = refreshes.due(run, progress)
        measure = (progress.done + 1) % evaluate_every == 0 or progress.done + 1 == rounds
        progress.server, watched = run_round(run, progress.done, progress.server, watch=measure)
        progress.done += 1
        if measure:
            progress.keep(watched)
        if save and (progress.done % checkpoint_every == 0 or progress.done == rounds):
            save(progress.as_arrays())
        if on_round:
            on_round(progress.done)
    if progress.measured[-1] != rounds:  # the checkpoint of a longer run ends here
        progress.keep(unwatched(displayed))
    ranker = Ranker(progress.server.ranker, data.train.feature_ids, data.normalised, settings, algorithm.model)
    wanted = progress.wanted(rounds, evaluate_every)
    return Simulation(
        ranker,
        curve_of(progress, model, wanted, data, k, splits, threads),
        settings,
        weighing_of(progress, wanted),
        online_of(progress, wanted),
    )


def _private(
    algorithm: FedIPS,
    clients: int,
    rounds: int,
    population: FreshUsers | FiniteUsers,
    adversaries: Adversaries | None,
    features: int,
    summed: bool,
) -> tuple[FedIPS, Guarantee | None]:
    """The algorithm with the noise of all rounds settled, and what they cost; as it is without privacy."""
    privacy = algorithm.privacy
    if privacy is None or rounds == 0:
        return algorithm, None
    if adversaries is not None:
        raise SettingError("adversaries", "expected none with privacy: they would have to be bounded, too")
    if isinstance(population, FiniteUsers):
        if privacy.population not in (None, population.users):
            raise SettingError("population", f"expected {population.users}, as users; found {privacy.population}")
        if privacy.secret_cohorts != (population.sampling == "poisson"):
            raise SettingError("sampling", "expected poisson with secret_cohorts, and only then")
        privacy = replace(privacy, population=population.users)
    size = model_named(algorithm.model, features).update_size
    privacy = settled(privacy, cohort=clients, rounds=rounds, size=size)
    stage = replace(algorithm.stage, privacy=privacy)
    return replace(algorithm, stage=stage), spent(privacy, cohort=clients, rounds=rounds, summed=summed)


def _resumed(checkpoint: Path, identity: dict[str, Any], rounds: int) -> Standing | None:
    """Where a checkpoint stands; None if there is none yet."""
    if not checkpoint.parent.is_dir():
        raise FultrError(f"{checkpoint}: there is no folder {checkpoint.parent}")
    if not checkpoint.exists():
        return None
    progress = Standing.from_arrays(load_checkpoint(checkpoint, identity))
    if progress.done > rounds:
        raise FultrError(f"{checkpoint}: this checkpoint is at round {progress.done}, past the {rounds} asked for")
    return progress


def _checked_policy(policy: Float32s, width: int) -> str:
    """Refuse weights that do not fit the data; return a text that stands for them."""
    if not isinstance(policy, np.ndarray) or policy.dtype != np.float32 or policy.shape != (width,):
        found = f"{policy.dtype} {policy.shape}" if isinstance(policy, np.ndarray) else type(policy).__name__
        raise FultrError(f"policy: expected PolicySettings or float32 weights of {width} features, found {found}")
    return hashlib.sha256(policy.tobytes()).hexdigest()


def _start(
    algorithm: FedIPS,
    model: Model,
    policy: Float32s,
    displayed: int,
    population: FreshUsers | FiniteUsers,
    seed: int,
) -> Standing:
    """Round 0, with w_0 as the algorithm asks."""
    linear = {
        "zero": None,
        "policy": policy,
        "unit-policy": _unit(policy),
        "random": random_weights(model.features, seed),
    }[algorithm.initial]
    weights = model.initial(seed, linear)
    source, evidence = algorithm.propensity, None
    if isinstance(source, Estimator) and source.remember and isinstance(population, FiniteUsers):
        evidence = ESTIMATORS[source.kind].no_evidence(source, population.users, displayed)
    server = Server.initial(algorithm, model, weights, displayed)
    nothing = unwatched(displayed)
    return Standing(0, server, evidence, [0], [weights], [nothing.weighed], [nothing.online])


def _unit(weights: Float32s) -> Float32s:
    """The same order of documents, from weights of norm 1; weights of zero stay as they are."""
    norm = float(np.linalg.norm(weights.astype(np.float64)))
    return weights if norm == 0 else (weights / norm).astype(np.float32)
