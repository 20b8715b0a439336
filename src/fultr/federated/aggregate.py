"""The one sum of what clients send, in one order: simulated or from devices, the same replies give the same bits.

A cohort, in the order of its clients' numbers, is cut into a fixed number of parts. Each part is added up client by
client, then the parts in their order. Parts can be worked on side by side.
"""

from __future__ import annotations

from collections.abc import Iterable

from fultr.core.threads import chunk_bounds
from fultr.federated.privacy.stage import Sums

_PARTS = 16  # fixed, so that sums do not depend on the number of threads


def parts_of(clients: int) -> list[tuple[int, int]]:
    """The clients of a cohort, in order, that are added up by themselves before all are.

    >>> parts_of(3)
    [(0, 1), (1, 2), (2, 3)]
    """
    return chunk_bounds(clients, _PARTS)


def add_rows(total: Sums, replies: Sums) -> None:
    """Add each row of `replies` in turn to the only row of `total`; what is not in `replies` counts as zero."""
    for name, rows in replies.items():
        for row in rows:
            total[name][0] += row


def added(parts: Iterable[Sums]) -> Sums:
    """The sum of some parts, in their order; changes the first."""
    first, *others = parts
    for other in others:
        for name, array in other.items():
            first[name] += array
    return first
