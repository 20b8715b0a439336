"""The position-based model: examination depends on the rank alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from scipy.special import ndtr, ndtri

from fultr.clicks.log import ClickLog
from fultr.clicks.log_kernels import each_impression
from fultr.clicks.sessions import run_sessions
from fultr.clicks.settings import ClickModel
from fultr.core.arrays import Float64s, UInt8s
from fultr.core.streams import advance, unit


@dataclass(frozen=True)
class PositionBased:
    """Users examine each rank independently of what they do at the others (Section 4, Click simulator)."""

    def run_sessions(self, users: Any, sessions: Any, key: Any, log: Any) -> None:
        """See `Model`."""
        _run_sessions((), users, sessions, key, log)

    def click_if_examined(self, attraction: Float64s) -> Float64s:
        """The attraction; see `Model`."""
        return attraction

    def examination_given_clicks(self, base: Float64s, log: ClickLog) -> Float64s:
        """base, whatever was clicked, [impressions, K]; see `Model`."""
        return each_impression(base[:, np.newaxis], log.offsets)


@njit(forceinline=True)
def _draw(
    parameters: tuple[()], state: np.uint64, query: int, base: Float64s, attraction: Float64s, clicks: UInt8s
) -> np.uint64:
    for r in range(clicks.size):
        state = advance(state)
        clicks[r] = unit(state) < base[r] * attraction[r]
    return state


@njit(nogil=True, cache=True)
def _run_sessions(parameters: tuple[()], users: Any, sessions: Any, key: Any, log: Any) -> None:
    run_sessions(_draw, parameters, users, sessions, key, log)


def bias_severities(model: ClickModel, uniform: Float64s) -> Float64s:
    """gamma_u of users: N(gamma, gamma_sd**2) truncated at 0 from the left, from one uniform number each.

    By the inverse distribution function, exactly: every number in [0, 1) gives one user, none is rejected.

    >>> bias_severities(ClickModel(gamma=1.0, gamma_sd=0.0), np.array([0.2, 0.7])).tolist()
    [1.0, 1.0]
    >>> bias_severities(ClickModel(gamma=0.0, gamma_sd=1.0), np.array([0.0, 0.5])).round(4).tolist()
    [0.0, 0.6745]
    """
    if model.gamma_sd == 0:
        return np.full(uniform.size, model.gamma)
    upper = ndtr(model.gamma / model.gamma_sd)  # probability that the untruncated Gaussian is positive
    severities: Float64s = np.maximum(model.gamma - model.gamma_sd * ndtri((1 - uniform) * upper), 0)
    return severities


def examination(severities: Float64s, ranks: int) -> Float64s:
    """Examination probabilities (1 / rank) ** gamma_u, [users, ranks]; rank 1 has examination 1.

    >>> examination(np.array([0.0, 1.0, 2.0]), 2).tolist()
    [[1.0, 1.0], [1.0, 0.5], [1.0, 0.25]]
    """
    probabilities: Float64s = np.arange(1.0, ranks + 1) ** -severities[:, np.newaxis]
    return probabilities
