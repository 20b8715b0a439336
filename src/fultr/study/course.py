"""The course of a simulation: the round loop of Algorithm 1, on simulated users."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fultr.core.arrays import Float32s
from fultr.core.checkpoint import load_checkpoint, save_checkpoint
from fultr.core.checks import SettingError
from fultr.core.errors import FultrError
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.fedips import Server
from fultr.federated.privacy.accountant import Guarantee, settled, spent
from fultr.federated.settings import Estimator, FedIPS
from fultr.rankers.linear import random_weights
from fultr.rankers.metrics import default_relevant_grade
from fultr.rankers.model import Model, model_named
from fultr.rankers.ranker import Ranker
from fultr.study.asked import Asked
from fultr.study.rounds import Simulated, Watched
from fultr.study.scene import Scenes, scene_of
from fultr.study.settings import Adversaries, FiniteUsers, FreshUsers
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


class Due(NamedTuple):
    """A round that is to be done next: number t of a run, from what its server knows; is it watched?"""

    run: Simulated
    t: int
    server: Server
    watch: bool


Course: TypeAlias = Generator[Due, tuple[Server, Watched], Simulation]
"""A simulation, which asks for one round after the other."""


def course(asked: Asked, scenes: Scenes) -> Course:
    """A simulation, round by round: it yields what is due, and is sent what came of it.

    Its scene may be one of `scenes`, or is added to them.
    """
    data, rounds, seed = asked.data, asked.rounds, asked.seed
    population, splits, threads = asked.population, tuple(asked.splits), asked.threads
    algorithm, cost = _private(
        asked.algorithm, asked.clients, rounds, population, asked.adversaries, data.train.width, asked.secure_sums
    )
    click_model = asked.click_model
    if click_model.relevant_grade is None:
        click_model = replace(click_model, relevant_grade=default_relevant_grade(data.train))
    settings = {
        "data": data.name,
        "algorithm": asdict(algorithm),
        "clients": int(asked.clients),
        "rounds": int(rounds),
        "seed": int(seed),
        "policy": asked.policy_settings(),
        "policies": int(asked.policies),
        "showing": asdict(asked.showing),
        "displayed": int(asked.displayed),
        "click_model": asdict(click_model),
        "sessions": asdict(asked.sessions),
        "population": {"kind": type(population).__name__, **asdict(population)},
        "adversaries": None if asked.adversaries is None else asdict(asked.adversaries),
        "secure_sums": bool(asked.secure_sums),
        "dropouts": float(asked.dropouts),
        "evaluate_every": int(asked.evaluate_every),
        "k": int(asked.k),
        "splits": list(splits),
        "privacy": None if cost is None else cost.as_mapping(),
    }
    scene, model = scene_of(asked, click_model, scenes), model_named(algorithm.model, data.train.width)
    progress = _start(algorithm, model, scene.policies[0], asked.displayed, population, seed)
    save = None
    if asked.checkpoint is not None:
        # A run of fewer rounds is the beginning of a longer one: the number of rounds may differ.
        # With privacy it may not: the noise is for all rounds.
        length = "any" if cost is None else int(rounds)
        identity = {**settings, "rounds": length, "fingerprints": [part.fingerprint() for part in data]}
        save = partial(save_checkpoint, Path(asked.checkpoint), identity)
        progress = _resumed(Path(asked.checkpoint), identity, rounds) or progress
    run = Simulated(
        algorithm,
        model,
        scene.shown.display,
        scene.click_model,
        scene.shown.attraction,
        scene.users,
        asked.sessions,
        seed,
        threads,
        progress.evidence,
        asked.adversaries,
        asked.showing,
        scene.shown,
        scene.shown.quality,
        asked.secure_sums,
        asked.dropouts,
    )
    refreshes = Refreshes(asked.showing.refresh, len(scene.policies))
    run = refreshes.again(run, progress)
    while progress.done < rounds:
        run = refreshes.due(run, progress)
        measure = (progress.done + 1) % asked.evaluate_every == 0 or progress.done + 1 == rounds
        progress.server, watched = yield Due(run, progress.done, progress.server, measure)
        progress.done += 1
        if measure:
            progress.keep(watched)
        if save and (progress.done % asked.checkpoint_every == 0 or progress.done == rounds):
            save(progress.as_arrays())
        if asked.on_round:
            asked.on_round(progress.done)
    if progress.measured[-1] != rounds:  # the checkpoint of a longer run ends here
        progress.keep(unwatched(asked.displayed))
    ranker = Ranker(progress.server.ranker, data.train.feature_ids, data.normalised, settings, algorithm.model)
    wanted = progress.wanted(rounds, asked.evaluate_every)
    return Simulation(
        ranker,
        curve_of(progress, model, wanted, data, asked.k, splits, threads),
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
