"""No stage: replies are added up as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fultr.federated.privacy.randomness import Randomness, Words
from fultr.federated.privacy.stage import Shapes, Sums


@dataclass(frozen=True)
class Unchanged:
    """The stage that changes nothing; without another, many clients are added up at a time."""

    def init(self, shapes: Shapes) -> Sums:
        """Nothing."""
        return {}

    def broadcast(self, state: Sums) -> Sums:
        """Nothing."""
        return state

    def travels(self, shapes: Shapes) -> Shapes:
        """As they are."""
        return shapes

    def client(self, sent: Sums, replies: Sums, draws: Sequence[Words]) -> Sums:
        """As they are."""
        return replies

    def server(self, state: Sums, total: Sums, clients: float, random: Randomness) -> tuple[Sums, Sums]:
        """As it is."""
        return state, total
