"""Propensities estimated from the clicks themselves, inside the rounds of FedIPS; no log leaves a device.

The regression-based EM of Wang et al. (2018), federated (Section 5 of the paper): all clients share a logistic
relevance function F. On its own log each client computes how much of each rank was examined, and the gradient of F; the
server combines gradients by a server optimiser. What a client divides its clicks by is its own estimate ("personal",
the paper's), that of all ("pooled"), its own shrunk towards that of all ("shrunk"), or a power law with a severity of
its own ("power-law").

Where several versions of the logging policy are in use at random, "harvested" needs no relevance function: clicks on
the same document at different ranks tell examination apart (Agarwal et al. 2019).

What leaves a device is `Sums`, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, expit, logit, ndtr

from fultr.checks import check_choice, check_number
from fultr.errors import FultrError
from fultr.harvesting import PairCounts, all_pairs
from fultr.server import ServerOptimiser, ServerState, initial_state, step
from fultr.types import Float32s, Float64s

Kind = Literal["personal", "pooled", "shrunk", "power-law", "harvested"]
KINDS: tuple[Kind, ...] = ("personal", "pooled", "shrunk", "power-law", "harvested")

SENT: dict[Kind, tuple[str, ...]] = {
    "personal": ("gradient",),
    "pooled": ("gradient", "examined", "impressions"),
    "shrunk": ("gradient", "examined", "impressions", "marginals"),
    "power-law": ("gradient", "marginals"),
    "harvested": ("pairs",),
}
"""What leaves a device beside its update: these of `Sums`, and nothing else."""

STRENGTHS = np.array([2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, np.inf])
"""How many impressions the prior of a client's examination is worth ("shrunk"); infinite: all clients are alike."""

THETAS = np.linspace(0.04, 1.0, 32) ** 2  # closer together where examination is rare
SEVERITIES = np.linspace(0.0, 4.0, 32)
_MEANS, _SPREADS = np.linspace(0.0, 3.0, 13), np.array([0.0, 0.15, 0.3, 0.6, 1.0])
PRIORS = np.array([(mean, spread) for mean in _MEANS for spread in _SPREADS])
"""Means and standard deviations of the severities' distribution that clients evaluate ("power-law")."""

_BOUNDS = (1e-4, 1 - 1e-4)  # of pooled examination, below rank 1
_GROWTH, _FURTHEST = 1.3, 10.0  # of the steps of pooled examination, as multiples of EM's


@dataclass(frozen=True)
class Estimator:
    """How examination is estimated.

    Attributes:
        kind: "personal", "pooled", "shrunk", "power-law" or "harvested"; docs/estimating.md says why "shrunk" is the
            default.
        relevance: the server optimiser of F.
        start: examination of every rank below the first, before anything is known.
        iterations: of EM on a client ("personal").
        floor: estimates below this count as this: the largest weight of a click is 1 / floor.
        cross_fit: estimate on one half of a client's impressions and reweight the other, and the other way round, so
            that no click is divided by an estimate that it has a share in.
        memory: the server's sums of marginal likelihoods and of pairs of ranks are multiplied by this in every round.
        remember: a client that comes back still knows what it counted; fresh users remember nothing.
    """

    kind: Kind = "shrunk"
    relevance: ServerOptimiser = ServerOptimiser("adam", 0.03)
    start: float = 0.5
    iterations: int = 10
    floor: float = 0.01
    cross_fit: bool = False
    memory: float = 0.9
    remember: bool = False

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_number("start", self.start, above=0, most=1)
        check_number("iterations", self.iterations, least=1, most=10_000, whole=True)
        check_number("floor", self.floor, above=0, most=1)
        check_number("memory", self.memory, least=0, below=1)


