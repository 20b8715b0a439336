"""What users see and how they click, until a ranker takes the logging policy's place.

Runs side by side that differ in their algorithm alone have one scene: it is made once, and their rounds need clicks
only once (`rounds.alike`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fultr.clicks.models.model import Model as CompiledModel
from fultr.clicks.models.model import click_model_of
from fultr.clicks.settings import ClickModel
from fultr.core.arrays import Float32s
from fultr.rankers.linear import Linear
from fultr.study.asked import Asked
from fultr.study.policy import best_documents, display, train_policy
from fultr.study.settings import PolicySettings
from fultr.study.shown import Shown
from fultr.study.users import Cohorts, cohorts, limits_participation


@dataclass(frozen=True, eq=False)
class Scene:
    """What users see and how they click.

    Attributes:
        policies: weights of the logging policies, [versions, features].
        shown: what they display.
        users: who takes part.
        click_model: how users examine and click, compiled.
    """

    policies: Float32s
    shown: Shown
    users: Cohorts
    click_model: CompiledModel


Scenes: TypeAlias = dict[Hashable, Scene]
"""The scenes of runs side by side, by all that they depend on."""


def scene_of(asked: Asked, click_model: ClickModel, scenes: Scenes) -> Scene:
    """The scene of a run: that of another one, or added to `scenes`; its own if what is displayed will change."""
    if asked.showing.refresh is not None or not isinstance(asked.policy, PolicySettings):
        return _made(asked, click_model)
    key = (
        id(asked.data.train),  # which the scene keeps alive
        asked.policy,
        asked.policies,
        asked.showing,
        asked.displayed,
        asked.algorithm.pairs,
        asked.k,
        click_model,
        asked.population,
        asked.clients,
        limits_participation(asked.algorithm),
        asked.seed,
    )
    if key not in scenes:
        scenes[key] = _made(asked, click_model)
    return scenes[key]


def _made(asked: Asked, click_model: ClickModel) -> Scene:
    train, algorithm, seed, threads = asked.data.train, asked.algorithm, asked.seed, asked.threads
    if isinstance(asked.policy, PolicySettings):
        policies = np.stack([train_policy(train, asked.policy, seed, version) for version in range(asked.policies)])
    else:
        policies = asked.policy[np.newaxis]
    first = display(train, policies, displayed=asked.displayed, pairs=algorithm.pairs, seed=seed, threads=threads)
    scores = np.empty(train.documents, np.float32) if asked.showing.exploration != "none" else None
    if scores is not None:
        best_documents(train, Linear(train.width), policies[0], threads=threads, scores=scores)
    users = cohorts(asked.population, train, click_model, asked.clients, seed, in_turn=limits_participation(algorithm))
    shown = Shown.first(train, first, click_model, asked.k, seed, scores)
    return Scene(policies, shown, users, click_model_of(click_model, train.query_ids))
