"""The logistic relevance function F that clients share, as a part of an estimator: its state, its step, its use."""

from __future__ import annotations

from typing import Any

import numpy as np

from fultr.clicks.log import Records
from fultr.core.arrays import Arrays, Float32s, Float64s
from fultr.core.compiled import compiled_for
from fultr.federated.estimators.expectations import Expected, estimate_clients
from fultr.federated.optimisers.step import initial_state, step
from fultr.federated.settings import Estimator


def initial_relevance(settings: Estimator, features: int) -> Arrays:
    """F before the first round, float32 [features + 1], the intercept last; and its optimiser's state."""
    state = initial_state(settings.relevance, features + 1)
    return {"relevance": np.zeros(features + 1, np.float32), **{f"relevance_{name}": a for name, a in state.items()}}


def next_relevance(settings: Estimator, state: Arrays, gradient: Float64s, clients: float) -> Arrays:
    """F after a round whose clients sent a gradient."""
    own = {name.removeprefix("relevance_"): a for name, a in state.items() if name.startswith("relevance_")}
    relevance, own = step(settings.relevance, own, state["relevance"], gradient / max(clients, 1))
    return {"relevance": relevance, **{f"relevance_{name}": a for name, a in own.items()}}


def padded(relevance: Float32s, width: int) -> Float32s:
    """F for rows of features that are padded with zeros to some width; the intercept stays the last."""
    found: Float32s = np.zeros(width + 1, np.float32)
    found[: relevance.size - 1] = relevance[:-1]
    found[-1] = relevance[-1]
    return found


def estimated(
    settings: Estimator,
    kind: Any,
    sent: Arrays,
    records: Records,
    sums: Arrays,
    *,
    own: bool,
    parts: int,
    room: int = 0,
) -> Float64s:
    """What each client divides its clicks by, [clients, parts, K]; what they send is added to `sums`, client by client.

    Args:
        settings: of the estimator.
        kind: what compiled code takes for the estimator.
        sent: what the server broadcast: F and the pooled examination.
        records: what the clients displayed and clicked.
        sums: "gradient", and where the estimator sends them "examined" and "impressions".
        own: do clients expect by their own estimates, or by the pooled one?
        parts: impression i of a client is divided by an estimate that was made without part i mod parts.
        room: numbers that the estimator needs room for.
    """
    log, display = records.log, records.display
    relevance = padded(sent["relevance"], display.features.shape[1])
    divisors = np.empty((records.clients, parts, display.ranks))
    unsent = np.zeros((sums["gradient"].shape[0], display.ranks))
    expected = Expected(sums["gradient"], sums.get("examined", unsent), sums.get("impressions", unsent.copy()))
    compiled_for(estimate_clients, kind)(
        kind,
        display.features,
        display.shown,
        log.queries,
        log.clicks,
        log.offsets,
        relevance,
        sent["pooled"],
        settings.estimate_floor,
        own,
        room,
        divisors,
        expected,
    )
    return divisors


def add_marginals(sums: Arrays, products: Float64s) -> None:
    """Add the logarithms of marginal likelihoods [clients, priors], each client's to its row or all to the only one.

    Each client's are about their mean: only differences between priors count, and the level would tell how much the
    client has clicked.
    """
    logarithms = np.log(products)
    logarithms -= logarithms.mean(axis=1, keepdims=True)
    if sums["marginals"].shape[0] > 1:
        sums["marginals"] += logarithms
    else:
        sums["marginals"][0] = np.vstack([sums["marginals"], logarithms]).sum(axis=0)  # client by client


def parts_of(settings: Estimator) -> int:
    """How many parts a client's impressions have: 2 with cross-fitting, else 1."""
    return 2 if settings.cross_fit else 1
