"""The trust-bias model: users take a high rank for a sign of relevance, and click there more often than they should."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from fultr.clicks.log import ClickLog
from fultr.clicks.log_kernels import each_impression
from fultr.clicks.sessions import run_sessions
from fultr.core.arrays import Float64s, UInt8s
from fultr.core.streams import advance, unit


@dataclass(frozen=True)
class Trust:
    """Examination as in the position-based model; clicks on what is examined depend on the rank (Agarwal et al. 2019).

    At rank r, from 1, a user trusts the ranking with probability trust / r and clicks whatever is there; otherwise
    they click with the document's attraction a. So a click on an examined document has probability

        trust / r + (1 - trust / r) a,

    which is affine in relevance, with other constants at every rank: epsilon+ where a is that of relevant documents,
    epsilon- where it is that of others.

    Attributes:
        trust: at rank 1; 0 to 1.
    """

    trust: float

    def run_sessions(self, users: Any, sessions: Any, key: Any, log: Any) -> None:
        """See `Model`."""
        _run_sessions((float(self.trust),), users, sessions, key, log)

    def click_if_examined(self, attraction: Float64s) -> Float64s:
        """Affine in attraction, by rank, [..., K]; 0 where the attraction is: there is no document.

        >>> Trust(0.5).click_if_examined(np.array([0.2, 0.2, 0.0])).round(6).tolist()
        [0.6, 0.4, 0.0]
        """
        trusted = self.trust / np.arange(1.0, attraction.shape[-1] + 1)
        return np.where(attraction > 0, trusted + (1 - trusted) * attraction, 0.0)

    def examination_given_clicks(self, base: Float64s, log: ClickLog) -> Float64s:
        """base, whatever was clicked, [impressions, K]; see `Model`."""
        return each_impression(base[:, np.newaxis], log.offsets)


@njit(forceinline=True)
def _draw(
    parameters: tuple[float], state: np.uint64, query: int, base: Float64s, attraction: Float64s, clicks: UInt8s
) -> np.uint64:
    (trust,) = parameters
    for r in range(clicks.size):
        state = advance(state)
        trusted = trust / (r + 1)
        clicks[r] = (attraction[r] > 0) & (unit(state) < base[r] * (trusted + (1 - trusted) * attraction[r]))
    return state


@njit(nogil=True, cache=True)
def _run_sessions(parameters: tuple[float], users: Any, sessions: Any, key: Any, log: Any) -> None:
    run_sessions(_draw, parameters, users, sessions, key, log)
