"""Users, and the clicks that they leave: the click log that training and propensity estimation start from.

Section 4, Click simulator: a user examines rank r with probability (1 / r) ** gamma_u (so rank 1 always), and clicks an
examined document with probability 1 if it is relevant and 0.1 if not. A real device's log yields the same `ClickLog`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy.special import ndtr, ndtri

from fultr.checks import check_number
from fultr.data import MAX_GRADE, RankingData
from fultr.errors import FultrError
from fultr.metrics import default_relevant_grade
from fultr.policy import Display
from fultr.streams import Purpose, advance, below, start, unit
from fultr.types import Float64s, Int32s, Int64s, UInt8s

_QUERIES, _CLICKS = int(Purpose.CLIENT_QUERIES), int(Purpose.CLICKS)


@dataclass(frozen=True, eq=False)
class ClickLog:
    """Impressions of some clients, in the order in which they were made; client u's are `offsets[u]:offsets[u + 1]`.

    All impressions are kept, not only the clicked ones: propensity estimation needs them.

    Attributes:
        queries: int32 [impressions], which query (an index into the `Display`) was shown.
        clicks: uint8 [impressions, K], 1 where the document at that rank was clicked.
        offsets: int64 [clients + 1].
    """

    queries: Int32s
    clicks: UInt8s
    offsets: Int64s

    @property
    def clients(self) -> int:
        """How many clients the log holds."""
        return self.offsets.size - 1

    def clicks_by_client(self) -> Int64s:
        """How many clicks each client made."""
        total = np.r_[0, np.cumsum(self.clicks.sum(axis=1, dtype=np.int64))]
        return np.diff(total[self.offsets])


@dataclass(frozen=True)
class ClickModel:
    """How users examine and click.

    Attributes:
        gamma: mean of the Gaussian from which bias severities are drawn, before truncation.
        gamma_sd: its standard deviation. The paper writes N(gamma, 0.1); read as a variance, the usual notation,
            that is the default, sqrt(0.1). Read as a standard deviation it is 0.1.
        relevant_grade: lowest grade that counts as relevant; None: 3 on five-grade data, 1 on three-grade data.
        relevant: probability of a click on a relevant document that is examined.
        other: probability of a click on any other document that is examined.
    """

    gamma: float = 1.0
    gamma_sd: float = 0.1**0.5
    relevant_grade: int | None = None
    relevant: float = 1.0
    other: float = 0.1

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, least=0)
        check_number("gamma_sd", self.gamma_sd, least=0)
        check_number("relevant", self.relevant, least=0, most=1)
        check_number("other", self.other, least=0, most=1)
        if self.relevant_grade is not None:
            check_number("relevant_grade", self.relevant_grade, least=1, most=MAX_GRADE, whole=True)


@dataclass(frozen=True)
class Sessions:
    """What one client does in a round.

    Attributes:
        queries: how many queries it has; each session shows a randomly chosen one of them.
        clicks: m: sessions go on until there are this many clicks. The session under way is finished and all its
            clicks are kept: stopping at the m-th click would take clicks from low ranks.
        most: a client stops after this many sessions even if it has fewer clicks.
        replacement: may the queries that a client draws be the same one twice? By default they are distinct.
    """

    queries: int = 5
    clicks: int = 10
    most: int = 1000
    replacement: bool = False

    def __post_init__(self) -> None:
        for name in ("queries", "clicks", "most"):
            check_number(name, getattr(self, name), least=1, most=10**6, whole=True)


def bias_severities(model: ClickModel, uniform: Float64s) -> Float64s:
    """gamma_u of users: N(gamma, gamma_sd**2) truncated at 0 from the left, from one uniform number each.

    By the inverse distribution function, exactly: every number in [0, 1) gives one user, none is rejected.

    >>> bias_severities(ClickModel(gamma=1.0, gamma_sd=0.0), np.array([0.2, 0.7])).tolist()
    [1.0, 1.0]
    >>> bias_severities(ClickModel(gamma=0.0, gamma_sd=1.0), np.array([0.0, 0.5])).round(4).tolist()
    [0.0, 0.6745]
    """
    if model.gamma_sd == 0:
        return np.full(uniform.size, model.gamma)
    upper = ndtr(model.gamma / model.gamma_sd)  # probability that the untruncated Gaussian is positive
    severities: Float64s = np.maximum(model.gamma - model.gamma_sd * ndtri((1 - uniform) * upper), 0)
    return severities


def examination(severities: Float64s, ranks: int) -> Float64s:
    """Examination probabilities (1 / rank) ** gamma_u, [users, ranks]; rank 1 has examination 1.

    >>> examination(np.array([0.0, 1.0, 2.0]), 2).tolist()
    [[1.0, 1.0], [1.0, 0.5], [1.0, 0.25]]
    """
    probabilities: Float64s = np.arange(1.0, ranks + 1) ** -severities[:, np.newaxis]
    return probabilities


def attraction(data: RankingData, display: Display, model: ClickModel) -> Float64s:
    """Probability rho of a click on each displayed document if it is examined, [queries, K]; 0 past the last."""
    lowest = default_relevant_grade(data) if model.relevant_grade is None else model.relevant_grade
    grades = data.labels[display.documents]
    return np.where(display.documents < 0, 0.0, np.where(grades >= lowest, model.relevant, model.other))


@njit(nogil=True, cache=True)
def _draw_queries(state: np.uint64, pool: int, replacement: bool, drawn: Int64s) -> None:
    """Draw indices below `pool`; without replacement by Floyd's method, which needs one number a query."""
    for i in range(drawn.size):
        state = advance(state)
        if replacement:
            drawn[i] = below(state, pool)
        else:
            top = pool - drawn.size + i
            drawn[i] = below(state, top + 1)
            for j in range(i):
                if drawn[j] == drawn[i]:
                    drawn[i] = top
                    break


