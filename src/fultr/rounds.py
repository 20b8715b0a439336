"""One round of Algorithm 1: a cohort's clicks and local training, what it sends, and what the server makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fultr.checks import check_choice
from fultr.clicks import ClickLog, Sessions, examination, simulate_clicks
from fultr.client import LocalTraining, add_updates
from fultr.client_estimation import estimate_clients
from fultr.estimation import Broadcast, Estimator, EstimatorState, Sums, broadcast, initial, no_sums, server_step
from fultr.policy import Display
from fultr.population import Cohorts
from fultr.propensity import Propensity, propensities
from fultr.server import ServerOptimiser, ServerState, average, initial_state, step
from fultr.threads import chunk_bounds, run_chunks
from fultr.types import Float32s, Float64s, Int64s

_SUMS = 16  # partial sums of a cohort's updates: fixed, so that they add up alike for any number of threads
_BLOCK = 64  # clients whose clicks are held at a time, by each thread


@dataclass(frozen=True)
class FedIPS:
    """The algorithm: local training, server optimiser, and what the paper leaves open.

    Attributes:
        training: what each client does, eta_l included.
        server: what the server does, eta_g included.
        propensity: what clicks are divided by: "known", "none" (which makes it `FedAvg`), one number a rank, or an
            `Estimator`, which estimates it from the clicks.
        pairs: the documents D_q that a clicked one is compared with: "displayed" or "retrieved".
        initial: w_0: "zero", the logging "policy", or "random" (Gaussian with variance 1 / features).
        average_over: the sum of updates is divided by the size of the "cohort", clients without clicks included, as in
            the paper; or by the number of "repliers", the clients that had a click.
    """

    training: LocalTraining = LocalTraining()
    server: ServerOptimiser = ServerOptimiser()
    propensity: Propensity | Estimator = "known"
    pairs: Literal["displayed", "retrieved"] = "displayed"
    initial: Literal["zero", "policy", "random"] = "zero"
    average_over: Literal["cohort", "repliers"] = "cohort"

    def __post_init__(self) -> None:
        if not isinstance(self.propensity, str | Estimator):
            object.__setattr__(self, "propensity", tuple(float(p) for p in self.propensity))
        check_choice("pairs", self.pairs, ("displayed", "retrieved"))
        check_choice("initial", self.initial, ("zero", "policy", "random"))
        check_choice("average_over", self.average_over, ("cohort", "repliers"))


FedAvg = partial(FedIPS, propensity="none")
"""FedIPS without the correction: every click counts 1 (McMahan et al. 2017)."""


@dataclass(frozen=True, eq=False)
class Federation:
    """What stays the same from round to round.

    `evidence` [users, numbers] is what the devices of a finite population remember of earlier rounds; it changes.
    """

    algorithm: FedIPS
    display: Display
    attraction: Float64s
    users: Cohorts
    sessions: Sessions
    seed: int
    threads: int | None
    evidence: Float32s | None = None

    @property
    def estimator(self) -> Estimator | None:
        """How propensities are estimated, if they are."""
        return self.algorithm.propensity if isinstance(self.algorithm.propensity, Estimator) else None


@dataclass(frozen=True, eq=False)
class ServerSide:
    """All that the server knows: the weights w_t, its optimiser, and its state of estimation."""

    weights: Float32s
    optimiser: ServerState
    estimation: EstimatorState | None

    @classmethod
    def initial(cls, algorithm: FedIPS, weights: Float32s, displayed: int) -> ServerSide:
        """Before the first round, with w_0."""
        estimator = algorithm.propensity if isinstance(algorithm.propensity, Estimator) else None
        estimation = None if estimator is None else initial(estimator, weights.size, displayed)
        return cls(weights, initial_state(algorithm.server, weights.size), estimation)

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything by name, for a checkpoint."""
        optimiser = {f"optimiser_{name}": value for name, value in vars(self.optimiser).items()}
        estimation = {} if self.estimation is None else self.estimation.as_arrays()
        return {"weights": self.weights, **optimiser, **estimation}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> ServerSide:
        """What `as_arrays` wrote."""
        optimiser = ServerState(arrays["optimiser_momentum"], arrays["optimiser_squares"])
        return cls(arrays["weights"], optimiser, EstimatorState.from_arrays(arrays))


@dataclass(frozen=True, eq=False)
class Collected:
    """What the clients of a cohort sent, added up; and beside it what only a simulation can see.

    Attributes:
        total: [features] sum of updates.
        repliers: how many clients had a click.
        sums: for the estimation of propensities.
        weighed: [5, K] sums over impressions of 1, propensity and examination, and over clicks of the inverses of
            the two.
    """

    total: Float64s
    repliers: int
    sums: Sums | None
    weighed: Float64s


