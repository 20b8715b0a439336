"""No stage: replies are added up as they are."""

from __future__ import annotations

from dataclasses import dataclass

from fultr.federated.privacy.stage import Sums


@dataclass(frozen=True)
class Unchanged:
    """The stage that changes nothing; without another, many clients are added up at a time."""

    def init(self, size: int) -> Sums:
        """Nothing."""
        return {}

    def client(self, state: Sums, replies: Sums) -> Sums:
        """As they are."""
        return replies

    def server(self, state: Sums, total: Sums, clients: float) -> tuple[Sums, Sums]:
        """As it is."""
        return state, total
