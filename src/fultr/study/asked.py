"""What a simulation is asked to do, checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.arrays import Float32s
from fultr.core.checks import SettingError, check_choice, check_number, check_seed, written
from fultr.core.errors import FultrError
from fultr.data.ranking import Splits
from fultr.federated.settings import Estimator, FedIPS, check_model, check_ranks
from fultr.study.settings import Adversaries, FiniteUsers, FreshUsers, PolicySettings, Showing, check_sums


@dataclass(frozen=True, eq=False)
class Asked:
    """The arguments of `simulate`, which says what each of them is."""

    data: Splits
    algorithm: FedIPS
    clients: int
    rounds: int
    seed: int
    policy: PolicySettings | Float32s
    policies: int
    showing: Showing
    displayed: int
    click_model: ClickModel
    sessions: Sessions
    population: FreshUsers | FiniteUsers
    adversaries: Adversaries | None
    secure_sums: bool
    dropouts: float
    evaluate_every: int
    k: int
    splits: Collection[str]
    checkpoint: str | Path | None
    checkpoint_every: int
    threads: int | None
    on_round: Callable[[int], object] | None

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name, found, kind in (
            ("data", self.data, Splits),
            ("algorithm", self.algorithm, FedIPS),
            ("click_model", self.click_model, ClickModel),
            ("sessions", self.sessions, Sessions),
            ("showing", self.showing, Showing),
            ("population", self.population, FreshUsers | FiniteUsers),
            ("adversaries", self.adversaries, Adversaries | None),
        ):
            if not isinstance(found, kind):
                types = " or ".join(each.__name__ for each in get_args(kind) or (kind,))
                hint = f"the class itself: write {found.__name__}()" if isinstance(found, type) else written(found)
                raise SettingError(name, f"expected a value of type {types}, found {hint}")
        for name, value, least in (
            ("clients", self.clients, 1),
            ("policies", self.policies, 1),
            ("rounds", self.rounds, 0),
            ("evaluate_every", self.evaluate_every, 1),
            ("k", self.k, 1),
            ("checkpoint_every", self.checkpoint_every, 1),
        ):
            check_number(name, value, least=least, most=10**8, whole=True)
        for split in self.splits:
            check_choice("splits", split, ("valid", "test"))
        algorithm = self.algorithm
        check_ranks(algorithm.training, algorithm.propensity, self.displayed)
        check_model(algorithm.model, algorithm.server, self.data.normalised)
        check_sums(algorithm, self.secure_sums, self.dropouts)
        source, exploration = algorithm.propensity, self.showing.exploration
        versions = self.policies if isinstance(self.policy, PolicySettings) else 1
        if isinstance(source, Estimator) and source.kind == "harvested" and versions < 2:
            raise FultrError(
                "propensity: harvested compares documents that were shown at several ranks, and a single logging "
                "policy shows each at one; use two or more policies (--policies 2), or another estimator"
            )
        if exploration != "none" and (versions > 1 or algorithm.pairs == "retrieved"):
            beside = "pairs = retrieved" if versions == 1 else f"policies = {versions}"
            raise SettingError("exploration", f"expected none with {beside}, found {exploration}")

    def policy_settings(self) -> dict[str, Any] | str:
        """How the logging policy is trained; or a text that stands for its weights, if they fit the data."""
        policy, width = self.policy, self.data.train.width
        if isinstance(policy, PolicySettings):
            return asdict(policy)
        if not isinstance(policy, np.ndarray) or policy.dtype != np.float32 or policy.shape != (width,):
            found = f"{policy.dtype} {policy.shape}" if isinstance(policy, np.ndarray) else type(policy).__name__
            raise FultrError(f"policy: expected PolicySettings or float32 weights of {width} features, found {found}")
        return hashlib.sha256(policy.tobytes()).hexdigest()
