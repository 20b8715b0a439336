"""Exploration: now and then, neighbouring results are swapped, so that clicks tell examination from relevance.

In a share of the impressions every other pair of neighbours is swapped: ranks (1, 2), (3, 4), ... or, as often, (2, 3),
(4, 5), ... No document moves by more than one rank. The pairs are those of FairPairs (Radlinski and Joachims 2006),
which swaps each of them by itself; here they are swapped together, so that there are three orders, and the log can say
at which rank each of them has a document. With that the estimator "harvested" needs no second ranker.
"""

from __future__ import annotations

import secrets

import numpy as np

from fultr.core.arrays import Int64s


def orders_for(share: float) -> int:
    """How many equally likely orders there are, all but two of them the ranker's, if neighbours are swapped so often.

    >>> orders_for(0.1), orders_for(2 / 3)
    (20, 3)
    """
    return max(3, round(2 / share))


def drawn(orders: int, documents: int) -> Int64s:
    """The order in which some documents are displayed: positions in the ranker's order, from 0."""
    return swapped(secrets.randbelow(orders), documents)


def swapped(first: int, documents: int) -> Int64s:
    """The documents with pairs of neighbours swapped from the first rank on (0) or from the second (1); else in order.

    >>> swapped(0, 5).tolist(), swapped(1, 5).tolist(), swapped(2, 5).tolist()
    ([1, 0, 3, 2, 4], [0, 2, 1, 4, 3], [0, 1, 2, 3, 4])
    """
    order = np.arange(documents)
    if first < 2:
        end = first + (documents - first) // 2 * 2
        order[first:end] = order[first:end].reshape(-1, 2)[:, ::-1].ravel()
    return order


def ranks_in_orders(order: Int64s, orders: int) -> Int64s:
    """[documents, orders]: the rank, from 1, at which each order has each of the documents, as they are displayed.

    >>> ranks_in_orders(swapped(0, 3), orders=4).tolist()
    [[1, 3, 2, 2], [2, 1, 1, 1], [3, 2, 3, 3]]
    """
    size = len(order)  # an order is its own inverse: it also says where a document stands
    return np.stack([swapped(first, size)[order] for first in range(orders)], axis=1) + 1
