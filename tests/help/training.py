"""Clients' updates from a click log and propensities, through the functions that rounds go through."""

from __future__ import annotations

from typing import Any

import numpy as np

from fultr.clicks.log import ClickLog, Display, Records
from fultr.clicks.log_kernels import each_impression
from fultr.federated.credit.given import Given
from fultr.federated.credit.ips import credit
from fultr.federated.settings import FedIPS, LocalTraining
from fultr.rankers.linear import Linear
from fultr.rankers.training import training_with


def updates(
    log: ClickLog,
    display: Display,
    propensities: np.ndarray[Any, Any],
    weights: np.ndarray[Any, Any],
    training: LocalTraining,
    *,
    rows: int = 1,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Updates [rows, features] and how many clients had a click [rows]; propensities are [clients, (parts,) K]."""
    estimates = propensities if propensities.ndim == 3 else propensities[:, np.newaxis]
    records = Records(log, display)
    worth = credit(records, each_impression(estimates, log.offsets), Given.of(FedIPS(training), {}, {}))
    how = training_with(training.loss, training.metric, training.client_rate, training.epochs)
    totals, trained = np.zeros((rows, weights.size)), np.zeros((rows, 1))
    Linear(weights.size).add_updates(records, worth, weights, how, totals, trained)
    return totals, trained[:, 0]