@dataclass(frozen=True, eq=False)
class EstimatorState:
    """What the server knows, and broadcasts: all float64 arrays but F, ready to be saved.

    Attributes:
        relevance: F, float32 [features + 1]; the last is the intercept.
        optimiser: of F.
        pooled: [K] examination of each rank, of all clients together.
        stride: [K] how much further than EM the server goes; its sign is that of the last step.
        marginals: [priors] sums of the logarithms of clients' marginal likelihoods.
        pairs: [2, K, K] sums of clicks and impressions for each pair of ranks.
    """

    relevance: Float32s
    optimiser: ServerState
    pooled: Float64s
    stride: Float64s
    marginals: Float64s
    pairs: Float64s

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything by name, for a checkpoint."""
        own = {name: value for name, value in vars(self).items() if name != "optimiser"}
        return {f"estimation_{name}": value for name, value in {**own, **vars(self.optimiser)}.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> EstimatorState | None:
        """What `as_arrays` wrote; None if there is nothing of the kind."""
        own = {k.removeprefix("estimation_"): v for k, v in arrays.items() if k.startswith("estimation_")}
        if not own:
            return None
        return cls(optimiser=ServerState(own.pop("momentum"), own.pop("squares")), **own)


@dataclass(eq=False)
class Sums:
    """All that clients send for estimation, added up over clients.

    Attributes:
        gradient: [features + 1] of F.
        examined: [K] expected examinations of each rank ("pooled", "shrunk").
        impressions: [K] impressions of each rank ("pooled", "shrunk").
        marginals: [priors] log marginal likelihoods ("shrunk", "power-law").
        pairs: [2, K, K] weighted clicks and impressions of documents that are shown at both ranks ("harvested").
    """

    gradient: Float64s
    examined: Float64s
    impressions: Float64s
    marginals: Float64s
    pairs: Float64s

    def __add__(self, other: Sums) -> Sums:
        return Sums(**{name: value + getattr(other, name) for name, value in vars(self).items()})


def initial(estimator: Estimator, features: int, ranks: int) -> EstimatorState:
    """What the server knows before the first round."""
    return EstimatorState(
        np.zeros(features + 1, np.float32),
        initial_state(estimator.relevance, features + 1),
        np.r_[1.0, np.full(ranks - 1, estimator.start)],
        np.zeros(ranks),
        np.zeros(_priors(estimator)),
        np.zeros((2, ranks, ranks)),
    )


def no_sums(estimator: Estimator, features: int, ranks: int) -> Sums:
    """Sums of no clients."""
    priors = np.zeros(_priors(estimator))
    return Sums(np.zeros(features + 1), np.zeros(ranks), np.zeros(ranks), priors, np.zeros((2, ranks, ranks)))


def _priors(estimator: Estimator) -> int:
    return {"shrunk": STRENGTHS.size, "power-law": len(PRIORS)}.get(estimator.kind, 0)


def server_step(estimator: Estimator, state: EstimatorState, sums: Sums, clients: float) -> EstimatorState:
    """The next state from the sums of a cohort."""
    relevance, optimiser = step(estimator.relevance, state.optimiser, state.relevance, sums.gradient / max(clients, 1))
    pooled, stride = _pooled_step(state.pooled, state.stride, sums)
    return EstimatorState(
        relevance,
        optimiser,
        pooled,
        stride,
        estimator.memory * state.marginals + sums.marginals,
        estimator.memory * state.pairs + sums.pairs,
    )


def _pooled_step(pooled: Float64s, stride: Float64s, sums: Sums) -> tuple[Float64s, Float64s]:
    """M-step of pooled examination, accelerated.

    EM alone takes small steps where most of what it asks for is missing: at low ranks. As long as a rank's steps (in
    log odds) go the same way, each goes further than EM by a growing factor; when they turn, it is EM's own again
    (Salakhutdinov and Roweis 2003). Near the end steps are noise, turn often, and EM averages them.
    """
    known = sums.impressions > 0
    target = np.where(known, sums.examined / np.where(known, sums.impressions, 1), pooled)
    odds = logit(np.clip(pooled, *_BOUNDS))
    step = logit(np.clip(target, *_BOUNDS)) - odds
    onward = np.where(np.sign(step) == np.sign(stride), np.minimum(np.abs(stride) * _GROWTH, _FURTHEST), 1.0)
    moved = expit(odds + onward * step)
    moved[0] = 1.0
    return np.where(known, moved, pooled), np.where(known, onward * np.sign(step), stride)


def harvested_examination(estimator: Estimator, state: EstimatorState) -> Float64s:
    """Examination of each rank from the documents that are shown at several; the start until all ranks are linked."""
    try:
        found = all_pairs(PairCounts(*state.pairs))
    except FultrError:
        found = np.full(state.pooled.size, estimator.start)
        found[0] = 1.0
    return np.minimum(found, 1.0)


def strength_priors(pooled: Float64s) -> Float64s:
    """Priors [K, strengths, grid] of a client's examination of each rank: Beta, with the pooled mean.

    Each is spread over the grid by hat functions, which keeps its mean. Rank 1 has none: it is always examined.
    """
    edges = np.linspace(0.0, 1.0, 201)
    fine = (edges[1:] + edges[:-1]) / 2
    priors = np.zeros((pooled.size, STRENGTHS.size, THETAS.size))
    for k in range(1, pooled.size):
        mean = float(np.clip(pooled[k], THETAS[0], 1 - 1e-3))
        for s, strength in enumerate(STRENGTHS):
            if np.isinf(strength):
                density, at = np.ones(1), np.array([mean])
            else:
                density, at = np.diff(betainc(strength * mean, strength * (1 - mean), edges)), fine
            priors[k, s] = _hats(THETAS, at, density)
    return priors


def severity_prior(mean: float, spread: float) -> Float64s:
    """The prior [grid] of a client's severity: a Gaussian truncated at 0, spread over `SEVERITIES` by hat functions."""
    if spread < 1e-3:
        return _hats(SEVERITIES, np.array([mean]), np.ones(1))
    edges = np.linspace(0.0, SEVERITIES[-1], 801)
    density = np.diff(ndtr((edges - mean) / spread))
    return _hats(SEVERITIES, (edges[1:] + edges[:-1]) / 2, density)


