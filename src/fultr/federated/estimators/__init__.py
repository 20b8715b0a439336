"""Examination estimated from the clicks inside the rounds of FedIPS: one per file, one row each here.

The regression-based EM of Wang et al. (2018), federated (Section 5 of the paper): all clients share a logistic
relevance function F. On its own log each client computes how much of each rank was examined, and the gradient of F; the
server combines gradients by an optimiser. What a client divides its clicks by is its own estimate ("personal", the
paper's), that of all ("pooled"), its own shrunk towards that of all ("shrunk"), or a power law with a severity of its
own ("power-law"). Where several versions of the logging policy are in use at random, "harvested" needs no relevance
function: clicks on the same document at different ranks tell examination apart (Agarwal et al. 2019). "trust" estimates
how likely clicks on relevant and on other documents are at each rank, for affine credit (Vardasbi et al. 2020).

An estimator's file has these functions; every array has a name, and those that clients send add up:

    init(settings, features, ranks)            what the server knows before the first round
    broadcast(settings, state)                 what clients are sent; "pooled" [K]: examination, as the server sees it
    nothing(settings, features, ranks, rows)   sums of no clients: all that leaves a device for estimation
    no_evidence(settings, clients, ranks)      what clients remember that have not taken part yet
    client(settings, sent, records, sums, evidence)    what clients divide by, [clients, parts, K]; adds to the sums
    server(settings, state, sums, clients)     what the server knows after a round
"""

from __future__ import annotations

from fultr.core.kinds import Kinds

ESTIMATORS = Kinds(
    "propensity",
    {
        "personal": "fultr.federated.estimators.personal",
        "pooled": "fultr.federated.estimators.pooled",
        "shrunk": "fultr.federated.estimators.shrunk",
        "power-law": "fultr.federated.estimators.power_law",
        "harvested": "fultr.federated.estimators.harvested",
        "trust": "fultr.federated.estimators.trust",
    },
)

WITH_RELEVANCE = ("personal", "pooled", "shrunk", "power-law")
"""Those whose relevance function says how likely a click on an examined document is."""

WITH_CONSTANTS = ("trust",)
"""Those that broadcast "constants" too: how likely clicks on irrelevant and relevant documents are, by rank."""
