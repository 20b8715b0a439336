"""What clicks are corrected by: examination that is estimated from the log, given, or the same everywhere.

On a whole log, methods of `fultr estimate` do; in a federation, its estimators, in the rounds of training.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fultr.clicks.evaluated import Examined
from fultr.clicks.examination.harvesting import pair_counts, unreachable_ranks
from fultr.clicks.examination.methods import METHODS, examination_by
from fultr.clicks.impressions import ImpressionLog
from fultr.core.arrays import Float64s
from fultr.core.checks import check_choice, written
from fultr.core.errors import FultrError
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.settings import Estimator


def examination_for(log: ImpressionLog, propensity: Any) -> tuple[Float64s, str, str]:
    """Examination of each rank, [K], how it was found, and a sentence that says why.

    Args:
        log: the click log, with features.
        propensity: "auto"; "none", or None; a method of `fultr estimate`; one number per rank; or a
            `fultr.PositionBias`, fitted, or to be fitted by its method.

    >>> log = ImpressionLog.from_arrays([1], [[7, 8]], [[1, 0]])
    >>> examination_for(log, [1.0, 0.5])[:2]
    (array([1. , 0.5]), 'given')
    """
    propensity = _plain(propensity)
    if isinstance(propensity, Estimator):
        raise FultrError(
            f"propensity: {propensity.kind} is estimated in the rounds of a federation; with federated=True"
        )
    if not isinstance(propensity, str):
        given = _given(propensity, log.ranks)
        never = Examined(given).never(log.cells().by_rank()[1])
        if never:
            raise FultrError(f"propensity: {never}: no weight makes up for that.")
        return given, "given", "They were given as numbers."
    check_choice("propensity", propensity, ("auto", "none", *METHODS))
    if propensity == "none":
        return np.ones(log.ranks), "none", "Every rank counts as examined: clicks are taken as they are."
    cells = log.cells()
    cells.check_clicks()
    if log.ranks == 1:
        return np.ones(1), "none", "Pages have a single rank: there is nothing to correct."
    if propensity != "auto":
        return examination_by(propensity, cells), propensity, "This method was asked for."  # type: ignore[arg-type]
    moved = float((cells.ranks_of_pair() > 1).sum())
    if moved and not unreachable_ranks(pair_counts(cells)).size:
        why = f"{moved:,.0f} documents were shown at several ranks: their clicks separate rank from relevance."
        return examination_by("all-pairs", cells), "all-pairs", why
    why = "Too few documents were shown at several ranks to link all ranks: features separate rank from relevance."
    return examination_by("regression", cells), "regression", why


def federated_propensity(propensity: Any, ranks: int) -> Estimator | str | tuple[float, ...] | None:
    """What the clicks of a federation are divided by; None: what is recommended.

    Args:
        propensity: "auto"; "none", or None; an estimator of federations, or its name; one number per rank; or a fitted
            `fultr.PositionBias`.
        ranks: K.

    >>> federated_propensity([2.0, 1.0], 2), federated_propensity("auto", 2)
    ((1.0, 0.5), None)
    """
    propensity = _plain(propensity)
    if isinstance(propensity, Estimator):
        return propensity
    if not isinstance(propensity, str):
        return tuple(_given(propensity, ranks).tolist())
    check_choice("propensity", propensity, ("auto", "none", *ESTIMATORS))
    return None if propensity == "auto" else propensity


def _plain(propensity: Any) -> Any:
    """A name, an estimator or numbers."""
    if propensity is None:
        return "none"
    if hasattr(propensity, "examination_"):  # a fitted PositionBias
        return propensity.examination_
    return propensity.method if isinstance(getattr(propensity, "method", None), str) else propensity


def _given(values: Any, ranks: int) -> Float64s:
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise FultrError(
            f"propensity: expected a method, an estimator, or one number per rank; found {written(values)}"
        ) from None
    if numbers.ndim != 1 or numbers.size < ranks:
        raise FultrError(f"propensity: expected {ranks} numbers, one per rank, found shape {numbers.shape}")
    if not (np.isfinite(numbers).all() and (numbers >= 0).all() and numbers[0] > 0):
        raise FultrError(f"propensity: expected numbers from 0, the first above 0; found {numbers[:ranks].tolist()}")
    return numbers[:ranks] / numbers[0]