def run_round(
    federation: Federation, t: int, server: ServerSide, *, watch: bool = False
) -> tuple[ServerSide, Float64s]:
    """Round t: Algorithm 1, lines 2 to 11; returns what the server knows after it, and `Collected.weighed`."""
    users, estimator = federation.users, federation.estimator
    cohort = users.cohort(t)  # line 2
    sent = None if estimator is None or server.estimation is None else broadcast(estimator, server.estimation)
    collected = collect(federation, t, server.weights, cohort, sent, watch=watch)  # lines 3 to 10
    return server_round(federation.algorithm, server, collected, users.expected), collected.weighed


def server_round(algorithm: FedIPS, server: ServerSide, collected: Collected, clients: float) -> ServerSide:
    """What the server makes of what a cohort of so many clients sent (line 11)."""
    divisor = clients if algorithm.average_over == "cohort" else collected.repliers
    weights, optimiser = step(algorithm.server, server.optimiser, server.weights, average(collected.total, divisor))
    estimation = server.estimation
    if isinstance(algorithm.propensity, Estimator) and estimation is not None and collected.sums is not None:
        estimation = server_step(algorithm.propensity, estimation, collected.sums, clients)
    return ServerSide(weights, optimiser, estimation)


def sum_bounds(clients: int) -> list[tuple[int, int]]:
    """The clients of a cohort, in order, whose updates are added up by themselves before all are."""
    return chunk_bounds(clients, _SUMS)


def collect(
    federation: Federation,
    t: int,
    weights: Float32s,
    cohort: Int64s,
    sent: Broadcast | None = None,
    *,
    watch: bool = False,
) -> Collected:
    """Each client's clicks, propensities and local training (lines 3 to 10): what they send, added up.

    Args:
        federation: what stays the same.
        t: the round.
        weights: w_t.
        cohort: the clients, by number.
        sent: what an estimator of propensities needs to know.
        watch: fill `Collected.weighed` too.
    """
    bounds = sum_bounds(cohort.size)
    display, estimator = federation.display, federation.estimator
    totals = np.zeros((len(bounds), weights.size))
    weighed = np.zeros((len(bounds), 5, display.ranks))
    repliers = [0] * len(bounds)
    sums = [None if estimator is None else no_sums(estimator, weights.size, display.ranks) for _ in bounds]

    def work(i: int) -> None:
        begin, end = bounds[i]
        for block in range(begin, end, _BLOCK):
            clients = cohort[block : min(block + _BLOCK, end)]
            examined = examination(federation.users.severities(t, clients), display.ranks)
            log = simulate_clicks(
                federation.attraction,
                examined,
                clients,
                sessions=federation.sessions,
                seed=federation.seed,
                round_=t,
                pools=federation.users.pools,
                versions=display.versions,
            )
            divisors = _divisors(federation, clients, log, examined, sent, sums[i])
            if watch:
                weighed[i] += _weighed(log, display, divisors, examined)
            repliers[i] += add_updates(log, display, divisors, weights, federation.algorithm.training, totals[i])

    run_chunks(work, len(bounds), federation.threads)
    added = None
    for part in sums:
        added = part if added is None or part is None else added + part
    return Collected(totals.sum(axis=0), sum(repliers), added, weighed.sum(axis=0))


def _divisors(
    federation: Federation,
    clients: Int64s,
    log: ClickLog,
    examined: Float64s,
    sent: Broadcast | None,
    sums: Sums | None,
) -> Float64s:
    """What clients divide their clicks by, [clients, parts, K]."""
    source = federation.algorithm.propensity
    if not isinstance(source, Estimator):
        return propensities(source, examined)[:, np.newaxis]
    assert sent is not None
    assert sums is not None
    if federation.evidence is None:
        return estimate_clients(source, sent, log, federation.display, sums)
    remembered = federation.evidence[clients]
    divisors = estimate_clients(source, sent, log, federation.display, sums, remembered)
    federation.evidence[clients] = remembered
    return divisors


def _weighed(log: ClickLog, display: Display, divisors: Float64s, examined: Float64s) -> Float64s:
    """Sums over impressions of 1, propensity and examination, and over clicks of the inverses of the two: [5, K]."""
    client = np.repeat(np.arange(log.clients), np.diff(log.offsets))
    part = (np.arange(client.size) - log.offsets[client]) % divisors.shape[1]
    there = display.shown[log.queries] >= 0
    used, true = divisors[client, part], examined[client]
    return np.stack(
        [
            there.sum(axis=0),
            (used * there).sum(axis=0),
            (true * there).sum(axis=0),
            (log.clicks / used).sum(axis=0),
            (log.clicks / true).sum(axis=0),
        ]
    )
