"""What a stage is.

A stage is one value with both halves, so that they cannot be mismatched. The client's half sees the whole reply: the
update, the estimator's sums, counts and the judgement of held-out clicks all leave a device. The server's half sees
their sum.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Protocol, TypeAlias

from fultr.core.arrays import Float64s
from fultr.federated.privacy import STAGES
from fultr.federated.settings import StageSettings

Sums: TypeAlias = dict[str, Float64s]
"""Named arrays that add up. Those of clients have one row per client, or a single row in which they are added up."""


class Stage(Protocol):
    """What every stage has; a frozen dataclass of the stage's parameters."""

    def init(self, size: int) -> Sums:
        """What the server's half knows before the first round, with so many weights; clients are sent it."""

    def client(self, state: Sums, replies: Sums) -> Sums:
        """What clients send instead of `replies`: arrays of the same names and shapes, one row per client."""

    def server(self, state: Sums, total: Sums, clients: float) -> tuple[Sums, Sums]:
        """What the half knows then, and what the server works with instead of the total of so many clients."""


def stage_of(settings: StageSettings) -> Stage:
    """The stage that settings ask for, with the parameters that it has a field for.

    >>> stage_of(StageSettings("none"))
    Unchanged()
    """
    kind = STAGES[settings.stage]
    stage: Stage = kind(**{field.name: getattr(settings, field.name) for field in fields(kind)})
    return stage
