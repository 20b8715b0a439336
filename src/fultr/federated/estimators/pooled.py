"""One examination curve for all clients, by EM over their sums."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from fultr.clicks.log import Records
from fultr.core.arrays import Arrays, Float32s, Float64s
from fultr.core.compiled import implements
from fultr.federated.estimators.expectations import Counted, examine
from fultr.federated.estimators.relevance import estimated, initial_relevance, next_relevance
from fultr.federated.settings import Estimator

_BOUNDS = (1e-4, 1 - 1e-4)  # of pooled examination, below rank 1
_GROWTH, _FURTHEST = 1.3, 10.0  # of the steps of pooled examination, as multiples of EM's


class Pooled(NamedTuple):
    """What compiled code takes: nothing."""


@implements(examine, Pooled)
def _examine(
    kind: Any, counted: Counted, u: int, begin: int, end: int, without: int, theta: Float64s, room: Float32s
) -> None:
    """It holds the pooled estimate already."""


def init(settings: Estimator, features: int, ranks: int) -> Arrays:
    """F, examination of each rank, and how much further than EM the server goes; the sign is that of the last step."""
    pooled = np.r_[1.0, np.full(ranks - 1, settings.estimate_start)]
    return {**initial_relevance(settings, features), "pooled": pooled, "stride": np.zeros(ranks)}


def broadcast(settings: Estimator, state: Arrays) -> Arrays:
    """F and examination."""
    return {name: state[name] for name in ("relevance", "pooled")}


def nothing(settings: Estimator, features: int, ranks: int, rows: int) -> Arrays:
    """The gradient of F, expected examinations of each rank, and its impressions."""
    return {
        "gradient": np.zeros((rows, features + 1)),
        "examined": np.zeros((rows, ranks)),
        "impressions": np.zeros((rows, ranks)),
    }


def no_evidence(settings: Estimator, clients: int, ranks: int) -> Float32s:
    """Clients have nothing to remember."""
    return np.zeros((clients, 0), np.float32)


def client(
    settings: Estimator, sent: Arrays, records: Records, sums: Arrays, evidence: Float32s | None = None
) -> Float64s:
    """All clients divide by the pooled estimate, in which no click of theirs has a share yet: there is no part."""
    return estimated(settings, Pooled(), sent, records, sums, own=False, parts=1)


def server(settings: Estimator, state: Arrays, sums: Arrays, clients: float) -> Arrays:
    """The next F and examination."""
    return {**state, **next_relevance(settings, state, sums["gradient"], clients), **next_pooled(state, sums)}


def next_pooled(state: Arrays, sums: Arrays) -> Arrays:
    """M-step of pooled examination, accelerated; rank 1 has examination 1."""
    pooled, stride, shown = state["pooled"], state["stride"], sums["impressions"]
    known = shown > 0
    target = np.where(known, sums["examined"] / np.where(known, shown, 1), pooled)
    moved, onward = further(pooled, stride, target)
    moved[0] = 1.0
    return {"pooled": np.where(known, moved, pooled), "stride": np.where(known, onward, stride)}


def further(believed: Float64s, stride: Float64s, target: Float64s) -> tuple[Float64s, Float64s]:
    """Where the server goes from what it believes, given what EM would believe next; and its strides then.

    EM alone takes small steps where most of what it asks for is missing: at low ranks. As long as a rank's steps (in
    log odds) go the same way, each goes further than EM by a growing factor; when they turn, it is EM's own again
    (Salakhutdinov and Roweis 2003). Near the end steps are noise, turn often, and EM averages them.
    """
    odds = logit(np.clip(believed, *_BOUNDS))
    step = logit(np.clip(target, *_BOUNDS)) - odds
    onward = np.where(np.sign(step) == np.sign(stride), np.minimum(np.abs(stride) * _GROWTH, _FURTHEST), 1.0)
    moved: Float64s = expit(odds + onward * step)
    return moved, onward * np.sign(step)
