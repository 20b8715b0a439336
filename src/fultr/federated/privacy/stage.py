"""What a stage is.

A stage is one value with both halves, so that they cannot be mismatched. The client's half sees the whole reply: the
update, the estimator's sums, counts and the judgement of held-out clicks all leave a device. The server's half sees
their sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Protocol, TypeAlias

from fultr.core.arrays import Float64s
from fultr.federated.combining import StageSettings
from fultr.federated.privacy import PRIVATE, STAGES
from fultr.federated.privacy.randomness import Randomness, Words
from fultr.federated.privacy.settings import Privacy

Sums: TypeAlias = dict[str, Float64s]
"""Named arrays that add up. Those of clients have one row per client, or a single row in which they are added up."""

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""The shapes of one client's arrays, by name."""


class Stage(Protocol):
    """What every stage has; a frozen dataclass of the stage's parameters."""

    def init(self, shapes: Shapes) -> Sums:
        """What the server's half knows before the first round, where a client's arrays have these shapes."""

    def broadcast(self, state: Sums) -> Sums:
        """What clients are sent of it."""

    def travels(self, shapes: Shapes) -> Shapes:
        """What clients send instead of arrays of these shapes; "trained" [1] among it."""

    def client(self, sent: Sums, replies: Sums, draws: Sequence[Words]) -> Sums:
        """What clients send instead of `replies`, one row per client, each with random words of its own."""

    def server(self, state: Sums, total: Sums, clients: float, random: Randomness) -> tuple[Sums, Sums]:
        """What the half knows then, and what the server works with instead of the total of this many clients."""


def stage_of(settings: StageSettings) -> Stage:
    """The stage that settings ask for, with the parameters that it has a field for.

    >>> stage_of(StageSettings("none"))
    Unchanged()
    """
    if isinstance(settings.privacy, Privacy):
        private: Stage = PRIVATE["private"](settings.privacy)
        return private
    kind = STAGES[settings.stage]
    stage: Stage = kind(**{field.name: getattr(settings, field.name) for field in fields(kind)})
    return stage


def single_replies(settings: StageSettings) -> bool:
    """Must each client's reply be seen by itself, before any are added up?"""
    return settings.stage != "none" or settings.privacy != "none"
