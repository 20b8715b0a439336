"""Credit: what one impression's clicks are worth to each displayed document; one per file, one row each here.

A kind of credit is a module with one function, `credit(records, examination, given)`, which gives float64
[impressions, K], computed before training; documents with credit 0 take no step. `examination` [impressions, K] is the
probability that each rank was examined, `given` what else there is to know (`fultr.federated.credit.given`).
"""

from __future__ import annotations

from fultr.core.kinds import Kinds

CREDITS = Kinds(
    "credit",
    {
        "ips": "fultr.federated.credit.ips",
        "none": "fultr.federated.credit.none",
        "affine": "fultr.federated.credit.affine",
        "policy-aware": "fultr.federated.credit.policy_aware",
        "doubly-robust": "fultr.federated.credit.doubly_robust",
        "self-normalised": "fultr.federated.credit.self_normalised",
    },
)

CLIP_RULES = ("given", "last-rank", "effective")
"""How the largest weight of a click is chosen: see `fultr.federated.credit.clipping`."""
