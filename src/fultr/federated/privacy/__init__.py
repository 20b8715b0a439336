"""Stages: what happens to all that a client sends, between client and server; one per file, one row each here.

Differential privacy is one stage (`private`) with a choice of noise (`PRIVACY`). A noise is a file with four functions;
vectors are whole numbers, in units of one part in `scale` of the bound that every device's vector keeps to:

    scale(privacy)                        into how many parts the bound is divided
    init(privacy, size)                   what the server remembers before the first round, for vectors so long
    client(privacy, rows, draws)          what devices send instead of their rows
    server(privacy, state, total, words)  what the server remembers then, and the noised sum
"""

from __future__ import annotations

from fultr.core.kinds import Kinds

STAGES = Kinds("stage", {"none": "fultr.federated.privacy.none:Unchanged"})
"""The stages that settings and messages can name: a device runs its own code for a name, never any that it is sent."""

PRIVATE = Kinds("stage", {"private": "fultr.federated.privacy.private:PrivateSum"})
"""The stage that settings of privacy stand for."""

PRIVACY = Kinds(
    "privacy",
    {
        "gaussian": "fultr.federated.privacy.gaussian",
        "correlated": "fultr.federated.privacy.correlated",
        "distributed": "fultr.federated.privacy.distributed",
    },
)
"""The noises of differential privacy."""
