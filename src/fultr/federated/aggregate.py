"""The one sum of what clients send, in one order: simulated or from devices, the same replies give the same bits.

A cohort, in the order of its clients' numbers, is cut into a fixed number of parts. Each part is added up client by
client, then the parts in their order. Parts can be worked on side by side. A rule that is not the plain sum
(`fultr.federated.aggregation`) has every client's row before it, and adds up by the same function.
"""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Arrays, Float64s
from fultr.core.threads import chunk_bounds
from fultr.federated.aggregation import AGGREGATIONS
from fultr.federated.combining import Aggregation
from fultr.federated.privacy.stage import Sums

_PARTS = 16  # fixed, so that sums do not depend on the number of threads


def parts_of(clients: int) -> list[tuple[int, int]]:
    """The clients of a cohort, in order, that are added up by themselves before all are.

    >>> parts_of(3)
    [(0, 1), (1, 2), (2, 3)]
    """
    return chunk_bounds(clients, _PARTS)


def add_rows(total: Sums, replies: Sums) -> None:
    """Add each row of `replies` to its own of `total`, or all in turn to the only one; what is not there adds zero."""
    for name, rows in replies.items():
        single = len(total[name]) == 1
        for i, row in enumerate(rows):
            total[name][0 if single else i] += row


def summed(rows: Float64s) -> Float64s:
    """The sum of one array's rows, by parts: a row for each client, or the parts' own sums, which gives the same bits.

    >>> summed(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [4.0, 6.0]
    """
    bounds = parts_of(len(rows))
    totals: Float64s = np.zeros((len(bounds), *rows.shape[1:]))
    for part, (begin, end) in zip(totals, bounds, strict=True):
        for row in rows[begin:end]:
            part += row
    for part in totals[1:]:
        totals[0] += part
    return totals[0]


def norms_of(rows: Float64s) -> Float64s:
    """The norm of each row, of any shape."""
    norms: Float64s = np.sqrt((rows * rows).sum(axis=tuple(range(1, rows.ndim))))
    return norms


def saying(rows: Float64s) -> Float64s:
    """The rows that are not all zeros: those of clients that have something to say."""
    return rows[rows.any(axis=tuple(range(1, rows.ndim)))]


def lower_median(values: Float64s) -> float:
    """The median; of an even number the lower one in the middle, so that of two the larger alone decides nothing.

    >>> lower_median(np.array([1e9, 3.0, 2.0, 4.0]))
    3.0
    """
    return float(np.sort(values)[(len(values) - 1) // 2])


def aggregated(settings: Aggregation, state: Arrays, rows: Sums, summed_of: float | None = None) -> tuple[Sums, Arrays]:
    """What the server takes for the sum of the clients' rows, by name, and what the aggregation remembers then.

    "trained" counts clients, 0 or 1 each: it is added up by every rule.

    Args:
        settings: which rule.
        state: what it remembers.
        rows: of the clients.
        summed_of: the only row is the secure sum of this many clients; None: each row is a client's.
    """
    said, rule = {name: each for name, each in rows.items() if name != "trained"}, AGGREGATIONS[settings.aggregation]
    if summed_of is None:
        total, state = rule.total(settings, state, said)
    else:
        total, state = rule.of_sum(settings, state, {name: each[0] for name, each in said.items()}, summed_of)
    return {**total, "trained": summed(rows["trained"])}, state
