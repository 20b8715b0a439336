"""Compiled code for click logs, apart from them: an application that only writes its log loads no compiler."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from fultr.core.arrays import Float64s, Int32s, Int64s, UInt8s


@njit(nogil=True, cache=True)
def each_impression(of_clients: Float64s, offsets: Int64s) -> Float64s:
    """Numbers [clients, parts, K] as [impressions, K]; impression i of a client belongs to part i mod parts."""
    _, parts, ranks = of_clients.shape
    rows = np.empty((offsets[-1], ranks))
    for u in range(offsets.size - 1):
        part = 0
        for i in range(offsets[u], offsets[u + 1]):
            for k in range(ranks):
                rows[i, k] = of_clients[u, part, k]
            part = part + 1 if part + 1 < parts else 0
    return rows


class Links(NamedTuple):
    """Documents that other versions of the logging policy display at another rank, query by query.

    Attributes:
        offsets: [queries + 1] where those of each query begin.
        ranks: at which they are displayed.
        others: at which another version has them.
        weights: 1 / (share of the versions that have them at `ranks`).
    """

    offsets: Int64s
    ranks: Int64s
    others: Int64s
    weights: Float64s


@njit(nogil=True, cache=True)
def links_of(ranks: Int64s, share: Float64s) -> Links:
    """The links of queries; `ranks` [queries, K, versions] is at which rank each version, of some share, has them."""
    queries, size, versions = ranks.shape
    offsets, own_ranks = np.zeros(queries + 1, np.int64), np.empty(ranks.size, np.int64)
    others, weights = np.empty(ranks.size, np.int64), np.empty(ranks.size)
    end = 0
    for q in range(queries):
        for k in range(size):
            own = 0.0  # probability of the rank at which it is displayed
            for v in range(versions):
                if ranks[q, k, v] == k:
                    own += share[v]
            for v in range(versions):
                other = ranks[q, k, v]
                if other == k or other < 0 or other >= size or share[v] == 0 or own == 0:
                    continue
                seen = False
                for earlier in range(v):
                    seen = seen or (ranks[q, k, earlier] == other and share[earlier] > 0)
                if not seen:
                    own_ranks[end], others[end], weights[end] = k, other, 1 / own
                    end += 1
        offsets[q + 1] = end
    return Links(offsets, own_ranks[:end], others[:end], weights[:end])


@njit(nogil=True, cache=True)
def add_linked(links: Links, clicks: UInt8s, queries: Int32s, offsets: Int64s, pairs: Float64s) -> None:
    """Add weighted clicks and impressions of the documents that are displayed at both of two ranks.

    Args:
        links: of the queries.
        clicks: [impressions, K].
        queries: of the impressions.
        offsets: [clients + 1] where each client's impressions begin.
        pairs: [clients or 1, 2, K, K]; each client's are added to its row, or those of all, added up, to the only one.
    """
    first, ranks, others, weights = links
    clients, size = offsets.size - 1, clicks.shape[1]
    own = np.zeros((2, size, size))
    for u in range(clients):
        for i in range(offsets[u], offsets[u + 1]):
            for link in range(first[queries[i]], first[queries[i] + 1]):
                k, other = ranks[link], others[link]
                own[0, k, other] += clicks[i, k] * weights[link]
                own[1, k, other] += weights[link]
        if pairs.shape[0] > 1 or u == clients - 1:
            row = u if pairs.shape[0] > 1 else 0
            for k in range(size):
                for other in range(size):
                    for counted in range(2):
                        pairs[row, counted, k, other] += own[counted, k, other]
                        own[counted, k, other] = 0
