"""The dependent click model: a cascade in which the rank of a click decides whether users continue after it."""

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
class DependentClick:
    """Users scan from rank 1 down as in `Cascade`, and whether a click ends it depends on its rank (Guo et al. 2009).

    After a click at rank r, from 1, they continue with 1 - (1 - continues) / r times the probability without one: who
    has come further down gives up less easily. From rank 2 on that is above 0 for every setting.

    Attributes:
        continues: how likely users continue after a click at rank 1, relative to without one; 0 to 1.
    """

    continues: float

    def run_sessions(self, users: Any, sessions: Any, key: Any, log: Any) -> None:
        """See `Model`."""
        _run_sessions((float(self.continues),), users, sessions, key, log)

    def click_if_examined(self, attraction: Float64s) -> Float64s:
        """The attraction; see `Model`."""
        return attraction

    def examination_given_clicks(self, base: Float64s, log: ClickLog) -> Float64s:
        """base[r] times the factors of the clicks above r, [impressions, K]; see `Model`, and `Cascade` for why."""
        examination = np.empty(log.clicks.shape)
        _reach(self.continues, base, log.clicks, log.offsets, examination)
        return examination


@njit(forceinline=True)
def _after(continues: float, r: int) -> float:
    """How likely users continue after a click at rank r, from 0, relative to without one."""
    return 1 - (1 - continues) / (r + 1)


@njit(forceinline=True)
def _draw(
    parameters: tuple[float], state: np.uint64, query: int, base: Float64s, attraction: Float64s, clicks: UInt8s
) -> np.uint64:
    (continues,) = parameters
    state = advance(state)
    patience = unit(state)  # as in the cascade model
    reach = 1.0
    for r in range(clicks.size):
        state = advance(state)
        clicked = (patience < reach * base[r]) & (unit(state) < attraction[r])
        clicks[r] = clicked
        reach *= _after(continues, r) if clicked else 1.0
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
                    reach *= _after(continues, r)
