"""Propensities: the examination probabilities that clicks are divided by."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias

import numpy as np

from fultr.errors import FultrError
from fultr.types import Float64s

Propensity: TypeAlias = Literal["known", "none"] | tuple[float, ...]
"""Where propensities come from.

"known": each user's own examination probabilities, as the paper assumes. "none": 1 for every rank, which makes FedIPS
the FedAvg baseline. Numbers: the same given propensities, one a rank, for every client.
"""


def check_propensity(source: Propensity, ranks: int) -> None:
    """Refuse what is not a source of propensities for lists of `ranks` documents.

    >>> check_propensity((1.0, 0.0), ranks=2)
    Traceback (most recent call last):
    fultr.errors.FultrError: propensity: expected numbers above 0, at most 1; found 0.0 at rank 2
    """
    if source in ("known", "none"):
        return
    if isinstance(source, str):
        raise FultrError(f"propensity: expected known, none or one number a rank; found {source!r}")
    if len(source) != ranks:
        raise FultrError(f"propensity: expected {ranks} numbers, one a displayed rank; found {len(source)}")
    for rank, value in enumerate(source, start=1):
        if not 0 < value <= 1:
            raise FultrError(f"propensity: expected numbers above 0, at most 1; found {value} at rank {rank}")


def given_propensity(text: str, named: Collection[str]) -> tuple[float, ...]:
    """Propensities that are written as one number a rank.

    Args:
        text: such as "1,0.5,0.33".
        named: what might have been written instead, for the error.

    >>> given_propensity("1,0.5", ["none"])
    (1.0, 0.5)
    >>> given_propensity("guess", ["none", "pooled"])
    Traceback (most recent call last):
    fultr.errors.FultrError: propensity: expected one of none, pooled, or one number a rank; found 'guess'
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise FultrError(
            f"propensity: expected one of {', '.join(named)}, or one number a rank; found {text!r}"
        ) from None


def propensities(source: Propensity, examination: Float64s) -> Float64s:
    """Propensities [clients, K] of clients whose true examination probabilities are given.

    >>> propensities("none", np.array([[1.0, 0.5]])).tolist()
    [[1.0, 1.0]]
    >>> propensities((1.0, 0.4), np.array([[1.0, 0.5], [1.0, 0.3]])).tolist()
    [[1.0, 0.4], [1.0, 0.4]]
    """
    if source == "known":
        return examination
    if source == "none":
        return np.ones_like(examination)
    return np.tile(np.array(source, np.float64), (examination.shape[0], 1))
