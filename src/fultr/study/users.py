"""Who takes part: fresh users every round, as in the paper, or a finite population of different users."""

from __future__ import annotations

import warnings
from typing import Protocol

import numpy as np

from fultr.clicks.log import Display
from fultr.clicks.models.position_based import bias_severities
from fultr.clicks.sessions import NO_POOLS
from fultr.clicks.settings import ClickModel
from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s
from fultr.core.checks import check_number
from fultr.core.streams import Purpose, generator, uniforms
from fultr.data.ranking import RankingData
from fultr.federated.settings import FedIPS
from fultr.rankers.metrics import default_relevant_grade
from fultr.study.settings import FiniteUsers, FreshUsers


class Cohorts(Protocol):
    """What the round loop asks of a population."""

    pools: Int32s
    """[users, pool] the queries that each user may draw from; empty: all queries."""

    expected: float
    """How many clients a cohort has on average."""

    def cohort(self, round_: int) -> Int64s:
        """The clients of a round, by number, ascending."""

    def severities(self, round_: int, clients: Int64s) -> Float64s:
        """gamma_u of the given clients of a round."""


class _Fresh:
    def __init__(self, model: ClickModel, clients: int, seed: int) -> None:
        self.pools = NO_POOLS
        self.expected = float(clients)
        self._model, self._clients, self._seed = model, np.arange(clients), seed

    def cohort(self, round_: int) -> Int64s:
        return self._clients

    def severities(self, round_: int, clients: Int64s) -> Float64s:
        return bias_severities(self._model, uniforms(self._seed, int(Purpose.BIAS_SEVERITY), round_, clients))


class _Finite:
    def __init__(
        self, users: FiniteUsers, train: RankingData, model: ClickModel, clients: int, seed: int, in_turn: bool
    ) -> None:
        self.expected = float(clients)
        self._users, self._clients, self._seed, self._in_turn = users, clients, seed, in_turn
        everyone = np.arange(users.users)
        self._severities = bias_severities(model, uniforms(seed, int(Purpose.BIAS_SEVERITY), 0, everyone))
        self.pools = _pools(train, users, seed)

    def cohort(self, round_: int) -> Int64s:
        if self._in_turn:
            order = generator(self._seed, Purpose.COHORT).permutation(self._users.users)
            return np.sort(order[np.arange(round_ * self._clients, (round_ + 1) * self._clients) % order.size])
        random = generator(self._seed, Purpose.COHORT, round_)
        if self._users.sampling == "poisson":
            return np.flatnonzero(random.random(self._users.users) < self._clients / self._users.users)
        return np.sort(random.choice(self._users.users, self._clients, replace=False, shuffle=False))

    def severities(self, round_: int, clients: Int64s) -> Float64s:
        return self._severities[clients]


def cohorts(
    population: FreshUsers | FiniteUsers,
    train: RankingData,
    model: ClickModel,
    clients: int,
    seed: int,
    *,
    in_turn: bool = False,
) -> Cohorts:
    """The cohorts of a run with the given number of clients per round.

    Args:
        population: who there is.
        train: where their queries come from.
        model: how they click.
        clients: in a round.
        seed: of all that is drawn.
        in_turn: users of a fixed population take part one after the other, in random order, and then again: nobody
            more often than anybody else, or sooner than must be.
    """
    if isinstance(population, FreshUsers):
        return _Fresh(model, clients, seed)
    check_number("clients", clients, most=population.users)
    return _Finite(population, train, model, clients, seed, in_turn)


def limits_participation(algorithm: FedIPS) -> bool:
    """Does the algorithm's privacy depend on how often users take part?"""
    return algorithm.privacy is not None and not algorithm.privacy.secret_cohorts


_POOLS: dict[tuple[str, FiniteUsers, int], Int32s] = {}
_POOLS_KEPT = 4  # runs of one repeat follow each other, and drawing takes longer than a short run


def _pools(train: RankingData, users: FiniteUsers, seed: int) -> Int32s:
    """The users' pools of queries, kept for the next run with the same data, users and seed."""
    key = (train.fingerprint(), users, seed)
    if key not in _POOLS:
        while len(_POOLS) >= _POOLS_KEPT:
            del _POOLS[next(iter(_POOLS))]
        if train.users is None:
            pools = _draw_pools(users, query_clusters(train, users.clusters, seed), seed)
        else:
            pools = _own_pools(users, train.users, seed)
        pools.flags.writeable = False
        _POOLS[key] = pools
    return _POOLS[key]


def query_clusters(train: RankingData, clusters: int, seed: int) -> Int64s:
    """The cluster of each query: k-means on the mean of its documents' features."""
    from scipy.cluster.vq import kmeans2  # slow to import, and seldom needed

    sums: Float32s = np.add.reduceat(train.features, train.offsets[:-1], axis=0)
    means: Float64s = sums / np.diff(train.offsets)[:, np.newaxis]
    clusters = min(clusters, train.queries)
    random = generator(seed, Purpose.POPULATION)
    first = means[random.choice(train.queries, clusters, replace=False)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a cluster that ends up empty does no harm
        _, assigned = kmeans2(means, first, iter=20, minit="matrix")
    return assigned.astype(np.int64)


def _draw_pools(users: FiniteUsers, cluster_of: Int64s, seed: int) -> Int32s:
    """[users, pool] query indices: clusters by each user's own shares, queries uniformly within a cluster."""
    random = generator(seed, Purpose.POPULATION, 1)
    names, sizes = np.unique(cluster_of, return_counts=True)
    by_cluster = np.argsort(cluster_of, kind="stable")
    starts = np.r_[0, np.cumsum(sizes)[:-1]]
    pools = np.empty((users.users, users.pool), np.int32)
    alphas = users.concentration * names.size * sizes / sizes.sum()
    for user in range(users.users):
        gammas = random.standard_gamma(alphas)
        if gammas.sum() > 0:
            shares = gammas / gammas.sum()
        else:  # tiny shapes underflow: then the user has a single cluster
            shares = np.eye(names.size)[random.choice(names.size, p=sizes / sizes.sum())]
        again = np.arange(users.pool)
        for _ in range(20):  # draw again what was drawn twice
            drawn = random.choice(names.size, again.size, p=shares)
            pools[user, again] = by_cluster[starts[drawn] + (random.random(again.size) * sizes[drawn]).astype(np.int64)]
            again = np.setdiff1d(np.arange(users.pool), np.unique(pools[user], return_index=True)[1])
            if again.size == 0:
                break
    return pools


def _own_pools(users: FiniteUsers, asked_by: Int64s, seed: int) -> Int32s:
    """[users, pool] query indices: each user is one of the data's own, and has queries that this one asked.

    Everyone is taken once before anyone is taken again, likewise a user's queries; who and which is drawn.
    """
    random = generator(seed, Purpose.POPULATION, 1)
    _, queries = np.unique(asked_by, return_counts=True)
    own = np.split(np.argsort(asked_by, kind="stable"), np.cumsum(queries)[:-1])
    chosen = np.resize(random.permutation(len(own)), users.users)
    return np.stack([np.resize(random.permutation(own[user]), users.pool) for user in chosen]).astype(np.int32)


def attraction(data: RankingData, display: Display, model: ClickModel) -> Float64s:
    """Probability rho of a click on each displayed document if it is examined, [queries, K]; 0 past the last."""
    lowest = default_relevant_grade(data) if model.relevant_grade is None else model.relevant_grade
    grades = data.labels[display.documents]
    return np.where(display.documents < 0, 0.0, np.where(grades >= lowest, model.relevant_click, model.other_click))
