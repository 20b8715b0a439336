"""Differential privacy as a stage: one vector a device and round, noise on its sum, and nothing else beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fultr.core.arrays import Float64s
from fultr.core.errors import FultrError
from fultr.federated.privacy import PRIVACY
from fultr.federated.privacy.distributed import share_variance
from fultr.federated.privacy.factorisation import released_deviation
from fultr.federated.privacy.randomness import Randomness, Words
from fultr.federated.privacy.settings import Privacy, noise_of
from fultr.federated.privacy.stage import Shapes, Stage, Sums
from fultr.federated.privacy.vector import blocks_of, deviations, packed, unpacked

_FOLLOWS = 0.2  # how fast the bound follows the quantile, per round (Andrew et al. 2021)
_COUNTS = ("examined", "impressions", "affine")
_SHAPE = "shape "


@dataclass(frozen=True)
class PrivateSum:
    """The stage of differential privacy, with the noise that its mode names."""

    privacy: Privacy

    def init(self, shapes: Shapes) -> Sums:
        """The update's bound, the rounds so far, kept counts, and what the noise remembers."""
        state: Sums = {"bound": np.array([self.privacy.update_bound]), "rounds": np.zeros(1)}
        state |= {f"{_SHAPE}{name}": np.array(shape, np.float64) for name, shape in shapes.items()}
        state |= {name: np.zeros(shapes[name]) for name in _COUNTS if name in shapes}
        noise = PRIVACY[self.privacy.mode].init(self.privacy, self._size(shapes))
        return state | {f"noise {name}": array for name, array in noise.items()}

    def broadcast(self, state: Sums) -> Sums:
        """The update's bound."""
        return {"bound": state["bound"]}

    def travels(self, shapes: Shapes) -> Shapes:
        """The vector, and that there is one."""
        return {"vector": (self._size(shapes),), "trained": (1,)}

    def client(self, sent: Sums, replies: Sums, draws: Sequence[Words]) -> Sums:
        """Vectors within the bound; "trained" is 1 for all, since whether a device has clicks is its own business."""
        bound = float(sent["bound"][0])
        if not 0 < bound < math.inf:
            raise FultrError(f"bound: expected a number above 0, found {bound:g}")
        mode = PRIVACY[self.privacy.mode]
        rows = packed(self.privacy, replies, bound, mode.scale(self.privacy))
        return {"vector": mode.client(self.privacy, rows, draws), "trained": np.ones((len(rows), 1))}

    def server(self, state: Sums, total: Sums, clients: float, random: Randomness) -> tuple[Sums, Sums]:
        """What the noised sum says. Nothing else enters: not who replied, nor how many."""
        mode, privacy = PRIVACY[self.privacy.mode], self.privacy
        shapes = _shapes(state)
        noise = {name.removeprefix("noise "): array for name, array in state.items() if name.startswith("noise ")}
        words = random.server(int(state["rounds"][0]))
        noise, vector = mode.server(privacy, noise, total["vector"], words)
        bound = float(state["bound"][0])
        sums = unpacked(privacy, shapes, vector, bound, mode.scale(privacy))
        state = {**state, "rounds": state["rounds"] + 1}
        state |= {f"noise {name}": array for name, array in noise.items()}
        if privacy.clip_quantile is not None:
            within = (sums.pop("unclipped")[0] / clients + 1) / 2
            state["bound"] = np.array([bound * math.exp(-_FOLLOWS * (min(max(within, 0), 1) - privacy.clip_quantile))])
        for name in _COUNTS:
            if name in sums:
                state[name] = sums[name] = privacy.counts_memory * state[name] + sums[name]
        if "pairs" in sums:
            sums["pairs"] = np.maximum(sums["pairs"], 0)
        if "judged" in sums:
            state["judged"] = sums.pop("judged")
        return state, {**sums, "trained": np.array([clients])}

    def largest_norm(self, size: int) -> float:
        """The largest norm of a vector that a device may send; shares of noise are never so long by chance."""
        scale = PRIVACY[self.privacy.mode].scale(self.privacy)
        if self.privacy.mode != "distributed":
            return float(scale)
        return scale + 10 * math.sqrt(share_variance(self.privacy) * max(size, 100))

    def judged_deviation(self, state: Sums, clients: float) -> float:
        """The standard deviation of the noise in each number of the judgement."""
        z = noise_of(self.privacy)
        if self.privacy.mode == "distributed":
            z *= math.sqrt(clients / (self.privacy.honest or clients))
        if self.privacy.mode == "correlated":
            rounds = int(state["rounds"][0])
            z *= released_deviation(self.privacy.participations, self.privacy.rounds_apart, rounds)
        return deviations(self.privacy, _shapes(state), z, float(state["bound"][0]))["judged"]

    def _size(self, shapes: Shapes) -> int:
        return sum(block.size for block in blocks_of(self.privacy, shapes))


def _shapes(state: Sums) -> dict[str, tuple[int, ...]]:
    return {
        name.removeprefix(_SHAPE): tuple(int(length) for length in array)
        for name, array in state.items()
        if name.startswith(_SHAPE)
    }


def vector_objection(stage: Stage, vector: Float64s) -> str | None:
    """Why a vector cannot be one, in words: not whole numbers, or too long."""
    assert isinstance(stage, PrivateSum)
    if (vector != np.trunc(vector)).any():
        return "vector: expected whole numbers"
    length, most = float(np.linalg.norm(vector)), stage.largest_norm(vector.size)
    return f"vector: its norm is {length:.3g}, and {most:.3g} is the limit" if length > most * (1 + 1e-9) else None
