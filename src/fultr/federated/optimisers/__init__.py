"""Server optimisers: from the average update to the direction that weights move in; one per file, one row each here.

FedOpt (Reddi et al. 2021). An optimiser is two functions, state in and state out: `init(settings, size)` gives its
state before the first round, `direction(settings, state, update)` the direction and the next state. A state is float64
arrays by name, ready to be saved. All arithmetic is float64.
"""

from __future__ import annotations

from fultr.core.kinds import Kinds

OPTIMISERS = Kinds(
    "server",
    {
        "sgd": "fultr.federated.optimisers.sgd",
        "momentum": "fultr.federated.optimisers.momentum",
        "adagrad": "fultr.federated.optimisers.adagrad",
        "adam": "fultr.federated.optimisers.adam",
        "yogi": "fultr.federated.optimisers.yogi",
    },
)

USUAL_RATES = {"sgd": 1.0, "momentum": 0.3, "adagrad": 0.1, "adam": 0.03, "yogi": 0.03}
"""eta_g where none is given, with the default client rate: 1 is the paper's average; docs/learning-more.md has what the
others were tried with. Yogi's is Adam's, untried."""
