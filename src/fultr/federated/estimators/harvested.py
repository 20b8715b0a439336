"""Harvested interventions: several versions of the logging policy show the same document at different ranks.

Clicks on such documents tell examination apart without any relevance function (Agarwal et al. 2019, the all-pairs
estimator); what clients send is weighted clicks and impressions for each pair of ranks.
"""

from __future__ import annotations

import numpy as np

from fultr.clicks.examination.harvesting import PairCounts, all_pairs
from fultr.clicks.log import Records
from fultr.clicks.log_kernels import add_linked
from fultr.core.arrays import Arrays, Float32s, Float64s
from fultr.core.errors import FultrError
from fultr.federated.settings import Estimator


def init(settings: Estimator, features: int, ranks: int) -> Arrays:
    """Sums of clicks and impressions for each pair of ranks."""
    return {"pairs": np.zeros((2, ranks, ranks))}


def broadcast(settings: Estimator, state: Arrays) -> Arrays:
    """Examination of each rank; the start until all ranks are linked."""
    try:
        found = all_pairs(PairCounts(*state["pairs"]))
    except FultrError:
        found = np.full(state["pairs"].shape[1], settings.estimate_start)
        found[0] = 1.0
    return {"pooled": np.minimum(found, 1.0)}


def nothing(settings: Estimator, features: int, ranks: int, rows: int) -> Arrays:
    """Weighted clicks and impressions of documents that are shown at both of two ranks."""
    return {"pairs": np.zeros((rows, 2, ranks, ranks))}


def no_evidence(settings: Estimator, clients: int, ranks: int) -> Float32s:
    """Clients have nothing to remember."""
    return np.zeros((clients, 0), np.float32)


def client(
    settings: Estimator, sent: Arrays, records: Records, sums: Arrays, evidence: Float32s | None = None
) -> Float64s:
    """All clients divide by the server's estimate."""
    log = records.log
    add_linked(records.display.links, log.clicks, log.queries, log.offsets, sums["pairs"])
    return np.tile(np.maximum(sent["pooled"], settings.estimate_floor), (records.clients, 1, 1))


def server(settings: Estimator, state: Arrays, sums: Arrays, clients: float) -> Arrays:
    """The next sums."""
    return {"pairs": settings.estimate_memory * state["pairs"] + sums["pairs"]}
