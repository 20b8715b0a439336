"""Clients of a simulation that send what harms: who they are, and what they send instead of their updates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fultr.core.arrays import Int64s
from fultr.core.streams import Purpose, uniforms
from fultr.federated.aggregate import summed
from fultr.federated.privacy.stage import Sums
from fultr.study.settings import Adversaries


def adversarial(adversaries: Adversaries, seed: int, clients: Int64s) -> NDArray[np.bool_]:
    """Which of these clients are adversaries: it follows from the seed and the client's number, in every round.

    >>> int(adversarial(Adversaries(0.5), 0, np.arange(1000)).sum())
    492
    """
    return uniforms(seed, int(Purpose.ADVERSARIES), 0, clients) < adversaries.share


def poison(adversaries: Adversaries, replies: Sums, who: NDArray[np.bool_]) -> None:
    """Put into the adversaries' rows what they send. What they send for estimation stays honest.

    >>> replies = {"update": np.array([[3.0, 4.0], [1.0, 0.0]]), "trained": np.ones((2, 1))}
    >>> poison(Adversaries(0.5, strength=10.0), replies, np.array([True, False]))
    >>> replies["update"].tolist()
    [[-6.0, -8.0], [1.0, 0.0]]
    """
    own = replies["update"][who]
    norms = np.linalg.norm(own, axis=1, keepdims=True)
    match adversaries.attack:
        case "flip":
            towards = -own
        case "collude":
            towards = np.tile(-summed(own), (len(own), 1))
    lengths = np.linalg.norm(towards, axis=1, keepdims=True)
    wanted = norms if adversaries.strength is None else np.full_like(norms, adversaries.strength)
    factors = np.divide(wanted, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    replies["update"][who] = (towards * factors).astype(np.float32)  # as it travels
    replies["trained"][who] = replies["update"][who].any(axis=1, keepdims=True)
