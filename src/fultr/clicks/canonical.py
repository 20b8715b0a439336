"""Orders that all logs of the same pages share, whatever their tables were held in: what is drawn goes by them.

The numbers of a log's queries, users and pairs depend on the types of its ids and on the order of rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fultr.clicks.ids import digests_of, mixed
from fultr.clicks.impressions import ImpressionLog
from fultr.core.arrays import Int64s, UInt64s


def canonical(log: ImpressionLog) -> ImpressionLog:
    """A log with its queries, users and pairs numbered by their ids alone; pages keep their order.

    >>> log = ImpressionLog.from_arrays([1, 2], [[7, 8], [9, -1]], [[0, 1], [1, 0]])
    >>> again = ImpressionLog.from_arrays(["2", "1"], [[9, -1], [7, 8]], [[1, 0], [0, 1]])
    >>> canonical(log).queries.tolist(), canonical(again).queries.tolist()
    ([1, 0], [0, 1])
    """
    queries = np.argsort(log.query_digests, kind="stable")
    at_query = places_of(queries)
    pairs = np.lexsort((log.pair_digests, at_query[log.query_of_pair]))
    users, user_names = log.users, log.user_names
    if users is not None and user_names is not None:
        order = np.argsort(digests_of(user_names), kind="stable")
        users, user_names = places_of(order)[users].astype(np.int32), user_names[order]
    return replace(
        log,
        queries=at_query[log.queries].astype(np.int32),
        documents=np.where(log.shown, places_of(pairs)[log.documents], -1).astype(np.int32),
        users=users,
        query_of_pair=at_query[log.query_of_pair[pairs]].astype(np.int32),
        query_names=log.query_names[queries],
        document_names=log.document_names[pairs],
        features=None if log.features is None else log.features[pairs],
        user_names=user_names,
    )


def query_places(log: ImpressionLog) -> Int64s:
    """The place of each page's query, by its id; pages of one query share it."""
    return _ranked(log.query_digests)[log.queries]


def user_places(log: ImpressionLog) -> Int64s:
    """The place of each page's user, by its id, or by its number if the log has no names of users."""
    assert log.users is not None
    return log.users.astype(np.int64) if log.user_names is None else _ranked(digests_of(log.user_names))[log.users]


def page_places(log: ImpressionLog) -> Int64s:
    """The place of each page, by its query, user, documents and clicks.

    >>> log = ImpressionLog.from_arrays([1, 2], [[7, 8], [9, -1]], [[0, 1], [1, 0]])
    >>> again = ImpressionLog.from_arrays(["2", "1"], [[9, -1], [7, 8]], [[1, 0], [0, 1]])
    >>> page_places(log).tolist() == page_places(again)[::-1].tolist()
    True
    """
    keys = log.query_digests[log.queries]
    if log.users is not None:
        names = log.users if log.user_names is None else log.user_names
        digests = digests_of(names)
        keys = mixed(keys) + (digests if log.user_names is None else digests[log.users])
    for k in range(log.ranks):
        there = np.where(log.shown[:, k], log.pair_digests[log.documents[:, k]] + log.clicks[:, k], 0)
        keys = mixed(keys) + there.astype(np.uint64)
    return places_of(np.argsort(keys, kind="stable"))


def _ranked(digests: UInt64s) -> Int64s:
    return places_of(np.argsort(digests, kind="stable"))


def places_of(order: Int64s) -> Int64s:
    """The place of each number in an order of them.

    >>> places_of(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    places = np.empty(order.size, np.int64)
    places[order] = np.arange(order.size)
    return places
