"""Examination that depends on the query: for some kinds users look further down than for others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit

from fultr.clicks.log import ClickLog
from fultr.clicks.sessions import run_sessions
from fultr.core.arrays import Float64s, Int64s, UInt8s
from fultr.core.streams import Purpose, advance, uniforms, unit


def _two_kinds() -> Int64s:
    return np.array([0, 1])


@dataclass(frozen=True, eq=False)
class Contextual:
    """The position-based model with two kinds of queries (Fang et al. 2019: examination that depends on the context).

    A user of severity gamma_u examines rank r with probability (1 / r) ** ((1 - contrast) gamma_u) for queries of the
    first kind, who look for many results, and (1 / r) ** ((1 + contrast) gamma_u) for those of the second, who look for
    one. Half of the queries are of each kind, drawn by their ids.

    Attributes:
        contrast: how much the kinds differ; 0 to 1.
        kinds: [queries] 0 or 1. Query q is of kind `kinds[q % queries]`, so that it is of the same kind in all versions
            of the logging policy.
    """

    contrast: float
    kinds: Int64s = field(default_factory=_two_kinds)

    @staticmethod
    def kinds_of(query_ids: Int64s) -> Int64s:
        """The kinds of queries with these ids: the same whatever else is in the data.

        >>> both = Contextual.kinds_of(np.arange(1000))
        >>> bool((Contextual.kinds_of(np.array([7, 3])) == both[[7, 3]]).all()), abs(int(both.sum()) - 500) // 50
        (True, 0)
        """
        drawn: Int64s = (uniforms(0, int(Purpose.QUERY_KIND), 0, query_ids) < 0.5).astype(np.int64)
        return drawn

    def run_sessions(self, users: Any, sessions: Any, key: Any, log: Any) -> None:
        """See `Model`."""
        _run_sessions((float(self.contrast), self.kinds), users, sessions, key, log)

    def click_if_examined(self, attraction: Float64s) -> Float64s:
        """The attraction; see `Model`."""
        return attraction

    def examination_given_clicks(self, base: Float64s, log: ClickLog) -> Float64s:
        """Of each user the base, to the power of 1 - contrast or 1 + contrast by the query's kind; see `Model`."""
        powers = np.array([1 - self.contrast, 1 + self.contrast])
        found: Float64s = np.repeat(base, np.diff(log.offsets), axis=0)
        found **= powers[self.kinds[log.queries % self.kinds.size]][:, np.newaxis]
        return found


@njit(forceinline=True)
def _draw(
    parameters: tuple[float, Int64s],
    state: np.uint64,
    query: int,
    base: Float64s,
    attraction: Float64s,
    clicks: UInt8s,
) -> np.uint64:
    contrast, kinds = parameters
    power = 1 + contrast if kinds[query % kinds.size] else 1 - contrast
    for r in range(clicks.size):
        state = advance(state)
        clicks[r] = unit(state) < base[r] ** power * attraction[r]
    return state


@njit(nogil=True, cache=True)
def _run_sessions(parameters: tuple[float, Int64s], users: Any, sessions: Any, key: Any, log: Any) -> None:
    run_sessions(_draw, parameters, users, sessions, key, log)
