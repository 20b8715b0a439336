"""The cascade model: users scan from rank 1 down and may stop at a click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from fultr.clicks.log import ClickLog
from fultr.clicks.sessions import run_sessions
from fultr.core.arrays import Float64s, Int64s, UInt8s
from fultr.core.streams import advance, unit


@dataclass(frozen=True)
class Cascade:
    """Users scan from rank 1 down until they stop: out of patience, or because they found what they wanted.

    From an examined rank r they continue to r + 1 with probability base[r + 1] / base[r]; so, as long as nothing is
    clicked, every rank is examined with the same probability as in the position-based model. After a click they
    continue with `continues` times that probability, at every rank the same. With 0 users stop at the first click: the
    cascade model of Craswell et al. (2008).

    Base examination must not increase with the rank.

    Attributes:
        continues: how likely users continue after a click, relative to without one; 0 to 1.
    """

    continues: float

    def run_sessions(self, users: Any, sessions: Any, key: Any, log: Any) -> None:
        """See `Model`."""
        _run_sessions((float(self.continues),), users, sessions, key, log)

    def click_if_examined(self, attraction: Float64s) -> Float64s:
        """The attraction; see `Model`."""
        return attraction

    def examination_given_clicks(self, base: Float64s, log: ClickLog) -> Float64s:
        """base[r] * continues ** (number of clicks above r), [impressions, K]; see `Model`.

        Why: fix what a user would click if they saw it, A_1 to A_K, so that chance decides only where they stop. They
        examine rank r with probability base[r] * continues ** (A_1 + ... + A_{r-1}). If they do, they have examined
        all ranks above, so the exponent is the number of clicks above, which the log shows; if they do not, there is
        no click at r to divide. Hence click / examination has mean A_r, and over users the attraction.

        This needs continues > 0. With 0, a user never examines what is below a document that they would click, and no
        division makes up for it: the mean is then the probability that a user would click r and nothing above it.
        """
        examination = np.empty(log.clicks.shape)
        _reach(self.continues, base, log.clicks, log.offsets, examination)
        return examination


@njit(forceinline=True)
def _draw(
    parameters: tuple[float], state: np.uint64, query: int, base: Float64s, attraction: Float64s, clicks: UInt8s
) -> np.uint64:
    (continues,) = parameters
    state = advance(state)
    patience = unit(state)  # below base[r + 1], given that it is below base[r]: probability base[r + 1] / base[r]
    reach = 1.0
    for r in range(clicks.size):  # no branches, which could not be predicted: a third less time
        state = advance(state)
        clicked = (patience < reach * base[r]) & (unit(state) < attraction[r])
        clicks[r] = clicked
        reach *= continues if clicked else 1.0
    return state


@njit(nogil=True, cache=True)
def _run_sessions(parameters: tuple[float], users: Any, sessions: Any, key: Any, log: Any) -> None:
    run_sessions(_draw, parameters, users, sessions, key, log)


@njit(nogil=True, cache=True)
def _reach(continues: float, base: Float64s, clicks: UInt8s, offsets: Int64s, examination: Float64s) -> None:
    for u in range(offsets.size - 1):
        for i in range(offsets[u], offsets[u + 1]):
            reach = 1.0
            for r in range(clicks.shape[1]):
                examination[i, r] = reach * base[u, r]
                if clicks[i, r]:
                    reach *= continues
