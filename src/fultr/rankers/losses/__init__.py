"""Losses of a clicked document among those that it is compared with: one per file, one row each in this table.

A loss is a `NamedTuple` class whose type chooses compiled code: its file implements `loss_and_pulls` for it. All take
the scores of the documents D_q and the place of the clicked one, and give the loss h and, for every document, minus the
derivative of h by its score. In `RANK_WEIGHTED` ones h has weights that depend on ranks, and count as constants.
"""

from __future__ import annotations

from fultr.core.kinds import Kinds

LOSSES = Kinds(
    "loss",
    {
        "hinge": "fultr.rankers.losses.hinge:Hinge",
        "logistic": "fultr.rankers.losses.logistic:Logistic",
        "softmax": "fultr.rankers.losses.softmax:Softmax",
        "lambda-pairs": "fultr.rankers.losses.lambda_pairs:LambdaPairs",
    },
)

BOUND_NO_RANK = ("softmax", "lambda-pairs")
"""Losses whose 1 + h is not at least the rank of the clicked document: there is none for a metric to discount."""

RANK_WEIGHTED = ("lambda-pairs",)
"""Losses whose pulls are derivatives for fixed ranks alone."""