@njit(nogil=True, cache=True)
def _simulate(
    attraction: Float64s,
    examination: Float64s,
    clients: Int64s,
    pools: Int32s,
    seed: int,
    round_: int,
    queries: int,
    clicks: int,
    most: int,
    replacement: bool,
    versions: int,
    log_queries: Int32s,
    log_clicks: UInt8s,
    offsets: Int64s,
) -> None:
    ranks = attraction.shape[1]
    of_a_version = attraction.shape[0] // versions
    drawn = np.empty(queries, np.int64)
    row = 0
    offsets[0] = 0
    for u in range(clients.size):
        client = clients[u]
        if pools.shape[0] > 0:
            _draw_queries(start(seed, _QUERIES, round_, client), pools.shape[1], replacement, drawn)
            for i in range(queries):
                drawn[i] = pools[client, drawn[i]]
        else:
            _draw_queries(start(seed, _QUERIES, round_, client), of_a_version, replacement, drawn)
        state = start(seed, _CLICKS, round_, client)
        made = 0
        session = 0
        while made < clicks and session < most:
            state = advance(state)
            q = drawn[below(state, queries)]
            if versions > 1:
                state = advance(state)
                q += below(state, versions) * of_a_version
            log_queries[row] = q
            for r in range(ranks):
                state = advance(state)
                clicked = unit(state) < examination[u, r] * attraction[q, r]
                log_clicks[row, r] = clicked
                made += clicked
            row += 1
            session += 1
        offsets[u + 1] = row


NO_POOLS: Int32s = np.empty((0, 0), np.int32)


def simulate_clicks(
    attraction: Float64s,
    examination: Float64s,
    clients: Int64s,
    *,
    sessions: Sessions,
    seed: int,
    round_: int,
    pools: Int32s = NO_POOLS,
    versions: int = 1,
) -> ClickLog:
    """The click log of some clients in one round; depends on nothing but the seed, the round and each client's number.

    Needs at most `sessions.most` x (K + 4) bytes a client while it works.

    Args:
        attraction: [queries, K], see `attraction`.
        examination: [clients, K], one row for each of `clients`.
        clients: numbers that tell the clients apart.
        sessions: how many queries and clicks each has.
        seed: of the run.
        round_: the round.
        pools: [users, pool] the queries that each client may draw from, by client number; if empty, all queries.
        versions: of the logging policy, one of which makes each impression, at random.
    """
    available = pools.shape[1] if pools.size else attraction.shape[0] // versions
    if not sessions.replacement and available < sessions.queries:
        raise FultrError(f"queries: a client draws {sessions.queries} different ones, but has only {available}")
    most = clients.size * sessions.most
    queries = np.empty(most, np.int32)
    clicks = np.empty((most, attraction.shape[1]), np.uint8)
    offsets = np.empty(clients.size + 1, np.int64)
    _simulate(
        attraction,
        examination,
        clients,
        pools,
        seed,
        round_,
        sessions.queries,
        sessions.clicks,
        sessions.most,
        sessions.replacement,
        versions,
        queries,
        clicks,
        offsets,
    )
    return ClickLog(queries[: offsets[-1]], clicks[: offsets[-1]], offsets)
