"""The weights 1 / examination of a log's clicks: how uneven they are, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fultr.core.arrays import Float64s

FEW_EFFECTIVE = 0.5  # effective over actual clicks: unequal weights cost half the log


@dataclass(frozen=True)
class Weights:
    """The weights 1 / examination of a log's clicks.

    Attributes:
        clicks: how many there are.
        effective: the effective sample size, (sum of weights)^2 / sum of squared weights.
        largest: the largest weight.
        largest_rank: where it occurs, from 1.
        heaviest_share: share of the total weight held by the heaviest hundredth of clicks.
        click_share: share of all clicks, by rank.
        weight_share: share of the total weight, by rank.
        infinite: clicks at ranks whose examination is estimated as 0; they are left out of the rest.
        clip: a limit on the weights that keeps the effective sample size above half the clicks; None if none is needed.
    """

    clicks: int
    effective: float
    largest: float
    largest_rank: int
    heaviest_share: float
    click_share: tuple[float, ...]
    weight_share: tuple[float, ...]
    infinite: int
    clip: float | None


def weights_of(clicks: Float64s, examination: Float64s) -> Weights:
    """Summarise the weights of clicks, given how many there are at each rank.

    >>> found = weights_of(np.array([80.0, 20.0]), np.array([1.0, 0.25]))
    >>> found.effective, found.weight_share  # (80 + 80)^2 / (80 + 20 x 16)
    (64.0, (0.5, 0.5))
    """
    usable = (examination > 0) & (clicks > 0)
    weight = np.divide(1.0, examination, out=np.zeros_like(examination), where=usable)
    counted = np.where(usable, clicks, 0.0)
    mass = counted * weight
    total, top = float(mass.sum()) or 1.0, int(np.argmax(weight))
    order = np.argsort(-weight)
    heaviest = np.clip(0.01 * counted.sum() - np.r_[0, np.cumsum(counted[order])[:-1]], 0, counted[order])
    return Weights(
        int(clicks.sum()),
        effective(counted, weight),
        float(weight[top]),
        top + 1,
        float((heaviest * weight[order]).sum() / total),
        tuple((clicks / (clicks.sum() or 1.0)).tolist()),
        tuple((mass / total).tolist()),
        int(clicks[~usable].sum()),
        clip_for_half(counted, weight),
    )


def clip_for_half(clicks: Float64s, weights: Float64s) -> float | None:
    """The largest limit on weights that keeps the effective sample size above half the clicks; None if none is needed.

    >>> clip_for_half(np.array([90.0, 10.0]), np.array([1.0, 20.0])), clip_for_half(np.array([9.0]), np.array([2.0]))
    (1.0, None)
    """
    there = weights[clicks > 0]
    enough = FEW_EFFECTIVE * clicks.sum()
    for clip in sorted(set(there.tolist()), reverse=True):
        if effective(clicks, np.minimum(weights, clip)) >= enough:
            return float(clip) if clip < there.max() else None
    return None


def effective(clicks: Float64s, weight: Float64s) -> float:
    """The effective sample size, (sum of weights)^2 / sum of squared weights, of clicks at each rank.

    >>> effective(np.array([80.0, 20.0]), np.array([1.0, 4.0]))
    64.0
    """
    squares = float((clicks * weight**2).sum())
    return float((clicks * weight).sum()) ** 2 / squares if squares else 0.0
