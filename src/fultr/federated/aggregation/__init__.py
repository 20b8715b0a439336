"""Aggregations: from what each client sends to what the server takes for their sum; one per file, one row each here.

An aggregation is one function, state in and state out: `total(settings, state, rows)`. `rows` are named arrays with one
row per client, in the order of the clients' numbers; the result has one array per name, and the next state. A total is
on the scale of a sum, so that the server divides it as it divides a sum. Before the first round the state is empty.
A row of zeros says nothing: only the mean divides by it, the other rules are rules over those that have something to
say. A rule that makes sense where only the clients' sum is seen has a second function, `of_sum(settings, state, total,
clients)`, for what a secure sum of this many clients is taken for.
"""

from __future__ import annotations

from fultr.core.kinds import Kinds

AGGREGATIONS = Kinds(
    "aggregation",
    {
        "mean": "fultr.federated.aggregation.mean",
        "clipped": "fultr.federated.aggregation.clipped",
        "trimmed": "fultr.federated.aggregation.trimmed",
        "grouped": "fultr.federated.aggregation.grouped",
    },
)

OF_SUMS = ("mean", "clipped")
"""Those that go with secure sums."""
