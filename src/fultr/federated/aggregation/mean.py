"""The paper's: the sum as it is (Algorithm 1, line 11). One client can move it as far as it likes."""

from __future__ import annotations

from fultr.core.arrays import Arrays
from fultr.federated.aggregate import summed
from fultr.federated.combining import Aggregation
from fultr.federated.privacy.stage import Sums


def total(settings: Aggregation, state: Arrays, rows: Sums) -> tuple[Sums, Arrays]:
    """The ordered sums."""
    return {name: summed(each) for name, each in rows.items()}, state


def of_sum(settings: Aggregation, state: Arrays, total: Sums, clients: float) -> tuple[Sums, Arrays]:
    """As it is."""
    return total, state
