"""Clicks whose relevance follows a known function, and one round of estimation from them."""

from __future__ import annotations

import numpy as np

from fultr.clicks.log import ClickLog, Display, Records
from fultr.clicks.models.position_based import PositionBased, examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import Sessions
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.settings import Estimator

RANKS = 4


def made_up(queries: int = 30, features: int = 6, seed: int = 0) -> tuple[Display, np.ndarray]:
    """Displayed documents with random features, the last query short; and the weights of a relevance function."""
    rng = np.random.default_rng(seed)
    shown = np.arange(queries * RANKS).reshape(queries, RANKS)
    shown[-1, 2:] = -1
    rows = np.zeros((queries * RANKS, 16), np.float32)
    rows[:, :features] = rng.normal(size=(len(rows), features))
    offsets = np.r_[np.arange(queries) * RANKS, (queries - 1) * RANKS + 2]
    weights = rng.normal(size=features + 1).astype(np.float32)
    weights[-1] = -0.5
    return Display(rows, offsets, shown, shown), weights


def relevance_of(display: Display, weights: np.ndarray) -> np.ndarray:
    scores = display.features[:, : weights.size - 1] @ weights[:-1].astype(np.float64) + weights[-1]
    return np.where(display.shown >= 0, 1 / (1 + np.exp(-scores[display.shown])), 0.0)


def clicks_of(
    display: Display, weights: np.ndarray, severities: np.ndarray, seed: int = 0, round_: int = 0
) -> ClickLog:
    """Clicks of users whose relevance follows the function."""
    return simulate_clicks(
        PositionBased(),
        relevance_of(display, weights),
        examination(severities, RANKS),
        np.arange(severities.size),
        sessions=Sessions(queries=5, clicks=8),
        seed=seed,
        round_=round_,
    )


def state_with(estimator: Estimator, weights: np.ndarray) -> dict[str, np.ndarray]:
    return {**ESTIMATORS[estimator.kind].init(estimator, weights.size - 1, RANKS), "relevance": weights}


def no_sums(estimator: Estimator, features: int, rows: int = 1) -> dict[str, np.ndarray]:
    return ESTIMATORS[estimator.kind].nothing(estimator, features, RANKS, rows)


def estimates(estimator: Estimator, state, log: ClickLog, display: Display, sums) -> np.ndarray:
    """What clients with this log divide by; what they send is added to the sums."""
    kind = ESTIMATORS[estimator.kind]
    return kind.client(estimator, kind.broadcast(estimator, state), Records(log, display), sums)


def next_state(estimator: Estimator, state, sums, clients: float) -> dict[str, np.ndarray]:
    kind = ESTIMATORS[estimator.kind]
    return {**state, **kind.server(estimator, state, {name: rows[0] for name, rows in sums.items()}, clients)}
