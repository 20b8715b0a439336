"""Algorithm 1, once: what the server broadcasts, what clients do with it, and what the server makes of their replies.

Simulated clients and devices go through the same functions. Those of a simulation come in blocks and are added up as
they are made; where a stage or an aggregation must see single replies, each has a row of its own first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fultr.clicks.log import Records
from fultr.clicks.log_kernels import each_impression
from fultr.core.arrays import Arrays, Float32s, Float64s
from fultr.core.errors import FultrError
from fultr.federated.aggregate import add_rows, aggregated
from fultr.federated.credit import CREDITS
from fultr.federated.credit.clipping import clipped
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.judging import judge_order
from fultr.federated.optimisers.step import average, initial_state, step
from fultr.federated.privacy.stage import Sums, stage_of
from fultr.federated.settings import Estimator, FedIPS
from fultr.rankers.model import Model
from fultr.rankers.training import training_with

_REMEMBERED = ("optimiser", "estimation", "stage", "aggregation")


@dataclass(frozen=True, eq=False)
class Server:
    """All that the server knows: the weights w_t, and what optimiser, estimator, stage and aggregation remember."""

    weights: Float32s
    optimiser: Arrays
    estimation: Arrays
    stage: Arrays
    aggregation: Arrays

    @classmethod
    def initial(cls, algorithm: FedIPS, model: Model, weights: Float32s, displayed: int) -> Server:
        """Before the first round, with w_0 and lists of so many documents."""
        source = algorithm.propensity
        estimation: Arrays = {}
        if isinstance(source, Estimator):
            estimation = ESTIMATORS[source.kind].init(source, model.features, displayed)
        optimiser = initial_state(algorithm.server, weights.size)
        return cls(weights, optimiser, estimation, stage_of(algorithm.stage).init(weights.size), {})

    def as_arrays(self) -> Arrays:
        """Everything by name, for a checkpoint."""
        return {
            "weights": self.weights,
            **{f"{part}_{name}": array for part in _REMEMBERED for name, array in getattr(self, part).items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Server:
        """What `as_arrays` wrote."""
        parts: dict[str, Arrays] = {part: {} for part in _REMEMBERED}
        for name, array in arrays.items():
            part, _, own = name.partition("_")
            if part in parts:
                parts[part][own] = array
        return cls(arrays["weights"], **parts)


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What all clients of a round are sent: w_t, and what estimator and stage have to say."""

    weights: Float32s
    estimation: Arrays
    stage: Arrays


def broadcast(algorithm: FedIPS, server: Server) -> Broadcast:
    """What the server sends in a round (line 3)."""
    source = algorithm.propensity
    estimation = ESTIMATORS[source.kind].broadcast(source, server.estimation) if isinstance(source, Estimator) else {}
    return Broadcast(server.weights, estimation, server.stage)


def nothing(algorithm: FedIPS, model: Model, displayed: int, rows: int = 1) -> Sums:
    """The sum of no replies: what clients send by name, each in its row or all in the only one.

    "update" are the changes of the weights, "trained" counts the clients that had any credit; the rest is the
    estimator's.
    """
    source = algorithm.propensity
    sums: Sums = {"update": np.zeros((rows, model.size)), "trained": np.zeros((rows, 1))}
    if isinstance(source, Estimator):
        sums |= ESTIMATORS[source.kind].nothing(source, model.features, displayed, rows)
    return sums


