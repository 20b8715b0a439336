"""Exploration: each client is shown its own order of documents for each of its queries in a round.

Clients of a block have a display of their own, of as many "queries" as the clients have together. What it displays is a
function of (seed, round, client) and of the logging policy, so results depend neither on blocks nor on threads. Under
the position-based model a document is examined with the probability of the rank that it got, whatever put it there:
clicks are divided by the same propensities as without exploration.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s, UInt64s
from fultr.core.streams import Purpose, advance, mix, start, unit
from fultr.rankers.metrics import top_documents
from fultr.study.settings import Showing

_EXPLORATION = int(Purpose.EXPLORATION)


@njit(nogil=True, cache=True)
def _noised(state: np.uint64, scores: Float32s, temperature: float, noised: Float32s, keys: UInt64s) -> np.uint64:
    """Standardised scores over the temperature, plus standard Gumbel noise: in their order, a Plackett-Luce sample."""
    scale = np.std(scores.astype(np.float64)) * temperature
    for d in range(scores.size):
        state = advance(state)
        gumbel = -math.log(-math.log(max(unit(state), 2.0**-54)))
        noised[d] = (scores[d] / scale if scale > 0 else 0.0) + gumbel
        keys[d] = mix(state)
    return state


@njit(nogil=True, cache=True)
def _plackett_luce(
    scores: Float32s,
    offsets: Int64s,
    drawn: Int64s,
    clients: Int64s,
    temperature: float,
    key: tuple[int, int],
    out: Int64s,
) -> None:
    """Write the rows displayed to each client for each of its queries."""
    longest = 0
    for q in range(offsets.size - 1):
        longest = max(longest, offsets[q + 1] - offsets[q])
    noised, keys = np.empty(longest, np.float32), np.empty(longest, np.uint64)
    for u in range(clients.size):
        state = start(key[0], _EXPLORATION, key[1], clients[u])
        for i in range(drawn.shape[1]):
            first, last = offsets[drawn[u, i]], offsets[drawn[u, i] + 1]
            n = last - first
            state = _noised(state, scores[first:last], temperature, noised[:n], keys[:n])
            top = out[u * drawn.shape[1] + i]
            for rank in range(top_documents(noised[:n], keys[:n], top)):
                top[rank] += first


@njit(nogil=True, cache=True)
def _pairs(best: Int64s, drawn: Int64s, clients: Int64s, key: tuple[int, int], out: Int64s) -> None:
    """FairPairs: neighbours from rank 1 or from rank 2 on, each pair in random order."""
    for u in range(clients.size):
        state = start(key[0], _EXPLORATION, key[1], clients[u])
        for i in range(drawn.shape[1]):
            shown = out[u * drawn.shape[1] + i]
            shown[:] = best[drawn[u, i]]
            state = advance(state)
            rank = 0 if unit(state) < 0.5 else 1
            while rank + 1 < shown.size and shown[rank + 1] >= 0:
                state = advance(state)
                if unit(state) < 0.5:
                    shown[rank], shown[rank + 1] = shown[rank + 1], shown[rank]
                rank += 2


def explored(
    showing: Showing,
    scores: Float32s,
    offsets: Int64s,
    best: Int64s,
    drawn: Int64s,
    clients: Int64s,
    *,
    seed: int,
    round_: int,
) -> Int64s:
    """The rows that clients are shown for their queries, [clients x queries, K]; -1 past the last document.

    Args:
        showing: how they explore.
        scores: [documents] of the logging policy.
        offsets: [queries + 1] where each query's documents begin.
        best: [queries, K] rows of the best documents.
        drawn: [clients, queries] the queries of each client.
        clients: by number.
        seed: of the run.
        round_: the round.
    """
    out = np.full((drawn.size, best.shape[1]), -1)
    if showing.exploration == "pairs":
        _pairs(best, drawn, clients, (seed, round_), out)
    else:
        _plackett_luce(scores, offsets, drawn, clients, showing.temperature, (seed, round_), out)
    return out


def online_sums(quality: Float64s, before: Float64s, impressions: Int32s, drawn: Int64s | None) -> Float64s:
    """Sums over impressions of what was displayed, of what the first logging policy displays, and of 1: [3].

    Impressions of queries without a relevant document have no value, and do not count.

    Args:
        quality: NDCG@k of what each query of the display displays.
        before: NDCG@k of what the first logging policy displays for each query of the data.
        impressions: the query of each, as the display numbers them.
        drawn: the query of the data that each of the display's is; None: the same.
    """
    now = quality[impressions]
    first = before[impressions if drawn is None else drawn[impressions]]
    there = ~np.isnan(now)
    return np.array([now[there].sum(), first[there].sum(), there.sum()])
