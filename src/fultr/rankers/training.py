"""How a client trains, as the compiled code of every model takes it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from fultr.rankers.losses import LOSSES


class Training(NamedTuple):
    """How a client trains, as compiled code takes it: the loss by its type, the rest by value."""

    loss: Any
    discounted: bool
    learning_rate: float
    epochs: int


@lru_cache(maxsize=64)
def training_with(loss: str, metric: str, learning_rate: float, epochs: int) -> Training:
    """How a client trains, as compiled code takes it.

    >>> training_with("hinge", "dcg", 0.1, 1)
    Training(loss=Hinge(), discounted=True, learning_rate=0.1, epochs=1)
    """
    return Training(LOSSES[loss](), metric == "dcg", float(learning_rate), int(epochs))
