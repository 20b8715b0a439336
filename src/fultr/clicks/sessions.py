"""The sessions of simulated users, and the clicks that they leave: the click log that training starts from.

Section 4, Click simulator: a user examines rank r with probability (1 / r) ** gamma_u (so rank 1 always), and clicks an
examined document with probability 1 if it is relevant and 0.1 if not; `fultr.clicks.models` has other models. A real
device's log yields the same `ClickLog`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from fultr.clicks.log import ClickLog
from fultr.clicks.models.model import Model
from fultr.clicks.settings import Sessions
from fultr.core.arrays import Float64s, Int32s, Int64s, UInt8s
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, advance, below, start

_QUERIES, _CLICKS = int(Purpose.CLIENT_QUERIES), int(Purpose.CLICKS)


@njit(nogil=True, cache=True)
def _draw_queries(state: np.uint64, pool: int, replacement: bool, drawn: Int64s) -> None:
    """Draw indices below `pool`; without replacement by Floyd's method, which needs one number per query."""
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
def drawn_queries(
    clients: Int64s, pools: Int32s, available: int, queries: int, replacement: bool, seed: int, round_: int
) -> Int64s:
    """The queries that clients have in a round, [clients, queries], as `run_sessions` draws them.

    Args:
        clients: by number.
        pools: the queries that each may draw from; empty: all.
        available: how many there are without pools.
        queries: of a client.
        replacement: may one be drawn twice?
        seed: of the run.
        round_: the round.
    """
    drawn = np.empty((clients.size, queries), np.int64)
    pooled = pools.shape[0] > 0
    for u in range(clients.size):
        state = start(seed, _QUERIES, round_, clients[u])
        _draw_queries(state, pools.shape[1] if pooled else available, replacement, drawn[u])
        if pooled:
            for i in range(queries):
                drawn[u, i] = pools[clients[u], drawn[u, i]]
    return drawn


# Compiled into each model's own function, which is cached. Numba does not notice there that this one has changed: after
# changing it, delete clicks/models/__pycache__/*.nb?
@njit(inline="always")
def run_sessions(
    draw: Callable[..., np.uint64],
    parameters: tuple[Any, ...],
    users: tuple[Float64s, Float64s, Int64s, Int32s],
    sessions: tuple[int, int, int, bool, int],
    key: tuple[int, int],
    log: tuple[Int32s, UInt8s, Int64s],
) -> None:
    """Run the sessions of clients, one client after the other.

    Args:
        draw: draws the clicks of one impression, see `fultr.clicks.models.model`.
        parameters: of the click model.
        users: attraction, base, clients and pools; see `simulate_clicks`.
        sessions: the fields of `Sessions`, in order, and versions.
        key: seed and round.
        log: queries, clicks and offsets of the `ClickLog`: written; the first two have space for `most` a client.
    """
    attraction, base, clients, pools = users
    queries, clicks, most, replacement, versions = sessions
    seed, round_ = key
    log_queries, log_clicks, offsets = log
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
            state = draw(parameters, state, q, base[u], attraction[q], log_clicks[row])
            for r in range(ranks):
                made += log_clicks[row, r]
            row += 1
            session += 1
        offsets[u + 1] = row


def check_queries(sessions: Sessions, available: int) -> None:
    """Refuse clients that draw more different queries than there are."""
    if not sessions.replacement and available < sessions.queries:
        raise FultrError(f"queries: a client draws {sessions.queries} different ones, but has only {available}")


NO_POOLS: Int32s = np.empty((0, 0), np.int32)


def simulate_clicks(
    model: Model,
    attraction: Float64s,
    base: Float64s,
    clients: Int64s,
    *,
    sessions: Sessions,
    seed: int,
    round_: int,
    pools: Int32s = NO_POOLS,
    versions: int = 1,
) -> ClickLog:
    """The click log of some clients in one round; depends on nothing but the seed, the round and each client's number.

    Needs at most `sessions.most_sessions` x (K + 4) bytes per client while it works.

    Args:
        model: how users examine and click, see `fultr.clicks.models.click_model`.
        attraction: [queries, K], probability of a click on each displayed document if it is examined; 0 past the last.
        base: [clients, K], examination of each rank if nothing above it was clicked; a row for each of `clients`.
        clients: numbers that tell the clients apart.
        sessions: how many queries and clicks each has.
        seed: of the run.
        round_: the round.
        pools: [users, pool] the queries that each client may draw from, by client number; if empty, all queries.
        versions: of the logging policy, one of which makes each impression, at random.
    """
    check_queries(sessions, pools.shape[1] if pools.size else attraction.shape[0] // versions)
    most = clients.size * sessions.most_sessions
    queries = np.empty(most, np.int32)
    clicks = np.empty((most, attraction.shape[1]), np.uint8)
    offsets = np.empty(clients.size + 1, np.int64)
    model.run_sessions(
        (attraction, base, clients, pools),
        (sessions.queries, sessions.clicks, sessions.most_sessions, sessions.replacement, versions),
        (seed, round_),
        (queries, clicks, offsets),
    )
    return ClickLog(queries[: offsets[-1]], clicks[: offsets[-1]], offsets)