def client_round(
    algorithm: FedIPS,
    model: Model,
    sent: Broadcast,
    records: Records,
    total: Sums,
    *,
    known: Float64s | None = None,
    evidence: Float32s | None = None,
    held_out: Records | None = None,
    rival: Float32s | None = None,
) -> Float64s:
    """What clients do in a round (lines 4 to 10): their replies, in order, are added to `total`.

    Args:
        algorithm: FedIPS, with all that it leaves open.
        model: of the ranker.
        sent: what the server broadcast.
        records: what the clients displayed and clicked.
        total: the replies' sum, see `nothing`; added to. With one row per client, each reply is in its own.
        known: [impressions, K] examination, where only a simulation knows it.
        evidence: what each client remembers of earlier rounds; changed.
        held_out: records of the only client that its ranker is judged by; it replies "judged", see `judge_order`.
        rival: weights of a second ranker that is judged by the same.

    Returns:
        What clicks were divided by, [impressions, K].
    """
    singly = algorithm.stage.stage != "none"
    replies = nothing(algorithm, model, records.display.ranks, records.clients) if singly else total
    estimates = _estimates(algorithm, sent, records, replies, evidence)
    examination = known if estimates is None else each_impression(estimates, records.log.offsets)
    if examination is None:
        raise FultrError("propensity: only a simulation knows it; give numbers, or name an estimator")
    training = algorithm.training
    worth = CREDITS[training.credit].credit(records, examination, sent.estimation.get("relevance"))
    credit = clipped(worth, training.clip)
    how = training_with(training.loss, training.metric, training.client_rate, training.epochs)
    model.add_updates(records, credit, sent.weights, how, replies["update"], replies["trained"])  # lines 5 to 9
    told: Sums = {}
    if held_out is not None and estimates is not None:
        told["judged"] = judge_order(model, sent.weights, held_out, estimates.mean(axis=1)[0], rival)[np.newaxis]
    if singly:
        given = replies | told
        replies = dict(stage_of(algorithm.stage).client(sent.stage, given))
        _check_stage(algorithm.stage.stage, given, replies)
        replies["update"] = replies["update"].astype(np.float32)  # as it travels
        told = replies
    add_rows(total, told)
    return examination


def judgement(
    algorithm: FedIPS, model: Model, sent: Broadcast, records: Records, held_out: Records, rival: Float32s | None
) -> Float64s:
    """What one client replies that is only to judge, see `judge_order`: its records tell it what to divide by."""
    unsent = nothing(algorithm, model, records.display.ranks)
    estimates = _estimates(algorithm, sent, records, unsent, None)
    if estimates is None:
        raise FultrError("propensity: only a simulation knows it; give numbers, or name an estimator")
    return judge_order(model, sent.weights, held_out, estimates.mean(axis=1)[0], rival)


def _check_stage(stage: str, given: Sums, found: Sums) -> None:
    """Refuse what a stage made of replies or their sum if it cannot be added up in their place."""
    for name in (*given, *found):
        wanted, shape = (np.shape(sums[name]) if name in sums else "nothing" for sums in (given, found))
        if wanted != shape:
            raise FultrError(f"stage {stage}: expected {name} of shape {wanted} from it, found {shape}")


def _estimates(
    algorithm: FedIPS, sent: Broadcast, records: Records, replies: Sums, evidence: Float32s | None
) -> Float64s | None:
    """What clients divide by, [clients, parts, K], if they know it themselves; adds the estimator's sums to replies."""
    source = algorithm.propensity
    if isinstance(source, Estimator):
        return ESTIMATORS[source.kind].client(source, sent.estimation, records, replies, evidence)
    if source == "known":
        return None
    given = np.ones(records.display.ranks) if source == "none" else np.array(source)
    return np.tile(given, (records.clients, 1, 1))


def server_round(algorithm: FedIPS, server: Server, replies: Sums, clients: float) -> Server:
    """What the server makes of what a cohort of so many clients sent (line 11).

    Args:
        algorithm: FedIPS.
        server: what the server knows.
        replies: one row per client, in the order of their numbers; for the mean, the sums of parts will do.
        clients: how many the cohort has, or is expected to have.
    """
    given, aggregation = aggregated(algorithm.aggregation, server.aggregation, replies)
    stage, sums = stage_of(algorithm.stage).server(server.stage, given, clients)
    _check_stage(algorithm.stage.stage, given, sums)
    divisor = clients if algorithm.average_over == "cohort" else sums["trained"][0]
    update = average(sums["update"], divisor)
    weights, optimiser = step(algorithm.server, server.optimiser, server.weights, update)
    source, estimation = algorithm.propensity, server.estimation
    if isinstance(source, Estimator):
        estimation = ESTIMATORS[source.kind].server(source, estimation, sums, clients)
    return Server(weights, optimiser, estimation, stage, aggregation)