@cache
def _severity_priors() -> Float64s:
    """All of `PRIORS` on the grid, [1, priors, grid]."""
    return np.stack([severity_prior(*prior) for prior in PRIORS])[np.newaxis]


def _hats(grid: Float64s, at: Float64s, density: Float64s) -> Float64s:
    """Probabilities on a grid with the mean of a density: each point is shared by the two grid points around it."""
    at = np.clip(at, grid[0], grid[-1])
    right = np.clip(np.searchsorted(grid, at), 1, grid.size - 1)
    share = (at - grid[right - 1]) / (grid[right] - grid[right - 1])
    mass = np.bincount(right, density * share, grid.size) + np.bincount(right - 1, density * (1 - share), grid.size)
    return mass / mass.sum()


def best_strength(state: EstimatorState) -> int:
    """The index of the strength with the largest marginal likelihood; at first, when all are equal, the middle one."""
    return int(np.argmax(state.marginals)) if np.ptp(state.marginals) > 0 else STRENGTHS.size // 2


def best_severities(estimator: Estimator, state: EstimatorState) -> tuple[float, float]:
    """Mean and spread of the severities' distribution with the largest marginal likelihood.

    Between the points of the grid by a parabola through the best one and its neighbours.
    """
    if np.ptp(state.marginals) == 0:
        return float(-np.log(estimator.start) / np.log(2.0)), 0.3  # the power law through the start at rank 2
    table = state.marginals.reshape(_MEANS.size, _SPREADS.size)
    i, j = np.unravel_index(np.argmax(table), table.shape)
    return _peak(_MEANS, table[:, j], int(i)), max(0.0, _peak(_SPREADS, table[i], int(j)))


def _peak(x: Float64s, y: Float64s, i: int) -> float:
    """Where the parabola through three neighbouring points is highest; at the ends, the end."""
    if i in (0, x.size - 1):
        return float(x[i])
    a, b, _ = np.polyfit(x[i - 1 : i + 2] - x[i], y[i - 1 : i + 2] - y[i], 2)
    return float(x[i] - b / (2 * a)) if a < 0 else float(x[i])


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What the server sends to all clients of a round: F, and what it believes about examination.

    Attributes:
        relevance: F, float32 [features + 1].
        pooled: [K] examination of all clients together; of the "personal" estimator, its start.
        grid: [K, grid] the examinations of each rank that likelihoods are evaluated at.
        priors: [K or 1, several, grid] the priors that marginal likelihoods are evaluated for.
        chosen: [K or 1, grid] the prior that a client's estimate is made with.
    """

    relevance: Float32s
    pooled: Float64s
    grid: Float32s
    priors: Float32s
    chosen: Float32s


_NONE = np.zeros((1, 1), np.float32)


def broadcast(estimator: Estimator, state: EstimatorState) -> Broadcast:
    """What clients need to know in a round."""
    ranks = state.pooled.size
    pooled = state.pooled
    if estimator.kind == "shrunk":
        priors = strength_priors(pooled)
        grid = np.tile(THETAS, (ranks, 1))
        chosen = np.ascontiguousarray(priors[:, best_strength(state)])
        return Broadcast(state.relevance, pooled, _single(grid), _single(priors), _single(chosen))
    if estimator.kind == "power-law":
        grid = np.arange(1.0, ranks + 1)[:, np.newaxis] ** -SEVERITIES
        chosen = severity_prior(*best_severities(estimator, state))[np.newaxis]
        return Broadcast(state.relevance, grid @ chosen[0], _single(grid), _single(_severity_priors()), _single(chosen))
    if estimator.kind == "harvested":
        pooled = harvested_examination(estimator, state)
    if estimator.kind == "personal":
        pooled = np.full(ranks, estimator.start)
        pooled[0] = 1.0
    return Broadcast(state.relevance, pooled, _NONE, _NONE[np.newaxis], _NONE)


def _single(values: Float64s) -> Float32s:
    return values.astype(np.float32)
