"""Algorithm 1, once: what the server broadcasts, what clients do with it, and what the server makes of their replies.

Simulated clients and devices go through the same functions. Those of a simulation come in blocks and are added up as
they are made; where a stage or an aggregation must see single replies, each has a row of its own first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fultr.clicks.log import Records
from fultr.clicks.log_kernels import each_impression
from fultr.core.arrays import Arrays, Float32s, Float64s
from fultr.core.errors import FultrError
from fultr.federated.aggregate import add_rows, aggregated
from fultr.federated.credit import CREDITS, clipping
from fultr.federated.credit.given import Given
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.judging import judge_order
from fultr.federated.optimisers.step import average, initial_state, ranker_of, step
from fultr.federated.privacy.randomness import SYSTEM, Randomness, Words, system_words
from fultr.federated.privacy.stage import Shapes, Sums, single_replies, stage_of
from fultr.federated.settings import Estimator, FedIPS
from fultr.rankers.model import Model
from fultr.rankers.training import training_with

_REMEMBERED = ("optimiser", "estimation", "stage", "aggregation", "credit")


@dataclass(frozen=True, eq=False)
class Server:
    """All that the server knows: w_t, and what optimiser, estimator, stage, aggregation and credit's clip remember."""

    weights: Float32s
    optimiser: Arrays
    estimation: Arrays
    stage: Arrays
    aggregation: Arrays
    credit: Arrays

    @classmethod
    def initial(
        cls, algorithm: FedIPS, model: Model, weights: Float32s, displayed: int, *, judge: bool = False
    ) -> Server:
        """Before the first round, with w_0 and lists of this many documents; do clients judge w_t, too?"""
        source = algorithm.propensity
        estimation: Arrays = {}
        if isinstance(source, Estimator):
            estimation = ESTIMATORS[source.kind].init(source, model.features, displayed)
        optimiser = initial_state(algorithm.server, model.stepped(weights))
        stage = stage_of(algorithm.stage).init(_shapes(algorithm, model, displayed, judge))
        return cls(weights, optimiser, estimation, stage, {}, clipping.init(algorithm.training.clip_rule))

    @property
    def ranker(self) -> Float32s:
        """Weights of the ranker so far: w_t, or a mean over late rounds (`averaged`)."""
        return ranker_of(self.optimiser, self.weights)

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
    """What all clients of a round are sent: w_t, what estimator and stage have to say, and a clip that was chosen."""

    weights: Float32s
    estimation: Arrays
    stage: Arrays
    credit: Arrays = field(default_factory=dict)


def broadcast(algorithm: FedIPS, server: Server) -> Broadcast:
    """What the server sends in a round (line 3)."""
    source = algorithm.propensity
    estimation = ESTIMATORS[source.kind].broadcast(source, server.estimation) if isinstance(source, Estimator) else {}
    clip = clipping.broadcast(algorithm.training.clip_rule, server.credit)
    return Broadcast(server.weights, estimation, stage_of(algorithm.stage).broadcast(server.stage), clip)


def nothing(algorithm: FedIPS, model: Model, displayed: int, rows: int = 1, *, judge: bool = False) -> Sums:
    """The sum of no replies: what clients send by name, each in its row or all in the only one.

    "update" are the changes of the weights, or what trees grow from; "trained" counts the clients that had any credit;
    "weighed" is what a clip is chosen by; the rest is the estimator's, and "judged", where clients judge w_t. A stage
    may have something else travel instead.
    """
    shapes = stage_of(algorithm.stage).travels(_shapes(algorithm, model, displayed, judge))
    return {name: np.zeros((rows, *shape)) for name, shape in shapes.items()}


def _shapes(algorithm: FedIPS, model: Model, displayed: int, judge: bool) -> Shapes:
    """The shapes of what one client has to say, before any stage."""
    said = _unsaid(algorithm, model, displayed, 1)
    return {**{name: rows.shape[1:] for name, rows in said.items()}, **({"judged": (3,)} if judge else {})}


def _unsaid(algorithm: FedIPS, model: Model, displayed: int, rows: int) -> Sums:
    """What clients have to say, before they and any stage have done anything."""
    source = algorithm.propensity
    sums: Sums = {"update": np.zeros((rows, model.update_size)), "trained": np.zeros((rows, 1))}
    if isinstance(source, Estimator):
        sums |= ESTIMATORS[source.kind].nothing(source, model.features, displayed, rows)
    return sums | clipping.nothing(algorithm.training.clip_rule, rows)


def client_round(
    algorithm: FedIPS,
    model: Model,
    sent: Broadcast,
    records: Records,
    total: Sums,
    *,
    known: Float64s | None = None,
    estimated: bool = False,
    evidence: Float32s | None = None,
    held_out: Records | None = None,
    rival: Float32s | None = None,
    judge: bool = False,
    draws: Sequence[Words] | None = None,
    heaviest: float = np.inf,
) -> Float64s:
    """What clients do in a round (lines 4 to 10): their replies, in order, are added to `total`.

    Args:
        algorithm: FedIPS, with all that it leaves open.
        model: of the ranker.
        sent: what the server broadcast.
        records: what the clients displayed and clicked.
        total: the replies' sum, see `nothing`; added to. With one row per client, each reply is in its own.
        known: [impressions, K] examination, where only a simulation knows it.
        estimated: `known` is what the same estimator found in the same records, and `total` has its sums already.
        evidence: what each client remembers of earlier rounds; changed.
        held_out: records of the only client that its ranker is judged by; it replies "judged", see `judge_order`.
        rival: weights of a second ranker that is judged by the same.
        judge: are clients asked to judge? Where a stage must not show who has nothing held out, these send zeros.
        draws: random words for each client's own noise; the operating system's if None.
        heaviest: the largest weight of a click that clients accept: where the algorithm's clip is above it, it is this.

    Returns:
        What clicks were divided by, [impressions, K].
    """
    singly = single_replies(algorithm.stage)
    replies = _unsaid(algorithm, model, records.display.ranks, records.clients) if singly else total
    estimates = None if estimated else _estimates(algorithm, sent, records, replies, evidence)
    examination = known if estimates is None else each_impression(estimates, records.log.offsets)
    if examination is None:
        raise FultrError("propensity: only a simulation knows it; give numbers, or name an estimator")
    training = algorithm.training
    if training.clip_rule != "given":
        clipping.client(training.clip_rule, records, examination, replies)
    given = Given.of(algorithm, sent.estimation, sent.credit, heaviest)
    credit = CREDITS[training.credit].credit(records, examination, given)
    how = training_with(training.loss, training.metric, training.rate_for(model.features), training.epochs)
    model.add_updates(records, credit, sent.weights, how, replies["update"], replies["trained"])  # lines 5 to 9
    told: Sums = {}
    if held_out is not None and estimates is not None:
        told["judged"] = judge_order(model, sent.weights, held_out, estimates.mean(axis=1)[0], rival)[np.newaxis]
    elif judge:
        told["judged"] = np.zeros((records.clients, 3 if rival is None else 4))
    if singly:
        stage, said = stage_of(algorithm.stage), replies | told
        if draws is None:
            draws = [system_words] * records.clients
        wanted = stage.travels({name: rows.shape[1:] for name, rows in said.items()})
        told = dict(stage.client(sent.stage, said, draws))
        _check_stage(algorithm.stage.stage, {name: (records.clients, *shape) for name, shape in wanted.items()}, told)
        if "update" in told:
            told["update"] = told["update"].astype(np.float32)  # as it travels
    add_rows(total, told)
    return examination


def judgement(
    algorithm: FedIPS, model: Model, sent: Broadcast, records: Records, held_out: Records, rival: Float32s | None
) -> Float64s:
    """What one client replies that is only to judge, see `judge_order`: its records tell it what to divide by."""
    unsent = _unsaid(algorithm, model, records.display.ranks, 1)
    estimates = _estimates(algorithm, sent, records, unsent, None)
    if estimates is None:
        raise FultrError("propensity: only a simulation knows it; give numbers, or name an estimator")
    return judge_order(model, sent.weights, held_out, estimates.mean(axis=1)[0], rival)


def _check_stage(stage: str, wanted: Shapes, found: Sums) -> None:
    """Refuse what a stage made of replies or their sum if it cannot be added up in their place."""
    for name in (*wanted, *found):
        expected = wanted.get(name, "nothing")
        shape = np.shape(found[name]) if name in found else "nothing"
        if expected != shape:
            raise FultrError(f"stage {stage}: expected {name} of shape {expected} from it, found {shape}")


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


def server_round(
    algorithm: FedIPS,
    model: Model,
    server: Server,
    replies: Sums,
    clients: float,
    random: Randomness = SYSTEM,
    *,
    summed: bool = False,
) -> Server:
    """What the server makes of what a cohort of this many clients sent (line 11).

    Args:
        algorithm: FedIPS.
        model: of the ranker.
        server: what the server knows.
        replies: one row per client, in the order of their numbers; for the mean, the sums of parts will do.
        clients: how many the cohort has, or is expected to have.
        random: where noise comes from.
        summed: is the only row the secure sum of these clients?
    """
    of = clients if summed else None
    given, aggregation = aggregated(algorithm.aggregation, server.aggregation, replies, of)
    stage, sums = stage_of(algorithm.stage).server(server.stage, given, clients, random)
    if algorithm.privacy is None:
        _check_stage(algorithm.stage.stage, {name: array.shape for name, array in given.items()}, sums)
    divisor = clients if algorithm.average_over == "cohort" else sums["trained"][0]
    update = average(sums["update"], divisor)
    weights, optimiser = server.weights, server.optimiser
    if stepped := model.stepped(weights):
        moved, optimiser = step(algorithm.server, optimiser, weights[:stepped], update[:stepped])
        weights = np.concatenate([moved, weights[stepped:]])
    weights = model.grown(weights, update)
    source, estimation = algorithm.propensity, server.estimation
    if isinstance(source, Estimator):
        estimation = ESTIMATORS[source.kind].server(source, estimation, sums, clients)
    credit = clipping.server(algorithm.training.clip_rule, server.credit, sums)
    return Server(weights, optimiser, estimation, stage, aggregation, credit)
